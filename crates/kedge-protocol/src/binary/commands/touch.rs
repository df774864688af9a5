//! TOUCH, GAT, GATQ, and GATK, GATKQ of memcached clients.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

const SHAPE: RequestShape = RequestShape {
    extras: &[4],
    ..RequestShape::KEY_ONLY
};

/// A request to set the expiry of a document. The reply to TOUCH has no extras but a mutation token; clients check
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The expiry as the client gave it.
    pub expiry: u32,
    /// The document.
    pub key: &'a [u8],
}

impl<'a> Touch<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, it has a value, a CAS or a datatype, or no key.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        Ok(Self {
            expiry: FieldReader::new(request.extras).u32()?,
            key: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.expiry.to_be_bytes(), self.key, &[], out);
    }
}
