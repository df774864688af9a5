//! Unsigned LEB128 of 64-bit numbers, the encoding of statistics. `kedge-types` has that of 32-bit numbers.

/// Length of the longest canonical form of a `u64`, in bytes.
const BYTES_MAX: usize = 10;

/// Appends `number` in its canonical (shortest) form.
pub(super) fn push(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Decodes a canonical number at the start of `bytes`. Returns it and the remaining bytes, or `None` when `bytes` is
/// too short, the number does not fit into 64 bits, or the encoding is longer than necessary.
pub(super) fn take(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        let low = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if at == BYTES_MAX - 1 && low > 1 {
            return None;
        }
        number |= low << (7 * at);
        if byte & 0x80 == 0 {
            let padded = at > 0 && byte == 0;
            return (!padded).then_some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn leb128_known_encodings() {
        for (number, form) in [
            (0, &[0x00][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 0x01]),
            (1000, &[0xe8, 0x07]),
            (
                u64::MAX,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            ),
        ] {
            let mut out = Vec::new();
            push(number, &mut out);
            assert_eq!(out, form);
            assert_eq!(take(form), Some((number, &[][..])));
        }
    }

    #[test]
    fn truncated_padded_and_oversized_leb128_is_rejected() {
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        for bad in [&[][..], &[0x80], &[0x80, 0x00], &[0xff; 12], &too_large] {
            assert_eq!(take(bad), None, "{bad:02x?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(number: u64, tail: Vec<u8>) {
            let mut bytes = Vec::new();
            push(number, &mut bytes);
            bytes.extend(&tail);
            prop_assert_eq!(take(&bytes), Some((number, &tail[..])));
        }

        #[test]
        fn decoded_leb128_is_canonical(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Some((number, rest)) = take(&bytes) {
                let mut again = Vec::new();
                push(number, &mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
