//! SET, ADD, REPLACE and their quiet forms.

use crate::binary::fields::{FieldReader, PartRule, RequestShape, VALUE_DATATYPES};
use crate::binary::{Opcode, Request, RequestWriter};
use kedge_types::{Cas, Datatype, Seqno, Status, VbUuid};

const SHAPE: RequestShape = RequestShape {
    extras: &[8],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: VALUE_DATATYPES,
};

/// A request to store a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The client's flags, opaque to the server.
    pub flags: u32,
    /// The expiry as the client gave it; [`kedge_types::Expiry::from_wire`] makes it absolute.
    pub expiry: u32,
    /// The document.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The CAS that the document must have, 0 for any.
    pub cas: Cas,
    /// The JSON and Snappy bits, as the client set them.
    pub datatype: Datatype,
}

impl<'a> Store<'a> {
    /// Checks and reads the request. ADD must not have a CAS, as the document does not exist yet.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not eight bytes, the key is missing, or the datatype has other bits
    /// than JSON and Snappy.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let add = request.opcode == Opcode::Add.wire() || request.opcode == Opcode::Addq.wire();
        if add && !request.cas.is_none() {
            return Err(Status::Invalid);
        }
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            flags: extras.u32()?,
            expiry: extras.u32()?,
            key: request.key,
            value: request.value,
            cas: request.cas,
            datatype: request.datatype(VALUE_DATATYPES)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = [0; 8];
        extras[..4].copy_from_slice(&self.flags.to_be_bytes());
        extras[4..].copy_from_slice(&self.expiry.to_be_bytes());
        RequestWriter {
            cas: self.cas,
            datatype: self.datatype,
            ..*writer
        }
        .write(&extras, self.key, self.value, out);
    }
}

/// The extras of the reply to a mutation, if MutationSeqno was negotiated: the position of the mutation in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationToken {
    /// The branch of history.
    pub vb_uuid: VbUuid,
    /// The seqno of the mutation (of the commit, for a durable write).
    pub seqno: Seqno,
}

impl MutationToken {
    /// Encodes the extras.
    #[must_use]
    #[inline]
    pub fn encode(self) -> [u8; 16] {
        let mut extras = [0; 16];
        extras[..8].copy_from_slice(&self.vb_uuid.get().to_be_bytes());
        extras[8..].copy_from_slice(&self.seqno.get().to_be_bytes());
        extras
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not sixteen bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let vb_uuid = VbUuid(fields.u64()?);
        let seqno = Seqno(fields.u64()?);
        fields.end(Self { vb_uuid, seqno })
    }
}
