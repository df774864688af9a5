//! The couchstore files of a bucket, one per vBucket, to which the log is applied.
//!
//! [`Storage`] manages the set of files and the open handles. It commits batches of changes, reads documents, and
//! compacts, rolls back and imports files. It starts no thread and reads no clock: the caller chooses the time and the
//! thread and, with a [`Throttle`], the speed.
//!
//! Invariants:
//! * Every later open finds a commit that has returned. One that has not is found as a whole or not at all, and never
//!   within the lifetime of the process.
//! * The file of a vBucket changes only under the guard of its slot, which also lends the write handle, so nothing can
//!   be written to a replaced file. Read handles are snapshots, which never change.
//! * A commit takes two syncs, which several commits of one file can share. A new file takes one more, of the
//!   directory. Apart from that, only compactions sync, and the state that an earlier process left is synced once: the
//!   names at the start, and the header of each file before the first commit after it.
//! * A durable file that is missing or shorter is an error of its vBucket: see `catalog.rs`.
//! * The cached metadata of a file are those of its last commit, also after a failed one.
//!
//! Names and contents of the files: `docs/reference/formats/couchstore.md`.
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
//!     catch_up: None,
//! };
//! storage.commit(VbId(17), &[change], &state, 0)?;
//! drop(storage);
//! disk.crash(42);
//!
//! // A power loss does not lose a commit that has returned.
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
mod copy;
mod error;
mod events;
mod import;
mod key_scan;
mod keys;
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

pub use codec::{FileRecord, FileRecordKind};
pub use commits::{CommitGroup, CommitResult};
pub use compact::{
    CompactHooks, CompactPhase, CompactRequest, CompactionFigures, CompactionResult,
    ExpiredDocument,
};
pub use config::StorageConfig;
pub use copy::{CompleteCopy, FileCopy};
pub use error::StorageError;
pub use import::{ImportProblem, ImportReport, ImportedFile, VbucketOfKey, vbuckets_of};
pub use key_scan::KeyScan;
pub use keys::{EncryptedFiles, FileEncryption};
pub use listed::{FileDifferences, FileListing};
pub use load::LoadedFile;
pub use names::FileRevision;
pub use read::LocatedDocument;
pub use rollback::{RevertedDocument, Rollback, RollbackOutcome, RollbackResult};
pub use scan::{FileView, RecordScan};
pub use stats::{FileFigures, StorageStats};
pub use storage::Storage;
pub use throttle::{
    ClientLatencies, PerSignal, Throttle, ThrottleConfig, ThrottleSignal, ThrottleStats,
};
