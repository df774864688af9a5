//! The tokens of JSON: white space, strings, numbers and literals (RFC 8259 sections 2, 3, 6 and 7).

use crate::{JsonError, JsonErrorKind};

/// 0x01 in every byte.
const ONES: u64 = u64::MAX / 255;
/// 0x80 in every byte.
const HIGHS: u64 = ONES << 7;
/// Bytes of a string that are looked at in one step once it is known not to be a short one.
const BLOCK: usize = 64;

/// A place in a text.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Has bit 7 of some byte set when a string had bytes beyond ASCII. Only then must UTF-8 be checked, as such bytes
    /// are refused everywhere outside of strings.
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

    /// The text that is scanned.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Bytes before this place.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to another place.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// The byte here, without moving past it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Moves past the byte that [`Self::peek`] gave.
    #[inline]
    pub(crate) fn bump(&mut self) {
        self.at += 1;
    }

    /// Whether the strings so far had bytes beyond ASCII.
    pub(crate) fn saw_beyond_ascii(&self) -> bool {
        self.beyond_ascii & HIGHS != 0
    }

    /// The error of `kind` here.
    #[cold]
    pub(crate) fn error(&self, kind: JsonErrorKind) -> JsonError {
        // `at` may have been moved past the end by a token that was cut off.
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

    /// Moves past `literal`, of which the first byte is known to be here.
    pub(crate) fn literal(&mut self, literal: &[u8]) -> Result<(), JsonError> {
        for &expected in literal {
            if self.peek() != Some(expected) {
                return Err(self.error(JsonErrorKind::UnexpectedByte));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Moves past a number, of which the first byte (a minus or a digit) is known to be here.
    pub(crate) fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            // No digit may follow a leading zero; what follows is looked at by the caller, and a digit fits nowhere.
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

    /// Moves past a string, of which the opening quotation mark is known to be here.
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

    /// Moves past bytes that stand for themselves, up to a quotation mark, a backslash, a control character or the last
    /// seven bytes of the text. First by blocks, which the compiler turns into vector instructions, then by words.
    #[inline]
    fn skip_plain(&mut self) {
        let mut rest = &self.text[self.at..];
        let mut beyond_ascii = self.beyond_ascii;
        while let Some((word, after)) = rest.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let special = special_bytes(word);
            if special != 0 {
                // The lowest mark is exact: a borrow can only set marks above a true one.
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

    /// Moves past an escape, of which the backslash is known to be here. A `\u` of half a surrogate pair is accepted:
    /// RFC 8259 section 8.2 leaves it to the reader.
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

/// Whether `byte` does not stand for itself in a string.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// 0x80 in the lowest byte of `word` that [`is_special`], perhaps in bytes above it, and nowhere below it.
#[inline]
const fn special_bytes(word: u64) -> u64 {
    zero_bytes(word ^ (ONES * b'"' as u64))
        | zero_bytes(word ^ (ONES * b'\\' as u64))
        | word.wrapping_sub(ONES * 0x20) & !word & HIGHS
}

/// 0x80 in the lowest byte of `word` that is zero, perhaps in bytes above it, and nowhere below it.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of a word stops `skip_plain` exactly when it has to.
    #[test]
    fn plain_bytes_are_skipped_up_to_the_first_special_one() {
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
