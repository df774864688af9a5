//! The header of a segment. Version 1 is that of a plain segment, and version 2 that of an encrypted one.

use super::{ALIGN, PAGE_BYTES, SEGMENT_HEADER_BYTES, u32_at, u64_at};
use crate::Lsn;
use crate::keys::KEY_ID_BYTES_MAX;
use crate::seal::SEGMENT_SALT_BYTES;

/// Format version of plain segments.
const VERSION_PLAIN: u32 = 1;
/// Format version of encrypted segments.
const VERSION_ENCRYPTED: u32 = 2;
/// Newest format version.
pub(crate) const VERSION_MAX: u32 = VERSION_ENCRYPTED;
/// Length of the proof that a header of version 2 was written by an owner of the key, in bytes.
pub(crate) const PROOF_BYTES: usize = 32;

const SEGMENT_MAGIC: [u8; 8] = *b"KedgeLog";
/// Number of bytes that all versions have.
const COMMON_BYTES: usize = 96;
/// Offset of the checksum of the bytes that only version 2 has.
const ENCRYPTION_CRC: usize = 80;
const SALT: usize = COMMON_BYTES;
const PROOF: usize = SALT + SEGMENT_SALT_BYTES;
const KEY_ID_BYTES: usize = PROOF + PROOF_BYTES;
const KEY_ID: usize = KEY_ID_BYTES + 1;
/// Number of bytes that version 2 has.
const ENCRYPTED_BYTES: usize = KEY_ID + KEY_ID_BYTES_MAX;
/// Offsets of the copies of the header, in different sectors of its page.
const COPIES: [usize; 2] = [0, 2048];

const _: () = assert!(ENCRYPTED_BYTES == 416 && ENCRYPTED_BYTES < COPIES[1]);

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The number of the segment, counted from 1.
    pub(crate) number: u64,
    /// Position of the first batch. Everything before it was durable when the header was written.
    pub(crate) base: Lsn,
    /// The owner of the log.
    pub(crate) owner: [u8; 16],
    /// The epoch of the open that created the segment.
    pub(crate) epoch: u64,
    /// The salt of the checksums of the segment's batch headers.
    pub(crate) salt: u64,
    /// The position up to which a salvage has accepted damage.
    pub(crate) forgiven: Lsn,
    /// Length of the file, in bytes.
    pub(crate) bytes: u64,
    /// The encryption of the batches, or `None` in a plain segment.
    pub(crate) encryption: Option<SegmentEncryption>,
}

/// The fields of an encrypted segment's header that only version 2 has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentEncryption {
    /// The id of the key from which the segment's secret is derived.
    pub(crate) key_id: String,
    /// A random number that makes the segment's secret unique.
    pub(crate) salt: [u8; SEGMENT_SALT_BYTES],
    /// The proof that an owner of the key wrote the header.
    pub(crate) proof: [u8; PROOF_BYTES],
}

/// The reason why a page is not a valid segment header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidSegmentHeader {
    Unsound,
    Version(u32),
}

