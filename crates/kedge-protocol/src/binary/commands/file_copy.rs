//! PREPARE_SNAPSHOT, GET_FILE_FRAGMENT and RELEASE_SNAPSHOT: a copy of a vBucket's file for another node.
//!
//! The numbers are Couchbase's. The fields are Kedge's own, because only nodes of one cluster send them. PREPARE_SNAPSHOT
//! has no fields but the vBucket.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Seqno, Status};
use serde::{Deserialize, Serialize};

const FRAGMENT_REQUEST_BYTES: usize = 24;
const FRAGMENT_REPLY_BYTES: usize = 8;

/// The reply to PREPARE_SNAPSHOT: a file that is ready to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedSnapshot {
    /// The number under which its parts are read.
    pub id: u64,
    /// Its length.
    pub bytes: u64,
    /// Its highest seqno.
    pub high_seqno: u64,
    /// The number of its documents and prepares.
    pub documents: u64,
}

impl PreparedSnapshot {
    /// Decodes the value of a reply.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is not the JSON of a prepared snapshot.
    pub fn decode(value: &[u8]) -> Result<Self, Status> {
        serde_json::from_slice(value).map_err(|_| Status::Invalid)
    }

    /// Encodes the value of a reply.
    ///
    /// # Panics
    /// Never: numbers always have a JSON text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers have a JSON text")
    }

    /// Returns the highest seqno.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        Seqno(self.high_seqno)
    }
}

/// A request to read a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFileFragment {
    /// The number of the file.
    pub id: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl GetFileFragment {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 24 bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[FRAGMENT_REQUEST_BYTES],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            id: extras.u64()?,
            offset: extras.u64()?,
            length: extras.u64()?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let fields = [self.id, self.offset, self.length].map(u64::to_be_bytes);
        writer.write(&fields.concat(), &[], &[], out);
    }
}

/// The extras of a reply to GET_FILE_FRAGMENT, whose value has the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFragment {
    /// The CRC-32C of the bytes.
    pub checksum: u32,
    /// The time that the reader waits before the next request, in microseconds.
    pub pause_us: u32,
}

impl FileFragment {
    /// Decodes the extras of a reply.
    ///
    /// # Errors
    /// [`Status::Invalid`] if they are not 8 bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let reply = Self {
            checksum: fields.u32()?,
            pause_us: fields.u32()?,
        };
        fields.end(reply)
    }

    /// Encodes the extras of a reply.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAGMENT_REPLY_BYTES] {
        let mut extras = [0; FRAGMENT_REPLY_BYTES];
        extras[..4].copy_from_slice(&self.checksum.to_be_bytes());
        extras[4..].copy_from_slice(&self.pause_us.to_be_bytes());
        extras
    }
}

/// A request to close a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseSnapshot {
    /// The number of the file.
    pub id: u64,
}

impl ReleaseSnapshot {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 8 bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[8],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let id = FieldReader::new(request.extras).u64()?;
        Ok(Self { id })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.id.to_be_bytes(), &[], &[], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Opcode, Parse, parse_frame};

    fn decode<T>(
        bytes: &[u8],
        with: impl Fn(&Request<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        match parse_frame(bytes, 1 << 10) {
            Parse::Frame { request, .. } => with(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_for_files_round_trip_and_reject_malformed_ones() {
        let fragment = GetFileFragment {
            id: u64::MAX,
            offset: 1 << 40,
            length: 4_096,
        };
        let writer = RequestWriter::new(Opcode::GetFileFragment);
        let mut bytes = Vec::new();
        fragment.encode(&writer, &mut bytes);
        assert_eq!(decode(&bytes, GetFileFragment::decode), Ok(fragment));
        let release = ReleaseSnapshot { id: 7 };
        let writer = RequestWriter::new(Opcode::ReleaseSnapshot);
        let mut bytes = Vec::new();
        release.encode(&writer, &mut bytes);
        assert_eq!(decode(&bytes, ReleaseSnapshot::decode), Ok(release));
        assert_eq!(
            decode(&bytes, GetFileFragment::decode),
            Err(Status::Invalid)
        );
        let mut bytes = Vec::new();
        writer.write(&[0; 8], b"key", &[], &mut bytes);
        assert_eq!(
            decode(&bytes, ReleaseSnapshot::decode),
            Err(Status::Invalid)
        );
    }

    #[test]
    fn replies_about_files_round_trip() {
        let reply = FileFragment {
            checksum: 0xdead_beef,
            pause_us: 12,
        };
        assert_eq!(FileFragment::decode(&reply.encode()), Ok(reply));
        assert_eq!(FileFragment::decode(&[0; 7]), Err(Status::Invalid));
        assert_eq!(FileFragment::decode(&[0; 9]), Err(Status::Invalid));
        let prepared = PreparedSnapshot {
            id: u64::MAX,
            bytes: 1 << 33,
            high_seqno: 77,
            documents: 3,
        };
        assert_eq!(PreparedSnapshot::decode(&prepared.encode()), Ok(prepared));
        assert_eq!(PreparedSnapshot::decode(b"{}"), Err(Status::Invalid));
    }
}
