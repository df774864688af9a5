//! RETURN_META: a set, add or delete whose reply carries the new metadata of the document.
//!
//! Layout: Couchbase `docs/BinaryProtocol.md`, section "Return Meta".

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, RevSeqno, Status};

const SHAPE: RequestShape = RequestShape {
    extras: &[12],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: Datatype::JSON.union(Datatype::SNAPPY),
};

/// The operation of RETURN_META.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnMetaKind {
    /// SET.
    Set,
    /// ADD.
    Add,
    /// DELETE.
    Delete,
}

/// A write whose reply carries the new metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnMeta<'a> {
    /// The operation.
    pub kind: ReturnMetaKind,
    /// The client's flags.
    pub flags: u32,
    /// Expiry, relative or absolute as in SET.
    pub expiry: u32,
    /// The CAS that the document must have, 0 for any.
    pub cas: Cas,
    /// The document.
    pub key: &'a [u8],
    /// Its value; a delete has none.
    pub value: &'a [u8],
    /// Datatype of the value.
    pub datatype: Datatype,
}

impl<'a> ReturnMeta<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 12 bytes, the kind is unknown, the key is missing, or a delete has a
    /// value.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let kind = match extras.u32()? {
            1 => ReturnMetaKind::Set,
            2 => ReturnMetaKind::Add,
            3 if request.value.is_empty() => ReturnMetaKind::Delete,
            _ => return Err(Status::Invalid),
        };
        Ok(Self {
            kind,
            flags: extras.u32()?,
            expiry: extras.u32()?,
            cas: request.cas,
            key: request.key,
            value: request.value,
            datatype: request.datatype(SHAPE.datatype)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let kind: u32 = match self.kind {
            ReturnMetaKind::Set => 1,
            ReturnMetaKind::Add => 2,
            ReturnMetaKind::Delete => 3,
        };
        let fields = [kind, self.flags, self.expiry];
        let extras: Vec<u8> = fields.into_iter().flat_map(u32::to_be_bytes).collect();
        RequestWriter {
            cas: self.cas,
            datatype: self.datatype,
            ..*writer
        }
        .write(&extras, self.key, self.value, out);
    }
}

/// Extras of the reply to RETURN_META. The CAS stands in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnMetaReply {
    /// The client's flags.
    pub flags: u32,
    /// Unix second of expiry, 0 for never; of the deletion, for a tombstone.
    pub expiry: u32,
    /// Revision.
    pub rev_seqno: RevSeqno,
}

impl ReturnMetaReply {
    /// Encodes the extras.
    #[must_use]
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.flags.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.expiry.to_be_bytes());
        bytes[8..].copy_from_slice(&self.rev_seqno.get().to_be_bytes());
        bytes
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not 16 bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let reply = Self {
            flags: fields.u32()?,
            expiry: fields.u32()?,
            rev_seqno: RevSeqno(fields.u64()?),
        };
        fields.end(reply)
    }
}
