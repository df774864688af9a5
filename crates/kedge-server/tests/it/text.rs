//! Tests of the text protocol.

use kedge_bucket::BucketConfig;
use kedge_types::DurabilityLevel;

use crate::server::{Kedge, Setup};

/// Sends requests and checks their replies.
#[track_caller]
fn talk(kedge: &Kedge, rows: &[(&str, &str)]) {
    let mut text = kedge.text();
    for (sent, expected) in rows {
        text.expect(sent, expected);
    }
    // No unexpected reply is in front of this one.
    text.expect("mn\r\n", "MN\r\n");
}

#[test]
fn classic_commands() {
    let kedge = Kedge::start();
    talk(
        &kedge,
        &[
            ("get a\r\n", "END\r\n"),
            ("set a 7 0 3\r\nabc\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 7 3\r\nabc\r\nEND\r\n"),
            (
                "get a b a\r\n",
                "VALUE a 7 3\r\nabc\r\nVALUE a 7 3\r\nabc\r\nEND\r\n",
            ),
            ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("add b 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("replace c 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append c 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append a 0 0 1\r\nd\r\n", "STORED\r\n"),
            ("prepend a 0 0 1\r\n_\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 7 5\r\n_abcd\r\nEND\r\n"),
            ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
            ("incr n 5\r\n", "15\r\n"),
            ("decr n 20\r\n", "0\r\n"),
            ("incr nothing 1\r\n", "NOT_FOUND\r\n"),
            (
                "incr a 1\r\n",
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            ("touch a 100\r\n", "TOUCHED\r\n"),
            ("touch nothing 100\r\n", "NOT_FOUND\r\n"),
            (
                "gat 50 a nothing b\r\n",
                "VALUE a 7 5\r\n_abcd\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
            ),
            ("delete a\r\n", "DELETED\r\n"),
            ("delete a\r\n", "NOT_FOUND\r\n"),
            ("set gone 0 -1 1\r\nx\r\n", "STORED\r\n"),
            ("get gone\r\n", "END\r\n"),
            ("verbosity 1\r\n", "OK\r\n"),
            ("version\r\n", "VERSION 8.0.0\r\n"),
            ("nonsense\r\n", "ERROR\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("get b\r\n", "END\r\n"),
        ],
    );
}

#[test]
fn compare_and_swap() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let got = text.until("gets a\r\n", "END");
    let cas: u64 = got
        .lines()
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    text.expect(&format!("cas a 0 0 1 {}\r\ny\r\n", cas + 1), "EXISTS\r\n");
    text.expect("cas a 0 0 1 0\r\ny\r\n", "EXISTS\r\n");
    text.expect("cas nothing 0 0 1 0\r\ny\r\n", "NOT_FOUND\r\n");
    text.expect(
        &format!("cas nothing 0 0 1 {cas}\r\ny\r\n"),
        "NOT_FOUND\r\n",
    );
    text.expect(&format!("cas a 0 0 1 {cas}\r\ny\r\n"), "STORED\r\n");
    text.expect(&format!("cas a 0 0 1 {cas}\r\nz\r\n"), "EXISTS\r\n");
    text.expect("get a\r\n", "VALUE a 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn noreply_suppresses_every_reply() {
    let kedge = Kedge::start();
    talk(
        &kedge,
        &[(
            "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\ntouch a 0 noreply\r\n\
         incr nothing 1 noreply\r\ndelete nothing noreply\r\nflush_all 1000000 noreply\r\nverbosity 1 noreply\r\n\
         get a\r\ndelete a noreply\r\nget a\r\n",
            "VALUE a 0 1\r\n2\r\nEND\r\nEND\r\n",
        )],
    );
}

#[test]
fn too_large_values_are_skipped() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    let size = (20 << 20) + 1;
    text.expect(
        &format!("set a 0 0 {size}\r\n{}\r\nversion\r\n", "x".repeat(size)),
        "SERVER_ERROR object too large for cache\r\nVERSION 8.0.0\r\n",
    );
}

#[test]
fn large_text_values() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    let value = "0123456789abcdef".repeat(1 << 16);
    text.expect(
        &format!("set a 0 0 {}\r\n{value}\r\n", value.len()),
        "STORED\r\n",
    );
    let reply = format!("VALUE a 0 {}\r\n{value}\r\n", value.len());
    text.expect("get a a\r\n", &format!("{reply}{reply}END\r\n"));
}

#[test]
fn commands_split_anywhere_execute_the_same() {
    let kedge = Kedge::start();
    let script = b"set a 0 0 10\r\n0123456789\r\nget a\r\nmg a v s\r\n";
    let expected = "STORED\r\nVALUE a 0 10\r\n0123456789\r\nEND\r\nVA 10 s10\r\n0123456789\r\n";
    for cut in 1..script.len() {
        let mut text = kedge.text();
        std::io::Write::write_all(&mut text.stream, &script[..cut]).unwrap();
        // The server answers each whole command, so at times it has seen the first piece alone.
        text.expect(std::str::from_utf8(&script[cut..]).unwrap(), expected);
    }
}

#[test]
fn statistics_and_settings() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let general = text.until("stats\r\n", "END");
    for wanted in [
        "STAT pid ",
        "STAT uptime ",
        "STAT version ",
        "STAT curr_items 1\r\n",
        "STAT cmd_set 1\r\n",
    ] {
        assert!(general.contains(wanted), "{wanted}: {general}");
    }
    let settings = text.until("stats settings\r\n", "END");
    assert!(settings.contains("STAT maxconns "), "{settings}");
    text.expect("stats nonsense\r\n", "ERROR\r\n");
    text.expect("stats reset\r\n", "RESET\r\n");
    assert!(
        text.until("stats\r\n", "END")
            .contains("STAT cmd_set 0\r\n")
    );
}

