//! The protocols of the generator: requests from templates, and the ends of replies.
//!
//! A generator that shares its cores with the server must be cheap. So a request is a copy of a prepared frame with
//! changed key digits and header fields, and a reply is only parsed as far as its end and outcome need it.

mod binary;
mod resp;
mod text;

pub(super) use binary::Binary;
pub(super) use resp::Resp;
pub(super) use text::Text;

/// The number of digits of an item's number in its key, as many as the largest `u64` has.
pub(super) const KEY_DIGITS: usize = 20;

/// One protocol.
pub(super) trait WireProtocol: Clone + Send {
    /// True if replies carry the request's opaque. Otherwise they come in the order of the requests.
    const HAS_OPAQUE: bool;

    /// Returns whether a node has the item's vBucket; without vBuckets every node has all items.
    fn is_at(&self, _item: u64, _node: u16) -> bool {
        true
    }

    /// Appends a request for an item.
    fn get(&self, out: &mut Vec<u8>, item: u64, opaque: u32);

    /// Appends a request that stores an item.
    fn set(&self, out: &mut Vec<u8>, item: u64, opaque: u32, value: &[u8]);

    /// Appends a request that stores an item without durability, to populate the server.
    fn populate(&self, out: &mut Vec<u8>, item: u64, opaque: u32, value: &[u8]) {
        self.set(out, item, opaque, value);
    }

    /// Parses the front of the receive buffer.
    fn reply<'a>(&self, buf: &'a [u8]) -> ParsedReply<'a>;
}

/// The result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedReply<'a> {
    /// The reply is incomplete.
    Incomplete {
        /// The number of bytes that the buffer must have before the next attempt.
        need: usize,
    },
    /// A whole reply.
    Done {
        /// The number of bytes consumed.
        consumed: usize,
        /// The request's opaque; 0 if there is none.
        opaque: u32,
        /// The outcome.
        outcome: RequestOutcome<'a>,
    },
    /// The bytes are no reply of this protocol: close the connection.
    Broken(&'static str),
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome<'a> {
    /// The item was found, or stored.
    Done,
    /// There is no such item.
    Missing,
    /// A status of the binary protocol.
    Status(u16),
    /// An error text.
    Text(&'a [u8]),
}

/// Writes `item` in decimal, right-aligned. `digits` must be filled with `'0'`.
#[inline]
fn write_digits(digits: &mut [u8], mut item: u64) {
    let mut at = digits.len();
    while item > 0 && at > 0 {
        at -= 1;
        digits[at] = b'0' + (item % 10) as u8;
        item /= 10;
    }
}

/// Returns the key of item 0; the digits of other items replace its zeros.
fn key_zero(prefix: &str) -> Vec<u8> {
    let mut key = prefix.as_bytes().to_vec();
    key.resize(key.len() + KEY_DIGITS, b'0');
    key
}

/// Returns the position just after the first `\r\n` at or after `from`.
fn line_end(buf: &[u8], from: usize) -> Option<usize> {
    let tail = buf.get(from..)?;
    tail.iter()
        .position(|&b| b == b'\n')
        .map(|at| from + at + 1)
}

/// Returns a line without its `\r\n`.
fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r\n")
        .unwrap_or_else(|| line.strip_suffix(b"\n").unwrap_or(line))
}

/// The longest first line of a reply in a line-based protocol, in bytes.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Parses a decimal number.
fn decimal(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_right_aligned() {
        for item in [0, 7, 10, 1_234_567, u64::MAX] {
            let mut key = key_zero("k-");
            write_digits(&mut key[2..], item);
            assert_eq!(key, format!("k-{item:020}").into_bytes());
        }
    }

    /// Checks the parser with ever longer prefixes of `reply`: every prefix is incomplete, the whole is done.
    pub(super) fn check_ends(wire: &impl WireProtocol, reply: &[u8], outcome: RequestOutcome<'_>) {
        for len in 0..reply.len() {
            match wire.reply(&reply[..len]) {
                ParsedReply::Incomplete { need } => assert!(need > len && need <= reply.len()),
                other => panic!("{len} bytes of {reply:?} gave {other:?}"),
            }
        }
        let mut more = reply.to_vec();
        more.extend_from_slice(b"\x81\x00+next");
        for buf in [reply, &more] {
            match wire.reply(buf) {
                ParsedReply::Done {
                    consumed,
                    outcome: got,
                    ..
                } => {
                    assert_eq!((consumed, got), (reply.len(), outcome));
                }
                other => panic!("{buf:?} gave {other:?}"),
            }
        }
    }
}
