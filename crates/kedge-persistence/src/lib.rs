//! The durability of a bucket: commit log, flushers, log applier, compaction, recovery and rollback.
//!
//! [`Persistence`] owns the commit log and the files of the vBuckets. Writers append to the log, or commit the files
//! in a bucket without a log. Appliers write the changes of the log to the files. Compactions rewrite files. Recovery
//! reads files and log at a start. A rollback returns a vBucket to an earlier seqno. The crate learns of changes and
//! of waiting commands through [`WriteQueues`], and reports to its owner through [`PersistenceEvents`] alone. It knows
//! nothing of commands, connections or streams.
//!
//! # Example
//!
//! Import of a bucket from the files of another one, which the example writes first:
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_disk::{Disk, SimDisk};
//! use kedge_persistence::import_files;
//! use kedge_storage::{Storage, StorageConfig};
//! use kedge_types::{Cas, CollectionId, Datatype, DocKey, Expiry, RevSeqno, Seqno, VbUuid};
//! use kedge_vbucket::{
//!     FailoverTable, FileChange, Item, ItemMeta, PersistedState, SnapshotKind, VbState,
//! };
//!
//! # let meta = ItemMeta {
//! #     cas: Cas(1),
//! #     seqno: Seqno(1),
//! #     rev: RevSeqno(1),
//! #     flags: 0,
//! #     expiry: Expiry(0),
//! #     datatype: Datatype::RAW,
//! #     deleted: None,
//! #     level: None,
//! # };
//! # let state = PersistedState {
//! #     state: VbState::Active,
//! #     failover: FailoverTable::new(VbUuid(1)),
//! #     max_cas: Cas(1),
//! #     snap_start: Seqno(1),
//! #     snap_end: Seqno(1),
//! #     snap_kind: SnapshotKind::Memory,
//! #     visible: Seqno(1),
//! #     prepared: Seqno(0),
//! #     completed: Seqno(0),
//! #     max_deleted_rev: RevSeqno(0),
//! #     purge: Seqno(0),
//! #     may_have_xattrs: false,
//! #     catch_up: None,
//! # };
//! let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
//! let (source, target) = (Path::new("/backup/travel"), Path::new("/data/buckets/travel"));
//! let key = DocKey::new(CollectionId::DEFAULT, b"order-17")?;
//! let files = Storage::open(disk.clone(), source, &StorageConfig::new(64))?;
//! let change = FileChange::Document(Item::new(&meta, key.as_bytes(), &[b"tea"]));
//! files.commit(key.vbucket(64), &[change], &state, 0)?;
//! drop(files);
//!
//! let import = import_files(&disk, target, 64, source)?;
//! assert_eq!(import.files.len(), 1);
//! assert_eq!(import.files[0].vb, key.vbucket(64));
//! assert_eq!(import.files[0].documents, 1);
//!
//! // A file with keys of another number of vBuckets is rejected.
//! let other = Path::new("/data/buckets/other");
//! assert!(import_files(&disk, other, 17, source).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod applier;
mod close;
mod commit;
mod commit_task;
mod compaction;
mod dirty;
mod encryption;
mod encryption_state;
mod events;
mod flusher;
mod import;
mod install;
mod kinds;
mod load_report;
mod log_space;
mod persistence;
mod quarantine;
mod queues;
mod record;
mod recover;
mod reserve;
mod rollback;
mod segments;
mod shared;
mod shutdown_marker;
mod stats;
mod stuck;
mod tasks;
mod truncation;
mod writer;
mod writers;

pub use applier::LogApplier;
pub use compaction::{
    CompactionProgress, CompactionReport, CompactionRequest, CompactionTicket, Compactions,
};
pub use encryption::{DataEncryption, EncryptionStatus, KeyStatus};
pub use events::PersistenceEvents;
pub use import::{import_files, vbuckets_of_files};
pub use install::FileInstalls;
pub use load_report::LoadReport;
pub use persistence::Persistence;
pub use quarantine::VbReset;
pub use queues::WriteQueues;
pub use recover::{LOG_DIR, must_keep_log};
pub use rollback::{RollbackReport, Rollbacks};
pub use shutdown_marker::DIRECT_FILE;
pub use writers::Writers;
