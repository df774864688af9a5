//! The two checksums of the format: CRC-32 in version 11, CRC-32C in later ones.

/// Returns the CRC-32C, with the polynomial of Castagnoli, as in iSCSI.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC-32, with the polynomial of Ethernet and zlib.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each length and alignment may take another path through the processor's instructions.
    #[test]
    fn checksums_match_published_values() {
        let byte = |n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8;
        let bytes: Vec<u8> = (0..70_000).map(byte).collect();
        let short = (0..1200).map(|len| (len % 17, len));
        let long = [4096, 4097, 8191, 40_000, 69_900].map(|len| (len % 17, len));
        for (start, len) in short.chain(long) {
            let bytes = &bytes[start..start + len];
            assert_eq!(crc32c(bytes), crc32c::crc32c(bytes), "{len} from {start}");
            assert_eq!(crc32(bytes), crc32fast::hash(bytes), "{len} from {start}");
        }
    }
}
