//! The memory of a bucket: what is in it, what leaves it, and what waits for it.
//!
//! [`Residency`] has documents leave memory when it runs short (item pager, expiry sweep, purge of dropped collections,
//! compressor), reads them back when commands need them (background fetch, warmup), and admits writes for which memory has
//! no room yet. Commands wait in its queues as [`PendingOp`]s. Steps of vBuckets reach it through [`MemorySignals`]; it
//! reports upwards through [`ResidencyEvents`] and knows nothing of connections or streams. The account of memory itself,
//! [`kedge_bucket_core::Quota`], is in the core, as each step adds to it.
//!
//! # Example
//!
//! The queues of a bucket, which steps of its vBuckets reach, and a limiter of waiting commands:
//!
//! ```
//! use kedge_residency::{AdmissionLimiter, MemorySignals};
//!
//! let (vbuckets, front_end_threads) = (16, 1);
//! let signals = MemorySignals::new(vbuckets, front_end_threads);
//! assert!(format!("{signals:?}").contains("fetches"));
//!
//! let limiter = AdmissionLimiter::default();
//! assert_eq!(limiter.waiting(), 0);
//! ```
//!
//! `kedge-bucket` has an example of a whole bucket.

mod access_log;
mod compressor;
mod dropped;
mod fetch;
mod memory_queue;
mod pager;
mod residency;
mod signals;
mod sweep;
mod tasks;
mod warmup;

pub use fetch::{AdmissionLimiter, Fetch, Op, PendingOp, given_counters, outcome_counters};
pub use memory_queue::Admission;
pub use residency::{Residency, ResidencyEvents};
pub use signals::MemorySignals;