#[test]
fn quit_and_http_requests_close_the_connection() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    std::io::Write::write_all(&mut text.stream, b"quit\r\n").unwrap();
    text.assert_closed();
    let mut browser = kedge.text();
    std::io::Write::write_all(
        &mut browser.stream,
        b"POST / HTTP/1.1\r\nset a 0 0 1\r\ny\r\n",
    )
    .unwrap();
    browser.assert_closed();
    talk(&kedge, &[("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n")]);
}

#[test]
fn durable_bucket_replies_after_the_sync() {
    let mut bucket = BucketConfig::new("default", 16, 64 << 20);
    bucket.durability_min_level = DurabilityLevel::PersistToMajority as u8;
    let kedge = Kedge::with(Setup {
        bucket,
        ..Setup::default()
    });
    talk(
        &kedge,
        &[
            (
                "set a 5 0 1\r\n1\r\nadd a 0 0 1\r\n2\r\nincr a 8\r\ngat 100 a\r\ntouch a 200\r\nappend a 0 0 1\r\n0\r\n\
             set b 0 0 1 noreply\r\nx\r\nget a b\r\ndelete a\r\nget a\r\n",
                "STORED\r\nNOT_STORED\r\n9\r\nVALUE a 5 1\r\n9\r\nEND\r\nTOUCHED\r\nSTORED\r\n\
             VALUE a 5 2\r\n90\r\nVALUE b 0 1\r\nx\r\nEND\r\nDELETED\r\nEND\r\n",
            ),
            ("gat 10 nothing\r\n", "END\r\n"),
            (
                "gat 10 b a b\r\ngat 10 a a b\r\n",
                "VALUE b 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\nVALUE b 0 1\r\nx\r\nEND\r\n",
            ),
            (
                "ma c N0 T190 v t\r\nma c T290 t f\r\n",
                "VA 1 t190\r\n0\r\nHD t290 f0\r\n",
            ),
            (
                "ms m 2 F3 T0 s\r\nhi\r\nmg m v f k\r\nma n N0 J7 v\r\nma n v\r\n",
                "HD s2\r\nVA 2 f3 km\r\nhi\r\nVA 1\r\n7\r\nVA 1\r\n8\r\n",
            ),
            (
                "mg v N30 v\r\nmg v v\r\nmd m q\r\nmg m\r\n",
                "VA 0 W\r\n\r\nVA 0 Z\r\n\r\nEN\r\n",
            ),
        ],
    );
    let figures = kedge.server().registry().get("default").unwrap().figures();
    assert!(
        figures
            .iter()
            .any(|(name, value)| *name == "ep_log_syncs" && *value > 8),
        "{figures:?}"
    );
}

