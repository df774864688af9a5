//! The high prepared seqno that a replica or pending vBucket acknowledges.
//!
//! * Nothing in a snapshot counts before its end was received.
//! * In a memory snapshot, prepares then count up to the first one that must be persisted to a majority. That one and
//!   all later ones count when the whole snapshot is on disk.
//! * In a disk snapshot, nothing counts before the whole snapshot is on disk. Then everything counts that the sender
//!   had prepared, even without a prepare in the snapshot: prepares may have been completed and replaced by newer
//!   versions of their keys.
//!
//! Completed prepares need no acknowledgement, so a committed or aborted prepare blocks nothing.

use super::PrepareQueue;
use crate::snapshot::DcpSnapshot;
use kedge_types::{DurabilityLevel, Seqno};
use std::collections::VecDeque;

/// A received snapshot that must be persisted before it counts.
#[derive(Clone, Copy, Debug)]
struct Unpersisted {
    end: Seqno,
    /// The limit of the high prepared seqno until the snapshot is on disk.
    hold: Seqno,
    /// The least high prepared seqno afterwards, whatever prepares there are.
    reached: Seqno,
}

/// The acknowledgements of a vBucket that follows an active one.
#[derive(Debug, Default)]
pub(crate) struct PassiveDurabilityMonitor {
    unpersisted: VecDeque<Unpersisted>,
    /// The end of the last complete snapshot.
    complete: Seqno,
    /// The highest prepare that was completed by then.
    completed: Seqno,
    high_prepared: Seqno,
    acknowledged: Seqno,
}

impl PassiveDurabilityMonitor {
    /// Starts with everything up to `complete` received and prepares up to `high_prepared` counted.
    pub(crate) fn begin_at(
        &mut self,
        complete: Seqno,
        high_prepared: Seqno,
        prepares: &PrepareQueue,
    ) {
        *self = Self {
            complete,
            completed: prepares.completed(),
            high_prepared,
            ..Self::default()
        };
        if prepares.last_upto(complete) > Some(high_prepared) {
            self.unpersisted.push_back(Unpersisted {
                end: complete,
                hold: high_prepared,
                reached: Seqno(0),
            });
        }
    }

    pub(crate) fn high_prepared(&self) -> Seqno {
        self.high_prepared
    }

    /// Returns whether a received snapshot must be persisted before it counts.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.unpersisted.is_empty()
    }

    /// Repeats the acknowledgement, because the active node has forgotten it.
    pub(crate) fn repeat_ack(&mut self) {
        self.acknowledged = Seqno(0);
    }

    /// Returns the seqno to acknowledge, if it has advanced.
    pub(crate) fn take_ack(&mut self) -> Option<Seqno> {
        (self.high_prepared > self.acknowledged).then(|| {
            self.acknowledged = self.high_prepared;
            self.high_prepared
        })
    }

    /// Records the end of a received snapshot. `end` is the high seqno.
    pub(crate) fn complete(&mut self, snapshot: &DcpSnapshot, end: Seqno, prepares: &PrepareQueue) {
        let before = std::mem::replace(&mut self.complete, end);
        self.completed = prepares.completed();
        if snapshot.is_disk() {
            self.unpersisted.push_back(Unpersisted {
                end,
                hold: snapshot.start,
                reached: snapshot.high_prepared.unwrap_or(end).min(end),
            });
            return;
        }
        let persist = DurabilityLevel::PersistToMajority;
        let fence = prepares
            .behind(before)
            .find(|prepare| prepare.level == persist);
        if let Some(fence) = fence {
            self.unpersisted.push_back(Unpersisted {
                end,
                hold: Seqno(fence.item.seqno().get() - 1),
                reached: Seqno(0),
            });
        }
    }

    /// Recalculates the high prepared seqno after a snapshot was completed or more is on disk.
    pub(crate) fn update(&mut self, persisted: Seqno, prepares: &PrepareQueue) {
        while let Some(whole) = self
            .unpersisted
            .pop_front_if(|first| first.end <= persisted)
        {
            self.high_prepared = self.high_prepared.max(whole.reached);
        }
        let first = self.unpersisted.front();
        let limit = first.map_or(self.complete, |first| first.hold);
        let ended = Some(self.completed).filter(|completed| *completed <= limit);
        let last = prepares.last_upto(limit).max(ended);
        self.high_prepared = self.high_prepared.max(last.unwrap_or_default());
    }

    /// Starts with everything on disk. Up to `complete` there were prepares up to `prepared`, whether they are still
    /// known or not.
    pub(crate) fn all_persisted(
        &mut self,
        complete: Seqno,
        prepared: Seqno,
        prepares: &PrepareQueue,
    ) {
        self.begin_at(complete, Seqno(0), prepares);
        self.update(complete, prepares);
        self.high_prepared = self.high_prepared.max(prepared);
    }
}
