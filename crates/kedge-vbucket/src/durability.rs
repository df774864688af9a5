//! SyncWrites in flight, and other waits for the disk.
//!
//! Invariants:
//! * Prepares are in seqno order and are completed in that order. The first one that is not ready blocks all later
//!   ones.
//! * A key has at most one prepare.
//! * A prepare that was recovered from disk or came from another active vBucket has no timeout. A client may have seen
//!   its commit, so it is committed and never aborted.
//! * An active vBucket commits a prepare when the level is satisfied on its own node and by a majority of each chain.
//!   Without chains it commits nothing.

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

/// A prepare: a SyncWrite that is neither committed nor aborted.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) hash: KeyHash,
    pub(crate) item: Item,
    pub(crate) level: DurabilityLevel,
    pub(crate) state: PrepareState,
}

/// The state of a prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PrepareState {
    /// A client of this active vBucket waits for it. No client has seen it.
    Client(ClientWaiter),
    /// The client has received an ambiguous status. The prepare is aborted when it becomes the first one, unless it is
    /// ready by then.
    Aborting { unix_secs: u64 },
    /// The prepare came from the disk or from another active vBucket, or its client received no response. It has no
    /// timeout, because a client may have seen it committed.
    Inherited,
}

impl Prepare {
    /// Creates a prepare without a waiting client.
    pub(crate) fn inherited(hash: KeyHash, item: Item, level: DurabilityLevel) -> Self {
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

    /// Returns whether the level is satisfied on this node, given the persisted seqno.
    pub(crate) fn is_satisfied(&self, persisted: Seqno) -> bool {
        !self.level.needs_persistence() || self.item.seqno() <= persisted
    }
}
