//! Unsigned LEB128 of 32-bit numbers, the encoding of collection ids in keys.

/// The length in bytes of the longest canonical encoding of a `u32`.
pub const LEB128_MAX_BYTES: usize = 5;

/// Encodes `number` in its canonical (shortest) form and returns the buffer with the encoding's length in bytes.
#[must_use]
pub const fn encode_leb128(mut number: u32) -> ([u8; LEB128_MAX_BYTES], usize) {
    let mut bytes = [0; LEB128_MAX_BYTES];
    let mut len = 0;
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        bytes[len] = if number == 0 { low } else { low | 0x80 };
        len += 1;
        if number == 0 {
            return (bytes, len);
        }
    }
}

/// Decodes a canonical number at the start of `bytes` and returns it with the number of bytes that it occupies. Returns
/// `None` when `bytes` is too short, the number does not fit into 32 bits, or the encoding is longer than necessary: a
/// second encoding of an id would be a second key.
#[must_use]
pub const fn decode_leb128(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut number: u32 = 0;
    let mut at = 0;
    while at < LEB128_MAX_BYTES && at < bytes.len() {
        let byte = bytes[at];
        let low = (byte & 0x7f) as u32;
        if at == 4 && low > 0x0f {
            return None;
        }
        number |= low << (7 * at);
        at += 1;
        if byte & 0x80 == 0 {
            let padded = at > 1 && byte == 0;
            return if padded { None } else { Some((number, at)) };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn canonical_leb128_round_trips_and_other_forms_are_rejected() {
        for (number, form) in [
            (0, &[0x00][..]),
            (8, &[0x08]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (0x555, &[0xd5, 0x0a]),
            (0xbff, &[0xff, 0x17]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let (bytes, len) = encode_leb128(number);
            assert_eq!(&bytes[..len], form);
            assert_eq!(decode_leb128(form), Some((number, form.len())));
        }
        for bad in [
            &[][..],
            &[0x80],
            &[0x80, 0x00],
            &[0x88, 0x80, 0x00],
            &[0xff, 0xff, 0xff, 0xff, 0x1f],
            &[0xff; 6],
        ] {
            assert_eq!(decode_leb128(bad), None, "{bad:02x?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(number: u32, tail in proptest::collection::vec(any::<u8>(), 0..4)) {
            let (bytes, len) = encode_leb128(number);
            let mut text = bytes[..len].to_vec();
            text.extend(tail);
            prop_assert_eq!(decode_leb128(&text), Some((number, len)));
        }

        #[test]
        fn decoded_numbers_are_canonical(bytes in proptest::collection::vec(any::<u8>(), 0..8)) {
            if let Some((number, len)) = decode_leb128(&bytes) {
                let (again, again_len) = encode_leb128(number);
                prop_assert_eq!(&again[..again_len], &bytes[..len]);
            }
        }
    }
}
