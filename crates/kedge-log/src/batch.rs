//! A batch of records to commit together: a reusable buffer that is filled and appended.

use kedge_types::VbId;

use crate::LogError;
use crate::format::{ALIGN, BATCH_HEADER_BYTES, BatchHeader, RECORD_HEADER_BYTES, fold_digest};

/// Length of the longest record payload, in bytes.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// Capacity in bytes above which a buffer is freed after use, so that one large batch does not pin its memory.
const KEEP_BYTES: usize = 16 << 20;

/// Records that are committed together: after a crash either all or none of them are found. The memory is reused.
#[derive(Debug)]
pub struct Batch {
    /// Space for the batch's header, followed by the records.
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
            buf: vec![0; BATCH_HEADER_BYTES],
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

    /// Returns the length of the batch in the log, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.buf.len() as u64
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
        self.buf.truncate(BATCH_HEADER_BYTES);
        self.buf.shrink_to(KEEP_BYTES);
        self.records = 0;
        self.digest = 0;
    }

    /// Completes the header and calls `write` with the bytes, followed by zeros up to `padded_bytes`. The batch itself
    /// is unchanged and can be written again elsewhere.
    pub(crate) fn with_bytes<T>(
        &mut self,
        place: &BatchPosition,
        padded_bytes: usize,
        write: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let bytes = self.buf.len();
        let header = BatchHeader {
            lsn: place.lsn,
            durable: place.durable,
            epoch: place.epoch,
            bytes: bytes as u64,
            records: self.records,
            digest: self.digest,
        };
        self.buf[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode(place.salt));
        self.buf.resize(bytes.max(padded_bytes), 0);
        let result = write(&self.buf);
        self.buf.truncate(bytes);
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
    use super::*;

    #[test]
    fn encoding_of_a_record_never_changes() {
        // The checksums come from a bitwise CRC-32C that shares no code with this one.
        let mut batch = Batch::new();
        batch
            .push(9, VbId(0x0102), &[b"hel", b"lo"])
            .expect("small");
        let hex: String = batch.buf[56..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "cc84ffd0050000000900020168656c6c6f00000000000000");
        assert_eq!(batch.digest, 0x59ce997b);
    }
}
