//! Values of the engine: extended attributes before the document, and the client's own compression of both. Couchstore
//! file format, sections 2.4 and 3.3.
//!
//! ```text
//! u32 bytes of all pairs | repeated: u32 bytes of the pair, name, 0, value, 0 | document
//! ```

use std::borrow::Cow;

use super::{KvError, datatype_of_value};
use crate::compress::inflate;
use crate::limits::INFLATED_BODY_BYTES_MAX;
use kedge_types::Datatype;

/// A decoded value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value<'a> {
    bytes: Cow<'a, [u8]>,
    /// Offset of the document after the attributes.
    document: usize,
}

impl<'a> Value<'a> {
    /// Decodes a body as from [`crate::BodyForm::Plain`]. An empty body has no parts, whatever the datatype.
    ///
    /// # Errors
    /// [`KvError`] if the bytes do not match the datatype.
    pub fn decode(datatype: Datatype, body: &'a [u8]) -> Result<Self, KvError> {
        let datatype = datatype_of_value(datatype, body.len());
        let bytes = if datatype.contains(Datatype::SNAPPY) {
            let plain = inflate(body, INFLATED_BODY_BYTES_MAX);
            Cow::Owned(plain.map_err(|_| KvError::Value {
                expected: "sound Snappy data",
            })?)
        } else {
            Cow::Borrowed(body)
        };
        let document = if datatype.contains(Datatype::XATTR) {
            end_of_attributes(&bytes)?
        } else {
            0
        };
        Ok(Self { bytes, document })
    }

    /// Returns the document without attributes.
    #[must_use]
    pub fn document(&self) -> &[u8] {
        &self.bytes[self.document..]
    }

    /// Iterates over the extended attributes: names, and values that are JSON by convention.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes {
            rest: self.bytes.get(4..self.document).unwrap_or_default(),
        }
    }
}

/// An iterator over extended attributes, in stored order.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (pair, rest) = take_pair(self.rest)?;
        self.rest = rest;
        Some(pair)
    }
}

fn end_of_attributes(bytes: &[u8]) -> Result<usize, KvError> {
    let malformed = |expected| KvError::Value { expected };
    let (length, rest) = take_u32(bytes).ok_or(malformed("the length of its attributes"))?;
    let mut pairs = rest
        .get(..length)
        .ok_or(malformed("attributes that end within it"))?;
    while !pairs.is_empty() {
        let (_, left) = take_pair(pairs).ok_or(malformed("attributes of names and values"))?;
        pairs = left;
    }
    Ok(4 + length)
}

/// A name with its value, and the remaining bytes.
type ParsedXattr<'a> = ((&'a [u8], &'a [u8]), &'a [u8]);

fn take_pair(bytes: &[u8]) -> Option<ParsedXattr<'_>> {
    let (length, rest) = take_u32(bytes)?;
    let (pair, rest) = rest.split_at_checked(length)?;
    let mut parts = pair.splitn(3, |byte| *byte == 0);
    let (name, value, end) = (parts.next()?, parts.next()?, parts.next()?);
    (!name.is_empty() && end.is_empty()).then_some(((name, value), rest))
}

fn take_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_be_bytes(*number)).ok()?, rest))
}
