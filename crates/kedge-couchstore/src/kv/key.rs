//! Keys in the trees. Couchstore file format, section 3.1.
//!
//! ```text
//! [0x02 for the prepare namespace] | LEB128 of the collection id | key                 documents
//! 0x01 | LEB128 of the kind | LEB128 of the subject | "_collection" or "_scope"        system events
//! ```

use super::KvError;
use kedge_types::{CollectionId, decode_leb128, encode_leb128};

/// The prefix of the keys of prepares and aborts.
pub const PREPARE_PREFIX: u8 = 0x02;

/// The collection id that marks system events.
const SYSTEM_EVENTS: u32 = 1;
/// Ids that no collection has: they mark namespaces, or are reserved for that.
const RESERVED: std::ops::RangeInclusive<u32> = 1..=7;

const COLLECTION_SUFFIX: &[u8] = b"_collection";
const SCOPE_SUFFIX: &[u8] = b"_scope";

/// A decoded key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKey<'a> {
    /// The key of a document.
    Document {
        /// `true` in the prepare namespace, which may also have a committed document of the same name.
        prepared: bool,
        /// The collection.
        collection: CollectionId,
        /// The key within the collection.
        logical: &'a [u8],
    },
    /// The key of a change of the collection manifest.
    SystemEvent {
        /// The kind of change.
        kind: SystemEventKind,
        /// The id of the collection or scope.
        subject: u32,
    },
}

/// The kind of a system event. Creation and drop have the same key; a drop has the deleted flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemEventKind {
    /// A collection was created or dropped.
    Collection = 0,
    /// A scope was created or dropped.
    Scope = 1,
    /// A collection's settings were changed.
    ModifyCollection = 2,
}

impl SystemEventKind {
    const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Collection),
            1 => Some(Self::Scope),
            2 => Some(Self::ModifyCollection),
            _ => None,
        }
    }

    const fn suffix(self) -> &'static [u8] {
        match self {
            Self::Collection | Self::ModifyCollection => COLLECTION_SUFFIX,
            Self::Scope => SCOPE_SUFFIX,
        }
    }

    /// Returns the flags of an event: the kind as a little-endian number, the only one in the file.
    #[must_use]
    pub const fn flags(self) -> [u8; 4] {
        (self as u32).to_le_bytes()
    }
}

/// Removes the prefix of the prepare namespace. Returns whether there was one, and the key as used outside of the file.
#[must_use]
pub const fn split_prepare(key: &[u8]) -> (bool, &[u8]) {
    match key {
        [PREPARE_PREFIX, rest @ ..] => (true, rest),
        _ => (false, key),
    }
}

impl<'a> DiskKey<'a> {
    /// Decodes a key.
    ///
    /// # Errors
    /// [`KvError`] for a collection id that is not canonical or reserved, and for a malformed system event. The length
    /// of the logical key is not checked.
    pub fn decode(key: &'a [u8]) -> Result<Self, KvError> {
        let (prepared, prefixed) = split_prepare(key);
        let (collection, logical) = take(prefixed, "a collection id as canonical LEB128")?;
        if collection == SYSTEM_EVENTS && !prepared {
            return Self::decode_event(logical);
        }
        if RESERVED.contains(&collection) {
            return Err(KvError::Key {
                expected: "a collection id other than 1 to 7",
            });
        }
        Ok(Self::Document {
            prepared,
            collection: CollectionId(collection),
            logical,
        })
    }

    fn decode_event(rest: &[u8]) -> Result<Self, KvError> {
        let (kind, rest) = take(rest, "the kind of a system event as canonical LEB128")?;
        let (subject, suffix) = take(rest, "the subject of a system event as canonical LEB128")?;
        let kind = SystemEventKind::from_number(kind).ok_or(KvError::Key {
            expected: "kind 0, 1 or 2 of a system event",
        })?;
        if suffix != kind.suffix() {
            return Err(KvError::Key {
                expected: "`_collection` or `_scope`, as the kind of system event asks,",
            });
        }
        Ok(Self::SystemEvent { kind, subject })
    }

    /// Appends the key as in the trees.
    ///
    /// # Panics
    /// Panics if a document's collection id is one of 1 to 7, which collections do not have.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Document {
                prepared,
                collection,
                logical,
            } => {
                assert!(
                    !RESERVED.contains(&collection.get()),
                    "collections have ids other than 1 to 7"
                );
                if prepared {
                    out.push(PREPARE_PREFIX);
                }
                push(collection.get(), out);
                out.extend_from_slice(logical);
            }
            Self::SystemEvent { kind, subject } => {
                push(SYSTEM_EVENTS, out);
                push(kind as u32, out);
                push(subject, out);
                out.extend_from_slice(kind.suffix());
            }
        }
    }

    /// Encodes the key as in the trees.
    ///
    /// # Panics
    /// Panics like [`DiskKey::encode_into`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }
}

fn take<'a>(bytes: &'a [u8], expected: &'static str) -> Result<(u32, &'a [u8]), KvError> {
    let (number, len) = decode_leb128(bytes).ok_or(KvError::Key { expected })?;
    Ok((number, &bytes[len..]))
}

fn push(number: u32, out: &mut Vec<u8>) {
    let (bytes, len) = encode_leb128(number);
    out.extend_from_slice(&bytes[..len]);
}