impl SegmentHeader {
    /// Returns the first page of the segment.
    ///
    /// # Panics
    /// Panics if the id of the key is too long.
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(
            self.bytes.is_multiple_of(PAGE_BYTES),
            "a segment of whole pages"
        );
        let fields = self.fields();
        let used = match self.encryption {
            Some(_) => ENCRYPTED_BYTES,
            None => COMMON_BYTES,
        };
        let mut page = vec![0; PAGE_BYTES as usize];
        for at in COPIES {
            page[at..at + used].copy_from_slice(&fields[..used]);
        }
        page
    }

    fn fields(&self) -> [u8; ENCRYPTED_BYTES] {
        let mut fields = [0; ENCRYPTED_BYTES];
        let version = match self.encryption {
            Some(_) => VERSION_ENCRYPTED,
            None => VERSION_PLAIN,
        };
        fields[0..8].copy_from_slice(&SEGMENT_MAGIC);
        fields[8..12].copy_from_slice(&version.to_le_bytes());
        fields[16..24].copy_from_slice(&self.number.to_le_bytes());
        fields[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        fields[32..48].copy_from_slice(&self.owner);
        fields[48..56].copy_from_slice(&self.epoch.to_le_bytes());
        fields[56..64].copy_from_slice(&self.salt.to_le_bytes());
        fields[64..72].copy_from_slice(&self.forgiven.0.to_le_bytes());
        fields[72..80].copy_from_slice(&self.bytes.to_le_bytes());
        if let Some(encryption) = &self.encryption {
            encryption.put(&mut fields);
        }
        let crc = common_crc(&fields);
        fields[12..16].copy_from_slice(&crc.to_le_bytes());
        fields
    }

    /// Passes the bytes to `update` that the proof covers: all but the checksums and the proof itself.
    pub(crate) fn proven(&self, mut update: impl FnMut(&[u8])) {
        let fields = self.fields();
        update(&fields[..12]);
        update(&fields[16..ENCRYPTION_CRC]);
        update(&fields[SALT..PROOF]);
        update(&fields[KEY_ID_BYTES..]);
    }

    /// Decodes the copy that is sound. `page` is the first page of the file, or less of it.
    pub(crate) fn decode(page: &[u8]) -> Result<Self, InvalidSegmentHeader> {
        let copies = COPIES.map(|at| page.get(at..).unwrap_or_default());
        let [first, second] = copies.map(Self::decode_copy);
        // If neither copy is sound, the error of the second stands for both.
        first.or_else(|why| second.map_err(|_| why))
    }

    /// Decodes the copy at the start of `bytes`.
    fn decode_copy(bytes: &[u8]) -> Result<Self, InvalidSegmentHeader> {
        let fields = bytes
            .get(..COMMON_BYTES)
            .ok_or(InvalidSegmentHeader::Unsound)?;
        // The checksum of the common bytes is that of version 1, so that an older release knows a newer version.
        if fields[0..8] != SEGMENT_MAGIC || u32_at(fields, 12) != common_crc(fields) {
            return Err(InvalidSegmentHeader::Unsound);
        }
        let encryption = match u32_at(fields, 8) {
            VERSION_PLAIN => None,
            VERSION_ENCRYPTED => {
                let decoded = bytes
                    .get(..ENCRYPTED_BYTES)
                    .and_then(SegmentEncryption::get);
                Some(decoded.ok_or(InvalidSegmentHeader::Unsound)?)
            }
            other => return Err(InvalidSegmentHeader::Version(other)),
        };
        let mut owner = [0; 16];
        owner.copy_from_slice(&fields[32..48]);
        let header = SegmentHeader {
            number: u64_at(fields, 16),
            base: Lsn(u64_at(fields, 24)),
            owner,
            epoch: u64_at(fields, 48),
            salt: u64_at(fields, 56),
            forgiven: Lsn(u64_at(fields, 64)),
            bytes: u64_at(fields, 72),
            encryption,
        };
        if header.is_plausible() {
            Ok(header)
        } else {
            Err(InvalidSegmentHeader::Unsound)
        }
    }

    fn is_plausible(&self) -> bool {
        let end = self.base.0.checked_add(self.bytes);
        self.bytes.is_multiple_of(PAGE_BYTES)
            && self.bytes > SEGMENT_HEADER_BYTES
            && self.base.0.is_multiple_of(ALIGN as u64)
            && end.is_some_and(|end| end < u64::MAX / 2)
            && self.forgiven <= self.base
            && self.number < u64::MAX
            && self.epoch < u64::MAX
    }
}

impl SegmentEncryption {
    fn put(&self, fields: &mut [u8; ENCRYPTED_BYTES]) {
        let id = self.key_id.as_bytes();
        fields[SALT..PROOF].copy_from_slice(&self.salt);
        fields[PROOF..KEY_ID_BYTES].copy_from_slice(&self.proof);
        fields[KEY_ID_BYTES] =
            u8::try_from(id.len()).expect("the id of a key has at most 255 bytes");
        fields[KEY_ID..KEY_ID + id.len()].copy_from_slice(id);
        let crc = crc32c::crc32c(&fields[COMMON_BYTES..]);
        fields[ENCRYPTION_CRC..ENCRYPTION_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    }

    fn get(fields: &[u8]) -> Option<Self> {
        if u32_at(fields, ENCRYPTION_CRC) != crc32c::crc32c(&fields[COMMON_BYTES..]) {
            return None;
        }
        let id_bytes = usize::from(fields[KEY_ID_BYTES]);
        let key_id = str::from_utf8(&fields[KEY_ID..KEY_ID + id_bytes]).ok()?;
        let mut encryption = Self {
            key_id: key_id.to_owned(),
            salt: [0; _],
            proof: [0; _],
        };
        encryption.salt.copy_from_slice(&fields[SALT..PROOF]);
        encryption
            .proof
            .copy_from_slice(&fields[PROOF..KEY_ID_BYTES]);
        (id_bytes > 0).then_some(encryption)
    }
}

/// Returns the CRC-32C of the bytes that all versions have, except the checksum field.
fn common_crc(fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&fields[..12]), &fields[16..COMMON_BYTES])
}
