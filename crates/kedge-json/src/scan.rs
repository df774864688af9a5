//! The tokens of JSON: white space, strings, numbers and literals (RFC 8259 sections 2, 3, 6 and 7).

use crate::{JsonError, JsonErrorKind};

/// 0x01 in every byte.
const ONES: u64 = u64::MAX / 255;
/// 0x80 in every byte.
const HIGHS: u64 = ONES << 7;
/// Number of bytes of a string per step, once the string is known not to be short.
const BLOCK: usize = 64;

/// A position in a text.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Bit 7 of some byte is set if a string had bytes beyond ASCII. Only then is UTF-8 checked, because such bytes are
    /// invalid outside of strings.
    beyond_ascii: u64,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            beyond_ascii: 0,
        }
    }

    /// Returns the text that is scanned.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the offset of the position, in bytes.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to another offset.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns the byte at the position without moving.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Moves past the byte that [`Self::peek`] returned.
    #[inline]
    pub(crate) fn bump(&mut self) {
        self.at += 1;
    }

    /// Returns `true` if a string so far had bytes beyond ASCII.
    pub(crate) fn saw_beyond_ascii(&self) -> bool {
        self.beyond_ascii & HIGHS != 0
    }

    /// Creates an error of `kind` at the position.
    #[cold]
    pub(crate) fn error(&self, kind: JsonErrorKind) -> JsonError {
        // A truncated token may have moved `at` past the end.
        let offset = self.at.min(self.text.len());
        let kind = if offset == self.text.len() {
            JsonErrorKind::UnexpectedEnd
        } else {
            kind
        };
        JsonError { offset, kind }
    }

    /// Moves past white space.
    #[inline]
    pub(crate) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Moves past `literal`, whose first byte is known to be at the position.
    pub(crate) fn literal(&mut self, literal: &[u8]) -> Result<(), JsonError> {
        for &expected in literal {
            if self.peek() != Some(expected) {
                return Err(self.error(JsonErrorKind::UnexpectedByte));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Moves past a number, whose first byte (a minus or a digit) is known to be at the position.
    pub(crate) fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            // No digit may follow a leading zero. The caller checks the next byte, and a digit is valid nowhere.
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error(JsonErrorKind::BadNumber));
        }
        Ok(())
    }

    /// Moves past a string, whose opening quotation mark is known to be at the position.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0..0x20) => return Err(self.error(JsonErrorKind::ControlCharacter)),
                Some(byte) => {
                    self.beyond_ascii |= u64::from(byte);
                    self.at += 1;
                }
                None => return Err(self.error(JsonErrorKind::UnexpectedEnd)),
            }
        }
    }

    /// Moves past ordinary bytes of a string, up to a quotation mark, a backslash, a control character or the last
    /// seven bytes of the text: first in blocks, which the compiler turns into vector instructions, then in words.
    #[inline]
    fn skip_plain(&mut self) {
        let mut rest = &self.text[self.at..];
        let mut beyond_ascii = self.beyond_ascii;
        while let Some((word, after)) = rest.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let special = special_bytes(word);
            if special != 0 {
                // The lowest mark is exact, because a borrow can set marks only above a true one.
                let plain_bits = special.trailing_zeros() & !7;
                beyond_ascii |= word & !(u64::MAX << plain_bits);
                rest = &rest[plain_bits as usize / 8..];
                break;
            }
            beyond_ascii |= word;
            rest = after;
            while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
                if block
                    .iter()
                    .fold(false, |any, &byte| any | is_special(byte))
                {
                    break;
                }
                beyond_ascii |= u64::from(block.iter().fold(0, |all, &byte| all | byte));
                rest = after;
            }
        }
        self.beyond_ascii = beyond_ascii;
        self.at = self.text.len() - rest.len();
    }

    /// Moves past an escape sequence, whose backslash is known to be at the position. An unpaired surrogate in `\u` is
    /// accepted, because RFC 8259 section 8.2 leaves it to the reader.
    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.error(JsonErrorKind::BadEscape));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.error(JsonErrorKind::BadEscape)),
        }
        Ok(())
    }
}

/// Returns `true` if `byte` is not an ordinary byte of a string.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns 0x80 in the lowest byte of `word` that [`is_special`], possibly in higher bytes, and in no lower one.
#[inline]
const fn special_bytes(word: u64) -> u64 {
    zero_bytes(word ^ (ONES * b'"' as u64))
        | zero_bytes(word ^ (ONES * b'\\' as u64))
        | word.wrapping_sub(ONES * 0x20) & !word & HIGHS
}

/// Returns 0x80 in the lowest byte of `word` that is zero, possibly in higher bytes, and in no lower one.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every position of a word stops `skip_plain` if and only if it is special.
    #[test]
    fn skip_plain_stops_at_the_first_special_byte() {
        for byte in 0..=u8::MAX {
            for place in 0..2 * BLOCK {
                for filler in [b'a', 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']', 0x20] {
                    let mut text = [filler; 8 + 3 * BLOCK];
                    text[place] = byte;
                    let mut scanner = Scanner::new(&text);
                    scanner.skip_plain();
                    let stops = matches!(byte, 0..0x20 | b'"' | b'\\');
                    assert_eq!(
                        scanner.at,
                        if stops { place } else { text.len() },
                        "{byte:#x} at {place} among {filler:#x}"
                    );
                    let skipped = &text[..scanner.at];
                    assert_eq!(scanner.saw_beyond_ascii(), !skipped.is_ascii());
                }
            }
        }
    }
}
