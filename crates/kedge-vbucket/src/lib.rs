//! A vBucket as a state machine: hash table, checkpoints, durability monitor, failover table.
//!
//! [`VBucket`] owns all state of one partition of a bucket and changes it in steps: a method gets the time and what a
//! client wants, and returns what to answer. It starts no thread, opens no file and looks at no clock, so the same
//! code runs under a lock in the server and under a seed in a test. Changes are queued in its checkpoints, for the log, the
//! file and streams. The effects of steps on everything around it are handed out by [`VBucket::take_effects`].
//!
//! # Example
//!
//! ```
//! use kedge_types::{Cas, CollectionId, Datatype, DocKey, Expiry, Now, Status, VbId, VbUuid};
//! use kedge_vbucket::{
//!     Cookie, MinRatio, NewValue, StepOutcome, Persistence, RandomState, StoreMode, Topology, VBucket, VbSetup, StepWrite,
//! };
//!
//! let mut vbucket = VBucket::new(VbSetup {
//!     id: VbId(7),
//!     uuid: VbUuid(1),
//!     shards: 4,
//!     hasher: RandomState::default(),
//!     persistence: Persistence::LogThenFile,
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
//!     ahead: None,
//! };
//! let value = NewValue::check(b"{}", Datatype::RAW, MinRatio::NEVER)?;
//! let stored = vbucket.at(now).store(&write, StoreMode::Set, &value, 0, Expiry::NEVER)?;
//! let StepOutcome::Done(mutated) = stored else { panic!("the write waits for nothing") };
//!
//! let shown = vbucket.at(now).get(&key, |document| (document.cas, document.item.value().to_vec()))?;
//! assert_eq!(shown, StepOutcome::Done((mutated.cas, b"{}".to_vec())));
//! # Ok::<(), Status>(())
//! ```

mod ahead;
mod answer;
mod apply;
mod behind;
mod changes;
mod checkpoint;
mod collections;
mod completion;
mod compress;
mod concat;
mod cursors;
mod documents;
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
mod read;
mod receive;
mod recovery;
mod replay;
mod residency;
mod rollback;
mod scanned;
mod snapshot;
mod state;
mod states;
mod step;
mod store;
mod system_event;
mod topology;
mod value;
mod vbucket;
mod with_meta;
mod write;

pub use ahead::{Ahead, MadeAhead};
pub use answer::{
    Document, KeyFigures, KeyValidity, Meta, Mutated, ObserveSeqno, ObserveState, Picked, Resume,
    Standing, StepOutcome,
};
pub use apply::{
    Aborted, ApplyBatch, FileChange, Part, PersistedState, Persistence, UnappliedFigures,
};
pub use behind::StoreBehind;
pub use changes::{AfterLog, Changes};
pub use checkpoint::{Change, CheckpointFigures, Checkpoints, CursorFigures, CursorId, Position};
pub use collections::{CollectionOps, Collections, FileCollections, OpenCollection, OpenScope};
pub use completion::{Completion, Cookie, Done};
pub use concat::Concat;
pub use cursors::{CursorGone, CursorOpening, Forgotten, Identity, News, StreamCursor};
pub use documents::Documents;
pub use durability::{DurabilityFigures, DurabilityMonitor, DurabilityRules, LevelCounts};
pub use effects::{MemoryUse, StepEffects};
pub use failover::FailoverTable;
pub use fetch::{FetchTicket, Fetched};
pub use file_state::FileState;
pub use foldhash::fast::RandomState;
pub use hash_table::{HashFigures, HashTable, KeyHash, SLOT_BYTES};
pub use history::History;
pub use hlc::{Drift, HybridClock};
pub use item::{Deletion, Draft, ITEM_OVERHEAD_BYTES, Item, ItemMeta, any_long_value};
pub use key_figures::Stored;
pub use modify::{Modified, Modify, NextVersion};
pub use op::{DocOp, Executed};
pub use page_out::{Eviction, FrequencyCounts, PageOut, PagedOut};
pub use patch::Patches;
pub use receive::{ReceiveError, Received};
pub use recovery::Recovery;
pub use replay::{ReplayError, Rewind};
pub use residency::ResidencyFigures;
pub use scanned::{ScanEnd, ScanFound, ScanPart};
pub use snapshot::{Snapshot, SnapshotKind};
pub use state::VbState;
pub use states::StateChange;
pub use step::Step;
pub use store::Store;
pub use system_event::{SystemEvent, SystemEventKind, is_system_key};
pub use topology::{NodeName, Topology};
pub use value::{MinRatio, NewValue, Packer, Parts};
pub use vbucket::{VBucket, VbSetup};
pub use with_meta::{ConflictRule, Given};
pub use write::{Arithmetic, ConcatMode, StepWrite, StoreMode};
