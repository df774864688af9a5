//! The text protocol as a stream: however the bytes arrive, the same commands come out, nothing behind a command is read,
//! and no bytes do harm.

use crate::text::{LIMITS, show};
use kedge_protocol::text::{Parsed, parse};
use proptest::prelude::*;

/// Returns the commands and refusals that a connection parses when `stream` arrives in pieces that end at `ends`. Stops
/// when the connection would be closed.
fn replay(stream: &[u8], ends: impl Iterator<Item = usize>) -> Vec<String> {
    let mut seen = Vec::new();
    let mut start = 0;
    let mut swallow = 0_u64;
    for end in ends {
        loop {
            let skipped = swallow.min((end - start) as u64);
            swallow -= skipped;
            start += skipped as usize;
            match parse(&stream[start..end], &LIMITS) {
                Parsed::Incomplete { need } => {
                    assert!(need > end - start, "asks for what is there");
                    break;
                }
                Parsed::Command { command, consumed } => {
                    assert!(consumed > 0 && consumed <= end - start);
                    start += consumed;
                    seen.push(show(&command));
                }
                Parsed::Invalid {
                    reply,
                    consumed,
                    swallow: more,
                    close,
                } => {
                    assert!(consumed > 0 && consumed <= end - start);
                    assert!(reply.is_empty() || reply.ends_with(b"\r\n"));
                    seen.push(format!("{} {more} {close}", reply.escape_ascii()));
                    if close {
                        return seen;
                    }
                    start += consumed;
                    swallow = more;
                }
            }
            if start == end {
                break;
            }
        }
    }
    seen
}

fn all_at_once(stream: &[u8]) -> Vec<String> {
    replay(stream, std::iter::once(stream.len()))
}

#[test]
fn pipelined_commands() {
    let stream = b"set a 0 0 3\r\nabc\r\nget a b\r\nset b 0 0 3 noreply\r\nabcd\r\nset c x 0 9\r\nversion\r\n\r\n\
        mg a v q\r\nset d 0 0 1001\r\n";
    let stream = [
        stream.as_slice(),
        &b"version\r\n".repeat(112)[..1003],
        b"mn\r\nquit\r\n",
    ]
    .concat();
    let expected = [
        "Set key=a value=abc",
        "retrieve a b",
        // A bad data chunk without a reply, and the line feed that is left of it, as memcached has it.
        " 0 false",
        "CLIENT_ERROR bad command line format\\r\\n 0 false",
        "CLIENT_ERROR bad command line format\\r\\n 11 false",
        "mg key=a value quiet",
        "SERVER_ERROR object too large for cache\\r\\n 1003 false",
        "mn",
        "quit",
    ];
    assert_eq!(all_at_once(&stream), expected);
    assert_eq!(replay(&stream, 1..=stream.len()), expected);
}

/// A piece of a line or a value.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "cas",
        "append",
        "delete",
        "incr",
        "touch",
        "flush_all",
        "stats",
        "verbosity",
        "version",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "mn",
        "noreply",
        " ",
        "  ",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "12",
        "999",
        "1001",
        "4294967296",
        "k",
        "key",
        "Zm9v",
        "b",
        "v",
        "q",
        "k",
        "O1",
        "T0",
        "MS",
        "MA",
        "C1",
        "N0",
        "I",
        "D2",
        "\0",
        "HTTP/1.1",
    ]);
    prop_oneof![
        8 => words.prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        1 => (1..600_usize).prop_map(|len| vec![b'k'; len]),
    ]
}

/// A well-formed command.
fn command() -> impl Strategy<Value = Vec<u8>> {
    let key = "[!-~]{1,20}";
    let value = prop::collection::vec(any::<u8>(), 0..40);
    let stored =
        |head: String, value: Vec<u8>| [head.as_bytes(), b"\r\n", &value, b"\r\n"].concat();
    prop_oneof![
        prop::collection::vec(key, 1..100)
            .prop_map(|keys| format!("get {}\r\n", keys.join(" ")).into_bytes()),
        (key, value.clone(), any::<u32>(), any::<i32>()).prop_map(
            move |(key, value, flags, exptime)| {
                stored(
                    format!("set {key} {flags} {exptime} {}", value.len()),
                    value,
                )
            }
        ),
        (key, value.clone(), any::<u64>()).prop_map(move |(key, value, cas)| {
            stored(
                format!("cas {key} 0 0 {} {cas} noreply", value.len()),
                value,
            )
        }),
        (key, value).prop_map(move |(key, value)| {
            stored(format!("ms {key} {} O12 k c T30 MA", value.len()), value)
        }),
        (key, any::<u64>()).prop_map(|(key, delta)| format!("incr {key} {delta}\r\n").into_bytes()),
        key.prop_map(|key| format!("mg {key} v k Oabc t\n").into_bytes()),
        Just(b"version\r\n".to_vec()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Pieces with spaces between them look most like commands.
        prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.join(&b' ')),
        prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat()),
        prop::collection::vec(prop_oneof![4 => command(), 1 => piece()], 0..12)
            .prop_map(|parts| parts.concat()),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #[test]
    fn text_parser_gives_the_same_commands_byte_by_byte(stream in stream()) {
        prop_assert_eq!(replay(&stream, 1..=stream.len()), all_at_once(&stream));
    }

    #[test]
    fn text_parser_gives_the_same_commands_for_any_split(stream in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        ends.push(stream.len());
        ends.sort_unstable();
        prop_assert_eq!(replay(&stream, ends.into_iter()), all_at_once(&stream));
    }

    #[test]
    fn text_parser_reads_nothing_behind_a_command(stream in stream(), behind in prop::collection::vec(any::<u8>(), 0..20)) {
        let alone = parse(&stream, &LIMITS);
        let longer = [stream.as_slice(), &behind].concat();
        match alone {
            Parsed::Incomplete { .. } => {}
            Parsed::Command { consumed, .. } => {
                prop_assert_eq!(parse(&stream[..consumed], &LIMITS), alone);
                prop_assert_eq!(parse(&longer, &LIMITS), alone);
                let is_incomplete = matches!(
                    parse(&stream[..consumed - 1], &LIMITS),
                    Parsed::Incomplete { need } if need == consumed
                );
                prop_assert!(is_incomplete, "a shorter one is enough");
            }
            Parsed::Invalid { consumed, close, .. } => {
                prop_assert_eq!(parse(&stream[..consumed], &LIMITS), alone);
                if !close {
                    prop_assert_eq!(parse(&longer, &LIMITS), alone);
                }
            }
        }
    }

    #[test]
    fn text_parser_accepts_all_well_formed_commands(commands in prop::collection::vec(command(), 0..12)) {
        let stream = commands.concat();
        let seen = all_at_once(&stream);
        prop_assert_eq!(seen.len(), commands.len());
        for shown in seen {
            prop_assert!(!shown.contains("ERROR"), "{}", shown);
        }
    }
}
