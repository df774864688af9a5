//! Tests of the meta commands (memcached doc/protocol.txt).

use crate::client::Text;
use crate::server::Kedge;

#[track_caller]
fn talk(text: &mut Text, rows: &[(&str, &str)]) {
    for (sent, expected) in rows {
        text.expect(sent, expected);
    }
    text.expect("mn\r\n", "MN\r\n");
}

/// The number behind flag `c` in the reply to `mg key c`.
#[track_caller]
fn cas(text: &mut Text, key: &str) -> u64 {
    let reply = text.until(&format!("mg {key} c\r\nmn\r\n"), "MN");
    let line = reply.lines().next().unwrap();
    let number = line
        .strip_prefix("HD c")
        .and_then(|rest| rest.split(' ').next());
    number.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

#[test]
fn meta_get_set_delete_and_arithmetic() {
    let kedge = Kedge::start();
    talk(
        &mut kedge.text(),
        &[
            ("mg a v\r\n", "EN\r\n"),
            ("ms a 3 F7\r\nabc\r\n", "HD\r\n"),
            ("mg a\r\n", "HD\r\n"),
            (
                "mg a v f s t k Oxyz\r\n",
                "VA 3 f7 s3 t-1 ka Oxyz\r\nabc\r\n",
            ),
            ("mg YQ== b k v\r\n", "VA 3 kYQ== b\r\nabc\r\n"),
            ("ms a 1 MA\r\nd\r\n", "HD\r\n"),
            ("ms a 1 MP\r\n_\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 5\r\n_abcd\r\n"),
            ("ms a 1 ME\r\nx\r\n", "NS\r\n"),
            ("ms no 1 MR\r\nx\r\n", "NS\r\n"),
            ("ms no 1 MA\r\nx\r\n", "NS\r\n"),
            ("ms made 1 MA N190\r\nx\r\n", "HD\r\n"),
            ("mg made v t\r\n", "VA 1 t190\r\nx\r\n"),
            ("mg made T90 t\r\n", "HD t90\r\n"),
            ("ma n\r\n", "NF\r\n"),
            ("ma n N0 J10 v\r\n", "VA 2\r\n10\r\n"),
            ("ma n D5 v t\r\n", "VA 2 t-1\r\n15\r\n"),
            ("ma n MD D20\r\n", "HD\r\n"),
            ("ma n v T90 t\r\n", "VA 1 t90\r\n1\r\n"),
            (
                "ma a\r\n",
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            ("md a\r\n", "HD\r\n"),
            ("md a\r\n", "NF\r\n"),
            ("me a\r\n", "EN\r\n"),
        ],
    );
}

#[test]
fn quiet_mode_omits_expected_replies() {
    let kedge = Kedge::start();
    talk(
        &mut kedge.text(),
        &[(
            "ms a 1 q\r\n1\r\nmg no q v\r\nmg a q v\r\nma a q\r\nmd a q\r\nmd a q\r\nms a 1 MR q\r\nx\r\n",
            "VA 1\r\n1\r\nNF\r\nNS\r\n",
        )],
    );
}

#[test]
fn compare_and_swap() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("ms a 1\r\nx\r\n", "HD\r\n");
    let first = cas(&mut text, "a");
    talk(
        &mut text,
        &[
            (&format!("mg a v C{first}\r\n"), "HD\r\n"),
            (&format!("mg a v C{}\r\n", first + 1), "VA 1\r\nx\r\n"),
            (&format!("ms a 1 C{}\r\ny\r\n", first + 1), "EX\r\n"),
            ("ms a 1 C0\r\ny\r\n", "EX\r\n"),
            (&format!("ms no 1 C{first}\r\ny\r\n"), "NF\r\n"),
            (&format!("ms a 1 C{first}\r\ny\r\n"), "HD\r\n"),
            (&format!("md a C{first}\r\n"), "EX\r\n"),
        ],
    );
    let second = cas(&mut text, "a");
    talk(
        &mut text,
        &[
            (
                &format!("ms a 1 S1 C{second} E5\r\ny\r\n"),
                "CLIENT_ERROR invalid flag\r\n",
            ),
            // The client chooses the CAS of the document.
            ("ms a 1 E5\r\ny\r\n", "HD\r\n"),
            (&format!("md a C{second}\r\n"), "EX\r\n"),
            ("md a C5\r\n", "HD\r\n"),
        ],
    );
}

#[test]
fn vivified_document_is_recached_by_its_creator() {
    let kedge = Kedge::start();
    let mut first = kedge.text();
    let mut second = kedge.text();
    first.expect("mg a v N90 c k\r\n", "VA 0 c");
    first.until("", "");
    first.expect("", "");
    second.expect("mg a v N90 t\r\n", "VA 0 t90 Z\r\n\r\n");
    second.expect("mg a v\r\n", "VA 0 Z\r\n\r\n");
    second.expect("ms a 3\r\nnew\r\n", "HD\r\n");
    second.expect("mg a v\r\n", "VA 3\r\nnew\r\n");
}

#[test]
fn a_stale_document_is_recached_by_one_client() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("ms a 3 T100\r\nold\r\n", "HD\r\n");
    let old = cas(&mut text, "a");
    talk(
        &mut text,
        &[
            (&format!("md a I T90 C{}\r\n", old + 1), "EX\r\n"),
            ("md a I T90\r\n", "HD\r\n"),
            ("mg a v t\r\n", "VA 3 t90 X W\r\nold\r\n"),
            ("mg a v\r\n", "VA 3 Z X\r\nold\r\n"),
            // An older CAS is accepted with flag I, and the stored value is stale, too.
            (&format!("ms a 3 C{old}\r\nxxx\r\n"), "EX\r\n"),
            (&format!("ms a 3 I C{old}\r\nmid\r\n"), "HD\r\n"),
            // The win was handed out already.
            ("mg a v\r\n", "VA 3 Z X\r\nmid\r\n"),
        ],
    );
    let current = cas(&mut text, "a");
    talk(
        &mut text,
        &[
            (&format!("ms a 3 C{current}\r\nnew\r\n"), "HD\r\n"),
            ("mg a v\r\n", "VA 3\r\nnew\r\n"),
            ("md a x F9\r\n", "HD\r\n"),
            ("mg a v f\r\n", "VA 0 f9\r\n\r\n"),
        ],
    );
}

#[test]
fn expiring_document_is_recached_by_one_client() {
    let kedge = Kedge::start();
    talk(
        &mut kedge.text(),
        &[
            ("ms a 1 T100\r\nx\r\n", "HD\r\n"),
            ("mg a R30\r\n", "HD\r\n"),
            ("mg a R300\r\n", "HD W\r\n"),
            ("mg a R300\r\n", "HD Z\r\n"),
            ("ms a 1\r\nx\r\n", "HD\r\n"),
            ("mg a R300\r\n", "HD\r\n"),
        ],
    );
}

#[test]
fn meta_debug() {
    let kedge = Kedge::start();
    let mut text = kedge.text();
    text.expect("ms a 1\r\nx\r\n", "HD\r\n");
    text.expect("me a\r\n", "ME a exp=-1 cas=");
}
