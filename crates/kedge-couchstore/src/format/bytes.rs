//! Big-endian numbers of odd widths. Callers validate all offsets and lengths.

/// Returns the 16-bit number at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the 32-bit number at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns the 40-bit number at `at`.
pub(crate) fn u40_at(bytes: &[u8], at: usize) -> u64 {
    (u64::from(bytes[at]) << 32) | u64::from(u32_at(bytes, at + 1))
}

/// Returns the 48-bit number at `at`.
pub(crate) fn u48_at(bytes: &[u8], at: usize) -> u64 {
    (u64::from(u16_at(bytes, at)) << 32) | u64::from(u32_at(bytes, at + 2))
}

/// Returns the 64-bit number at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Encodes the low 40 bits of a number.
pub(crate) fn be40(n: u64) -> [u8; 5] {
    let bytes = n.to_be_bytes();
    [bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

/// Encodes the low 48 bits of a number.
pub(crate) fn be48(n: u64) -> [u8; 6] {
    let bytes = n.to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

/// Returns the two lengths before every entry of a node: 12 bits and 28 bits.
pub(crate) fn lengths_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let packed = u40_at(bytes, at);
    ((packed >> 28) as usize, (packed & 0x0fff_ffff) as usize)
}

/// Packs a length of at most 12 bits and one of at most 28 bits.
pub(crate) fn pack_lengths(key: usize, value: usize) -> [u8; 5] {
    debug_assert!(key < 1 << 12 && value < 1 << 28);
    be40(((key as u64) << 28) | value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_width_numbers_round_trip() {
        for n in [0, 1, 0xff, 0x1234_5678, 0xab_cdef_0123, (1 << 40) - 1] {
            assert_eq!(u40_at(&be40(n), 0), n);
            assert_eq!(u48_at(&be48(n), 0), n);
        }
        assert_eq!(u48_at(&be48((1 << 48) - 1), 0), (1 << 48) - 1);
    }

    #[test]
    fn packed_lengths_match_the_worked_example() {
        // Section 9 of the format: a key of 11 bytes, a value of 41.
        assert_eq!(pack_lengths(11, 41), [0x00, 0xb0, 0x00, 0x00, 0x29]);
        assert_eq!(pack_lengths(6, 47), [0x00, 0x60, 0x00, 0x00, 0x2f]);
        for (key, value) in [(0, 0), (4095, (1 << 28) - 1), (250, 70_000)] {
            assert_eq!(lengths_at(&pack_lengths(key, value), 0), (key, value));
        }
    }
}
