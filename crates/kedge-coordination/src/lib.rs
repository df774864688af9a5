#![doc = include_str!("../README.md")]

mod address;
mod coordinator;
pub mod embedded;
mod error;
pub mod etcd;
pub mod lease;
mod position;
mod time;
mod transaction;

pub use address::StoreAddress;
pub use coordinator::{Change, Coordinator, Entry, ReadAgain, Snapshot, Watch, WatchEvent};
pub use error::{Conflict, CoordinationError};
pub use position::{Revision, StorePosition};
pub use time::{DriftBound, Moment};
pub use transaction::{
    Compare, KEY_BYTES_MAX, Op, TRANSACTION_BYTES_MAX, TRANSACTION_OPS_MAX, Transaction,
};
