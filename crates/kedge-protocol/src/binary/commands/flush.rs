//! FLUSH and FLUSHQ of memcached clients (memcached `doc/protocol-binary.xml` section 4.13).

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

const SHAPE: RequestShape = RequestShape {
    extras: &[0, 4],
    key: PartRule::Forbidden,
    ..RequestShape::KEY_ONLY
};

/// A request to empty the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The time of the flush: 0 for now, otherwise in the form of an expiry (seconds from now, or a Unix second).
    pub delay: u32,
}

impl Flush {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither absent nor four bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        SHAPE.check(request)?;
        let delay = if request.extras.is_empty() {
            0
        } else {
            FieldReader::new(request.extras).u32()?
        };
        Ok(Self { delay })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.delay.to_be_bytes(), &[], &[], out);
    }
}
