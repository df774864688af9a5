#![doc = include_str!("../README.md")]

mod coordinator;
mod election;
pub mod embedded;
mod error;
pub mod etcd;
mod position;
mod time;
mod transaction;

pub use coordinator::{
    Change, Coordinator, Entry, Lease, LeaseId, ReadAgain, Snapshot, Watch, WatchEvent,
};
pub use election::{Candidacy, Election, Leadership};
pub use error::{Conflict, CoordinationError};
pub use position::{Revision, StorePosition};
pub use time::{DriftBound, Moment};
pub use transaction::{
    Compare, KEY_BYTES_MAX, Op, TRANSACTION_BYTES_MAX, TRANSACTION_OPS_MAX, Transaction,
};
