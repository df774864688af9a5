//! RESP2 GET and SET, so that Redis can be measured with the same generator (redis.io, "Redis serialization
//! protocol specification").

use super::{
    KEY_DIGITS, LINE_BYTES_MAX, ParsedReply, RequestOutcome, WireProtocol, decimal, key_zero,
    line_end, trimmed, write_digits,
};

/// RESP.
#[derive(Clone)]
pub(in crate::load) struct Resp {
    get: Vec<u8>,
    set: Vec<u8>,
    /// The WAIT command behind each SET; may be empty.
    wait: Vec<u8>,
    wait_replicas: u16,
}

impl Resp {
    /// Creates the protocol. Keys begin with `prefix`. If `wait_replicas` is above 0, each SET is followed by a WAIT
    /// for as many replicas without a timeout, and is complete with both replies.
    pub(in crate::load) fn new(prefix: &str, wait_replicas: u16) -> Self {
        let key = key_zero(prefix);
        let len = key.len().to_string().into_bytes();
        let wait = match wait_replicas.to_string() {
            _ if wait_replicas == 0 => String::new(),
            count => format!(
                "*3\r\n$4\r\nWAIT\r\n${}\r\n{count}\r\n$1\r\n0\r\n",
                count.len()
            ),
        };
        Self {
            wait: wait.into_bytes(),
            wait_replicas,
            get: [b"*2\r\n$3\r\nGET\r\n$", &len[..], b"\r\n", &key].concat(),
            set: [b"*3\r\n$3\r\nSET\r\n$", &len[..], b"\r\n", &key].concat(),
        }
    }
}

fn push(out: &mut Vec<u8>, template: &[u8], item: u64) {
    out.extend_from_slice(template);
    let end = out.len();
    write_digits(&mut out[end - KEY_DIGITS..], item);
    out.extend_from_slice(b"\r\n");
}

impl WireProtocol for Resp {
    const HAS_OPAQUE: bool = false;

    fn get(&self, out: &mut Vec<u8>, item: u64, _opaque: u32) {
        push(out, &self.get, item);
    }

    fn set(&self, out: &mut Vec<u8>, item: u64, _opaque: u32, value: &[u8]) {
        push(out, &self.set, item);
        out.push(b'$');
        out.extend_from_slice(value.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.wait);
    }

    fn reply<'a>(&self, buf: &'a [u8]) -> ParsedReply<'a> {
        match reply(buf) {
            ParsedReply::Done {
                consumed, outcome, ..
            } if self.wait_replicas > 0 => self.waited(buf, consumed, outcome),
            other => other,
        }
    }
}

impl Resp {
    /// Returns the outcome of a SET and its WAIT; `from` is the end of the SET's reply.
    fn waited<'a>(
        &self,
        buf: &'a [u8],
        from: usize,
        stored: RequestOutcome<'a>,
    ) -> ParsedReply<'a> {
        let (line, consumed) = match line(buf, from) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        let outcome = match (stored, line.split_first()) {
            (RequestOutcome::Done, Some((b':', count))) => match decimal(count) {
                Some(count) if count >= usize::from(self.wait_replicas) => RequestOutcome::Done,
                _ => RequestOutcome::Text(b"too few replicas have it"),
            },
            (RequestOutcome::Done, Some((b'-', words))) => RequestOutcome::Text(words),
            (RequestOutcome::Done, _) => return ParsedReply::Broken("not a reply of RESP to WAIT"),
            (error, _) => error,
        };
        ParsedReply::Done {
            consumed,
            opaque: 0,
            outcome,
        }
    }
}

/// Returns the line that begins at `from`, and its end.
fn line(buf: &[u8], from: usize) -> Result<(&[u8], usize), ParsedReply<'_>> {
    match line_end(buf, from) {
        Some(end) => Ok((trimmed(&buf[from..end]), end)),
        None if buf.len() - from > LINE_BYTES_MAX => Err(ParsedReply::Broken("no line of RESP")),
        None => Err(ParsedReply::Incomplete {
            need: buf.len() + 1,
        }),
    }
}

/// Parses the reply to a GET or SET.
fn reply(buf: &[u8]) -> ParsedReply<'_> {
    let (line, end) = match line(buf, 0) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let done = |consumed, outcome| ParsedReply::Done {
        consumed,
        opaque: 0,
        outcome,
    };
    match line.split_first() {
        Some((b'+', _)) => done(end, RequestOutcome::Done),
        Some((b'-', words)) => done(end, RequestOutcome::Text(words)),
        Some((b'$', b"-1")) => done(end, RequestOutcome::Missing),
        Some((b'$', len)) => {
            let Some(consumed) = decimal(len).and_then(|len| len.checked_add(end + 2)) else {
                return ParsedReply::Broken("bad length of a bulk string");
            };
            if buf.len() < consumed {
                return ParsedReply::Incomplete { need: consumed };
            }
            done(consumed, RequestOutcome::Done)
        }
        _ => ParsedReply::Broken("not a reply of RESP to GET or SET"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ends;
    use super::*;

    #[test]
    fn requests_and_replies() {
        let wire = Resp::new("", 0);
        let mut out = Vec::new();
        wire.get(&mut out, 5, 0);
        wire.set(&mut out, 6, 0, b"abc");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "*2\r\n$3\r\nGET\r\n$20\r\n00000000000000000005\r\n\
             *3\r\n$3\r\nSET\r\n$20\r\n00000000000000000006\r\n$3\r\nabc\r\n"
        );
        check_ends(&wire, b"+OK\r\n", RequestOutcome::Done);
        check_ends(&wire, b"$-1\r\n", RequestOutcome::Missing);
        check_ends(&wire, b"$4\r\na\r\nb\r\n", RequestOutcome::Done);
        check_ends(&wire, b"-OOM no\r\n", RequestOutcome::Text(b"OOM no"));
        assert!(matches!(wire.reply(b":1\r\n"), ParsedReply::Broken(_)));
        assert!(matches!(wire.reply(b"$x\r\n"), ParsedReply::Broken(_)));
    }

    #[test]
    fn redis_set_with_wait_needs_both_replies() {
        let wire = Resp::new("", 2);
        let mut out = Vec::new();
        wire.set(&mut out, 6, 0, b"abc");
        assert!(out.ends_with(b"abc\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n"));
        check_ends(&wire, b"+OK\r\n:2\r\n", RequestOutcome::Done);
        check_ends(&wire, b"+OK\r\n:3\r\n", RequestOutcome::Done);
        let few = RequestOutcome::Text(b"too few replicas have it");
        check_ends(&wire, b"+OK\r\n:1\r\n", few);
        check_ends(&wire, b"-OOM no\r\n:2\r\n", RequestOutcome::Text(b"OOM no"));
        check_ends(
            &wire,
            b"+OK\r\n-ERR no\r\n",
            RequestOutcome::Text(b"ERR no"),
        );
        assert!(matches!(
            wire.reply(b"+OK\r\n+OK\r\n"),
            ParsedReply::Broken(_)
        ));
    }
}
