//! Encoding of items as entries of a file, and decoding. Couchstore file format, sections 3.1 and 3.2.
//!
//! A round trip preserves the item except for two properties without a place in the file: the level of a completed
//! SyncWrite, and the datatype of an empty value.

use kedge_couchstore::kv::{
    DeleteSource, EntryMeta, KvError, Meaning, PREPARE_PREFIX, RevMetaBytes, SyncWrite, ValueMeta,
    datatype_of_value, split_prepare,
};
use kedge_couchstore::{ContentMeta, Entry, Mutation, MutationBody, kv::DiskKey};
use kedge_types::{Datatype, Expiry, Seqno};
use kedge_vbucket::{Deletion, FileChange, Item, ItemMeta, SystemEvent, is_system_key};

use crate::events::{body_of, event_of};

/// Length in bytes up to which values are stored uncompressed: Snappy adds two bytes and saves next to nothing in short
/// values, unless they repeat. Couchbase compresses them, too, and reads both forms.
const PLAIN_BYTES_MAX: usize = 64;

/// A batch of items, encoded for a file.
pub(crate) struct EncodedBatch<'a> {
    items: &'a [FileChange],
    encoded: Vec<EncodedItem>,
    /// Concatenated keys of prepares and aborts.
    keys: Vec<u8>,
    /// Bodies of system events, which the items do not contain.
    bodies: Vec<Vec<u8>>,
}

struct EncodedItem {
    rev_meta: RevMetaBytes,
    content_meta: ContentMeta,
    deleted: bool,
    /// End of the key in `keys`; 0 if the key is the item's own.
    key_end: u32,
    /// Index of the body in `bodies`; `None` for the item's value.
    body: Option<u32>,
}

impl<'a> EncodedBatch<'a> {
    /// Encodes items.
    ///
    /// # Panics
    /// Panics if a prepare has no level, or a system event is malformed.
    pub(crate) fn new(items: &'a [FileChange]) -> Self {
        let mut keys = Vec::new();
        let mut bodies = Vec::new();
        let encode = |apply: &FileChange| {
            let meta = meta_of(apply);
            let body = event_in(apply).map(|event| {
                bodies.push(body_of(&event));
                bodies.len() as u32 - 1
            });
            let key_end = if let FileChange::Document(_) = apply {
                0
            } else {
                keys.push(PREPARE_PREFIX);
                keys.extend_from_slice(apply.item().key());
                u32::try_from(keys.len()).expect("the keys of a batch have less than 4 GiB")
            };
            let is_short = body.is_none() && apply.item().value().len() <= PLAIN_BYTES_MAX;
            EncodedItem {
                rev_meta: meta.rev_meta.encode(),
                content_meta: match is_short {
                    true => meta.content_meta.uncompressed(),
                    false => meta.content_meta,
                },
                deleted: meta.deleted,
                key_end,
                body,
            }
        };
        let encoded = items.iter().map(encode).collect();
        EncodedBatch {
            items,
            encoded,
            keys,
            bodies,
        }
    }

    /// Returns the mutations in the order of the items.
    pub(crate) fn mutations(&self) -> Vec<Mutation<'_>> {
        let both = self.items.iter().zip(&self.encoded);
        both.map(|(apply, encoded)| self.mutation(apply.item(), encoded))
            .collect()
    }

    fn mutation<'b>(&'b self, item: &'b Item, encoded: &'b EncodedItem) -> Mutation<'b> {
        let key = match encoded.key_end as usize {
            0 => item.key(),
            end => &self.keys[end - item.key().len() - 1..end],
        };
        let body = match encoded.body {
            None => item.value(),
            Some(index) => &self.bodies[index as usize],
        };
        Mutation {
            key,
            seqno: item.seqno(),
            rev: item.rev_seqno(),
            deleted: encoded.deleted,
            content_meta: encoded.content_meta,
            rev_meta: encoded.rev_meta.as_slice(),
            body: match encoded.content_meta.is_compressed() {
                true => MutationBody::Compress(body),
                false => MutationBody::Stored(body),
            },
        }
    }
}

/// Returns the system event that a change writes, if any.
///
/// # Panics
/// Panics if the key is that of a system event and the value is malformed.
pub(crate) fn event_in(apply: &FileChange) -> Option<SystemEvent> {
    let FileChange::Document(item) = apply else {
        return None;
    };
    is_system_key(item.key())
        .then(|| SystemEvent::of_item(item).expect("only events have keys of that kind"))
}

fn meta_of(apply: &FileChange) -> EntryMeta {
    let item = apply.item();
    let meta = item.meta();
    let value = ValueMeta {
        // The number is the client's bytes read as big-endian.
        flags: meta.flags.to_be_bytes(),
        datatype: meta.datatype,
        bytes: item.value().len(),
    };
    match apply {
        FileChange::Document(_) => match meta.deleted {
            None => EntryMeta::live(meta.cas, meta.expiry, value),
            Some(how) => EntryMeta::tombstone(meta.cas, meta.expiry.0, source(how), value),
        },
        FileChange::Prepare(_) => {
            let level = meta.level.expect("a prepare has a level");
            let mut entry = EntryMeta::prepare(meta.cas, meta.expiry, value, level);
            if let Some(how) = meta.deleted {
                // The delete source of the tombstone that a commit of the prepare creates.
                entry.rev_meta.delete_source = source(how);
                entry.rev_meta.sync_write = Some(SyncWrite::Pending {
                    level,
                    is_delete: true,
                });
            }
            entry
        }
        FileChange::Abort(aborted) => {
            let mut entry = EntryMeta::abort(meta.cas, meta.expiry.0, aborted.prepared);
            entry.rev_meta.flags = value.flags;
            entry
        }
    }
}

