//! A bucket: vBuckets, the commit log and the memory quota put together.
//!
//! [`Bucket`] owns the vBuckets, each behind its own lock, the log that makes their changes durable, and the files that
//! they go into later; without a log, the files alone. A command
//! runs to its end on the thread that brings it; one that has to wait for the disk is parked under a [`Cookie`] and
//! completed later through [`Completions`]. What the bucket does by itself are tasks of an executor.

mod access_log;
mod aside;
mod bucket;
mod commit;
mod compaction;
mod compressor;
mod config;
mod counters;
mod documents;
mod end;
mod error;
mod fetch;
mod floor;
mod flusher;
mod held;
mod hot;
mod import;
mod loaded;
mod mark;
mod memory;
mod open;
mod outcome;
mod pager;
mod queries;
mod quota;
mod record;
mod recover;
mod rollback;
mod segments;
mod settler;
mod stats;
mod sweep;
mod tasks;
mod timeouts;
mod timings;
mod together;
mod vbuckets;
mod warmup;
mod writer;

pub use aside::VbReset;
pub use bucket::{Bucket, BucketSetup, Completions, Ctx, LoadReport, Recovery, Write};
pub use compaction::{
    CompactionChange, CompactionConfig, CompactionPace, CompactionPool, CompactionProgress,
    CompactionReport, CompactionRequest, CompactionTicket,
};
pub use config::{BucketChange, BucketConfig, CompressionMode, ConflictResolution, EvictionPolicy};
pub use counters::{Counter, Total};
pub use documents::Read;
pub use error::BucketError;
pub use import::import_files;
pub use kedge_storage::{CompactPhase, CompactionFigures, FileFigures, Import, Imported};
pub use kedge_vbucket::{
    Completion, ConcatMode, Cookie, Document, Item, Meta, MinRatio, Mutated, ObserveSeqno,
    ObserveState, StoreMode, VbState,
};
pub use memory::{MemoryChange, MemoryConfig, WarmupBehavior};
pub use outcome::Outcome;
pub use queries::VbFigures;
pub use rollback::RolledBack;
pub use timings::{Timing, TimingSnapshot, Timings};

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
