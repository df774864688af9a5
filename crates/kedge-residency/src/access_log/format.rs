//! The format of an access log, see `docs/reference/formats/access-log.md`.

use kedge_types::VbId;

/// First bytes of a file.
const MAGIC: [u8; 8] = *b"KDGACCES";
const VERSION: u32 = 1;
/// Magic, version, the bucket's uuid, checksum.
pub(super) const HEADER_BYTES: usize = 32;
/// vBucket, zeros, number of keys, their bytes, checksum.
pub(super) const BLOCK_HEADER_BYTES: usize = 16;
/// Largest number of bytes of the keys of one block.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Marker of the end, in place of a vBucket.
const END: u16 = u16::MAX;

// The last vBucket's number is one less.
const _: () = assert!(kedge_types::limits::VBUCKETS_MAX == END);

/// An error for which a file, or the rest of it, is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AccessLogError {
    #[error("it is not an access log")]
    BadMagic,
    #[error("its version {0} is not supported")]
    Version(u32),
    #[error("it belongs to another bucket")]
    OtherBucket,
    #[error("it is damaged or incomplete")]
    Damaged,
}

pub(super) fn header(bucket: [u8; 16]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..28].copy_from_slice(&bucket);
    let sum = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
    header
}

pub(super) fn check_header(
    header: &[u8; HEADER_BYTES],
    bucket: [u8; 16],
) -> Result<(), AccessLogError> {
    if header[..8] != MAGIC {
        return Err(AccessLogError::BadMagic);
    }
    if u32_at(header, 28) != crc32c::crc32c(&header[..28]) {
        return Err(AccessLogError::Damaged);
    }
    match u32_at(header, 8) {
        VERSION => {}
        other => return Err(AccessLogError::Version(other)),
    }
    if header[12..28] == bucket {
        Ok(())
    } else {
        Err(AccessLogError::OtherBucket)
    }
}

/// A block of keys of one vBucket.
#[derive(Debug, Default)]
pub(super) struct KeyBlock {
    payload: Vec<u8>,
    count: u32,
}

impl KeyBlock {
    pub(super) fn push(&mut self, key: &[u8]) {
        let len = u8::try_from(key.len()).expect("a key has at most 251 bytes");
        self.payload.push(len);
        self.payload.extend_from_slice(key);
        self.count += 1;
    }

    /// Returns whether another key might not fit.
    pub(super) fn is_full(&self) -> bool {
        self.payload.len() > BLOCK_BYTES_MAX - 256
    }

    /// Appends the block to `out`, and begins a new one.
    pub(super) fn write(&mut self, vb: VbId, out: &mut Vec<u8>) {
        if self.count > 0 {
            write_block(vb.get(), self.count, &self.payload, out);
            self.payload.clear();
            self.count = 0;
        }
    }
}

/// Appends the end, without which a file is incomplete. `keys` is the number of keys in the file.
pub(super) fn write_end(keys: u32, out: &mut Vec<u8>) {
    write_block(END, keys, &[], out);
}

fn write_block(vb: u16, count: u32, payload: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&vb.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&out[begin..]), payload);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// `None` at the end.
    pub(super) vb: Option<VbId>,
    pub(super) count: u32,
    pub(super) bytes: usize,
    sum: u32,
    of_header: u32,
}

impl BlockHeader {
    pub(super) fn parse(header: &[u8; BLOCK_HEADER_BYTES]) -> Result<Self, AccessLogError> {
        let vb = u16::from_le_bytes([header[0], header[1]]);
        let bytes = u32_at(header, 8) as usize;
        if bytes > BLOCK_BYTES_MAX {
            return Err(AccessLogError::Damaged);
        }
        Ok(Self {
            vb: (vb != END).then_some(VbId(vb)),
            count: u32_at(header, 4),
            bytes,
            sum: u32_at(header, 12),
            of_header: crc32c::crc32c(&header[..12]),
        })
    }

    /// Returns the keys of the block.
    pub(super) fn keys(&self, payload: &[u8]) -> Result<Vec<Box<[u8]>>, AccessLogError> {
        if crc32c::crc32c_append(self.of_header, payload) != self.sum {
            return Err(AccessLogError::Damaged);
        }
        if self.vb.is_none() {
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        let mut rest = payload;
        while let Some((len, behind)) = rest.split_first() {
            let (key, next) = behind
                .split_at_checked(usize::from(*len))
                .ok_or(AccessLogError::Damaged)?;
            keys.push(key.into());
            rest = next;
        }
        if keys.len() == self.count as usize {
            Ok(keys)
        } else {
            Err(AccessLogError::Damaged)
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_read_back_and_every_flipped_bit_is_detected() {
        let mut block = KeyBlock::default();
        for key in [&b"\0a"[..], b"\0bcd", b"\0"] {
            block.push(key);
        }
        let mut bytes = Vec::new();
        block.write(VbId(7), &mut bytes);
        assert_eq!(block.count, 0);
        let read = |bytes: &[u8]| {
            let header = BlockHeader::parse(bytes[..BLOCK_HEADER_BYTES].try_into().unwrap())?;
            let payload = bytes[BLOCK_HEADER_BYTES..].get(..header.bytes);
            let keys = header.keys(payload.ok_or(AccessLogError::Damaged)?)?;
            Ok((header.vb, keys))
        };
        let (vb, keys) = read(&bytes).unwrap();
        assert_eq!(vb, Some(VbId(7)));
        let expected: [&[u8]; 3] = [b"\0a", b"\0bcd", b"\0"];
        assert!(keys.iter().map(|key| &**key).eq(expected));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes), Err(AccessLogError::Damaged), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn header_is_checked_for_magic_version_bucket_and_checksum() {
        let good = header([7; 16]);
        assert_eq!(check_header(&good, [7; 16]), Ok(()));
        assert_eq!(
            check_header(&good, [8; 16]),
            Err(AccessLogError::OtherBucket)
        );
        let mut other = good;
        other[0] = b'k';
        assert_eq!(check_header(&other, [7; 16]), Err(AccessLogError::BadMagic));
        other = good;
        other[20] ^= 1;
        assert_eq!(check_header(&other, [7; 16]), Err(AccessLogError::Damaged));
        other = good;
        other[8] = 2;
        let sum = crc32c::crc32c(&other[..28]);
        other[28..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(
            check_header(&other, [7; 16]),
            Err(AccessLogError::Version(2))
        );
    }

    #[test]
    fn bytes_of_version_1_do_not_change() {
        let mut bytes = header([0x11; 16]).to_vec();
        let mut block = KeyBlock::default();
        block.push(b"\0key");
        block.write(VbId(3), &mut bytes);
        write_end(1, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "4b444741434345530100000011111111111111111111111111111111040aae4d\
                        030000000100000005000000b18366e004006b6579\
                        ffff00000100000000000000a680e5c8";
        assert_eq!(hex, expected.replace(char::is_whitespace, ""));
    }
}
