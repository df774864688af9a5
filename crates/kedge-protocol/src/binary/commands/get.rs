//! GET, GETQ, GETK, GETKQ, GET_REPLICA, GET_EX, GET_EX_REPLICA, EVICT_KEY: requests with only a key.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

/// A request that has only a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The document.
    pub key: &'a [u8],
}

impl<'a> Get<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a value, a CAS or a datatype, or no key.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        RequestShape::KEY_ONLY.check_document(request)?;
        Ok(Self { key: request.key })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], self.key, &[], out);
    }
}

/// Extras of a reply with a document: GET and its forms, GET_EX, GAT, GET_LOCKED, GET_RANDOM_KEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetReply {
    /// The client's flags of the document.
    pub flags: u32,
}

impl GetReply {
    /// Encodes the extras.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> [u8; 4] {
        self.flags.to_be_bytes()
    }

    /// Reads the extras.
    ///
    /// # Errors
    /// [`Status::Invalid`] when they are not four bytes.
    pub fn decode(extras: &[u8]) -> Result<Self, Status> {
        let mut fields = FieldReader::new(extras);
        let flags = fields.u32()?;
        fields.end(Self { flags })
    }
}
