//! The parts of a bucket that its components share.
//!
//! [`BucketCore`] owns the vBuckets, each behind its own lock, and everything that persistence, residency, streams and
//! commands have in common: settings, the account of memory, statistics, the executor and the receiver of completions.
//! [`BucketCore::step`] is the single entry point for a step of a vBucket. It knows none of the components: they learn of
//! steps through [`CoreEvents`].
//!
//! # Example
//!
//! The settings of a bucket are one table:
//!
//! ```
//! use kedge_bucket_core::BucketConfig;
//!
//! let config = BucketConfig::new("default", 1024, 256 << 20);
//! assert_eq!(config.check(), Ok(()));
//!
//! let row = BucketConfig::table().find(|row| row.name == "eviction_policy").expect("it is a row");
//! assert_eq!((row.show)(&config), "value_only");
//! ```

mod core;
mod counters;
mod disk_writers;
mod dynamic;
mod error;
mod instrumented;
mod outcome;
mod parallel;
mod parker;
mod phase;
mod quota;
mod random;
mod serving;
mod settings;
mod setup;
mod task;
mod timeouts;
mod timings;

pub use core::{BucketCore, CoreEvents, sync_write_timing};
pub use counters::{BucketTotals, CommandCounters, Counter, Total};
pub use disk_writers::DiskWriters;
pub use dynamic::DynamicSettings;
pub use error::BucketError;
pub use instrumented::{DiskCalls, InstrumentedDisk, IoStatistics, PendingIo, StartedRead};
pub use outcome::Outcome;
pub use parallel::{ParallelForEach, share_out};
pub use parker::Parker;
pub use phase::{BucketPhase, RequiredRole};
pub use quota::Quota;
pub use random::{first_uuid, new_uuid, random_u64};
pub use serving::ServingGate;
pub use settings::{
    BucketChange, BucketConfig, BucketSetting, CompactionChange, CompactionConfig, CompactionHours,
    CompactionPool, CompactionRate, CompressionMode, ConflictResolution, DURABILITY_LEVELS,
    DurabilityFallback, EncryptionChange, EncryptionConfig, EvictionPolicy, FieldKind,
    FixedSetting, FormField, MASTER_KEY_ID, MemoryChange, MemoryConfig, WarmupBehavior,
    markdown as settings_markdown,
};
pub use setup::{BucketSetup, Completions, Ctx, ProcessorWaits, Read};
pub use task::{Component, TaskBody, add_task, submit_change};
pub use timings::{Timing, TimingSnapshot, TimingUnit, Timings};