/// The number behind a flag of a meta reply.
fn flag(reply: &str, flag: char) -> u64 {
    let token = reply
        .split_ascii_whitespace()
        .skip(1)
        .find_map(|token| token.strip_prefix(flag));
    token.unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
}

#[test]
fn meta_set_replies_match_memcached() {
    // A failed compare-and-swap of an append was NF instead of NS, replies to failures had no requested flags, and an
    // append returned the length of its value instead of that of the document.
    let kedge = Kedge::start();
    talk(
        &kedge,
        &[
            ("ms none 2 MA C5000 T30 c s\r\nhi\r\n", "NS c0 s2\r\n"),
            ("ms none 2 MP C5000\r\nhi\r\n", "NS\r\n"),
            ("ms none 2 MR\r\nhi\r\n", "NS\r\n"),
            ("ms none 2 MR C5\r\nhi\r\n", "NF\r\n"),
            ("ms none 2 C5 Oq k\r\nhi\r\n", "NF Oq knone\r\n"),
            ("ms add 2 ME C5\r\nhi\r\n", "HD\r\n"),
            ("ms add 2 ME C5\r\nhi\r\n", "NS\r\n"),
            ("ms add 2 C5 c\r\nhi\r\n", "EX c0\r\n"),
            ("ms add 2 MA C5\r\nhi\r\n", "EX\r\n"),
            ("ms add 2 MA C0 s\r\n..\r\n", "HD s4\r\n"),
            ("ms add 1 MP s\r\n.\r\n", "HD s5\r\n"),
            ("mg add v\r\n", "VA 5\r\n.hi..\r\n"),
            ("ms viv 2 MA N30 C9 s\r\nhi\r\n", "HD s2\r\n"),
            ("ms viv 3 MA N30 s\r\n!!!\r\n", "HD s5\r\n"),
            ("ms f 2 F7 T0 t f s\r\nhi\r\n", "HD s2\r\n"),
            (
                "mg add O0123456789012345678901234567890123\r\n",
                "CLIENT_ERROR opaque token too long\r\n",
            ),
        ],
    );
}

#[test]
fn stale_meta_set_gives_no_second_win() {
    // `ms ... I` with an older CAS stored the value with a new time to live, and let the next reader win although one had
    // won already: two clients recomputed what one should.
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("set k 0 0 3\r\nmoo\r\n", "STORED\r\n");
    text.expect("md k I T30\r\n", "HD\r\n");
    text.expect("mg k v\r\n", "VA 3 X W\r\nmoo\r\n");
    text.expect("ms k 1 T90 C1\r\nf\r\n", "EX\r\n");
    text.expect("ms k 1 I T90 C1\r\nf\r\n", "HD\r\n");
    let got = text.until("mg k t c\r\n", "Z X");
    assert!((1..=30).contains(&flag(&got, 't')), "{got}");
    let cas = flag(&got, 'c');
    text.expect(&format!("ms k 1 I C{}\r\nf\r\n", cas + 1), "EX\r\n");
    text.expect(&format!("ms k 1 T90 C{cas}\r\ng\r\n"), "HD\r\n");
    text.expect("mg k v\r\n", "VA 1\r\ng\r\n");
    let got = text.until("mg k t v\r\n", "g");
    assert!((31..=90).contains(&flag(&got, 't')), "{got}");
}

#[test]
fn client_chosen_cas() {
    // Flag E was refused.
    let kedge = Kedge::start();
    let mut text = kedge.text();
    for (sent, expected) in [
        ("ms k 2 E973 c\r\nji\r\n", "HD c973\r\n"),
        ("mg k c\r\n", "HD c973\r\n"),
        ("ms k 2 C973 E4000 c\r\nlo\r\n", "HD c4000\r\n"),
        ("ms k 1 MA E4001 c s\r\n!\r\n", "HD c4001 s3\r\n"),
        ("md k C4001 E4002 I\r\n", "HD\r\n"),
        ("mg k c v\r\n", "VA 3 c4002 X W\r\nlo!\r\n"),
        ("ms k 1 E4002\r\nx\r\n", "HD\r\n"),
        ("mg k c v\r\n", "VA 1 c4002\r\nx\r\n"),
        ("mg v c N30 E9876\r\n", "HD c9876 W\r\n"),
        ("mg v c E5\r\n", "HD c9876 Z\r\n"),
        ("ma n N0 c v J5 E4321\r\n", "VA 1 c4321\r\n5\r\n"),
        ("ma n E8765 T90 c v\r\n", "VA 1 c8765\r\n6\r\n"),
        (
            "ms k 1 E18446744073709551615\r\nx\r\n",
            "CLIENT_ERROR the CAS is ahead of the server's clock\r\n",
        ),
        ("mg k c\r\n", "HD c4002\r\n"),
    ] {
        text.expect(sent, expected);
    }
    // The next CAS of the server is of its clock again.
    let got = text.until("ms k 1 c Oend\r\nx\r\n", "Oend");
    assert!(flag(&got, 'c') > 1 << 60, "{got}");
}

