//! System events: the encoding of their bodies. Couchstore file format, sections 3.1 and 3.4.
//!
//! The fields of the flatbuffers are in the order of the structs' fields, with ids counted from 0.

use super::flatbuf::{FlatField, FlatTable, finish};
use super::manifest::max_ttl;
use super::{KvError, SystemEventKind};
use kedge_types::{CollectionId, ManifestUid, ScopeId, Seqno};

/// A change of the collection manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredSystemEvent {
    /// A collection was created.
    CollectionOpened(CollectionOpened),
    /// A collection was dropped.
    CollectionDropped(CollectionDropped),
    /// The settings of a collection were changed to these.
    CollectionModified(CollectionOpened),
    /// A scope was created.
    ScopeOpened(ScopeOpened),
    /// A scope was dropped.
    ScopeDropped(ScopeDropped),
}

/// The settings of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CollectionOpened {
    /// The manifest with the change.
    pub uid: ManifestUid,
    /// The scope.
    pub scope: ScopeId,
    /// The id.
    pub collection: CollectionId,
    /// The time to live of its documents in seconds, if it has a rule; 0 means no limit, whatever the bucket's setting.
    pub max_ttl: Option<u32>,
    /// The name.
    pub name: String,
    /// `true` if it keeps the history of its documents.
    pub history: bool,
    /// For the default collection, the highest seqno that clients may see.
    pub default_collection_max_visible: Seqno,
    /// `true` if its use is metered.
    pub metered: bool,
    /// The manifest that flushed it last.
    pub flush_uid: ManifestUid,
}

/// A dropped collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectionDropped {
    /// The first manifest without it.
    pub uid: ManifestUid,
    /// The scope that it was in.
    pub scope: ScopeId,
    /// The id.
    pub collection: CollectionId,
    /// `true` for a collection of the system.
    pub is_system: bool,
}

/// A new scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScopeOpened {
    /// The manifest with the change.
    pub uid: ManifestUid,
    /// The id.
    pub scope: ScopeId,
    /// The name.
    pub name: String,
}

/// A dropped scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeDropped {
    /// The first manifest without it.
    pub uid: ManifestUid,
    /// The id.
    pub scope: ScopeId,
    /// `true` for a scope of the system.
    pub is_system: bool,
}

impl StoredSystemEvent {
    /// Decodes the body of the event under a key of this kind; `deleted` is the entry's flag.
    ///
    /// # Errors
    /// [`KvError`] if the flatbuffer is malformed, or a change of settings has the deleted flag.
    pub fn decode(kind: SystemEventKind, deleted: bool, body: &[u8]) -> Result<Self, KvError> {
        let table = FlatTable::root(body)?;
        match (kind, deleted) {
            (SystemEventKind::Collection, false) => Ok(Self::CollectionOpened(collection(&table)?)),
            (SystemEventKind::ModifyCollection, false) => {
                Ok(Self::CollectionModified(collection(&table)?))
            }
            (SystemEventKind::ModifyCollection, true) => Err(KvError::Entry {
                expected: "a change of settings without the deleted flag",
            }),
            (SystemEventKind::Collection, true) => Ok(Self::CollectionDropped(CollectionDropped {
                uid: ManifestUid(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                collection: CollectionId(table.u32(2)?),
                is_system: table.bool(3)?,
            })),
            (SystemEventKind::Scope, false) => Ok(Self::ScopeOpened(ScopeOpened {
                uid: ManifestUid(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                name: table.string(2)?.to_owned(),
            })),
            (SystemEventKind::Scope, true) => Ok(Self::ScopeDropped(ScopeDropped {
                uid: ManifestUid(table.u64(0)?),
                scope: ScopeId(table.u32(1)?),
                is_system: table.bool(2)?,
            })),
        }
    }

    /// Encodes the body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::CollectionOpened(event) | Self::CollectionModified(event) => finish(&[
                FlatField::U64(event.uid.0),
                FlatField::U32(event.scope.0),
                FlatField::U32(event.collection.get()),
                FlatField::Bool(event.max_ttl.is_some()),
                FlatField::U32(event.max_ttl.unwrap_or_default()),
                FlatField::Str(&event.name),
                FlatField::Bool(event.history),
                FlatField::U64(event.default_collection_max_visible.get()),
                FlatField::Bool(event.metered),
                FlatField::U64(event.flush_uid.0),
            ]),
            Self::CollectionDropped(event) => finish(&[
                FlatField::U64(event.uid.0),
                FlatField::U32(event.scope.0),
                FlatField::U32(event.collection.get()),
                FlatField::Bool(event.is_system),
            ]),
            Self::ScopeOpened(event) => finish(&[
                FlatField::U64(event.uid.0),
                FlatField::U32(event.scope.0),
                FlatField::Str(&event.name),
            ]),
            Self::ScopeDropped(event) => finish(&[
                FlatField::U64(event.uid.0),
                FlatField::U32(event.scope.0),
                FlatField::Bool(event.is_system),
            ]),
        }
    }

    /// Returns the properties of the event's entry: kind, subject, and whether it drops the subject.
    #[must_use]
    pub const fn key(&self) -> (SystemEventKind, u32, bool) {
        match self {
            Self::CollectionOpened(event) => {
                (SystemEventKind::Collection, event.collection.get(), false)
            }
            Self::CollectionDropped(event) => {
                (SystemEventKind::Collection, event.collection.get(), true)
            }
            Self::CollectionModified(event) => (
                SystemEventKind::ModifyCollection,
                event.collection.get(),
                false,
            ),
            Self::ScopeOpened(event) => (SystemEventKind::Scope, event.scope.0, false),
            Self::ScopeDropped(event) => (SystemEventKind::Scope, event.scope.0, true),
        }
    }
}

fn collection(table: &FlatTable<'_>) -> Result<CollectionOpened, KvError> {
    Ok(CollectionOpened {
        uid: ManifestUid(table.u64(0)?),
        scope: ScopeId(table.u32(1)?),
        collection: CollectionId(table.u32(2)?),
        max_ttl: max_ttl(table, 3, 4)?,
        name: table.string(5)?.to_owned(),
        history: table.bool(6)?,
        default_collection_max_visible: Seqno(table.u64(7)?),
        metered: table.bool(8)?,
        flush_uid: ManifestUid(table.u64(9)?),
    })
}
