//! The encoding of segments, batches and records, with the tables of `docs/reference/formats/log.md`. All numbers are
//! little endian.

use crate::{CorruptionKind, Lsn};

/// Format version of new segments.
pub(crate) const VERSION: u32 = 1;
/// The unit of the kernel's reads and writes. Segments are multiples of it.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Number of bytes before the first batch of a segment: one page with two copies of the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = PAGE_BYTES;
/// Size of a batch's header, in bytes.
pub(crate) const BATCH_HEADER_BYTES: usize = 56;
/// Size of a record's header, in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 12;
/// Alignment of batches and records, in bytes.
pub(crate) const ALIGN: usize = 8;
/// First bytes of a batch.
pub(crate) const BATCH_MAGIC: [u8; 4] = *b"KgBt";

const SEGMENT_MAGIC: [u8; 8] = *b"KedgeLog";
const SEGMENT_FIELDS_BYTES: usize = 96;
/// Offsets of the copies of the segment header, in different sectors of its page.
const SEGMENT_COPIES: [usize; 2] = [0, 2048];

const _: () = assert!(BATCH_HEADER_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(PAGE_BYTES.is_multiple_of(ALIGN as u64));

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// The reason why a page is not a valid segment header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidSegmentHeader {
    Unsound,
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(
            self.bytes.is_multiple_of(PAGE_BYTES),
            "a segment of whole pages"
        );
        let mut fields = [0; SEGMENT_FIELDS_BYTES];
        fields[0..8].copy_from_slice(&SEGMENT_MAGIC);
        fields[8..12].copy_from_slice(&VERSION.to_le_bytes());
        fields[16..24].copy_from_slice(&self.number.to_le_bytes());
        fields[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        fields[32..48].copy_from_slice(&self.owner);
        fields[48..56].copy_from_slice(&self.epoch.to_le_bytes());
        fields[56..64].copy_from_slice(&self.salt.to_le_bytes());
        fields[64..72].copy_from_slice(&self.forgiven.0.to_le_bytes());
        fields[72..80].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = segment_crc(&fields);
        fields[12..16].copy_from_slice(&crc.to_le_bytes());
        let mut page = vec![0; PAGE_BYTES as usize];
        for at in SEGMENT_COPIES {
            page[at..at + SEGMENT_FIELDS_BYTES].copy_from_slice(&fields);
        }
        page
    }

    /// Decodes the copy that is sound. `page` is the first page of the file, or less of it.
    pub(crate) fn decode(page: &[u8]) -> Result<Self, InvalidSegmentHeader> {
        let copies = SEGMENT_COPIES.map(|at| page.get(at..at + SEGMENT_FIELDS_BYTES));
        let [first, second] = copies.map(|copy| Self::decode_copy(copy.unwrap_or_default()));
        // If neither copy is sound, the error of the second stands for both.
        first.or_else(|why| second.map_err(|_| why))
    }

    fn decode_copy(fields: &[u8]) -> Result<Self, InvalidSegmentHeader> {
        let sound = fields.len() == SEGMENT_FIELDS_BYTES
            && fields[0..8] == SEGMENT_MAGIC
            && u32_at(fields, 12) == segment_crc(fields);
        if !sound {
            return Err(InvalidSegmentHeader::Unsound);
        }
        let version = u32_at(fields, 8);
        if version != VERSION {
            return Err(InvalidSegmentHeader::Version(version));
        }
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
        };
        let plausible = header.bytes.is_multiple_of(PAGE_BYTES)
            && header.bytes > SEGMENT_HEADER_BYTES
            && header.base.0.is_multiple_of(ALIGN as u64)
            && header
                .base
                .0
                .checked_add(header.bytes)
                .is_some_and(|end| end < u64::MAX / 2)
            && header.forgiven <= header.base
            && header.number < u64::MAX
            && header.epoch < u64::MAX;
        if plausible {
            Ok(header)
        } else {
            Err(InvalidSegmentHeader::Unsound)
        }
    }
}

/// Returns the CRC-32C of a segment header's fields except the checksum field.
fn segment_crc(fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&fields[..12]), &fields[16..])
}

/// The header of a batch, which precedes the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Position of this header in the log.
    pub(crate) lsn: Lsn,
    /// The position up to which the log was known to be durable when the batch was written.
    pub(crate) durable: Lsn,
    /// The epoch of the open that wrote the batch.
    pub(crate) epoch: u64,
    /// Length of the batch with this header, in bytes, a multiple of 8.
    pub(crate) bytes: u64,
    /// The number of records. 0 means an end marker.
    pub(crate) records: u32,
    /// CRC-32C over the checksums of the records, in order, which binds them to this header.
    pub(crate) digest: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, salt: u64) -> [u8; BATCH_HEADER_BYTES] {
        let mut fields = [0; BATCH_HEADER_BYTES];
        fields[0..4].copy_from_slice(&BATCH_MAGIC);
        fields[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        fields[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        fields[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        fields[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        fields[40..44].copy_from_slice(&self.records.to_le_bytes());
        fields[44..48].copy_from_slice(&self.digest.to_le_bytes());
        let crc = batch_crc(&fields, salt);
        fields[4..8].copy_from_slice(&crc.to_le_bytes());
        fields
    }

    /// Decodes the header in `fields`, if it is sound and was written for the position `lsn`.
    pub(crate) fn decode(fields: &[u8], salt: u64, lsn: Lsn) -> Option<Self> {
        let fields = fields.get(..BATCH_HEADER_BYTES)?;
        if fields[..4] != BATCH_MAGIC || u64_at(fields, 8) != lsn.0 {
            return None;
        }
        let header = BatchHeader {
            lsn,
            durable: Lsn(u64_at(fields, 16)),
            epoch: u64_at(fields, 24),
            bytes: u64_at(fields, 32),
            records: u32_at(fields, 40),
            digest: u32_at(fields, 44),
        };
        let sound = u32_at(fields, 4) == batch_crc(fields, salt)
            && header.bytes >= BATCH_HEADER_BYTES as u64
            && header.bytes.is_multiple_of(ALIGN as u64)
            && header.durable <= lsn
            && header.epoch < u64::MAX;
        sound.then_some(header)
    }
}

/// Returns the CRC-32C of the salt and a batch header's fields except the checksum field.
fn batch_crc(fields: &[u8], salt: u64) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &fields[..4]), &fields[8..])
}

