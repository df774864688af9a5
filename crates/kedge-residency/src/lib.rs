//! The memory of a bucket: eviction, reading documents back, and operations that wait.
//!
//! [`Residency`] wires the components, and is their interface for commands: [`Residency::admit`] decides about a write,
//! [`Residency::park`] parks an operation that waits for the disk, for memory, or for the state of its vBucket.
//! [`ItemPager`] and the sweeps evict documents, [`BackgroundFetcher`] and [`Warmup`] read them back. Each waiting operation
//! is a [`PendingOp`] in a queue of its component; all queues are of one type. Steps of vBuckets reach the components through
//! [`MemorySignals`]; they report upwards through [`ResidencyEvents`] and know nothing of connections or streams. The
//! account of memory itself, [`kedge_bucket_core::Quota`], is in the core, as each step adds to it.
//!
//! # Example
//!
//! A read with its own copy of the arguments, as it is parked:
//!
//! ```
//! use kedge_bucket_core::{Ctx, Read, RequiredRole};
//! use kedge_residency::PendingOp;
//! use kedge_types::{CollectionId, DocKey, Now, VbId};
//! use kedge_vbucket::{Cookie, DocOp};
//!
//! let key = DocKey::new(CollectionId::DEFAULT, b"key")?;
//! let read = Read { vb: VbId(0), key: &key, cookie: Cookie(1) };
//! let ctx = Ctx { now: Now { mono_ns: 5_000, ..Now::default() }, thread: 0 };
//! let pending = PendingOp::read(ctx, &read, DocOp::Get);
//! assert_eq!((pending.cookie, pending.since_ns), (Cookie(1), 5_000));
//! assert_eq!(pending.op.role(), RequiredRole::Active);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `kedge-bucket` has an example of a whole bucket.

mod access_log;
mod fetch;
mod kinds;
mod memory_admission;
mod pager;
mod parked;
mod parts;
mod pending_state;
mod residency;
mod signals;
mod sweeper;
mod tasks;
mod warmup;

pub use access_log::AccessScanner;
pub use fetch::{BackgroundFetcher, Fetch};
pub use pager::ItemPager;
pub use parked::{
    Admission, Op, PendingOp, WaitFor, outcome_counters, role_of, with_meta_counters,
};
pub use pending_state::PendingStateQueue;
pub use residency::Residency;
pub use signals::{MemorySignals, ResidencyEvents};
pub use warmup::Warmup;
