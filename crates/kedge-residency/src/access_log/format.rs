//! The format of an access log, see `docs/reference/formats/access-log.md`.

use super::seal::LogSeal;
use kedge_types::VbId;

/// First bytes of a file.
const MAGIC: [u8; 8] = *b"KDGACCES";
const VERSION: u32 = 1;
/// The version of encrypted files.
const ENCRYPTED_VERSION: u32 = 2;
/// Magic, version, the bucket's uuid, checksum.
pub(super) const HEADER_BYTES: usize = 32;
/// vBucket, zeros, number of keys, their bytes, checksum.
pub(super) const BLOCK_HEADER_BYTES: usize = 16;
/// Number of bytes that encryption adds to the keys of a block.
const SEAL_BYTES: usize = 16;
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
    #[error("the key that it is encrypted with is not in the keyring")]
    KeyMissing,
}

pub(super) fn header(bucket: [u8; 16], is_encrypted: bool) -> [u8; HEADER_BYTES] {
    let version = if is_encrypted {
        ENCRYPTED_VERSION
    } else {
        VERSION
    };
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[12..28].copy_from_slice(&bucket);
    let sum = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Returns whether the file is encrypted.
pub(super) fn check_header(
    header: &[u8; HEADER_BYTES],
    bucket: [u8; 16],
) -> Result<bool, AccessLogError> {
    if header[..8] != MAGIC {
        return Err(AccessLogError::BadMagic);
    }
    if u32_at(header, 28) != crc32c::crc32c(&header[..28]) {
        return Err(AccessLogError::Damaged);
    }
    let is_encrypted = match u32_at(header, 8) {
        VERSION => false,
        ENCRYPTED_VERSION => true,
        other => return Err(AccessLogError::Version(other)),
    };
    if header[12..28] == bucket {
        Ok(is_encrypted)
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
        self.payload.len() > BLOCK_BYTES_MAX - 256 - SEAL_BYTES
    }

    /// Appends the block, which is at this offset of the file, to `out`, and begins a new one.
    pub(super) fn write(&mut self, vb: VbId, seal: Option<&LogSeal>, at: u64, out: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        let sealed_bytes = self.payload.len() + seal.map_or(0, |_| SEAL_BYTES);
        let head = block_head(vb.get(), self.count, sealed_bytes);
        if let Some(seal) = seal {
            seal.seal(at, &head, &mut self.payload);
        }
        write_block(&head, &self.payload, out);
        self.payload.clear();
        self.count = 0;
    }
}

/// Appends the end, without which a file is incomplete. `keys` is the number of keys in the file.
pub(super) fn write_end(keys: u32, out: &mut Vec<u8>) {
    write_block(&block_head(END, keys, 0), &[], out);
}

fn block_head(vb: u16, count: u32, payload_bytes: usize) -> [u8; BLOCK_HEADER_BYTES - 4] {
    let mut head = [0; BLOCK_HEADER_BYTES - 4];
    head[..2].copy_from_slice(&vb.to_le_bytes());
    head[4..8].copy_from_slice(&count.to_le_bytes());
    head[8..].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    head
}

fn write_block(head: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(head);
    let sum = crc32c::crc32c_append(crc32c::crc32c(head), payload);
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
    /// The header without the checksum.
    head: [u8; BLOCK_HEADER_BYTES - 4],
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
            head: *header.first_chunk().expect("it is shorter"),
        })
    }

    /// Returns the keys of the block, which is at this offset of the file. They are decrypted in place.
    pub(super) fn keys(
        &self,
        seal: Option<&LogSeal>,
        at: u64,
        payload: &mut Vec<u8>,
    ) -> Result<Vec<Box<[u8]>>, AccessLogError> {
        if crc32c::crc32c_append(crc32c::crc32c(&self.head), payload) != self.sum {
            return Err(AccessLogError::Damaged);
        }
        if self.vb.is_none() {
            return Ok(Vec::new());
        }
        if let Some(seal) = seal {
            seal.open(at, &self.head, payload)?;
        }
        let mut keys = Vec::new();
        let mut rest = &payload[..];
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
        block.write(VbId(7), None, 0, &mut bytes);
        assert_eq!(block.count, 0);
        let read = |bytes: &[u8]| {
            let header = BlockHeader::parse(bytes[..BLOCK_HEADER_BYTES].try_into().unwrap())?;
            let payload = bytes[BLOCK_HEADER_BYTES..].get(..header.bytes);
            let mut payload = payload.ok_or(AccessLogError::Damaged)?.to_vec();
            let keys = header.keys(None, 0, &mut payload)?;
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
        let good = header([7; 16], false);
        assert_eq!(check_header(&good, [7; 16]), Ok(false));
        assert_eq!(check_header(&header([7; 16], true), [7; 16]), Ok(true));
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
        other[8] = 3;
        let sum = crc32c::crc32c(&other[..28]);
        other[28..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(
            check_header(&other, [7; 16]),
            Err(AccessLogError::Version(3))
        );
    }

    #[test]
    fn bytes_of_version_1_do_not_change() {
        let mut bytes = header([0x11; 16], false).to_vec();
        let mut block = KeyBlock::default();
        block.push(b"\0key");
        block.write(VbId(3), None, 0, &mut bytes);
        write_end(1, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "4b444741434345530100000011111111111111111111111111111111040aae4d\
                        030000000100000005000000b18366e004006b6579\
                        ffff00000100000000000000a680e5c8";
        assert_eq!(hex, expected.replace(char::is_whitespace, ""));
    }

    #[test]
    fn encrypted_block_is_read_at_its_place_with_its_key_only() {
        let keyring = |master| {
            let disk = std::sync::Arc::new(kedge_disk::SimDisk::new(master));
            kedge_disk::Disk::create_dir_all(&*disk, std::path::Path::new("/data")).unwrap();
            let secret = kedge_encryption::Secret::new([7; kedge_encryption::KEY_BYTES]);
            let master = kedge_encryption::LocalMasterKey::new(secret);
            let masters = kedge_encryption::MasterKeys::new(std::sync::Arc::new(master));
            let path = std::path::Path::new("/data/encryption.keys");
            let keyring = kedge_encryption::Keyring::open(disk, path, &masters).unwrap();
            keyring.enable(1).unwrap();
            keyring.keys()
        };
        let keys = keyring(1);
        let mut head = Vec::new();
        let seal = LogSeal::begin(keys.active().unwrap(), &mut head);
        let mut block = KeyBlock::default();
        block.push(b"\0secret-key");
        let mut bytes = Vec::new();
        block.write(VbId(7), Some(&seal), 100, &mut bytes);
        assert!(!bytes.windows(6).any(|it| it == b"secret"));

        let (seal, head_bytes) =
            LogSeal::read(&[&head[..], b"more"].concat(), Some(&keys)).unwrap();
        assert_eq!(head_bytes, head.len());
        let header = BlockHeader::parse(bytes[..BLOCK_HEADER_BYTES].try_into().unwrap()).unwrap();
        let read = |at| header.keys(Some(&seal), at, &mut bytes[BLOCK_HEADER_BYTES..].to_vec());
        assert_eq!(read(100), Ok(vec![b"\0secret-key"[..].into()]));
        assert_eq!(read(101), Err(AccessLogError::Damaged));
        let missing =
            |keys: Option<&kedge_encryption::KeySet>| LogSeal::read(&head, keys).unwrap_err();
        assert_eq!(missing(Some(&keyring(2))), AccessLogError::KeyMissing);
        assert_eq!(missing(None), AccessLogError::KeyMissing);
        for bytes in 0..head.len() {
            let cut = LogSeal::read(&head[..bytes], Some(&keys)).unwrap_err();
            assert_eq!(cut, AccessLogError::Damaged, "{bytes} bytes");
        }
    }
}