/// Adds a record's checksum to the digest of its batch.
pub(crate) fn fold_digest(digest: u32, record_crc: u32) -> u32 {
    crc32c::crc32c_append(digest, &record_crc.to_le_bytes())
}

/// A record within the bytes of a batch.
pub(crate) struct RawRecord<'a> {
    pub(crate) crc: u32,
    pub(crate) kind: u8,
    pub(crate) vb: u16,
    pub(crate) payload: &'a [u8],
    /// The bytes that the checksum covers: the record except the checksum field, with the padding.
    covered: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Splits the first record off `bytes`. It validates lengths, but not the checksum.
    pub(crate) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = bytes.get(..RECORD_HEADER_BYTES)?;
        let len = usize::try_from(u32_at(header, 4)).ok()?;
        let end = RECORD_HEADER_BYTES
            .checked_add(len)?
            .checked_next_multiple_of(ALIGN)?;
        let (record, rest) = bytes.split_at_checked(end)?;
        let raw = RawRecord {
            crc: u32_at(record, 0),
            kind: record[8],
            vb: u16::from_le_bytes([record[10], record[11]]),
            payload: &record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + len],
            covered: &record[4..],
        };
        Some((raw, rest))
    }

    fn is_sound(&self) -> bool {
        crc32c::crc32c(self.covered) == self.crc
    }
}

/// Validates the bytes after a batch's header against it. The error has the offset in `body`.
pub(crate) fn check_body(header: &BatchHeader, body: &[u8]) -> Result<(), (usize, CorruptionKind)> {
    let mut rest = body;
    let mut digest = 0;
    for _ in 0..header.records {
        let at = body.len() - rest.len();
        let (record, after) = RawRecord::split(rest).ok_or((at, CorruptionKind::RecordLength))?;
        if !record.is_sound() {
            return Err((at, CorruptionKind::RecordChecksum));
        }
        digest = fold_digest(digest, record.crc);
        rest = after;
    }
    if !rest.is_empty() {
        return Err((body.len() - rest.len(), CorruptionKind::RecordLength));
    }
    if digest != header.digest {
        return Err((0, CorruptionKind::BatchDigest));
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentHeader = SegmentHeader {
        number: 3,
        base: Lsn(0x1000),
        owner: *b"0123456789abcdef",
        epoch: 5,
        salt: 0x1122_3344_5566_7788,
        forgiven: Lsn(0x800),
        bytes: 0x10_0000,
    };
    const BATCH: BatchHeader = BatchHeader {
        lsn: Lsn(0x2000),
        durable: Lsn(0x1f00),
        epoch: 5,
        bytes: 128,
        records: 2,
        digest: 0xdead_beef,
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn encoding_of_version_1_never_changes() {
        // The checksums come from a bitwise CRC-32C that shares no code with this one.
        let page = SEGMENT.encode();
        assert_eq!(
            hex(&page[..96]),
            "4b656467654c6f67010000007f2237aa030000000000000000100000000000003031323334353637\
             38396162636465660500000000000000887766554433221100080000000000000000100000000000\
             00000000000000000000000000000000"
        );
        assert_eq!(page[..96], page[2048..2144]);
        assert_eq!(
            hex(&BATCH.encode(7)),
            "4b674274bc2b75210020000000000000001f00000000000005000000000000008000000000000000\
             02000000efbeadde0000000000000000"
        );
    }

    #[test]
    fn segment_header_survives_the_loss_of_one_copy() {
        let page = SEGMENT.encode();
        assert_eq!(SegmentHeader::decode(&page), Ok(SEGMENT));
        for at in 0..SEGMENT_FIELDS_BYTES {
            let mut one = page.clone();
            one[at] ^= 0x10;
            assert_eq!(SegmentHeader::decode(&one), Ok(SEGMENT), "byte {at}");
            one[2048 + at] ^= 0x10;
            assert_eq!(
                SegmentHeader::decode(&one),
                Err(InvalidSegmentHeader::Unsound),
                "byte {at}"
            );
        }
        assert_eq!(SegmentHeader::decode(&page[..100]), Ok(SEGMENT));
        assert_eq!(
            SegmentHeader::decode(&page[..95]),
            Err(InvalidSegmentHeader::Unsound)
        );
    }

    #[test]
    fn batch_header_is_bound_to_its_position_and_salt() {
        let fields = BATCH.encode(7);
        assert_eq!(BatchHeader::decode(&fields, 7, Lsn(0x2000)), Some(BATCH));
        assert_eq!(BatchHeader::decode(&fields, 8, Lsn(0x2000)), None);
        assert_eq!(BatchHeader::decode(&fields, 7, Lsn(0x2008)), None);
        for at in 0..BATCH_HEADER_BYTES {
            let mut flipped = fields;
            flipped[at] ^= 1;
            assert_eq!(
                BatchHeader::decode(&flipped, 7, Lsn(0x2000)),
                None,
                "byte {at}"
            );
        }
    }
}
