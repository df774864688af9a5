//! A vBucket as a state machine: hash table, checkpoints, durability monitor, failover table.
//!
//! [`VBucket`] owns all state of one partition of a bucket and changes it in steps. A step takes the time and the
//! arguments of a command, and returns its result. The crate starts no threads, opens no files and reads no clocks, so
//! the same code runs under a lock in the server and with a seed in a test. Changes are queued in checkpoints for the
//! log, the file and streams. [`VBucket::take_effects`] returns the effects of steps on other components.
//!
//! # Example
//!
//! ```
//! use kedge_types::{Cas, CollectionId, Datatype, DocKey, Expiry, Now, Status, VbId, VbUuid};
//! use kedge_vbucket::{
//!     Cookie, MinRatio, NewValue, StepOutcome, PersistenceMode, RandomState, StoreMode, Topology, VBucket, VbSetup, StepWrite,
//! };
//!
//! let mut vbucket = VBucket::new(VbSetup {
//!     id: VbId(7),
//!     uuid: VbUuid(1),
//!     shards: 4,
//!     hasher: RandomState::default(),
//!     persistence: PersistenceMode::LogThenFile,
//!     topology: Some(Topology::alone()),
//! });
//!
//! // The time is an argument of every step.
//! let now = Now { unix_ns: 1_700_000_000_000_000_000, mono_ns: 1 };
//! let key = DocKey::new(CollectionId::DEFAULT, b"order-17").expect("it is short");
//! assert_eq!(vbucket.at(now).get(&key, |_| ()), Err(Status::KeyNotFound));
//!
//! let write = StepWrite {
//!     key: &key,
//!     cas: Cas(0),
//!     new_cas: Cas(0),
//!     durability: None,
//!     preserve_ttl: false,
//!     cookie: Cookie(0),
//!     prebuilt: None,
//! };
//! let value = NewValue::check(b"{}", Datatype::RAW, MinRatio::NEVER)?;
//! let stored = vbucket.at(now).store(&write, StoreMode::Set, &value, 0, Expiry::NEVER)?;
//! let StepOutcome::Done(mutated) = stored else { panic!("the write does not wait") };
//!
//! let shown = vbucket.at(now).get(&key, |document| (document.cas, document.item.value().to_vec()))?;
//! assert_eq!(shown, StepOutcome::Done((mutated.cas, b"{}".to_vec())));
//! # Ok::<(), Status>(())
//! ```

mod apply;
mod catch_up;
mod change_queue;
mod checkpoint;
mod collections;
mod completion;
mod compress;
mod concat;
mod cursors;
mod defragment;
mod document_table;
mod dropped_purge;
mod dropped_sweep;
mod durability;
mod effects;
mod failover;
mod fetch;
mod file_state;
mod frequency;
mod hash_table;
mod history;
mod hlc;
mod item;
mod key_figures;
mod lock;
mod locking;
mod manifest;
mod modify;
mod observe;
mod op;
mod page_out;
mod patch;
mod precompute;
mod read;
mod receive;
mod recovery;
mod replay;
mod residency;
mod results;
mod rollback;
mod scanned;
mod snapshot;
mod state;
mod states;
mod step;
mod store;
mod store_keeping_xattrs;
mod system_event;
mod topology;
mod value;
mod vbucket;
mod with_meta;
mod write;

pub use apply::{
    Aborted, ApplyBatch, BatchPart, FileChange, PersistedState, PersistenceMode, UnappliedFigures,
};
pub use catch_up::{CatchUpPoint, NewBranch};
pub use change_queue::{AfterLog, ChangeQueue};
pub use checkpoint::{Change, CheckpointFigures, Checkpoints, CursorFigures, CursorId, Position};
pub use collections::{CollectionOps, FileCollections, OpenCollection, OpenCollections, OpenScope};
pub use completion::{CompletedCommand, Completion, Cookie};
pub use concat::ConcatChange;
pub use cursors::{
    CursorGone, CursorOpening, ReleasedChanges, StreamCursor, StreamEvents, VbIdentity,
};
pub use defragment::Defragmented;
pub use document_table::DocumentTable;
pub use durability::{DurabilityFigures, DurabilityMonitor, DurabilityRules, LevelCounts};
pub use effects::{MemoryUse, StepEffects, SweepWork};
pub use failover::FailoverTable;
pub use fetch::{FetchTicket, Fetched};
pub use file_state::FileState;
pub use foldhash::fast::RandomState;
pub use hash_table::{HashFigures, HashTable, KeyHash, SLOT_BYTES};
pub use history::History;
pub use hlc::{Drift, HybridClock};
pub use item::{
    Deletion, Draft, ITEM_OVERHEAD_BYTES, Item, ItemMeta, SlabFigures, any_long_value,
    prefetch_value, slab_figures,
};
pub use key_figures::FileLookup;
pub use modify::{Modified, Modify, NextVersion};
pub use op::{DocOp, Executed};
pub use page_out::{Eviction, FrequencyCounts, PageOut, PagedOut};
pub use patch::Patches;
pub use precompute::{PrebuiltItem, Precomputed};
pub use receive::{ReceiveError, Received};
pub use recovery::VbRecovery;
pub use replay::{ReplayError, Rewind};
pub use residency::ResidencyFigures;
pub use results::{
    DocumentRef, KeyFigures, KeyValidity, Meta, Mutated, ObserveState, ObservedSeqno,
    RandomDocument, ResumePoint, StepOutcome, VbProgress,
};
pub use scanned::{ScanEnd, ScanFound, ScanPart};
pub use snapshot::{DcpSnapshot, SnapshotKind};
pub use state::VbState;
pub use states::StateChange;
pub use step::Step;
pub use store::VbStore;
pub use store_keeping_xattrs::StoreKeepingXattrs;
pub use system_event::{SystemEvent, SystemEventKind, is_system_key};
pub use topology::{NodeName, Topology};
pub use value::{MinRatio, NewValue, ValueCompressor, ValueParts};
pub use vbucket::{VBucket, VbSetup};
pub use with_meta::{ConflictRule, WithMetaArgs};
pub use write::{ConcatMode, CounterOp, StepWrite, StoreMode};
