//! SyncWrites in flight, and others who wait for the disk.
//!
//! Invariants:
//! * Prepares stand in seqno order and end in that order: the first that is not ready holds up all behind it.
//! * A key has at most one prepare.
//! * A prepare that was read back from the disk or came from another active has no deadline: someone may have seen it
//!   committed, so it is committed and never given up.
//! * An active commits what its level asks of itself and of a majority of each chain. Without chains it commits nothing.

mod acks;
mod figures;
mod monitor;
mod passive;
mod prepares;

pub(crate) use acks::Acks;
pub(crate) use figures::SyncWriteCounts;
pub use figures::{DurabilityFigures, DurabilityRules, LevelCounts};
pub use monitor::DurabilityMonitor;
pub(crate) use passive::PassiveDurabilityMonitor;
pub(crate) use prepares::PrepareQueue;

use crate::completion::ClientWaiter;
use crate::hash_table::KeyHash;
use crate::item::Item;
use kedge_types::{DurabilityLevel, Seqno};

/// One SyncWrite that has not ended.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) hash: KeyHash,
    pub(crate) item: Item,
    pub(crate) level: DurabilityLevel,
    pub(crate) state: PrepareState,
}

/// The state of a SyncWrite that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PrepareState {
    /// A client of this active waits for it: nobody has seen it.
    Client(ClientWaiter),
    /// Its client was told that the outcome is not known. It is aborted as soon as it is the first.
    Aborting { unix_secs: u64 },
    /// It came from the disk, or from another active, or its client went away: someone may have seen it committed. It
    /// has no deadline.
    Inherited,
}

impl Prepare {
    /// One for which nobody waits any more.
    pub(crate) fn found(hash: KeyHash, item: Item, level: DurabilityLevel) -> Self {
        Self {
            hash,
            item,
            level,
            state: PrepareState::Inherited,
        }
    }

    pub(crate) fn has_client(&self) -> bool {
        matches!(self.state, PrepareState::Client(_))
    }

    /// Returns whether the node itself has done for it what its level asks for, if everything up to `persisted` is on
    /// its disk.
    pub(crate) fn is_satisfied(&self, persisted: Seqno) -> bool {
        !self.level.needs_persistence() || self.item.seqno() <= persisted
    }
}
