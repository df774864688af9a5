//! The memcached text protocol: `get` and `set` (memcached `doc/protocol.txt`).

use super::{
    KEY_DIGITS, LINE_BYTES_MAX, ParsedReply, RequestOutcome, WireProtocol, decimal, key_zero,
    line_end, trimmed, write_digits,
};

/// The text protocol.
#[derive(Clone)]
pub(in crate::load) struct Text {
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Text {
    /// Creates the protocol. Keys begin with `prefix`.
    pub(in crate::load) fn new(prefix: &str) -> Self {
        let key = key_zero(prefix);
        Self {
            get: [b"get ", &key[..]].concat(),
            set: [b"set ", &key[..]].concat(),
        }
    }
}

fn push(out: &mut Vec<u8>, template: &[u8], item: u64) {
    out.extend_from_slice(template);
    let end = out.len();
    write_digits(&mut out[end - KEY_DIGITS..], item);
}

impl WireProtocol for Text {
    const HAS_OPAQUE: bool = false;

    fn get(&self, out: &mut Vec<u8>, item: u64, _opaque: u32) {
        push(out, &self.get, item);
        out.extend_from_slice(b"\r\n");
    }

    fn set(&self, out: &mut Vec<u8>, item: u64, _opaque: u32, value: &[u8]) {
        push(out, &self.set, item);
        out.extend_from_slice(b" 0 0 ");
        out.extend_from_slice(value.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn reply<'a>(&self, buf: &'a [u8]) -> ParsedReply<'a> {
        let Some(end) = line_end(buf, 0) else {
            if buf.len() > LINE_BYTES_MAX {
                return ParsedReply::Broken("no line of the text protocol");
            }
            return ParsedReply::Incomplete {
                need: buf.len() + 1,
            };
        };
        let line = trimmed(&buf[..end]);
        let done = |consumed, outcome| ParsedReply::Done {
            consumed,
            opaque: 0,
            outcome,
        };
        if let Some(head) = line.strip_prefix(b"VALUE ") {
            // VALUE <key> <flags> <bytes> [<cas>]
            let Some(len) = head.split(|&b| b == b' ').nth(2).and_then(decimal) else {
                return ParsedReply::Broken("VALUE without a length");
            };
            let Some(consumed) = len.checked_add(end + b"\r\nEND\r\n".len()) else {
                return ParsedReply::Broken("VALUE too long");
            };
            if buf.len() < consumed {
                return ParsedReply::Incomplete { need: consumed };
            }
            if &buf[end + len..consumed] != b"\r\nEND\r\n" {
                return ParsedReply::Broken("no END after a value");
            }
            return done(consumed, RequestOutcome::Done);
        }
        match line {
            b"STORED" => done(end, RequestOutcome::Done),
            b"END" => done(end, RequestOutcome::Missing),
            _ => done(end, RequestOutcome::Text(line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ends;
    use super::*;

    #[test]
    fn requests_and_replies() {
        let wire = Text::new("");
        let mut out = Vec::new();
        wire.get(&mut out, 5, 0);
        wire.set(&mut out, 6, 0, b"abc");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "get 00000000000000000005\r\nset 00000000000000000006 0 0 3\r\nabc\r\n"
        );
        check_ends(&wire, b"STORED\r\n", RequestOutcome::Done);
        check_ends(&wire, b"END\r\n", RequestOutcome::Missing);
        check_ends(
            &wire,
            b"VALUE k 0 4\r\na\r\nb\r\nEND\r\n",
            RequestOutcome::Done,
        );
        check_ends(&wire, b"VALUE k 0 0\r\n\r\nEND\r\n", RequestOutcome::Done);
        check_ends(
            &wire,
            b"SERVER_ERROR out\r\n",
            RequestOutcome::Text(b"SERVER_ERROR out"),
        );
        for broken in [&b"VALUE k 0 x\r\n"[..], b"VALUE k 0 1\r\nabcdefgh\r\n"] {
            assert!(matches!(wire.reply(broken), ParsedReply::Broken(_)));
        }
    }
}
