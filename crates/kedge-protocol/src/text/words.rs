//! Searches of tokens, eight bytes at a time. A token is so short that a call of `memchr` takes longer than the search.
//!
//! The tricks are those of "Bit Twiddling Hacks" (Sean Eron Anderson), "Determine if a word has a zero byte" and "... a byte
//! less than n".

/// The bytes of a word.
const WORD_BYTES: usize = 8;

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

const HIGH_BITS: u64 = repeated(0x80);

/// Returns a word whose lowest set bit, if there is one, is in the first byte of `word` that is less than `limit`, which is at
/// most 0x80. Bits above that one mean nothing.
#[inline]
const fn bytes_below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(repeated(limit)) & !word & HIGH_BITS
}

/// Returns a word whose lowest set bit, if there is one, is in the first byte of `word` that is `byte`.
#[inline]
const fn bytes_equal(word: u64, byte: u8) -> u64 {
    bytes_below(word ^ repeated(byte), 1)
}

/// Returns the position of the first space.
#[inline]
pub(super) fn find_space(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<WORD_BYTES>();
    for (index, &word) in words.iter().enumerate() {
        let found = bytes_equal(u64::from_le_bytes(word), b' ');
        if found != 0 {
            return Some(index * WORD_BYTES + found.trailing_zeros() as usize / 8);
        }
    }
    let position = rest.iter().position(|&byte| byte == b' ')?;
    Some(words.len() * WORD_BYTES + position)
}

/// Returns whether there is a control character of ASCII.
#[inline]
pub(super) fn has_control(text: &[u8]) -> bool {
    let has = |word: &[u8; WORD_BYTES]| {
        let word = u64::from_le_bytes(*word);
        bytes_below(word, b' ') | bytes_equal(word, 0x7f) != 0
    };
    // The last word overlaps the one before it.
    match text.last_chunk() {
        Some(last) => text.as_chunks().0.iter().any(has) || has(last),
        None => text.iter().any(u8::is_ascii_control),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes near those that are searched for, where a borrow from one byte to the next could deceive.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            8 => b'!'..=b'~',
            1 => prop::sample::select(vec![0, 1, 0x1f, b' ', b'!', 0x7e, 0x7f, 0x80, 0xa0, 0xff]),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..40)
    }

    proptest! {
        #[test]
        fn searches_by_words_equal_those_by_bytes(text in text()) {
            prop_assert_eq!(find_space(&text), text.iter().position(|&byte| byte == b' '));
            prop_assert_eq!(has_control(&text), text.iter().any(u8::is_ascii_control));
        }
    }

    #[test]
    fn every_byte_is_found_at_every_position() {
        for len in 1..=25 {
            for (at, byte) in (0..len).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                let mut text = vec![b'k'; len];
                text[at] = byte;
                assert_eq!(find_space(&text), (byte == b' ').then_some(at), "{text:?}");
                assert_eq!(has_control(&text), byte.is_ascii_control(), "{text:?}");
            }
        }
    }
}
