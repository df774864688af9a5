//! APPEND, PREPEND and their quiet forms.

use crate::binary::fields::{PartRule, RequestShape, VALUE_DATATYPES};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, Status};

const SHAPE: RequestShape = RequestShape {
    extras: &[0],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Optional,
    datatype: VALUE_DATATYPES,
};

/// A request to append or prepend bytes to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat<'a> {
    /// The document.
    pub key: &'a [u8],
    /// The bytes to add, inflated first if `datatype` has the Snappy bit.
    pub value: &'a [u8],
    /// The CAS that the document must have, 0 for any.
    pub cas: Cas,
    /// The datatype of the bytes to add, not of the result.
    pub datatype: Datatype,
}

impl<'a> Concat<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras or no key, or the datatype has other bits than JSON and Snappy.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        Ok(Self {
            key: request.key,
            value: request.value,
            cas: request.cas,
            datatype: request.datatype(VALUE_DATATYPES)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        RequestWriter {
            cas: self.cas,
            datatype: self.datatype,
            ..*writer
        }
        .write(&[], self.key, self.value, out);
    }
}
