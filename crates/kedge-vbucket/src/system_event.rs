//! Events of collections and scopes, as items in the order of a vBucket.
//!
//! An event is an [`Item`] in the namespace of collection 1, which has no documents. It passes through checkpoints and
//! the log into the file and to replicas like all changes, and has a seqno. It is in no hash table. The key is that of
//! the file (couchstore file format, section 3.1); creation and drop of a collection have the same key. The format of
//! the value is in `docs/reference/formats/records.md`. Files and DCP have other encodings of the same content.

use crate::item::{Deletion, Item, ItemMeta};
use kedge_types::{
    Cas, CollectionId, ManifestUid, RevSeqno, ScopeId, Seqno, decode_leb128, encode_leb128,
};

/// The first byte of the keys of events: collection 1 in LEB128.
const NAMESPACE: u8 = 1;
/// The size of the fixed fields: kind, manifest uid, scope, collection, flags, time to live, start.
const FIXED_BYTES: usize = 30;
const HAS_MAX_TTL: u8 = 1;
const HAS_HISTORY: u8 = 2;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SystemEventKind {
    /// The creation of a collection.
    CollectionCreated = 1,
    /// A change of the settings of a collection.
    CollectionModified = 2,
    /// The drop of a collection with all its earlier documents.
    CollectionDropped = 3,
    /// The creation of a scope.
    ScopeCreated = 4,
    /// The drop of a scope, after its collections.
    ScopeDropped = 5,
}

/// An event of a collection or scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemEvent {
    /// The kind.
    pub kind: SystemEventKind,
    /// The uid of the manifest with the change.
    pub uid: ManifestUid,
    /// The scope, or the scope of the collection.
    pub scope: ScopeId,
    /// The collection. For a scope event, the default collection, without meaning.
    pub collection: CollectionId,
    /// The name of a created or modified collection or scope, otherwise empty.
    pub name: String,
    /// The value of [`kedge_types::Collection::max_ttl`] after creation or modification.
    pub max_ttl: Option<u32>,
    /// The value of [`kedge_types::Collection::history`] after creation or modification.
    pub history: bool,
    /// The start seqno of the dropped collection, or 0 if it is unknown.
    pub start: Seqno,
}

/// Returns whether a stored key belongs to an event, not to a document.
#[must_use]
pub fn is_system_key(key: &[u8]) -> bool {
    key.first() == Some(&NAMESPACE)
}

