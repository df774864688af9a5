//! The encoding of segments, batches and records, with the tables of `docs/reference/formats/log.md`. All numbers are
//! little endian.

mod segment;

use crate::seal::SEALER_SALT_BYTES;
use crate::{CorruptionKind, Lsn};

pub(crate) use segment::{
    InvalidSegmentHeader, PROOF_BYTES, SegmentEncryption, SegmentHeader, VERSION_MAX,
};

/// The unit of the kernel's reads and writes. Segments are multiples of it.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Number of bytes before the first batch of a segment: one page with two copies of the header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = PAGE_BYTES;
/// Size of the header of a batch in a plain segment, in bytes.
pub(crate) const BATCH_HEADER_BYTES: usize = 56;
/// Size of the header of a batch in an encrypted segment, in bytes.
pub(crate) const SEALED_BATCH_HEADER_BYTES: usize = 88;
/// Size of a record's header, in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 12;
/// Alignment of batches and records, in bytes.
pub(crate) const ALIGN: usize = 8;
/// First bytes of a batch.
pub(crate) const BATCH_MAGIC: [u8; 4] = *b"KgBt";
/// Length of the tag of an encrypted batch, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// The fields of an encrypted batch's header that its tag covers: all but the magic, the checksum and the tag.
const BOUND: std::ops::Range<usize> = 8..SEALED_BATCH_HEADER_BYTES - TAG_BYTES;

const _: () = assert!(BATCH_HEADER_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(SEALED_BATCH_HEADER_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(PAGE_BYTES.is_multiple_of(ALIGN as u64));

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
    /// CRC-32C over the checksums of the records, in order, which binds them to this header. It is 0 in an encrypted
    /// segment, where the tag does that, and where the file has nothing that depends on the plain text only.
    pub(crate) digest: u32,
    /// The seal of the records in an encrypted segment.
    pub(crate) seal: Option<BatchSeal>,
}

/// The fields of an encrypted batch's header that a plain one does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchSeal {
    /// The salt of the key.
    pub(crate) salt: [u8; SEALER_SALT_BYTES],
    /// The number of the batch among those that were sealed with the key, which is the nonce.
    pub(crate) count: u64,
    /// The tag over the header and the records.
    pub(crate) tag: [u8; TAG_BYTES],
}

