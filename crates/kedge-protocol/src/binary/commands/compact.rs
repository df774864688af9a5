//! COMPACT_DB.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Seqno, Status};

const EXTRAS_BYTES: usize = 24;

/// A request to compact the file of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactDb {
    /// Purge tombstones of deletes before this Unix second; 0 if the client sets no limit.
    pub purge_before_secs: u64,
    /// Purge only tombstones up to this seqno; 0 for no limit.
    pub purge_before_seqno: Seqno,
    /// True if all tombstones are purged.
    pub drop_deletes: bool,
}

impl CompactDb {
    /// Checks and reads the request. Older clients repeat the vBucket in the extras; the header's counts.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 24 bytes, the flag is neither 0 nor 1, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[EXTRAS_BYTES],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            purge_before_secs: extras.u64()?,
            purge_before_seqno: Seqno(extras.u64()?),
            drop_deletes: match extras.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Status::Invalid),
            },
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = [0; EXTRAS_BYTES];
        extras[..8].copy_from_slice(&self.purge_before_secs.to_be_bytes());
        extras[8..16].copy_from_slice(&self.purge_before_seqno.get().to_be_bytes());
        extras[16] = u8::from(self.drop_deletes);
        writer.write(&extras, &[], &[], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Opcode, Parse, parse_frame};

    fn frame(extras: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        RequestWriter::new(Opcode::CompactDb).write(extras, &[], &[], &mut bytes);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<CompactDb, Status> {
        match parse_frame(bytes, 1 << 10) {
            Parse::Frame { request, .. } => CompactDb::decode(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn compact_db_round_trips_and_rejects_malformed_requests() {
        let compact = CompactDb {
            purge_before_secs: 1_700_000_000,
            purge_before_seqno: Seqno(77),
            drop_deletes: true,
        };
        let mut bytes = Vec::new();
        compact.encode(&RequestWriter::new(Opcode::CompactDb), &mut bytes);
        assert_eq!(decode(&bytes), Ok(compact));
        let mut extras = [0; EXTRAS_BYTES];
        assert!(decode(&frame(&extras)).is_ok());
        extras[16] = 2;
        assert_eq!(decode(&frame(&extras)), Err(Status::Invalid));
        assert_eq!(decode(&frame(&extras[..23])), Err(Status::Invalid));
        assert_eq!(decode(&frame(&[])), Err(Status::Invalid));
    }
}
