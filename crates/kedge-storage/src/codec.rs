//! Items as entries of a file, and back. Couchstore file format, sections 3.1 and 3.2.
//!
//! What comes back is what was stored, but for two things that a file has no place for: the level of a SyncWrite that is
//! over, and the datatype of a value without bytes.

use kedge_couchstore::kv::{
    DeleteSource, EntryMeta, KvError, Meaning, PREPARE_PREFIX, RevMetaBytes, SyncWrite, ValueMeta,
    datatype_of_value, split_prepare,
};
use kedge_couchstore::{Body, ContentMeta, Entry, Mutation, kv::DiskKey};
use kedge_types::{Datatype, Expiry, Seqno};
use kedge_vbucket::{Deletion, FileChange, Item, ItemMeta, SystemEvent, is_system_key};

use crate::events::{body_of, event_of};

/// Values up to this length are stored as they are: Snappy adds two bytes of its own, and finds next to nothing to save in so
/// few, unless they repeat themselves. The original compresses them, too, and reads either.
const PLAIN_BYTES_MAX: usize = 64;

/// A batch of items in the form that a file wants them in.
pub(crate) struct Batch<'a> {
    items: &'a [FileChange],
    encoded: Vec<Encoded>,
    /// Keys of prepares and aborts, one behind the other.
    keys: Vec<u8>,
    /// Bodies that are not the item's own, of system events.
    bodies: Vec<Vec<u8>>,
}

struct Encoded {
    rev_meta: RevMetaBytes,
    content_meta: ContentMeta,
    deleted: bool,
    /// Where the key ends in `keys`; 0 if it is the item's own.
    key_end: u32,
    /// Which of `bodies` it has; `None`: the item's value.
    body: Option<u32>,
}

impl<'a> Batch<'a> {
    /// Encodes items.
    ///
    /// # Panics
    /// If a prepare has no level, or a system event is none.
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
            Encoded {
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
        Batch {
            items,
            encoded,
            keys,
            bodies,
        }
    }

    /// The batch in the order of the items.
    pub(crate) fn mutations(&self) -> Vec<Mutation<'_>> {
        let both = self.items.iter().zip(&self.encoded);
        both.map(|(apply, encoded)| self.mutation(apply.item(), encoded))
            .collect()
    }

    fn mutation<'b>(&'b self, item: &'b Item, encoded: &'b Encoded) -> Mutation<'b> {
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
                true => Body::Compress(body),
                false => Body::Stored(body),
            },
        }
    }
}

/// The system event that is to be written, if it is one.
///
/// # Panics
/// If its key is that of one, and it is none.
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
                // What the tombstone will say when the prepare is committed.
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

/// Whether extended attributes stand in front of an entry's value.
pub(crate) fn has_xattrs(entry: &Entry) -> bool {
    let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta());
    meta.is_ok_and(|meta| meta.rev_meta.datatype.contains(Datatype::XATTR))
}

/// What a [`Record`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A committed document or tombstone.
    Document,
    /// A change of collections, whose value is that of [`SystemEvent::item`].
    SystemEvent,
    /// A SyncWrite; over, if a completed seqno is not below its own.
    Prepare,
    /// The end of a SyncWrite that did not come to be.
    Abort {
        /// The seqno of the prepare, whose place it took.
        prepared: Seqno,
    },
}

/// A document, tombstone, prepare or abort that was read from a file.
#[derive(Clone, Debug)]
pub struct Record {
    entry: Entry,
    kind: RecordKind,
    meta: ItemMeta,
    value: Option<Vec<u8>>,
}

impl Record {
    /// Understands an entry; `None` if it is nothing that is known, or a system event without its body. `value` is the body as it was, `None` if
    /// it was not read.
    pub(crate) fn decode(entry: Entry, value: Option<Vec<u8>>) -> Result<Option<Self>, KvError> {
        let key = DiskKey::decode(entry.key())?;
        let deleted = entry.is_deleted();
        let entry_meta = EntryMeta::decode(deleted, entry.content_meta(), entry.rev_meta())?;
        let (kind, level, is_deleted) = match entry_meta.meaning(&key)? {
            Meaning::Live => (RecordKind::Document, None, false),
            Meaning::Tombstone => (RecordKind::Document, None, true),
            Meaning::Prepare { level, is_delete } => (RecordKind::Prepare, Some(level), is_delete),
            Meaning::Abort { prepare } => (RecordKind::Abort { prepared: prepare }, None, true),
            Meaning::SystemEvent { kind, dropped, .. } => {
                let Some(body) = value else {
                    return Ok(None);
                };
                let event = event_of(kind, dropped, &body)?;
                let item = event.item(entry_meta.rev_meta.cas, entry.seqno());
                return Ok(Some(Record {
                    kind: RecordKind::SystemEvent,
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
        Ok(Some(Record {
            entry,
            kind,
            meta,
            value,
        }))
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// As an item with this value, the body as it was.
    pub(crate) fn with_value(&self, value: &[u8]) -> Item {
        let meta = ItemMeta {
            datatype: datatype_of_value(self.meta.datatype, value.len()),
            ..self.meta
        };
        Item::new(&meta, self.key(), &[value])
    }

    /// The stored key: collection prefix and logical key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        split_prepare(self.entry.key()).1
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Everything but key and value.
    #[must_use]
    pub fn meta(&self) -> &ItemMeta {
        &self.meta
    }

    /// Bytes that the value takes in the file.
    #[must_use]
    pub fn disk_bytes(&self) -> u32 {
        self.entry.disk_bytes()
    }

    /// The value as stored; `None` if it was not read.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// As an item; `None` if the value was not read.
    #[must_use]
    pub fn item(&self) -> Option<Item> {
        let value = self.value.as_deref()?;
        Some(Item::new(&self.meta, self.key(), &[value]))
    }
}

#[cfg(test)]
mod tests;
