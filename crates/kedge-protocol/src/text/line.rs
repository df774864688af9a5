//! Lines, tokens, numbers, and the value that may follow a line.

use super::limits::{KEY_BYTES_MAX, TextLimits, VALUE_LENGTH_MAX};
use super::reply;
use super::words::{find_space, has_control};
use memchr::memchr;

/// The reason why there is no command yet, or none at all.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParseStop {
    Incomplete { need: usize },
    Error(CommandError),
}

/// The refusal of a command: the reply, and the handling of the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandError {
    pub(super) reply: &'static [u8],
    pub(super) swallow: u64,
    pub(super) close: bool,
}

impl CommandError {
    pub(super) const fn new(reply: &'static [u8]) -> Self {
        Self {
            reply,
            swallow: 0,
            close: false,
        }
    }

    pub(super) const fn and_close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Removes the reply if the client asked for none.
    pub(super) const fn unless(mut self, noreply: bool) -> Self {
        if noreply {
            self.reply = b"";
        }
        self
    }

    /// Skips the value of `len` bytes behind the line, with its line end.
    pub(super) const fn and_swallow(mut self, len: u64) -> Self {
        self.swallow = len + LINE_END.len() as u64;
        self
    }
}

impl From<CommandError> for ParseStop {
    fn from(error: CommandError) -> Self {
        Self::Error(error)
    }
}

/// The end of lines and values.
const LINE_END: &[u8] = b"\r\n";

/// A line of a command, without its end.
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// The length of the line with its end, in bytes.
    pub(super) end: usize,
}

/// Returns the line at the front of `buf`. It ends with a line feed; a carriage return before it is not part of the
/// line.
pub(super) fn find_line<'a>(buf: &'a [u8], limits: &TextLimits) -> Result<Line<'a>, ParseStop> {
    let short = &buf[..buf.len().min(limits.line_bytes_max)];
    let mut found = memchr(b'\n', short);
    let mut max = limits.line_bytes_max;
    if found.is_none() && buf.len() >= max && is_retrieval(short) {
        max = limits.retrieval_line_bytes_max;
        found = memchr(b'\n', &buf[..buf.len().min(max)]);
    }
    match found {
        Some(feed) => {
            let text = &buf[..feed];
            Ok(Line {
                text: text.strip_suffix(b"\r").unwrap_or(text),
                end: feed + 1,
            })
        }
        None if buf.len() >= max => Err(CommandError::new(reply::LINE_TOO_LONG).and_close().into()),
        None => Err(ParseStop::Incomplete {
            need: buf.len() + 1,
        }),
    }
}

/// Returns whether the command that starts with `start` may have a long line. `start` always has the same length, so
/// that the result does not depend on how the line arrives.
fn is_retrieval(start: &[u8]) -> bool {
    let name = Tokens::new(start).next();
    matches!(name, Some(b"get" | b"gets" | b"gat" | b"gats"))
}

/// The tokens of a line, separated by spaces. Several spaces count as one, and spaces at the ends are ignored:
/// python-memcached sends such lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// Returns the tokens that are left, without spaces at the ends.
    pub(super) fn rest(self) -> &'a [u8] {
        let mut rest = self.rest;
        while let [b' ', after @ ..] = rest {
            rest = after;
        }
        while let [before @ .., b' '] = rest {
            rest = before;
        }
        rest
    }

    /// Returns all tokens that are left, and their number. Those beyond `N` are counted as one and not returned.
    pub(super) fn array<const N: usize>(mut self) -> ([&'a [u8]; N], usize) {
        let mut tokens = [b"".as_slice(); N];
        let mut count = 0;
        for slot in &mut tokens {
            let Some(token) = self.next() else {
                return (tokens, count);
            };
            *slot = token;
            count += 1;
        }
        count += usize::from(self.next().is_some());
        (tokens, count)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', after @ ..] = self.rest {
            self.rest = after;
        }
        if self.rest.is_empty() {
            return None;
        }
        let len = find_space(self.rest).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(token)
    }
}

/// The position of the line in the buffer, and the value that may follow it.
pub(super) struct ValueReader<'a> {
    buf: &'a [u8],
    consumed: usize,
    value_bytes_max: u64,
}

impl<'a> ValueReader<'a> {
    pub(super) fn new(buf: &'a [u8], line_end: usize, limits: &TextLimits) -> Self {
        Self {
            buf,
            consumed: line_end,
            value_bytes_max: limits.value_bytes_max as u64,
        }
    }

