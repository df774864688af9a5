//! A bucket: vBuckets, the commit log and the memory quota, wired together.
//!
//! [`Bucket`] owns the vBuckets, each behind its own lock, the log that makes their changes durable, and the files to
//! which the log is applied later. Without a log, changes are written to the files directly. A command runs to its end on
//! the calling thread. A command that must wait is parked under a [`Cookie`] and completed later through [`Completions`].
//! Background work runs in tasks of an executor.
//!
//! # Example
//!
//! A durable write on a simulated disk. It is parked, and completes when the log has been synced:
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use kedge_bucket::{
//!     Bucket, BucketConfig, BucketSetup, Completion, Completions, Cookie, Ctx, Outcome, Read, RecoveryMode, StoreMode, StoreArgs,
//!     Topology, Write,
//! };
//! use kedge_disk::SimDisk;
//! use kedge_executor::{ExecutorConfig, Executor};
//! use kedge_types::{
//!     Cas, Clock, CollectionId, Datatype, DocKey, Durability, DurabilityLevel, SystemClock,
//! };
//!
//! struct Channel(mpsc::Sender<Cookie>);
//!
//! impl Completions for Channel {
//!     fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
//!         for (cookie, _) in done.drain(..) {
//!             self.0.send(cookie).expect("the example waits");
//!         }
//!     }
//! }
//!
//! let (sender, completed) = mpsc::channel();
//! let (clock, executor) = (Arc::new(SystemClock::new()), Executor::new(ExecutorConfig::default())?);
//! let bucket = Bucket::open(BucketSetup {
//!     disk: Arc::new(SimDisk::new(1)),
//!     dir: "/data/buckets/default".into(),
//!     config: BucketConfig::new("default", 16, 64 << 20),
//!     keyring: None,
//!     clock: clock.clone(),
//!     executor: executor.clone(),
//!     completions: Arc::new(Channel(sender)),
//!     threads: 1,
//!     recovery: RecoveryMode::Strict,
//!     topology: Some(Topology::alone()),
//!     serving: Arc::default(),
//!     open_files_max: 64,
//!     compaction_reserve_bytes: 0,
//!     on_fatal: Arc::new(|reason| panic!("{reason}")),
//! })?;
//! bucket.wait_loaded()?;
//!
//! let ctx = Ctx { now: clock.now(), thread: 0 };
//! let key = DocKey::new(CollectionId::DEFAULT, b"order-17")?;
//! let vb = key.vbucket(16);
//! let durability = Durability { level: DurabilityLevel::PersistToMajority, timeout_ms: None };
//! let write = Write {
//!     vb,
//!     key: &key,
//!     cas: Cas(0),
//!     new_cas: Cas(0),
//!     durability: Some(durability),
//!     preserve_ttl: false,
//!     cookie: Cookie(1),
//! };
//! let args = StoreArgs {
//!     mode: StoreMode::Set,
//!     value: b"tea",
//!     datatype: Datatype::RAW,
//!     flags: 0,
//!     expiry: 0,
//! };
//! let outcome = bucket.documents().store(ctx, &write, &args);
//! assert_eq!(outcome, Ok(Outcome::Parked));
//! bucket.persistence().writers().request_flush(false);
//! assert_eq!(completed.recv()?, Cookie(1));
//!
//! let read = Read { vb, key: &key, cookie: Cookie(2) };
//! let value = bucket.documents().get(ctx, &read, |document| document.item.value().to_vec());
//! assert_eq!(value, Ok(Outcome::Done(b"tea".to_vec())));
//!
//! bucket.shutdown();
//! executor.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assign;
mod bucket;
mod collections;
#[cfg(test)]
mod compaction_tests;
mod dcp;
mod documents;
mod dropping;
mod file_copies;
mod file_readers;
mod flush_all;
mod load_status;
mod open;
mod queries;
mod scans;
mod shutdown;
mod stats;
mod tasks;
mod vbuckets;
mod wiring;

pub use assign::VbPosition;
pub use bucket::Bucket;
pub use collections::{BucketCollections, CollectionFigures, VbCollections};
pub use dcp::{
    ApplyError, COPY_CHANGE_COST_BYTES, ConnectionStreams, Dcp, OpenedStream, ReceiveOutcome,
    ReplicaSink, StreamConnection, StreamFigures, StreamNotify, StreamRefused, StreamState,
    VbStream,
};
pub use documents::{
    DocumentCommands, LookupTarget, ReturnMetaOp, StoreArgs, Write, WriteWithMeta,
};
pub use dropping::{DROPPING_FILE, finish_drop, remove_dir_marker_last};
pub use file_copies::{FileCopies, FilePart, PreparedFile};
pub use kedge_bucket_core::{
    BucketChange, BucketConfig, BucketError, BucketSetting, BucketSetup, CompactionChange,
    CompactionConfig, CompactionHours, CompactionPool, CompactionRate, Completions,
    CompressionMode, ConflictResolution, Counter, Ctx, DURABILITY_LEVELS, DiskCalls,
    DurabilityFallback, EncryptionChange, EncryptionConfig, EvictionPolicy, FieldKind,
    FixedSetting, FormField, MASTER_KEY_ID, MemoryChange, MemoryConfig, Outcome, PendingIo,
    ProcessorWaits, Read, ServingGate, Timing, TimingSnapshot, TimingUnit, Timings, Total,
    WarmupBehavior, settings_markdown,
};
pub use kedge_log::{RecoveryMode, SegmentListing, catalog_path as log_catalog};
pub use kedge_persistence::{
    CompactionProgress, CompactionReport, CompactionRequest, CompactionTicket, DIRECT_FILE,
    DataEncryption, EncryptionStatus, KeyStatus, LOG_DIR, LoadReport, Persistence, RollbackReport,
    VbReset, import_files, vbuckets_of_files,
};
pub use kedge_replication::{EndReason, SourceState, StreamFlags, StreamItem, StreamRequest};
pub use kedge_residency::{Fetch, Residency};
pub use kedge_storage::{
    CompactPhase, CompactionFigures, EncryptedFiles, FileCopy, FileFigures, FileListing,
    ImportReport, ImportedFile,
};
pub use kedge_vbucket::{
    Change, CheckpointFigures, CursorFigures, DcpSnapshot, DurabilityFigures, FailoverTable,
    FrequencyCounts, HashFigures, KeyFigures, KeyValidity, LevelCounts, NodeName, ReceiveError,
    Received, ResumePoint, SnapshotKind, SystemEvent, SystemEventKind, Topology,
};
pub use kedge_vbucket::{
    CollectionOps, Completion, ConcatMode, Cookie, Deletion, DocumentRef, Drift, Item, ItemMeta,
    KeyHash, Meta, MinRatio, Modify, Mutated, ObserveState, ObservedSeqno, Patches, ScanEnd,
    ScanFound, ScanPart, SlabFigures, StoreMode, ValueParts, VbState, any_long_value, slab_figures,
};
pub use queries::VbFigures;
pub use scans::{
    RangeScanner, ScanBound, ScanFigures, ScanId, ScanLimits, ScanRequest, ScanRequirements,
    ScanSelection,
};
pub use vbuckets::{VbRole, VbStates};

/// The arguments of an increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterUpdate {
    /// True if the delta is subtracted.
    pub negative: bool,
    /// The delta.
    pub delta: u64,
    /// The initial value of a counter that does not exist; `None` does not create it.
    pub initial: Option<u64>,
    /// The expiry of a counter that is created, relative or absolute as in the protocol.
    pub expiry: u32,
}