impl BatchHeader {
    /// Writes the header to `fields`, which has the size of a header in a plain or an encrypted segment.
    pub(crate) fn encode(&self, salt: u64, fields: &mut [u8]) {
        fields.fill(0);
        fields[0..4].copy_from_slice(&BATCH_MAGIC);
        fields[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        fields[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        fields[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        fields[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        fields[40..44].copy_from_slice(&self.records.to_le_bytes());
        fields[44..48].copy_from_slice(&self.digest.to_le_bytes());
        if let Some(seal) = &self.seal {
            fields[48..64].copy_from_slice(&seal.salt);
            fields[64..72].copy_from_slice(&seal.count.to_le_bytes());
            fields[72..SEALED_BATCH_HEADER_BYTES].copy_from_slice(&seal.tag);
        }
        let crc = batch_crc(fields, salt);
        fields[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the fields that the tag covers besides the records.
    pub(crate) fn bound(&self, seal: &BatchSeal) -> [u8; BOUND.end - BOUND.start] {
        let mut fields = [0; SEALED_BATCH_HEADER_BYTES];
        let seal = Some(*seal);
        BatchHeader { seal, ..*self }.encode(0, &mut fields);
        let mut bound = [0; _];
        bound.copy_from_slice(&fields[BOUND]);
        bound
    }

    /// Decodes the header in `fields`, if it is sound and was written for the position `lsn`. `fields` has the size of
    /// a header in a plain or an encrypted segment.
    pub(crate) fn decode(fields: &[u8], salt: u64, lsn: Lsn) -> Option<Self> {
        if fields[..4] != BATCH_MAGIC || u64_at(fields, 8) != lsn.0 {
            return None;
        }
        let seal = (fields.len() == SEALED_BATCH_HEADER_BYTES).then(|| {
            let mut seal = BatchSeal {
                salt: [0; _],
                count: u64_at(fields, 64),
                tag: [0; _],
            };
            seal.salt.copy_from_slice(&fields[48..64]);
            seal.tag.copy_from_slice(&fields[72..]);
            seal
        });
        let header = BatchHeader {
            lsn,
            durable: Lsn(u64_at(fields, 16)),
            epoch: u64_at(fields, 24),
            bytes: u64_at(fields, 32),
            records: u32_at(fields, 40),
            digest: u32_at(fields, 44),
            seal,
        };
        let sound = u32_at(fields, 4) == batch_crc(fields, salt)
            && header.bytes >= fields.len() as u64
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

/// Validates the plain bytes after a batch's header against it. The error has the offset in `body`.
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
    if header.seal.is_none() && digest != header.digest {
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
    use std::sync::Arc;

    use zeroize::Zeroizing;

    use super::*;
    use crate::SegmentKey;
    use crate::seal::{BatchOpener, BatchSealer, SegmentSecret};

    const SEGMENT: SegmentHeader = SegmentHeader {
        number: 3,
        base: Lsn(0x1000),
        owner: *b"0123456789abcdef",
        epoch: 5,
        salt: 0x1122_3344_5566_7788,
        forgiven: Lsn(0x800),
        bytes: 0x10_0000,
        encryption: None,
    };
    const BATCH: BatchHeader = BatchHeader {
        lsn: Lsn(0x2000),
        durable: Lsn(0x1f00),
        epoch: 5,
        bytes: 128,
        records: 2,
        digest: 0xdead_beef,
        seal: None,
    };

    /// An encrypted segment with a key of "k1", whose bytes count from 0x60, and a salt of 0xa5.
    fn encrypted() -> SegmentHeader {
        let secret = segment_secret();
        let mut header = SegmentHeader {
            encryption: Some(SegmentEncryption {
                key_id: secret.key_id().to_owned(),
                salt: secret.salt(),
                proof: [0; _],
            }),
            ..SEGMENT
        };
        let proof = secret.proof(&header);
        header.encryption.as_mut().expect("it is encrypted").proof = proof;
        header
    }

    fn segment_secret() -> SegmentSecret {
        let key = std::array::from_fn(|n| 0x60 + n as u8);
        SegmentSecret::derive(&SegmentKey::new("k1", Zeroizing::new(key)), [0xa5; _])
    }

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
        let mut fields = [0; BATCH_HEADER_BYTES];
        BATCH.encode(7, &mut fields);
        assert_eq!(
            hex(&fields),
            "4b674274bc2b75210020000000000000001f00000000000005000000000000008000000000000000\
             02000000efbeadde0000000000000000"
        );
    }

    #[test]
    fn segment_header_survives_the_loss_of_one_copy() {
        let page = SEGMENT.encode();
        assert_eq!(SegmentHeader::decode(&page), Ok(SEGMENT));
        for at in 0..96 {
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
        let mut fields = [0; BATCH_HEADER_BYTES];
        BATCH.encode(7, &mut fields);
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

    #[test]
    fn encoding_of_version_2_never_changes() {
        // Python's `cryptography` derived the keys and the proof, and a bitwise CRC-32C made the checksums.
        let page = encrypted().encode();
        assert_eq!(
            hex(&page[..163]),
            "4b656467654c6f67020000001a78a2d1030000000000000000100000000000003031323334353637\
             38396162636465660500000000000000887766554433221100080000000000000000100000000000\
             15e52a13000000000000000000000000a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\
             a5a5a5a5a5a5a5a5d8e733256b0fba751512024f7179d269aee7d14f81b8e30c4d5217d03cf18a3a\
             026b31"
        );
        assert!(page[163..2048].iter().all(|byte| *byte == 0));
        assert_eq!(page[..2048], page[2048..]);
    }

    #[test]
    fn header_of_an_encrypted_segment_survives_the_loss_of_one_copy() {
        let header = encrypted();
        let page = header.encode();
        assert_eq!(SegmentHeader::decode(&page).as_ref(), Ok(&header));
        for at in 0..416 {
            let mut one = page.clone();
            one[at] ^= 0x10;
            assert_eq!(
                SegmentHeader::decode(&one).as_ref(),
                Ok(&header),
                "byte {at}"
            );
            one[2048 + at] ^= 0x10;
            assert_eq!(
                SegmentHeader::decode(&one),
                Err(InvalidSegmentHeader::Unsound),
                "byte {at}"
            );
        }
        assert_eq!(SegmentHeader::decode(&page[..416]).as_ref(), Ok(&header));
        assert_eq!(
            SegmentHeader::decode(&page[..415]),
            Err(InvalidSegmentHeader::Unsound)
        );
    }

    #[test]
    fn longest_id_of_a_key_fits() {
        let mut header = encrypted();
        let encryption = header.encryption.as_mut().expect("it is encrypted");
        encryption.key_id = "k".repeat(255);
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn segment_header_of_a_newer_version_is_known_as_such() {
        let mut page = encrypted().encode();
        page[8..12].copy_from_slice(&3_u32.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&page[..12]), &page[16..96]);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
        page.copy_within(..2048, 2048);
        assert_eq!(
            SegmentHeader::decode(&page),
            Err(InvalidSegmentHeader::Version(3))
        );
    }

    #[test]
    fn proof_covers_every_field_of_the_header() {
        let (secret, header) = (segment_secret(), encrypted());
        let proof = header.encryption.as_ref().expect("it is encrypted").proof;
        assert!(secret.is_proof(&header, &proof));
        let change = |change: fn(&mut SegmentHeader)| {
            let mut changed = header.clone();
            change(&mut changed);
            assert!(!secret.is_proof(&changed, &proof), "{changed:?}");
        };
        change(|it| it.number += 1);
        change(|it| it.base.0 += 8);
        change(|it| it.owner[3] ^= 1);
        change(|it| it.epoch += 1);
        change(|it| it.salt += 1);
        change(|it| it.forgiven.0 += 8);
        change(|it| it.bytes += 4096);
        change(|it| it.encryption.as_mut().expect("it is encrypted").salt[0] ^= 1);
        change(|it| {
            it.encryption
                .as_mut()
                .expect("it is encrypted")
                .key_id
                .push('1');
        });
    }

    #[test]
    fn batch_opens_only_as_it_was_sealed() {
        let secret = Arc::new(segment_secret());
        let mut header = BatchHeader { digest: 0, ..BATCH };
        let mut body = b"eight by".repeat(5);
        BatchSealer::new(&secret).seal(&mut header, &mut body);
        let mut fields = [0; SEALED_BATCH_HEADER_BYTES];
        header.encode(7, &mut fields);
        let opens = |fields: &[u8], body: &[u8]| {
            let mut body = body.to_vec();
            let header = BatchHeader::decode(fields, 7, Lsn(0x2000));
            let mut opener = BatchOpener::new(Arc::clone(&secret));
            header.is_some_and(|header| opener.open(&header, &mut body))
        };
        assert!(opens(&fields, &body));
        for at in 0..body.len() {
            let mut flipped = body.clone();
            flipped[at] ^= 1;
            assert!(!opens(&fields, &flipped), "byte {at} of the records");
        }
        for at in 0..fields.len() {
            let mut flipped = fields;
            flipped[at] ^= 1;
            assert!(
                BatchHeader::decode(&flipped, 7, Lsn(0x2000)).is_none(),
                "byte {at}"
            );
            if at >= 8 {
                // With a right checksum, as somebody without the key can make it.
                let crc = batch_crc(&flipped, 7);
                flipped[4..8].copy_from_slice(&crc.to_le_bytes());
                assert!(!opens(&flipped, &body), "byte {at}");
            }
        }
    }

    #[test]
    fn batch_that_is_sealed_again_has_other_bytes() {
        let secret = segment_secret();
        let seal = |sealer: &mut BatchSealer| {
            let mut header = BATCH;
            let mut body = [0; 64];
            sealer.seal(&mut header, &mut body);
            body
        };
        let mut sealer = BatchSealer::new(&secret);
        let mut other = BatchSealer::new(&secret);
        let bodies = [seal(&mut sealer), seal(&mut sealer), seal(&mut other)];
        assert!(bodies[0] != bodies[1] && bodies[0] != bodies[2] && bodies[1] != bodies[2]);
    }
}
