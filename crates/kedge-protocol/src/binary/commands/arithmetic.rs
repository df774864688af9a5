//! INCREMENT, DECREMENT and their quiet forms.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

const SHAPE: RequestShape = RequestShape {
    extras: &[20],
    ..RequestShape::KEY_ONLY
};

/// A change to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The amount to add or subtract.
    pub delta: u64,
    /// The value of a new counter.
    pub initial: u64,
    /// The expiry of a new counter as the client gave it. With [`Arithmetic::NO_CREATE`], a missing counter is
    /// [`Status::KeyNotFound`].
    pub expiry: u32,
    /// The counter.
    pub key: &'a [u8],
}

impl<'a> Arithmetic<'a> {
    /// The expiry that forbids the creation of a counter.
    pub const NO_CREATE: u32 = u32::MAX;

    /// Returns whether a missing counter is created.
    #[must_use]
    pub const fn creates(&self) -> bool {
        self.expiry != Self::NO_CREATE
    }

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not twenty bytes, it has a value, a CAS or a datatype, or no key.
    #[inline]
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            delta: extras.u64()?,
            initial: extras.u64()?,
            expiry: extras.u32()?,
            key: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = [0; 20];
        extras[..8].copy_from_slice(&self.delta.to_be_bytes());
        extras[8..16].copy_from_slice(&self.initial.to_be_bytes());
        extras[16..].copy_from_slice(&self.expiry.to_be_bytes());
        writer.write(&extras, self.key, &[], out);
    }
}

/// Encodes the value of a reply: the counter as eight bytes (a GET of it reads decimal text).
#[must_use]
#[inline]
pub const fn encode_counter(counter: u64) -> [u8; 8] {
    counter.to_be_bytes()
}

/// Reads the value of a reply.
///
/// # Errors
/// [`Status::Invalid`] when it is not eight bytes.
pub fn decode_counter(value: &[u8]) -> Result<u64, Status> {
    let mut fields = FieldReader::new(value);
    let counter = fields.u64()?;
    fields.end(counter)
}
