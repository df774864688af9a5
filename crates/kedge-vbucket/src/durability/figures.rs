//! Statistics and rules of SyncWrites.

use crate::state::VbState;
use crate::topology::{NodeName, Topology};
use kedge_types::{DurabilityLevel, Seqno};

/// Rules of an active vBucket for its chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurabilityRules {
    /// True if the active node alone is sufficient while a chain has too few nodes. Otherwise the status is
    /// `DurabilityImpossible`.
    pub active_is_enough: bool,
}

/// Counts of SyncWrites by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// The count of level majority.
    pub majority: u64,
    /// The count of level majority and persist on active.
    pub majority_and_persist_on_active: u64,
    /// The count of level persist to majority.
    pub persist_to_majority: u64,
}

impl LevelCounts {
    pub(crate) fn add(&mut self, level: DurabilityLevel) {
        match level {
            DurabilityLevel::Majority => self.majority += 1,
            DurabilityLevel::MajorityAndPersistOnActive => self.majority_and_persist_on_active += 1,
            DurabilityLevel::PersistToMajority => self.persist_to_majority += 1,
        }
    }

    /// Returns the sum over all levels.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.majority + self.majority_and_persist_on_active + self.persist_to_majority
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncWriteCounts {
    pub(crate) accepted: LevelCounts,
    pub(crate) committed: LevelCounts,
    pub(crate) aborted: LevelCounts,
    pub(crate) not_durable: u64,
}

/// Statistics of a durability monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityFigures {
    /// The state of the vBucket on its node.
    pub state: VbState,
    /// The nodes that have to acknowledge. An active vBucket without a topology commits nothing. Other states have
    /// none.
    pub topology: Option<Topology>,
    /// The seqnos that nodes have acknowledged to this active vBucket.
    pub acknowledged: Vec<(NodeName, Seqno)>,
    /// The high prepared seqno: the levels of prepares up to it are satisfied on this node.
    pub high_prepared: Seqno,
    /// The high completed seqno: the highest prepare that was committed or aborted.
    pub high_completed: Seqno,
    /// The number of prepares in flight.
    pub tracked: usize,
    /// The seqnos of the first and the last prepare in flight.
    pub tracked_range: Option<(Seqno, Seqno)>,
    /// The SyncWrites that this active vBucket accepted.
    pub accepted: LevelCounts,
    /// The SyncWrites that it committed.
    pub committed: LevelCounts,
    /// The SyncWrites that it aborted.
    pub aborted: LevelCounts,
    /// The SyncWrites that it committed alone because a chain had too few nodes.
    pub committed_not_durable: u64,
}
