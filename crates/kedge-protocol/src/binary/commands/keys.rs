//! GET_KEYS.

use crate::binary::fields::{FieldReader, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::Status;

const SHAPE: RequestShape = RequestShape {
    extras: &[0, 4],
    ..RequestShape::KEY_ONLY
};

/// A request for a list of keys, in order, from a start key on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetKeys<'a> {
    /// The largest number of keys to return.
    pub count: u32,
    /// The first key of the range.
    pub start: &'a [u8],
}

impl<'a> GetKeys<'a> {
    /// The number of keys to return if the client gives none.
    pub const COUNT_DEFAULT: u32 = 1000;

    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are neither absent nor four bytes, it has a value, a CAS or a datatype, or
    /// no key.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let count = if request.extras.is_empty() {
            Self::COUNT_DEFAULT
        } else {
            FieldReader::new(request.extras).u32()?
        };
        Ok(Self {
            count,
            start: request.key,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.count.to_be_bytes(), self.start, &[], out);
    }
}

/// Appends a key to the value of a reply: two bytes of length, then the key.
///
/// # Panics
/// When the key is longer than 65,535 bytes.
pub fn push_key(key: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(key.len()).expect("a key fits its length field");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(key);
}

/// The keys in the value of a reply, as [`push_key`] writes them.
#[derive(Clone, Copy, Debug)]
pub struct KeyList<'a>(FieldReader<'a>);

impl<'a> KeyList<'a> {
    /// Reads the value of a reply.
    #[must_use]
    pub const fn new(value: &'a [u8]) -> Self {
        Self(FieldReader::new(value))
    }
}

impl<'a> Iterator for KeyList<'a> {
    type Item = Result<&'a [u8], Status>;

    /// Returns the next key. If the list ends in the middle of a key, returns [`Status::Invalid`] and then nothing
    /// more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let key = self.0.u16().and_then(|len| self.0.take(usize::from(len)));
        if key.is_err() {
            self.0 = FieldReader::new(&[]);
        }
        Some(key)
    }
}
