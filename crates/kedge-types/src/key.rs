//! Document keys.

use crate::leb128::{decode_leb128, encode_leb128};
use crate::limits::{KEY_BYTES_MAX, KEY_IN_COLLECTION_BYTES_MAX, STORED_KEY_BYTES_MAX};
use crate::{CollectionId, VbId};
use std::fmt;

/// A document's stored key: the collection id as canonical LEB128, followed by the logical key. It has a fixed size and
/// lives on the stack, because every request needs one, so creating a key allocates nothing.
#[derive(Clone, Copy)]
pub struct DocKey {
    bytes: [u8; STORED_KEY_BYTES_MAX],
    len: u8,
    prefix: u8,
}

/// A reason to reject bytes as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// No bytes follow the collection prefix.
    Empty,
    /// The logical key is longer than [`KEY_BYTES_MAX`] in the default collection, or [`KEY_IN_COLLECTION_BYTES_MAX`]
    /// in any other.
    TooLong,
    /// The collection prefix is not canonical LEB128 of a `u32`.
    BadPrefix,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the key is empty",
            Self::TooLong => "the key is too long",
            Self::BadPrefix => "the collection id in front of the key is not canonical LEB128",
        })
    }
}

impl std::error::Error for KeyError {}

impl DocKey {
    /// Creates the key of `logical` in `collection`.
    ///
    /// # Errors
    /// [`KeyError`] when the key is empty or too long.
    pub fn new(collection: CollectionId, logical: &[u8]) -> Result<Self, KeyError> {
        let mut buffer = KeyBuffer::EMPTY;
        buffer.put(collection, logical).copied()
    }

    /// Parses the key that a client with collection support sends: the collection prefix and the logical key.
    ///
    /// # Errors
    /// [`KeyError`] when the prefix is malformed, or the logical key empty or too long.
    pub fn from_prefixed(wire: &[u8]) -> Result<Self, KeyError> {
        let mut buffer = KeyBuffer::EMPTY;
        buffer.put_prefixed(wire).copied()
    }

    fn check_len(collection: CollectionId, logical: &[u8]) -> Result<(), KeyError> {
        let max = if collection == CollectionId::DEFAULT {
            KEY_BYTES_MAX
        } else {
            KEY_IN_COLLECTION_BYTES_MAX
        };
        match logical.len() {
            0 => Err(KeyError::Empty),
            len if len > max => Err(KeyError::TooLong),
            _ => Ok(()),
        }
    }

    /// Returns the stored form: the collection prefix and the logical key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the key without its collection prefix.
    #[must_use]
    pub fn logical(&self) -> &[u8] {
        &self.bytes[usize::from(self.prefix)..usize::from(self.len)]
    }

    /// Returns the collection of the key.
    #[must_use]
    pub fn collection(&self) -> CollectionId {
        CollectionId(decode_leb128(self.as_bytes()).map_or(0, |(id, _)| id))
    }

    /// Returns the vBucket of the key among `vbuckets` vBuckets.
    #[must_use]
    pub fn vbucket(&self, vbuckets: u16) -> VbId {
        VbId::of_key(self.logical(), vbuckets)
    }
}

/// Memory for one key. The key of a request is made where it stays, as a move would copy its whole fixed size.
#[derive(Debug)]
pub struct KeyBuffer(DocKey);

impl KeyBuffer {
    /// A buffer without a key.
    pub const EMPTY: Self = Self(DocKey {
        bytes: [0; STORED_KEY_BYTES_MAX],
        len: 0,
        prefix: 0,
    });

    /// Makes the key that [`DocKey::new`] returns.
    ///
    /// # Errors
    /// As [`DocKey::new`].
    #[inline]
    pub fn put(&mut self, collection: CollectionId, logical: &[u8]) -> Result<&DocKey, KeyError> {
        let (prefix, prefix_len) = encode_leb128(collection.get());
        DocKey::check_len(collection, logical)?;
        let len = prefix_len + logical.len();
        self.0.bytes[..prefix_len].copy_from_slice(&prefix[..prefix_len]);
        self.0.bytes[prefix_len..len].copy_from_slice(logical);
        (self.0.len, self.0.prefix) = (len as u8, prefix_len as u8);
        Ok(&self.0)
    }

    /// Makes the key that [`DocKey::from_prefixed`] returns.
    ///
    /// # Errors
    /// As [`DocKey::from_prefixed`].
    #[inline]
    pub fn put_prefixed(&mut self, wire: &[u8]) -> Result<&DocKey, KeyError> {
        let Some((collection, prefix_len)) = decode_leb128(wire) else {
            return Err(if wire.is_empty() {
                KeyError::Empty
            } else {
                KeyError::BadPrefix
            });
        };
        DocKey::check_len(CollectionId(collection), &wire[prefix_len..])?;
        self.0.bytes[..wire.len()].copy_from_slice(wire);
        (self.0.len, self.0.prefix) = (wire.len() as u8, prefix_len as u8);
        Ok(&self.0)
    }
}

impl PartialEq for DocKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for DocKey {}

impl fmt::Debug for DocKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.collection(), self.logical().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_from_prefixed_make_equal_keys() {
        for (collection, wire) in [
            (0, &b"\x00hello"[..]),
            (8, b"\x08hello"),
            (0x555, b"\xd5\x0ahello"),
        ] {
            let made = DocKey::new(CollectionId(collection), b"hello").unwrap();
            let parsed = DocKey::from_prefixed(wire).unwrap();
            assert_eq!(made, parsed);
            assert_eq!(made.as_bytes(), wire);
            assert_eq!(made.logical(), b"hello");
            assert_eq!(made.collection(), CollectionId(collection));
            assert_eq!(made.vbucket(1024), VbId(528), "the prefix does not count");
        }
    }

    #[test]
    fn key_length_limit_depends_on_the_collection() {
        let long = [b'k'; 251];
        assert!(DocKey::new(CollectionId(0), &long[..250]).is_ok());
        assert_eq!(DocKey::new(CollectionId(0), &long), Err(KeyError::TooLong));
        assert!(DocKey::new(CollectionId(u32::MAX), &long[..246]).is_ok());
        assert_eq!(
            DocKey::new(CollectionId(8), &long[..247]),
            Err(KeyError::TooLong)
        );
        assert_eq!(DocKey::new(CollectionId(0), b""), Err(KeyError::Empty));
        assert_eq!(DocKey::from_prefixed(b""), Err(KeyError::Empty));
        assert_eq!(DocKey::from_prefixed(b"\x08"), Err(KeyError::Empty));
        assert_eq!(
            DocKey::from_prefixed(b"\x80\x00k"),
            Err(KeyError::BadPrefix)
        );
    }
}
