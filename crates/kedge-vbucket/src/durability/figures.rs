//! What is told of a vBucket's SyncWrites.

use crate::topology::{NodeName, Topology};
use crate::vbucket::{VBucket, VbState};
use kedge_types::{DurabilityLevel, Seqno, VbUuid};

/// What an active asks of its chains beside their majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurabilityRules {
    /// Where a chain has too few nodes, the active alone is enough, instead of `DurabilityImpossible`.
    pub active_is_enough: bool,
}

/// How many SyncWrites there were of each level.
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
    /// What the vBucket is to its node.
    pub state: VbState,
    /// Who has to acknowledge. An active without one commits nothing; others have none.
    pub topology: Option<Topology>,
    /// What nodes have acknowledged to this active.
    pub acknowledged: Vec<(NodeName, Seqno)>,
    /// PrepareQueue up to here have reached on this node what their level asks of it.
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

/// How far a vBucket is, to find out which of several nodes has the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What it is to its node.
    pub state: VbState,
    /// The branch that it is on.
    pub uuid: VbUuid,
    /// Its last seqno.
    pub high_seqno: Seqno,
    /// Everything up to here is on its disk.
    pub persisted_seqno: Seqno,
    /// PrepareQueue up to here count as acknowledged by it.
    pub high_prepared: Seqno,
    /// The highest prepare that it knows to have ended.
    pub high_completed: Seqno,
    /// Its last consistent point: its last seqno, unless it is in the middle of a snapshot.
    pub consistent: Seqno,
}

impl VBucket {
    /// PrepareQueue up to here have reached on this node what their level asks of it.
    #[must_use]
    pub fn high_prepared_seqno(&self) -> Seqno {
        if self.state != VbState::Active {
            return self.following.high_prepared();
        }
        let satisfied = self.prepares.iter();
        let satisfied = satisfied.take_while(|prepare| prepare.is_satisfied(self.persisted_seqno));
        let last = satisfied.last().map(|prepare| prepare.item.seqno());
        last.unwrap_or_default().max(self.prepares.completed())
    }

    /// The highest prepare that was committed or aborted.
    #[must_use]
    pub fn high_completed_seqno(&self) -> Seqno {
        self.prepares.completed()
    }

    /// Who has to acknowledge its SyncWrites.
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.acks.topology()
    }

    /// The last consistent point.
    #[must_use]
    pub fn consistent_seqno(&self) -> Seqno {
        self.open.map_or(self.high_seqno, |open| open.start)
    }

    /// How far it is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            state: self.state,
            uuid: self.failover.uuid(),
            high_seqno: self.high_seqno,
            persisted_seqno: self.persisted_seqno,
            high_prepared: self.high_prepared_seqno(),
            high_completed: self.high_completed_seqno(),
            consistent: self.consistent_seqno(),
        }
    }

    /// Figures of its SyncWrites.
    #[must_use]
    pub fn durability_figures(&self) -> DurabilityFigures {
        let seqno = |prepare: &crate::durability::Prepare| prepare.item.seqno();
        let (mut tracked, mut last) = (self.prepares.iter().map(seqno), None);
        let first = tracked.next();
        if first.is_some() {
            last = tracked.next_back().or(first);
        }
        let counts = &self.sync_writes;
        DurabilityFigures {
            state: self.state,
            topology: self.acks.topology().cloned(),
            acknowledged: self.acks.all().to_vec(),
            high_prepared: self.high_prepared_seqno(),
            high_completed: self.high_completed_seqno(),
            tracked: self.prepares.len(),
            tracked_range: first.zip(last),
            accepted: counts.accepted,
            committed: counts.committed,
            aborted: counts.aborted,
            committed_not_durable: counts.not_durable,
        }
    }
}
