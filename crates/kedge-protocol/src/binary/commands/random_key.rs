//! GET_RANDOM_KEY. The reply is a [`super::GetReply`] with key, value and CAS.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{CollectionId, Status};

const SHAPE: RequestShape = RequestShape {
    extras: &[0, 4, 5],
    ..RequestShape::EMPTY
};

/// A request for a random document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetRandomKey {
    /// The collection of the document; the default collection if none is given.
    pub collection: Option<CollectionId>,
    /// True if the value is returned with its extended attributes.
    pub include_xattrs: bool,
}

impl GetRandomKey {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 0, 4 or 5 bytes, their last byte is not 0 or 1, or anything else
    /// is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        let collection = if extras.is_empty() {
            None
        } else {
            Some(CollectionId(extras.u32()?))
        };
        let include_xattrs = match extras.rest() {
            [] | [0] => false,
            [1] => true,
            _ => return Err(Status::Invalid),
        };
        Ok(Self {
            collection,
            include_xattrs,
        })
    }

    /// Appends the request. `include_xattrs` needs a collection.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = Vec::with_capacity(5);
        if let Some(collection) = self.collection {
            extras.extend_from_slice(&collection.get().to_be_bytes());
            if self.include_xattrs {
                extras.push(1);
            }
        }
        writer.write(&extras, &[], &[], out);
    }
}