#[test]
fn meta_get_hit_flag() {
    // Flag h was left out of replies.
    let kedge = Kedge::start();
    talk(
        &kedge,
        &[
            ("ms k 1\r\nx\r\n", "HD\r\n"),
            ("mg k u h\r\n", "HD h0\r\n"),
            ("mg k h\r\n", "HD h0\r\n"),
            ("mg k u h\r\n", "HD h1\r\n"),
            (
                "set other 0 0 1\r\nx\r\nget other\r\n",
                "STORED\r\nVALUE other 0 1\r\nx\r\nEND\r\n",
            ),
            ("mg other h v\r\n", "VA 1 h1\r\nx\r\n"),
        ],
    );
}

#[test]
fn delayed_flush_runs_when_due() {
    // `flush_all 10` was refused.
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    text.expect(
        "flush_all 1000000\r\nget k\r\n",
        "OK\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    );
    text.expect("flush_all 1\r\n", "OK\r\n");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while text.until("get k\r\n", "END").len() > "END\r\n".len() {
        assert!(std::time::Instant::now() < deadline, "it was never flushed");
        std::thread::yield_now();
    }
    // A flush without a delay cancels a pending one.
    text.expect(
        "flush_all 1\r\nflush_all\r\nset k 0 0 1\r\ny\r\n",
        "OK\r\nOK\r\nSTORED\r\n",
    );
    text.expect("get k\r\n", "VALUE k 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn memcached_statistics_have_memcached_names() {
    // Monitors of memcached read these, and found an empty answer or none.
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("stats items\r\n", "END\r\n");
    text.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    for (group, wanted) in [
        (
            "",
            &[
                "rusage_user ",
                "accepting_conns 1\r\n",
                "total_items 1\r\n",
                "evictions 0\r\n",
                "connection_structures 1\r\n",
            ][..],
        ),
        ("items", &["items:1:number 1\r\n", "items:1:evicted 0\r\n"]),
        (
            "slabs",
            &[
                "1:used_chunks 1\r\n",
                "1:cmd_set 1\r\n",
                "active_slabs 1\r\n",
            ],
        ),
        ("sizes", &["sizes_status disabled\r\n"]),
        (
            "conns",
            &[
                "0:state conn_listening\r\n",
                "1:addr tcp:127.0.0.1:",
                "1:state conn_parse_cmd\r\n",
            ],
        ),
        (
            "settings",
            &[
                "evictions off\r\n",
                "dump_enabled no\r\n",
                "flush_enabled yes\r\n",
            ],
        ),
    ] {
        let told = text.until(&format!("stats {group}\r\n"), "END");
        for wanted in wanted {
            assert!(told.contains(&format!("STAT {wanted}")), "{wanted}: {told}");
        }
    }
    for group in ["cachedump 1 100", "detail on"] {
        let name = group.split(' ').next().unwrap();
        text.expect(
            &format!("stats {group}\r\n"),
            &format!("CLIENT_ERROR stats {name} not allowed\r\n"),
        );
    }
}

#[test]
fn get_of_a_thousand_long_keys() {
    // Its line of 251 KB closed the connection.
    let kedge = Kedge::start();
    let mut text = kedge.text();
    let keys: Vec<String> = (0..1_000).map(|at| format!("{at:0>250}")).collect();
    text.expect(&format!("set {} 0 0 1\r\nx\r\n", keys[999]), "STORED\r\n");
    text.expect(
        &format!("get {}\r\n", keys.join(" ")),
        &format!("VALUE {} 0 1\r\nx\r\nEND\r\n", keys[999]),
    );
}
