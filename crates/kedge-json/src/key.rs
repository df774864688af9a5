//! Names of members, in paths and in documents, each with their own escape sequences.

use std::iter::{Copied, Peekable};
use std::slice::Iter;

/// A component of a path that names a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathKey<'p> {
    /// The text as in the path, with backticks.
    text: &'p [u8],
    /// `true` if the text has neither backticks nor escape sequences.
    is_plain: bool,
}

impl<'p> PathKey<'p> {
    /// Splits `text` into the leading key, up to a dot or an opening bracket, and the rest. Returns `None` if it does
    /// not start with a key.
    pub(crate) fn split(text: &'p [u8]) -> Option<(Self, &'p [u8])> {
        let (mut is_quoted, mut is_plain, mut at) = (false, true, 0);
        while let Some(&byte) = text.get(at) {
            match byte {
                b'`' if text.get(at + 1) == Some(&b'`') => {
                    is_plain = false;
                    at += 1;
                }
                b'`' => {
                    is_plain = false;
                    is_quoted = !is_quoted;
                }
                b'.' | b'[' if !is_quoted => break,
                b']' if !is_quoted => return None,
                b'\\' => is_plain = false,
                _ => {}
            }
            at += 1;
        }
        let (text, rest) = text.split_at(at);
        let key = Self { text, is_plain };
        (at > 0 && !is_quoted && is_inside_of_string(key.json())).then_some((key, rest))
    }

    /// Iterates over the bytes of the name as between quotation marks in a document.
    fn json(&self) -> Unquoted<'p> {
        Unquoted(self.text.iter().copied().peekable())
    }

    /// Returns `true` if `name`, the text between quotation marks in a document, is the same name.
    #[inline]
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        if self.is_plain {
            // An escape sequence is longer than the character that it encodes.
            return self.text == name
                || name.len() > self.text.len() && name.contains(&b'\\') && self.means(name);
        }
        self.means(name)
    }

    #[cold]
    fn means(&self, name: &[u8]) -> bool {
        Unescaped::new(self.json()).eq(Unescaped::new(name.iter().copied()))
    }

    /// Writes the key as a JSON string.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        if self.is_plain {
            out.extend_from_slice(self.text);
        } else {
            out.extend(self.json());
        }
        out.push(b'"');
    }

    /// Returns an upper bound of the number of bytes that [`Self::write`] writes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.text.len() + 2
    }
}

/// Removes backticks: a pair becomes one, and a single one is dropped.
#[derive(Clone)]
struct Unquoted<'p>(Peekable<Copied<Iter<'p, u8>>>);

impl Iterator for Unquoted<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let mut byte = self.0.next()?;
        if byte == b'`' && self.0.next_if_eq(&b'`').is_none() {
            // No backtick follows a single one.
            byte = self.0.next()?;
        }
        Some(byte)
    }
}

/// Returns `true` if these bytes of a UTF-8 text are valid between quotation marks (RFC 8259 section 7).
fn is_inside_of_string(mut bytes: impl Iterator<Item = u8>) -> bool {
    while let Some(byte) = bytes.next() {
        let is_fine = match byte {
            0..0x20 | b'"' => false,
            b'\\' => match bytes.next() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
                Some(b'u') => four_digits(&mut bytes).is_some(),
                _ => false,
            },
            _ => true,
        };
        if !is_fine {
            return false;
        }
    }
    true
}

/// Iterates over the bytes that the inside of a JSON string encodes. An unpaired surrogate becomes the three bytes that
/// UTF-8 would use for it.
struct Unescaped<I> {
    bytes: I,
    decoded: [u8; 4],
    /// Number of bytes of `decoded` that were returned, and their total.
    given: usize,
    len: usize,
}

impl<I: Iterator<Item = u8> + Clone> Unescaped<I> {
    fn new(bytes: I) -> Self {
        Self {
            bytes,
            decoded: [0; 4],
            given: 0,
            len: 0,
        }
    }

    /// Decodes the digits after `\u`, together with the second half of a surrogate pair if they are the first half.
    fn code(&mut self) -> Option<u32> {
        let code = four_digits(&mut self.bytes)?;
        if (0xd800..0xdc00).contains(&code) {
            let mut ahead = self.bytes.clone();
            if ahead.next() == Some(b'\\')
                && ahead.next() == Some(b'u')
                && let Some(low @ 0xdc00..0xe000) = four_digits(&mut ahead)
            {
                self.bytes = ahead;
                return Some(0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00));
            }
        }
        Some(code)
    }
}

impl<I: Iterator<Item = u8> + Clone> Iterator for Unescaped<I> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.given == self.len {
            let byte = self.bytes.next()?;
            if byte != b'\\' {
                return Some(byte);
            }
            let code = match self.bytes.next()? {
                b'b' => 0x08,
                b'f' => 0x0c,
                b'n' => 0x0a,
                b'r' => 0x0d,
                b't' => 0x09,
                b'u' => self.code()?,
                byte => u32::from(byte),
            };
            self.len = match char::from_u32(code) {
                Some(character) => character.encode_utf8(&mut self.decoded).len(),
                None => {
                    let low_six = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
                    self.decoded = [0xe0 | (code >> 12) as u8, low_six(6), low_six(0), 0];
                    3
                }
            };
            self.given = 0;
        }
        self.given += 1;
        Some(self.decoded[self.given - 1])
    }
}

fn four_digits(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code << 4 | char::from(bytes.next()?).to_digit(16)?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(path: &str, name: &str) -> bool {
        let (key, rest) = PathKey::split(path.as_bytes()).expect(path);
        assert_eq!(rest, b"");
        key.is(name.as_bytes())
    }

    #[test]
    fn names_are_compared_without_escapes() {
        for (path, name) in [
            ("a", "a"),
            ("a", r"\u0061"),
            (r"\u0061", "a"),
            (r"\u0061b", r"a\u0062"),
            ("`a.b`", "a.b"),
            ("`a.b`", r"a\u002eb"),
            ("``", "`"),
            ("a``b", r"a\u0060b"),
            ("`a``b`", "a`b"),
            (r#"\""#, r"\u0022"),
            (r"\/", "/"),
            ("/", r"\/"),
            (r"\b\f\n\r\t\\", r"\u0008\u000C\u000a\u000D\u0009\u005c"),
            ("\u{e9}", r"\u00E9"),
            ("\u{20ac}", r"\u20ac"),
            ("\u{1f600}", r"\ud83d\ude00"),
            (r"\uD83D\uDE00", "\u{1f600}"),
            (r"\ud83d", r"\uD83D"),
            (r"\ud83dx", r"\ud83d\u0078"),
            (r"\ude00\ud83d", r"\uDE00\uD83D"),
        ] {
            assert!(is(path, name), "{path} {name}");
        }
        for (path, name) in [
            ("a", ""),
            ("a", "b"),
            ("a", "aa"),
            ("aa", "a"),
            ("a", r"\u0062"),
            ("a", r"a\u0000"),
            (r"\ud83d", r"\ud83e"),
            (r"\ud83d", r"\ud83d\ude00"),
            (r"\\u0061", "a"),
            ("a", r"\\u0061"),
            ("A", "a"),
            // One letter with an accent, and a letter followed by a combining accent: no normalization.
            ("\u{e9}", "e\u{301}"),
        ] {
            assert!(!is(path, name), "{path} {name}");
        }
    }
}