impl SystemEventKind {
    fn from_number(number: u8) -> Option<Self> {
        [
            Self::CollectionCreated,
            Self::CollectionModified,
            Self::CollectionDropped,
            Self::ScopeCreated,
            Self::ScopeDropped,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }

    /// Returns whether the event is about a scope.
    #[must_use]
    pub fn is_of_scope(self) -> bool {
        matches!(self, Self::ScopeCreated | Self::ScopeDropped)
    }

    /// Returns whether the event drops a collection or scope.
    #[must_use]
    pub fn is_drop(self) -> bool {
        matches!(self, Self::CollectionDropped | Self::ScopeDropped)
    }

    /// Returns the number of the kind in the key and in the flags.
    fn key_kind(self) -> u32 {
        match self {
            Self::CollectionCreated | Self::CollectionDropped => 0,
            Self::ScopeCreated | Self::ScopeDropped => 1,
            Self::CollectionModified => 2,
        }
    }
}

impl SystemEvent {
    /// Returns the key of the event.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let (subject, suffix): (u32, &[u8]) = if self.kind.is_of_scope() {
            (self.scope.0, b"_scope")
        } else {
            (self.collection.get(), b"_collection")
        };
        let mut key = vec![NAMESPACE];
        for number in [self.kind.key_kind(), subject] {
            let (bytes, len) = encode_leb128(number);
            key.extend_from_slice(&bytes[..len]);
        }
        key.extend_from_slice(suffix);
        key
    }

    /// Returns the item of the event.
    #[must_use]
    pub fn item(&self, cas: Cas, seqno: Seqno) -> Item {
        let flags = if self.max_ttl.is_some() {
            HAS_MAX_TTL
        } else {
            0
        } | if self.history { HAS_HISTORY } else { 0 };
        let mut value = Vec::with_capacity(FIXED_BYTES + self.name.len());
        value.push(self.kind as u8);
        value.extend_from_slice(&self.uid.0.to_le_bytes());
        value.extend_from_slice(&self.scope.0.to_le_bytes());
        value.extend_from_slice(&self.collection.get().to_le_bytes());
        value.push(flags);
        value.extend_from_slice(&self.max_ttl.unwrap_or_default().to_le_bytes());
        value.extend_from_slice(&self.start.get().to_le_bytes());
        value.extend_from_slice(self.name.as_bytes());
        let meta = ItemMeta {
            cas,
            seqno,
            rev: RevSeqno(1),
            // Files have this number in little-endian order where client flags are in network byte order.
            flags: self.kind.key_kind().swap_bytes(),
            deleted: self.kind.is_drop().then_some(Deletion::Explicit),
            ..ItemMeta::default()
        };
        let item = Item::new(&meta, &self.key(), &[&value]);
        // The item is in no hash table, so only the queues keep it alive.
        item.mark_replaced();
        item
    }

    /// Decodes the event of an item. Returns `None` if the item is not an event.
    #[must_use]
    pub fn of_item(item: &Item) -> Option<Self> {
        let (fixed, name) = item.value().split_first_chunk::<FIXED_BYTES>()?;
        let long = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("4 bytes"));
        let flags = fixed[17];
        let event = Self {
            kind: SystemEventKind::from_number(fixed[0])?,
            uid: ManifestUid(long(1)),
            scope: ScopeId(word(9)),
            collection: CollectionId(word(13)),
            max_ttl: (flags & HAS_MAX_TTL != 0).then(|| word(18)),
            history: flags & HAS_HISTORY != 0,
            start: Seqno(long(22)),
            name: std::str::from_utf8(name).ok()?.to_owned(),
        };
        let fits = item.key() == event.key() && item.is_deleted() == event.kind.is_drop();
        fits.then_some(event)
    }

    /// Returns whether the key of an event is about a scope, and the id of the scope or collection. Returns `None` for
    /// other keys.
    #[must_use]
    pub fn subject(key: &[u8]) -> Option<(bool, u32)> {
        let rest = key.strip_prefix(&[NAMESPACE])?;
        let (kind, len) = decode_leb128(rest)?;
        let (subject, _) = decode_leb128(&rest[len..])?;
        Some((kind == 1, subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: SystemEventKind) -> SystemEvent {
        SystemEvent {
            kind,
            uid: ManifestUid(7),
            scope: ScopeId(9),
            collection: CollectionId(if kind.is_of_scope() { 0 } else { 0x1234 }),
            name: if kind.is_drop() { "" } else { "fruit" }.to_owned(),
            max_ttl: (kind == SystemEventKind::CollectionModified).then_some(0),
            history: kind == SystemEventKind::CollectionCreated,
            start: Seqno(if kind == SystemEventKind::CollectionDropped {
                3
            } else {
                0
            }),
        }
    }

    #[test]
    fn system_event_round_trips_through_its_item_with_the_file_key() {
        use SystemEventKind::{
            CollectionCreated, CollectionDropped, CollectionModified, ScopeCreated, ScopeDropped,
        };
        for (kind, key) in [
            (CollectionCreated, &b"\x01\x00\xb4\x24_collection"[..]),
            (CollectionModified, b"\x01\x02\xb4\x24_collection"),
            (CollectionDropped, b"\x01\x00\xb4\x24_collection"),
            (ScopeCreated, b"\x01\x01\x09_scope"),
            (ScopeDropped, b"\x01\x01\x09_scope"),
        ] {
            let event = event(kind);
            let item = event.item(Cas(5), Seqno(6));
            assert_eq!(item.key(), key);
            assert!(is_system_key(item.key()));
            assert_eq!((item.cas(), item.seqno()), (Cas(5), Seqno(6)));
            assert_eq!(item.is_deleted(), kind.is_drop());
            assert_eq!(SystemEvent::of_item(&item), Some(event));
        }
        assert_eq!(
            event(ScopeCreated).item(Cas(1), Seqno(1)).flags(),
            16_777_216
        );
        assert_eq!(
            SystemEvent::subject(b"\x01\x00\x08_collection"),
            Some((false, 8))
        );
    }

    #[test]
    fn invalid_system_events_are_not_decoded() {
        let item = event(SystemEventKind::CollectionCreated).item(Cas(1), Seqno(1));
        for cut in 0..FIXED_BYTES {
            let other = Item::new(&item.meta(), item.key(), &[&item.value()[..cut]]);
            assert_eq!(SystemEvent::of_item(&other), None);
        }
        let other = Item::new(&item.meta(), b"\x01\x00\x08_collection", &[item.value()]);
        assert_eq!(SystemEvent::of_item(&other), None, "another collection");
        let other = Item::new(&item.meta(), b"\x00key", &[b"value"]);
        assert_eq!(SystemEvent::of_item(&other), None);
        assert!(!is_system_key(b"\x00key"));
    }
}
