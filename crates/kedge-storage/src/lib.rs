//! A bucket's couchstore files: one for each vBucket, behind the log.
//!
//! [`Storage`] knows which files there are, keeps some of them open, writes batches of changes into them as commits, and
//! reads documents back; it compacts files, rolls them back, and takes over those of other nodes. It starts no thread and
//! looks at no clock: who calls it decides when, on which thread, and with a [`Throttle`] how fast.
//!
//! Invariants:
//! * A commit that returned is found by every later open. One that did not is found whole or not at all, and not at all
//!   as long as the process lives.
//! * Which file a vBucket has changes only under the guard of its slot, which lends the handle for writing, too: nobody
//!   can write to a file that another has replaced. Handles for reading are snapshots, which never change.
//! * A commit takes two syncs, which several of one file can share; a new file one more, of the directory. Beside that only compactions sync what they write,
//!   and what an earlier process left is synced once: the names at the start, and the header of each file before the
//!   first commit behind it.
//! * A file that was durable and is not there any more, or not as long, is an error of its vBucket: see `catalog.rs`.
//! * What is in memory of a file beside its handle is what its last commit says, also after one that failed.
//!
//! The names of files and what is in them: `docs/reference/formats/couchstore.md`.
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_disk::SimDisk;
//! use kedge_storage::{Storage, StorageConfig};
//! use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, VbId, VbUuid};
//! use kedge_vbucket::{
//!     FailoverTable, FileChange, Item, ItemMeta, PersistedState, SnapshotKind, VbState,
//! };
//!
//! let disk = Arc::new(SimDisk::new(1));
//! let (dir, config) = (Path::new("/data/bucket"), StorageConfig::new(64));
//! let storage = Storage::open(disk.clone(), dir, &config)?;
//!
//! // One commit of the file of vBucket 17: a document, and the state of the vBucket.
//! let meta = ItemMeta {
//!     cas: Cas(1),
//!     seqno: Seqno(1),
//!     rev: RevSeqno(1),
//!     flags: 0,
//!     expiry: Expiry(0),
//!     datatype: Datatype::RAW,
//!     deleted: None,
//!     level: None,
//! };
//! let key = b"\0order-17";
//! let change = FileChange::Document(Item::new(&meta, key, &[b"tea"]));
//! let state = PersistedState {
//!     state: VbState::Active,
//!     failover: FailoverTable::new(VbUuid(1)),
//!     max_cas: Cas(1),
//!     snap_start: Seqno(1),
//!     snap_end: Seqno(1),
//!     snap_kind: SnapshotKind::Memory,
//!     visible: Seqno(1),
//!     prepared: Seqno(0),
//!     completed: Seqno(0),
//!     max_deleted_rev: RevSeqno(0),
//!     purge: Seqno(0),
//!     may_have_xattrs: false,
//! };
//! storage.commit(VbId(17), &[change], &state, 0)?;
//! drop(storage);
//! disk.crash(42);
//!
//! // A commit that returned is found after a power loss.
//! let storage = Storage::open(disk, dir, &config)?;
//! let found = storage.get_many(VbId(17), &[key])?.remove(0).expect("it was committed");
//! assert_eq!(found.value(), b"tea");
//! # Ok::<(), kedge_storage::StorageError>(())
//! ```

mod catalog;
mod codec;
mod collection_scan;
mod commit;
mod commits;
mod compact;
mod config;
mod error;
mod events;
mod import;
mod key_scan;
mod listed;
mod load;
mod maintenance;
mod manifest;
mod metered;
mod names;
mod open_files;
#[cfg(feature = "proofs")]
#[doc(hidden)]
pub mod proofs;
mod read;
mod rollback;
mod scan;
mod slot;
mod stats;
mod storage;
mod throttle;
mod throttle_pause;
mod vb_metadata;

pub use codec::{Record, RecordKind};
pub use commits::{Commits, Committed};
pub use compact::{
    CompactHooks, CompactPhase, CompactRequest, Compacted, CompactionFigures, Expired,
};
pub use config::StorageConfig;
pub use error::StorageError;
pub use import::{Import, ImportProblem, Imported, PlaceOf, vbuckets_of};
pub use key_scan::KeyScan;
pub use listed::{FilesCompared, ListedFiles};
pub use load::Loaded;
pub use names::Revision;
pub use read::Located;
pub use rollback::{Reverted, Rollback, RollbackOutcome, RolledBack};
pub use scan::{FileView, Scan};
pub use stats::{FileFigures, StorageStats};
pub use storage::Storage;
pub use throttle::{Throttle, ThrottleConfig, ThrottleStats};
