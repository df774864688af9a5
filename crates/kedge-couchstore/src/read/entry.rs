//! The entries of documents in the trees.

use std::fmt;
use std::sync::Arc;

use kedge_types::{RevSeqno, Seqno};

use crate::format::bytes::u48_at;
use crate::format::entry::{EntryFields, ID_FIXED_BYTES, SEQNO_FIXED_BYTES};
use crate::tree::node::{Node, NodeEntry};

/// A document or tombstone without its body. It is cheap to clone: its bytes are shared, with the other entries of its
/// node if a scan found it.
#[derive(Clone)]
pub struct Entry {
    memory: Arc<[u8]>,
    key: (u32, u32),
    rev_meta: (u32, u32),
    fields: EntryFields,
}

/// The type of a body, as stated by its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentMeta(
    /// The byte in the file.
    pub u8,
);

impl ContentMeta {
    /// Flag of a body that the store compressed with Snappy.
    pub const COMPRESSED: u8 = 0x80;
    /// A JSON document that the store compressed.
    pub const COMPRESSED_JSON: ContentMeta = ContentMeta(Self::COMPRESSED);
    /// Bytes that are not JSON.
    pub const NOT_JSON: ContentMeta = ContentMeta(3);

    /// Returns `true` if the store compressed the body, so that a read decompresses it.
    #[must_use]
    pub fn is_compressed(self) -> bool {
        self.0 & Self::COMPRESSED != 0
    }

    /// Returns the same type without the compression flag.
    #[must_use]
    pub fn uncompressed(self) -> Self {
        Self(self.0 & !Self::COMPRESSED)
    }
}

impl Entry {
    /// Creates an entry from a validated leaf of the tree by id.
    pub(crate) fn from_id(node: &Node, entry: &NodeEntry<'_>) -> Self {
        Entry::by_id(Arc::clone(node.memory()), entry.start, entry)
    }

    /// Creates an entry like [`Entry::from_id`], with memory of its own.
    pub(crate) fn copied_from_id(entry: &NodeEntry<'_>) -> Self {
        Entry::by_id(entry.raw.into(), 0, entry)
    }

    fn by_id(memory: Arc<[u8]>, start: usize, entry: &NodeEntry<'_>) -> Self {
        let fields = EntryFields::take_id(entry.value).expect("the node was checked");
        let end = start + entry.raw.len();
        let value = end - entry.value.len();
        Entry {
            memory,
            key: ((value - entry.key.len()) as u32, value as u32),
            rev_meta: ((value + ID_FIXED_BYTES) as u32, end as u32),
            fields,
        }
    }

    /// Creates an entry from a validated leaf of the tree by seqno.
    pub(crate) fn from_seqno(node: &Node, entry: &NodeEntry<'_>) -> Self {
        Entry::by_seqno(Arc::clone(node.memory()), entry.start, entry)
    }

    /// Creates an entry like [`Entry::from_seqno`], with memory of its own.
    pub(crate) fn copied_from_seqno(entry: &NodeEntry<'_>) -> Self {
        Entry::by_seqno(entry.raw.into(), 0, entry)
    }

    fn by_seqno(memory: Arc<[u8]>, start: usize, entry: &NodeEntry<'_>) -> Self {
        let seqno = u48_at(entry.key, 0);
        let (fields, key_bytes) =
            EntryFields::take_seqno(seqno, entry.value).expect("the node was checked");
        let end = start + entry.raw.len();
        let key = end - entry.value.len() + SEQNO_FIXED_BYTES;
        Entry {
            memory,
            key: (key as u32, (key + key_bytes) as u32),
            rev_meta: ((key + key_bytes) as u32, end as u32),
            fields,
        }
    }

    fn bytes(&self, (start, end): (u32, u32)) -> &[u8] {
        &self.memory[start as usize..end as usize]
    }

    pub(crate) fn fields(&self) -> &EntryFields {
        &self.fields
    }

    /// Returns the stored key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.bytes(self.key)
    }

    /// Returns the private metadata.
    #[must_use]
    pub fn rev_meta(&self) -> &[u8] {
        self.bytes(self.rev_meta)
    }

    /// Returns the seqno.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        Seqno(self.fields.seqno)
    }

    /// Returns the revision.
    #[must_use]
    pub fn rev(&self) -> RevSeqno {
        RevSeqno(self.fields.rev)
    }

    /// Returns `true` for a tombstone.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.fields.deleted
    }

    /// Returns the type of the body.
    #[must_use]
    pub fn content_meta(&self) -> ContentMeta {
        ContentMeta(self.fields.content_meta)
    }

    /// Returns the offset of the body; `None` if there is none.
    #[must_use]
    pub fn body_offset(&self) -> Option<crate::Offset> {
        (self.fields.body != 0).then_some(crate::Offset(self.fields.body))
    }

    /// Returns the size of the body, in bytes on disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u32 {
        self.fields.body_bytes
    }
}

/// Both trees have to agree on a document.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
            && self.key() == other.key()
            && self.rev_meta() == other.rev_meta()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key().escape_ascii().to_string())
            .field("rev_meta", &self.rev_meta().escape_ascii().to_string())
            .field("fields", &self.fields)
            .finish()
    }
}