fn source(how: Deletion) -> DeleteSource {
    match how {
        Deletion::Explicit => DeleteSource::Explicit,
        Deletion::Expired => DeleteSource::Ttl,
    }
}

/// Returns `true` if extended attributes precede an entry's value.
pub(crate) fn has_xattrs(entry: &Entry) -> bool {
    let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta());
    meta.is_ok_and(|meta| meta.rev_meta.datatype.contains(Datatype::XATTR))
}

/// The kind of a [`FileRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRecordKind {
    /// A committed document or tombstone.
    Document,
    /// A change of collections, with the value of [`SystemEvent::item`].
    SystemEvent,
    /// A SyncWrite. It is complete if the completed seqno is at least its own.
    Prepare,
    /// The abort of a SyncWrite.
    Abort {
        /// The seqno of the prepare that it replaced.
        prepared: Seqno,
    },
}

/// A document, tombstone, prepare, abort or system event from a file.
#[derive(Clone, Debug)]
pub struct FileRecord {
    entry: Entry,
    kind: FileRecordKind,
    meta: ItemMeta,
    value: Option<Vec<u8>>,
}

impl FileRecord {
    /// Decodes an entry. Returns `None` if its kind is unknown, or for a system event without its body. `value` is the
    /// uncompressed body, or `None` if it was not read.
    pub(crate) fn decode(entry: Entry, value: Option<Vec<u8>>) -> Result<Option<Self>, KvError> {
        let key = DiskKey::decode(entry.key())?;
        let deleted = entry.is_deleted();
        let entry_meta = EntryMeta::decode(deleted, entry.content_meta(), entry.rev_meta())?;
        let (kind, level, is_deleted) = match entry_meta.meaning(&key)? {
            Meaning::Live => (FileRecordKind::Document, None, false),
            Meaning::Tombstone => (FileRecordKind::Document, None, true),
            Meaning::Prepare { level, is_delete } => {
                (FileRecordKind::Prepare, Some(level), is_delete)
            }
            Meaning::Abort { prepare } => (FileRecordKind::Abort { prepared: prepare }, None, true),
            Meaning::SystemEvent { kind, dropped, .. } => {
                let Some(body) = value else {
                    return Ok(None);
                };
                let event = event_of(kind, dropped, &body)?;
                let item = event.item(entry_meta.rev_meta.cas, entry.seqno());
                return Ok(Some(FileRecord {
                    kind: FileRecordKind::SystemEvent,
                    meta: item.meta(),
                    value: Some(item.value().to_vec()),
                    entry,
                }));
            }
            Meaning::LegacyCommit { .. } => return Ok(None),
        };
        let rev_meta = entry_meta.rev_meta;
        let how = match rev_meta.delete_source {
            DeleteSource::Explicit => Deletion::Explicit,
            DeleteSource::Ttl => Deletion::Expired,
        };
        let bytes = value.as_ref().map_or(usize::MAX, Vec::len);
        let meta = ItemMeta {
            cas: rev_meta.cas,
            seqno: entry.seqno(),
            rev: entry.rev(),
            flags: u32::from_be_bytes(rev_meta.flags),
            expiry: Expiry(rev_meta.exptime),
            datatype: datatype_of_value(rev_meta.datatype, bytes),
            deleted: is_deleted.then_some(how),
            level,
        };
        Ok(Some(FileRecord {
            entry,
            kind,
            meta,
            value,
        }))
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the item with this uncompressed value.
    pub(crate) fn with_value(&self, value: &[u8]) -> Item {
        let meta = ItemMeta {
            datatype: datatype_of_value(self.meta.datatype, value.len()),
            ..self.meta
        };
        Item::new(&meta, self.key(), &[value])
    }

    /// Returns the stored key: collection prefix and logical key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        split_prepare(self.entry.key()).1
    }

    /// Returns the kind of the record.
    #[must_use]
    pub fn kind(&self) -> FileRecordKind {
        self.kind
    }

    /// Returns the metadata.
    #[must_use]
    pub fn meta(&self) -> &ItemMeta {
        &self.meta
    }

    /// Returns the number of bytes of the value in the file.
    #[must_use]
    pub fn disk_bytes(&self) -> u32 {
        self.entry.disk_bytes()
    }

    /// Returns the stored value, or `None` if it was not read.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// Returns the item, or `None` if the value was not read.
    #[must_use]
    pub fn item(&self) -> Option<Item> {
        let value = self.value.as_deref()?;
        Some(Item::new(&self.meta, self.key(), &[value]))
    }
}

#[cfg(test)]
mod tests;