    /// Returns the number of bytes of the buffer that the command has consumed so far.
    pub(super) const fn consumed(&self) -> usize {
        self.consumed
    }

    /// Takes the value of `len` bytes and its line end. With `noreply`, an error is not answered.
    pub(super) fn take_value(&mut self, len: u64, noreply: bool) -> Result<&'a [u8], ParseStop> {
        if len > self.value_bytes_max {
            return Err(CommandError::new(reply::TOO_LARGE)
                .unless(noreply)
                .and_swallow(len)
                .into());
        }
        let after = &self.buf[self.consumed..];
        // In range: no more than `value_bytes_max`, which is a `usize`.
        let len = len as usize;
        let whole = len + LINE_END.len();
        let Some(chunk) = after.get(..whole) else {
            return Err(ParseStop::Incomplete {
                need: self.consumed + whole,
            });
        };
        self.consumed += whole;
        chunk.strip_suffix(LINE_END).ok_or_else(|| {
            CommandError::new(reply::BAD_DATA_CHUNK)
                .unless(noreply)
                .into()
        })
    }
}

/// Returns whether `key` is a valid key: 1 to 250 bytes, no control characters (memcached doc/protocol.txt, "Keys").
/// White space ends a token, and bytes beyond ASCII are allowed.
pub(super) fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX && !has_control(key)
}

/// The most digits whose number fits into 64 bits in any case.
const DIGITS_UNCHECKED_MAX: usize = u64::MAX.ilog10() as usize;

/// Parses an unsigned decimal number.
pub(super) fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let (start, end) = digits.split_at(digits.len().min(DIGITS_UNCHECKED_MAX));
    let mut number = 0_u64;
    for &byte in start {
        number = number * 10 + digit(byte)?;
    }
    for &byte in end {
        number = number.checked_mul(10)?.checked_add(digit(byte)?)?;
    }
    Some(number)
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(digit.into())
}

/// Parses an unsigned decimal number with an optional plus sign, as C's `strtoull` does.
pub(super) fn parse_u64(token: &[u8]) -> Option<u64> {
    parse_digits(token.strip_prefix(b"+").unwrap_or(token))
}

/// Parses a number as [`parse_u64`] does, limited to 32 bits.
pub(super) fn parse_u32(token: &[u8]) -> Option<u32> {
    parse_u64(token)?.try_into().ok()
}

/// Parses the length of a value.
pub(super) fn parse_length(token: &[u8]) -> Option<u64> {
    parse_u64(token).filter(|&len| len <= VALUE_LENGTH_MAX)
}

/// Returns whether the last token of a classic command asks for no reply.
pub(super) fn is_noreply(token: &[u8]) -> bool {
    token == b"noreply"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (token, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("+7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0018446744073709551615", Some(u64::MAX)),
            ("9999999999999999999", Some(9_999_999_999_999_999_999)),
            ("99999999999999999990", None),
            ("999999999999999999x", None),
            ("1000000000000000000x", None),
            ("99999999999999999999999", None),
            ("", None),
            ("+", None),
            ("++1", None),
            ("-1", None),
            ("1.0", None),
            ("1e3", None),
            ("0x10", None),
            ("/", None),
            (":", None),
        ] {
            assert_eq!(parse_u64(token.as_bytes()), number, "{token}");
        }
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
        assert_eq!(parse_length(b"2147483645"), Some(2_147_483_645));
        assert_eq!(parse_length(b"2147483646"), None);
    }

    #[test]
    fn any_number_of_spaces_separates_tokens() {
        let tokens = Tokens::new(b"  a  bc   d ");
        assert_eq!(tokens.collect::<Vec<_>>(), [b"a".as_slice(), b"bc", b"d"]);
        assert_eq!(tokens.rest(), b"a  bc   d");
        assert_eq!(tokens.array::<3>().1, 3);
        let (first, count) = tokens.array::<2>();
        assert_eq!((first, count), ([b"a".as_slice(), b"bc"], 3));
        assert_eq!(Tokens::new(b"   ").next(), None);
        assert_eq!(Tokens::new(b"   ").rest(), b"");
    }

    #[test]
    fn keys() {
        assert!(is_key(b"a"));
        assert!(is_key(&[b'k'; 250]));
        assert!(is_key("\u{e9}\u{d55c}".as_bytes()));
        assert!(!is_key(b""));
        assert!(!is_key(&[b'k'; 251]));
        for control in [0, 9, 13, 31, 127] {
            assert!(!is_key(&[b'a', control]), "{control}");
        }
    }
}
