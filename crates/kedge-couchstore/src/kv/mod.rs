//! What Couchbase's key-value engine keeps in couchstore files: the meaning of keys, of the metadata of documents and
//! of the local documents. The file itself knows none of it, so all of this can be left aside by a file of another use.
//!
//! Everything here is a function of bytes: no I/O, no clock. What must hold:
//! * A decoder takes any bytes. It gives a value or a [`KvError`] that names what was expected; it never panics, and
//!   allocates at most a small multiple of what it was given.
//! * What was decoded encodes to something that decodes to the same value, and what was encoded decodes to what it was
//!   made of.
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

pub use audit::{Audit, Disagreement};
pub use content_meta::datatype_of_value;
pub use entry::{EntryMeta, Meaning, ValueMeta};
pub use error::KvError;
pub use events::{CollectionDropped, CollectionOpened, ScopeDropped, ScopeOpened, SystemEvent};
pub use key::{DiskKey, PREPARE_PREFIX, SystemEventKind, split_prepare};
pub use local::{
    DROPPED_COLLECTIONS_NAME, LocalDocument, MANIFEST_NAME, OPEN_COLLECTIONS_NAME,
    OPEN_SCOPES_NAME, VBSTATE_NAME,
};
pub use manifest::{
    CommittedManifest, DroppedCollection, DroppedCollections, OpenCollection, OpenCollections,
    OpenScope, Scopes,
};
pub use rev_meta::{DeleteSource, RevMeta, RevMetaBytes, SyncWrite};
pub use stats::CollectionStats;
pub use value::{Attributes, Value};
pub use vbstate::{CheckpointKind, FailoverEntry, SnapshotRange, VbStateDocument, VbStateKind};
