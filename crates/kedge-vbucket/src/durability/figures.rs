//! What is told of a vBucket's SyncWrites.

use crate::state::VbState;
use crate::topology::{NodeName, Topology};
use kedge_types::{DurabilityLevel, Seqno};

/// Requirements of an active on its chains beside their majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurabilityRules {
    /// Where a chain has too few nodes, the active alone is enough, instead of `DurabilityImpossible`.
    pub active_is_enough: bool,
}

/// Counts of SyncWrites by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// Of level majority.
    pub majority: u64,
    /// Of level majority and persist on active.
    pub majority_and_persist_on_active: u64,
    /// Of level persist to majority.
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

    /// Of all levels.
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

/// Figures of a vBucket's durability monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityFigures {
    /// The state of the vBucket on its node.
    pub state: VbState,
    /// The nodes that have to acknowledge. An active without a topology commits nothing; others have none.
    pub topology: Option<Topology>,
    /// The seqnos that nodes have acknowledged to this active.
    pub acknowledged: Vec<(NodeName, Seqno)>,
    /// Prepares up to here have reached on this node what their level asks of it.
    pub high_prepared: Seqno,
    /// The highest prepare that was committed or aborted.
    pub high_completed: Seqno,
    /// SyncWrites that have not ended.
    pub tracked: usize,
    /// The first and the last of them.
    pub tracked_range: Option<(Seqno, Seqno)>,
    /// SyncWrites that this active took.
    pub accepted: LevelCounts,
    /// Those that it committed.
    pub committed: LevelCounts,
    /// Those that it aborted.
    pub aborted: LevelCounts,
    /// Those that it committed alone, as a chain had too few nodes.
    pub committed_not_durable: u64,
}
