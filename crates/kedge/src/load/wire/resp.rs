//! RESP2 GET and SET, so that Redis can be measured with the same generator (redis.io, "Redis serialization
//! protocol specification").

use super::{
    KEY_DIGITS, LINE_BYTES_MAX, Outcome, Reply, Wire, decimal, key_zero, line_end, trimmed,
    write_digits,
};

/// RESP.
#[derive(Clone)]
pub(in crate::load) struct Resp {
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Resp {
    /// Keys begin with `prefix`.
    pub(in crate::load) fn new(prefix: &str) -> Self {
        let key = key_zero(prefix);
        let len = key.len().to_string().into_bytes();
        Self {
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

impl Wire for Resp {
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
    }

    fn reply<'a>(&self, buf: &'a [u8]) -> Reply<'a> {
        let Some(end) = line_end(buf, 0) else {
            if buf.len() > LINE_BYTES_MAX {
                return Reply::Broken("no line of RESP");
            }
            return Reply::Incomplete {
                need: buf.len() + 1,
            };
        };
        let line = trimmed(&buf[..end]);
        let done = |consumed, outcome| Reply::Done {
            consumed,
            opaque: 0,
            outcome,
        };
        match line.split_first() {
            Some((b'+', _)) => done(end, Outcome::Done),
            Some((b'-', words)) => done(end, Outcome::Text(words)),
            Some((b'$', b"-1")) => done(end, Outcome::Missing),
            Some((b'$', len)) => {
                let Some(consumed) = decimal(len).and_then(|len| len.checked_add(end + 2)) else {
                    return Reply::Broken("bad length of a bulk string");
                };
                if buf.len() < consumed {
                    return Reply::Incomplete { need: consumed };
                }
                done(consumed, Outcome::Done)
            }
            _ => Reply::Broken("not a reply of RESP to GET or SET"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ends;
    use super::*;

    #[test]
    fn requests_and_replies() {
        let wire = Resp::new("");
        let mut out = Vec::new();
        wire.get(&mut out, 5, 0);
        wire.set(&mut out, 6, 0, b"abc");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "*2\r\n$3\r\nGET\r\n$20\r\n00000000000000000005\r\n\
             *3\r\n$3\r\nSET\r\n$20\r\n00000000000000000006\r\n$3\r\nabc\r\n"
        );
        check_ends(&wire, b"+OK\r\n", Outcome::Done);
        check_ends(&wire, b"$-1\r\n", Outcome::Missing);
        check_ends(&wire, b"$4\r\na\r\nb\r\n", Outcome::Done);
        check_ends(&wire, b"-OOM no\r\n", Outcome::Text(b"OOM no"));
        assert!(matches!(wire.reply(b":1\r\n"), Reply::Broken(_)));
        assert!(matches!(wire.reply(b"$x\r\n"), Reply::Broken(_)));
    }
}
