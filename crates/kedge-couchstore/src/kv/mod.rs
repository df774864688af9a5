//! The data of Couchbase's key-value engine in couchstore files: the meaning of keys, of document metadata and of local
//! documents. The file format itself is independent of it, so files with another use can ignore this module.
//!
//! All of it is pure functions of bytes, without I/O and clock. Invariants:
//! * A decoder accepts any bytes. It returns a value or a [`KvError`] with the violated expectation. It never panics,
//!   and allocates at most a small multiple of its input.
//! * Decoded values survive encoding and decoding unchanged.
//!
//! Source of all facts: couchstore file format, section 3.

mod audit;
mod content_meta;
mod entry;
mod error;
mod events;
mod flatbuf;
mod key;
mod leb128;
mod local;
mod manifest;
mod rev_meta;
mod stats;
mod value;
mod vbstate;

#[cfg(test)]
mod tests;

pub use audit::{Disagreement, FileAudit};
pub use content_meta::datatype_of_value;
pub use entry::{EntryMeta, Meaning, ValueMeta};
pub use error::KvError;
pub use events::{
    CollectionDropped, CollectionOpened, ScopeDropped, ScopeOpened, StoredSystemEvent,
};
pub use key::{DiskKey, PREPARE_PREFIX, SystemEventKind, split_prepare};
pub use local::{
    DROPPED_COLLECTIONS_NAME, LocalDocument, MANIFEST_NAME, OPEN_COLLECTIONS_NAME,
    OPEN_SCOPES_NAME, VBSTATE_NAME,
};
pub use manifest::{
    CommittedManifest, DroppedCollection, DroppedCollections, Scopes, StoredCollection,
    StoredCollections, StoredScope,
};
pub use rev_meta::{DeleteSource, RevMeta, RevMetaBytes, SyncWrite};
pub use stats::CollectionStats;
pub use value::{Attributes, Value};
pub use vbstate::{
    CatchUpEntry, CheckpointKind, FailoverEntry, SnapshotRange, VbStateDocument, VbStateKind,
};
