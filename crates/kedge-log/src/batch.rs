//! A batch of records to commit together: a reusable buffer that is filled and appended.

use kedge_types::VbId;

use crate::LogError;
use crate::format::{
    ALIGN, BATCH_HEADER_BYTES, BatchHeader, RECORD_HEADER_BYTES, SEALED_BATCH_HEADER_BYTES,
    fold_digest,
};
use crate::seal::BatchSealer;

/// Number of bytes before the records: room for the longest header. A shorter one ends there, too.
const FRONT_BYTES: usize = SEALED_BATCH_HEADER_BYTES;

/// Length of the longest record payload, in bytes.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// Capacity in bytes above which a buffer is freed after use, so that one large batch does not pin its memory.
const KEEP_BYTES: usize = 16 << 20;

/// Records that are committed together: after a crash either all or none of them are found. The memory is reused.
#[derive(Debug)]
pub struct Batch {
    /// Space for the batch's header, followed by the records. They are plain text except during a write.
    buf: Vec<u8>,
    records: u32,
    digest: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Batch {
            buf: vec![0; FRONT_BYTES],
            records: 0,
            digest: 0,
        }
    }

    /// Adds a record. The payload is the concatenation of `parts`. The caller defines the meaning of `kind`.
    ///
    /// # Errors
    /// [`LogError::RecordTooLarge`] for a payload above [`MAX_PAYLOAD_BYTES`]. The batch is unchanged then.
    pub fn push(&mut self, kind: u8, vb: VbId, parts: &[&[u8]]) -> Result<(), LogError> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(LogError::RecordTooLarge { bytes });
        }
        self.push_with(kind, vb, |buf| {
            for part in parts {
                buf.extend_from_slice(part);
            }
        })
    }

    /// Adds a record whose payload `write` appends to the given buffer. It must only append.
    ///
    /// # Errors
    /// [`LogError::RecordTooLarge`] for a payload above [`MAX_PAYLOAD_BYTES`]. The batch is unchanged then.
    ///
    /// # Panics
    /// Panics if `write` shortened the buffer.
    pub fn push_with(
        &mut self,
        kind: u8,
        vb: VbId,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), LogError> {
        let start = self.buf.len();
        let payload = start + RECORD_HEADER_BYTES;
        self.buf.resize(payload, 0);
        write(&mut self.buf);
        assert!(
            self.buf.len() >= payload,
            "the payload's writer may only append"
        );
        let bytes = (self.buf.len() - payload) as u64;
        if bytes > MAX_PAYLOAD_BYTES {
            self.buf.truncate(start);
            return Err(LogError::RecordTooLarge { bytes });
        }
        // Batches and records start at aligned positions, so the length of the buffer determines the padding.
        self.buf.resize(self.buf.len().next_multiple_of(ALIGN), 0);
        let record = &mut self.buf[start..];
        record[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        record[8] = kind;
        record[10..12].copy_from_slice(&vb.0.to_le_bytes());
        let crc = crc32c::crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        self.records += 1;
        self.digest = fold_digest(self.digest, crc);
        Ok(())
    }

    /// Returns the length of the batch in a plain segment, in bytes. An encrypted batch is 32 bytes longer.
    pub fn len_bytes(&self) -> u64 {
        self.body_bytes() + BATCH_HEADER_BYTES as u64
    }

    /// Returns the length of the records, in bytes.
    pub(crate) fn body_bytes(&self) -> u64 {
        (self.buf.len() - FRONT_BYTES) as u64
    }

    /// Returns the number of records.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Returns `true` if the batch has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.buf.truncate(FRONT_BYTES);
        self.buf.shrink_to(KEEP_BYTES);
        self.records = 0;
        self.digest = 0;
    }

    /// Completes the header, encrypts the records if there is a `sealer`, and calls `write` with the bytes, followed by
    /// zeros up to `padded_bytes`. If that fails, the batch is restored and can be written again, also elsewhere.
    pub(crate) fn with_bytes<E>(
        &mut self,
        place: &BatchPosition,
        sealer: Option<&mut BatchSealer>,
        padded_bytes: usize,
        write: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let header_bytes = match &sealer {
            Some(_) => SEALED_BATCH_HEADER_BYTES,
            None => BATCH_HEADER_BYTES,
        };
        let (start, end) = (FRONT_BYTES - header_bytes, self.buf.len());
        let mut header = BatchHeader {
            lsn: place.lsn,
            durable: place.durable,
            epoch: place.epoch,
            bytes: (end - start) as u64,
            records: self.records,
            digest: 0,
            seal: None,
        };
        let (front, body) = self.buf.split_at_mut(FRONT_BYTES);
        // In place: the records are needed again only if the write fails.
        let sealer = match sealer {
            Some(sealer) => {
                sealer.seal(&mut header, body);
                Some(&*sealer)
            }
            None => {
                header.digest = self.digest;
                None
            }
        };
        header.encode(place.salt, &mut front[start..]);
        self.buf.resize(end.max(start + padded_bytes), 0);
        let result = write(&self.buf[start..]);
        self.buf.truncate(end);
        if let Some(sealer) = sealer.filter(|_| result.is_err()) {
            sealer.undo(&header, &mut self.buf[FRONT_BYTES..]);
        }
        result
    }
}

/// The fields of a batch's header that depend on its position in the log.
pub(crate) struct BatchPosition {
    pub(crate) lsn: crate::Lsn,
    pub(crate) durable: crate::Lsn,
    pub(crate) epoch: u64,
    pub(crate) salt: u64,
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::seal::SegmentSecret;
    use crate::{Lsn, SegmentKey};

    #[test]
    fn encoding_of_a_record_never_changes() {
        // The checksums come from a bitwise CRC-32C that shares no code with this one.
        let mut batch = Batch::new();
        batch
            .push(9, VbId(0x0102), &[b"hel", b"lo"])
            .expect("small");
        let hex: String = batch.buf[FRONT_BYTES..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "cc84ffd0050000000900020168656c6c6f00000000000000");
        assert_eq!(batch.digest, 0x59ce997b);
    }

    #[test]
    fn encoding_of_an_encrypted_batch_never_changes() {
        // Python's `cryptography` derived the keys and encrypted the record, and a bitwise CRC-32C made the checksum.
        let data_key = std::array::from_fn(|n| 0x60 + n as u8);
        let key = SegmentKey::new("k1", Zeroizing::new(data_key));
        let secret = SegmentSecret::derive(&key, [0xa5; _]);
        let mut sealer = BatchSealer::with_salt(&secret, [0x5b; _]);
        let place = BatchPosition {
            lsn: Lsn(0x2000),
            durable: Lsn(0x1f00),
            epoch: 5,
            salt: 7,
        };
        let mut batch = Batch::new();
        batch.push(9, VbId(0x0102), &[b"hello"]).expect("small");
        let mut hex = String::new();
        let write = |bytes: &[u8]| {
            hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok::<(), ()>(())
        };
        batch
            .with_bytes(&place, Some(&mut sealer), 0, write)
            .expect("written");
        assert_eq!(
            hex,
            "4b674274e49f5b320020000000000000001f00000000000005000000000000007000000000000000\
             01000000000000005b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b01000000000000002fae4ff4f854b89f\
             a01ce875784e441348df517849954e52e9314243c597f6e431c393eb0a22e9c9"
        );
    }
}
