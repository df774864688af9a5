//! A cursor over big-endian fields, and the shape checks that every request goes through.

use super::frame::Request;
use kedge_types::{Datatype, Status, limits};

/// Reads big-endian numbers from the front of a slice. A read beyond the end is [`Status::Invalid`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Status::Invalid)?;
        self.0 = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Status> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Status> {
        self.chunk().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Status> {
        self.chunk().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Status> {
        self.chunk().map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Result<i64, Status> {
        self.chunk().map(i64::from_be_bytes)
    }

    /// Reads sixteen raw bytes (uuids).
    #[inline]
    pub(crate) fn bytes16(&mut self) -> Result<[u8; 16], Status> {
        self.chunk()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Status> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Status::Invalid)?;
        self.0 = rest;
        Ok(head)
    }

    /// Returns `value` if all bytes were read.
    #[inline]
    pub(crate) fn end<T>(self, value: T) -> Result<T, Status> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(Status::Invalid)
        }
    }

    #[inline]
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// The rule for a part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartRule {
    /// At least one byte (or, for a CAS, not 0).
    Required,
    /// Must be absent.
    Forbidden,
    /// May be present or absent.
    Optional,
}

impl PartRule {
    #[inline]
    const fn admits(self, present: bool) -> bool {
        match self {
            Self::Required => present,
            Self::Forbidden => !present,
            Self::Optional => true,
        }
    }
}

/// The required shape of a request; [`RequestShape::check`] runs before a codec reads the fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestShape {
    /// The lengths that the extras may have, in bytes.
    pub(crate) extras: &'static [usize],
    pub(crate) key: PartRule,
    pub(crate) value: PartRule,
    pub(crate) cas: PartRule,
    /// The datatype bits that may be set.
    pub(crate) datatype: Datatype,
}

/// JSON and Snappy, the bits a client may set on an ordinary value.
pub(crate) const VALUE_DATATYPES: Datatype = Datatype::JSON.union(Datatype::SNAPPY);
/// Every datatype bit.
pub(crate) const ALL_DATATYPES: Datatype = VALUE_DATATYPES.union(Datatype::XATTR);

impl RequestShape {
    /// A key and nothing else, the shape of most reads.
    pub(crate) const KEY_ONLY: Self = Self {
        extras: &[0],
        key: PartRule::Required,
        value: PartRule::Forbidden,
        cas: PartRule::Forbidden,
        datatype: Datatype::RAW,
    };

    /// A header and nothing else.
    pub(crate) const EMPTY: Self = Self {
        extras: &[0],
        key: PartRule::Forbidden,
        value: PartRule::Forbidden,
        cas: PartRule::Forbidden,
        datatype: Datatype::RAW,
    };

    /// Checks that the request has this shape.
    ///
    /// # Errors
    /// [`Status::Invalid`] for the first part that does not fit.
    #[inline]
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Status> {
        let fits = self.extras.contains(&request.extras.len())
            && self.key.admits(!request.key.is_empty())
            && self.value.admits(!request.value.is_empty())
            && self.cas.admits(!request.cas.is_none())
            && request.datatype & !self.datatype.bits() == 0;
        if fits { Ok(()) } else { Err(Status::Invalid) }
    }

    /// Checks the shape with [`RequestShape::check`] and limits the key to the length of a stored key.
    ///
    /// # Errors
    /// [`Status::Invalid`] for the first part that does not fit.
    #[inline]
    pub(crate) fn check_document(&self, request: &Request<'_>) -> Result<(), Status> {
        self.check(request)?;
        if request.key.len() > limits::STORED_KEY_BYTES_MAX {
            return Err(Status::Invalid);
        }
        Ok(())
    }
}
