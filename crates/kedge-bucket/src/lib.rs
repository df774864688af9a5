//! A bucket: vBuckets, the commit log and the memory quota put together.
//!
//! [`Bucket`] owns the vBuckets, each behind its own lock, the log that makes their changes durable, and the files that
//! they go into later; without a log, the files alone. A command
//! runs to its end on the thread that brings it; one that has to wait for the disk is parked under a [`Cookie`] and
//! completed later through [`Completions`]. What the bucket does by itself are tasks of an executor.

mod access_log;
mod applier;
mod assign;
mod bucket;
mod checks;
mod collections;
mod commit;
mod compaction;
mod compressor;
mod counters;
mod dcp;
mod documents;
mod dropped;
mod dropping;
mod dynamic;
mod end;
mod error;
mod fetch;
mod flush_all;
mod flusher;
mod import;
mod instrumented;
mod loaded;
mod memory_queue;
mod open;
mod outcome;
mod pager;
mod parallel;
mod pending_state;
mod quarantine;
mod queries;
mod quota;
mod record;
mod recover;
mod reserve;
mod rollback;
mod scans;
mod segments;
mod settings;
mod shutdown_marker;
mod stats;
mod stuck;
mod subdoc;
mod sweep;
mod tasks;
mod timeouts;
mod timings;
mod truncation;
mod vbuckets;
mod warmup;
mod with_meta;
mod writer;

pub use assign::VbPosition;
pub use bucket::{Bucket, BucketSetup, Completions, Ctx, LoadReport, Recovery, Write};
pub use collections::{CollectionFigures, VbCollections};
pub use compaction::{CompactionProgress, CompactionReport, CompactionRequest, CompactionTicket};
pub use counters::{Counter, Total};
pub use dcp::{
    ApplyError, OpenedStream, ReplicaSink, StreamConnection, StreamFigures, StreamNotify,
    StreamRefused, StreamState, Streams, Taken, VbStream,
};
pub use documents::{Read, Storing};
pub use dropping::{DROPPING_FILE, finish_drop, remove_but_last};
pub use error::BucketError;
pub use fetch::Fetch;
pub use import::{import_files, vbuckets_of_files};
pub use instrumented::PendingIo;
pub use kedge_log::{ListedSegments, catalog_path as log_catalog};
pub use kedge_replication::{EndReason, SourceState, StreamFlags, StreamItem, StreamRequest};
pub use kedge_storage::{
    CompactPhase, CompactionFigures, FileFigures, Import, Imported, ListedFiles,
};
pub use kedge_vbucket::{
    Change, CheckpointFigures, CursorFigures, DurabilityFigures, FailoverTable, FrequencyCounts,
    HashFigures, KeyFigures, KeyValidity, LevelCounts, NodeName, ReceiveError, Received, Resume,
    Snapshot, SnapshotKind, SystemEvent, SystemEventKind, Topology,
};
pub use kedge_vbucket::{
    CollectionOps, Completion, ConcatMode, Cookie, Deletion, Document, Drift, Item, ItemMeta, Meta,
    MinRatio, Modify, Mutated, ObserveSeqno, ObserveState, Parts, Patches, ScanEnd, ScanFound,
    ScanPart, StoreMode, VbState, any_long_value,
};
pub use open::LOG_DIR;
pub use outcome::Outcome;
pub use quarantine::VbReset;
pub use queries::VbFigures;
pub use rollback::RolledBack;
pub use scans::{ScanBound, ScanFigures, ScanId, ScanLimits, ScanNeeds, ScanOf, ScanWanted};
pub use settings::{
    BucketChange, BucketConfig, BucketSetting, CompactionChange, CompactionConfig, CompactionHours,
    CompactionPool, CompactionRate, CompressionMode, ConflictResolution, DURABILITY_LEVELS,
    DurabilityFallback, EvictionPolicy, FieldKind, FixedSetting, FormField, MemoryChange,
    MemoryConfig, WarmupBehavior, markdown as settings_markdown,
};
pub use shutdown_marker::DIRECT_FILE;
pub use subdoc::LookIn;
pub use timings::{Timing, TimingSnapshot, TimingUnit, Timings};
pub use vbuckets::VbRole;
pub use with_meta::{Returning, WithMeta};

/// An increment or decrement; `expiry` is the number of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Subtract rather than add.
    pub negative: bool,
    /// By how much.
    pub delta: u64,
    /// The value of a counter that is made new; `None`: it is not made.
    pub initial: Option<u64>,
    /// The expiry of a counter that is made new, relative or absolute as on the wire.
    pub expiry: u32,
}
