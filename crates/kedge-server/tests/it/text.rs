//! The text protocol.

use kedge_bucket::BucketConfig;
use kedge_types::DurabilityLevel;

use crate::server::{Kedge, Setup};

/// Runs a conversation: what is sent, and what must come.
#[track_caller]
fn talk(kedge: &Kedge, rows: &[(&str, &str)]) {
    let mut text = kedge.text();
    for (sent, expected) in rows {
        text.expect(sent, expected);
    }
    // Nothing that was not expected stands before this.
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
            (
                "flush_all 10\r\n",
                "SERVER_ERROR a delayed flush_all is not supported\r\n",
            ),
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
fn noreply_is_silent_in_success_and_failure() {
    let kedge = Kedge::start();
    talk(
        &kedge,
        &[(
            "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\ntouch a 0 noreply\r\n\
         incr nothing 1 noreply\r\ndelete nothing noreply\r\nflush_all 10 noreply\r\nverbosity 1 noreply\r\n\
         get a\r\ndelete a noreply\r\nget a\r\n",
            "VALUE a 0 1\r\n2\r\nEND\r\nEND\r\n",
        )],
    );
}

#[test]
fn values_that_are_too_large_are_swallowed() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    let size = (20 << 20) + 1;
    text.expect(
        &format!("set a 0 0 {size}\r\n{}\r\nversion\r\n", "x".repeat(size)),
        "SERVER_ERROR object too large for cache\r\nVERSION 8.0.0\r\n",
    );
}

#[test]
fn large_values_come_whole() {
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
fn commands_cut_anywhere_mean_the_same() {
    let kedge = Kedge::start();
    let script = b"set a 0 0 10\r\n0123456789\r\nget a\r\nmg a v s\r\n";
    let expected = "STORED\r\nVALUE a 0 10\r\n0123456789\r\nEND\r\nVA 10 s10\r\n0123456789\r\n";
    for cut in 1..script.len() {
        let mut text = kedge.text();
        std::io::Write::write_all(&mut text.stream, &script[..cut]).unwrap();
        // The server answers in any case what is whole, so it has seen the first piece alone at times.
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
    text.expect("stats items\r\n", "END\r\n");
    text.expect("stats slabs\r\n", "END\r\n");
    text.expect("stats nonsense\r\n", "ERROR\r\n");
    text.expect("stats reset\r\n", "RESET\r\n");
    assert!(
        text.until("stats\r\n", "END")
            .contains("STAT cmd_set 0\r\n")
    );
}

#[test]
fn quit_closes_and_a_browser_is_cut_off() {
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
fn on_a_durable_bucket_every_reply_comes_after_the_sync() {
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
                "ma c N0 T100 v t\r\nma c T200 t f\r\n",
                "VA 1 t100\r\n0\r\nHD t200 f0\r\n",
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
