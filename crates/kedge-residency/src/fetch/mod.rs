//! Background fetch: operations that need what is on disk only wait here, until a task has read it.
//!
//! A task reads the keys of many operations with one look at the vBucket's file, hands the vBucket the documents that it
//! found, and runs the step of each operation again. A front-end thread may read for its own operations: see `located`.
//!
//! Invariants:
//! * While operations wait for a vBucket, the task of its lane is awake, or about to be.
//! * One task reads for a vBucket at a time, and operations on a key go on in the order in which they came; one that only
//!   reads a value may pass them.
//! * No vBucket is locked while its file is read.

mod component;
mod front_end_reads;
mod keys;
mod located;
mod read;

pub use component::BackgroundFetcher;
pub use located::Fetch;
pub(crate) use read::ReadForLane;
