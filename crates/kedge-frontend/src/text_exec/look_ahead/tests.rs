//! Tests of the commands and documents that are seen ahead, and of pipelines in which they are executed.

use kedge_protocol::binary::Features;
use proptest::prelude::*;

use super::*;
use crate::inbox::Port;
use crate::session::Halt;
use crate::session::tests::Rig;

/// Parses the first commands of `bytes`. Returns the numbers of commands that were parsed, and of those whose documents are
/// requested and that are still to be parsed.
fn look(rig: &mut Rig, bytes: &[u8]) -> (usize, usize) {
    let mut next = NextCommands::new();
    next.parse(&mut rig.session, bytes, &TextLimits::default());
    (1 + next.behind.len(), rig.session.text.ahead)
}

#[test]
fn look_ahead_counts_the_next_commands() {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    let get = b"get key\r\n";
    let many = get.repeat(40);
    let mut look = |bytes: &[u8]| {
        rig.session.text.ahead = 0;
        look(&mut rig, bytes)
    };
    assert_eq!(look(get), (1, 0), "a command that is alone");
    assert_eq!(look(b"get"), (1, 0), "an incomplete command");
    assert_eq!(look(&get.repeat(3)), (3, 2));
    assert_eq!(look(&many), (16, 15));
    // The end of the commands that can be parsed is one of them.
    assert_eq!(look(&many[..get.len() * 3 + 5]), (4, 3));
    assert_eq!(look(b"mn\r\nget key\r\nwrong\r\nget key\r\n"), (3, 2));
    let odd = b"mn\r\nversion\r\nmg a2V5 b v\r\nms key 2\r\n\r\n\r\nmd key\r\nma key\r\ntouch key 1\r\nincr key 1\r\n";
    assert_eq!(look(odd), (8, 7));
}

#[test]
fn documents_are_requested_once() {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    let many = b"get key\r\n".repeat(40);
    assert_eq!(look(&mut rig, &many), (16, 15));
    // The call ended after the first command, as it was parked for example.
    for left in (0..15).rev() {
        assert_eq!(look(&mut rig, &many), (1, left));
    }
    assert_eq!(look(&mut rig, &many), (16, 15));
}

#[test]
fn retrieval_requests_its_next_documents() {
    let rig = Rig::new(Port::Memcached, Features::NONE);
    let keys: [&[u8]; 40] = [b"key"; 40];
    assert_eq!(request_documents(&rig.session, keys.into_iter()), 16);
    assert_eq!(request_documents(&rig.session, keys.into_iter().take(3)), 3);
}

/// Gives `stream` to a new session in pieces of this length. Returns all replies.
fn replies(stream: &[u8], piece: usize) -> String {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    let mut replies = Vec::new();
    for piece in stream.chunks(piece) {
        let mut halt = rig.give(piece);
        loop {
            replies.extend(rig.fresh());
            rig.send();
            match halt {
                Halt::NeedBytes(_) => break,
                Halt::Full => halt = rig.give(b""),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(rig.session.in_flight(), 0);
    String::from_utf8(replies).unwrap()
}

/// A command of a client, perhaps a wrong one.
fn command() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(vec!["a", "b", "c"]);
    let value = "[ -~]{0,40}";
    prop_oneof![
        4 => prop::collection::vec(key(), 1..4).prop_map(|keys| format!("get {}\r\n", keys.join(" "))),
        2 => (key(), value).prop_map(|(key, value)| format!("set {key} 1 0 {}\r\n{value}\r\n", value.len())),
        2 => (key(), value).prop_map(|(key, value)| format!("ms {key} {} s\r\n{value}\r\n", value.len())),
        1 => (key(), value).prop_map(|(key, value)| format!("append {key} 1 0 {}\r\n{value}\r\n", value.len())),
        1 => key().prop_map(|key| format!("mg {key} v k\r\n")),
        1 => key().prop_map(|key| format!("delete {key}\r\n")),
        1 => key().prop_map(|key| format!("ma {key} N0 v\r\n")),
        1 => Just("mn\r\n".to_owned()),
        1 => Just("no such command\r\n".to_owned()),
        // The length of the value is wrong, or its flags are; the value looks like a command.
        1 => Just("set a 0 0 2\r\nmn\r\n\r\n".to_owned()),
        1 => Just("set a x 0 4\r\nmn\r\n\r\n".to_owned()),
        1 => Just(format!("get {}\r\n", "k".repeat(300))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pipelined_commands_are_answered_like_single_ones(
        commands in prop::collection::vec(command(), 1..60),
        piece in 1..400_usize,
    ) {
        let stream = commands.concat().into_bytes();
        let expected = replies(&stream, 1);
        prop_assert_eq!(&replies(&stream, stream.len()), &expected);
        prop_assert_eq!(&replies(&stream, piece), &expected);
    }
}
