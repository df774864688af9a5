//! DELETE and DELETEQ.

use crate::binary::fields::{PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Status};

const SHAPE: RequestShape = RequestShape {
    cas: PartRule::Optional,
    ..RequestShape::KEY_ONLY
};

/// A request to delete a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remove<'a> {
    /// The document.
    pub key: &'a [u8],
    /// The CAS that it must have, 0 for any.
    pub cas: Cas,
}

impl<'a> Remove<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a value or a datatype, or no key.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        Ok(Self {
            key: request.key,
            cas: request.cas,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        RequestWriter {
            cas: self.cas,
            ..*writer
        }
        .write(&[], self.key, &[], out);
    }
}
