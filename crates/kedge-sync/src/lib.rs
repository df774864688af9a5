#![doc = include_str!("../README.md")]

mod condvar;
mod held;
mod mutex;
pub mod ranks;
mod rwlock;

pub use condvar::RankedCondvar;
pub use mutex::{RankedMutex, RankedMutexGuard};
pub use ranks::Rank;
pub use rwlock::{RankedRwLock, RankedRwLockReadGuard, RankedRwLockWriteGuard};
