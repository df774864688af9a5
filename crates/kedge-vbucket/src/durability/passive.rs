//! What a vBucket that follows another acknowledges: its high prepared seqno.
//!
//! * Nothing of a snapshot counts before its end was received.
//! * From memory: prepares count then, but from the first on that has to be on a majority's disks, none does before the
//!   whole snapshot is on disk.
//! * From a disk: nothing counts before the whole snapshot is on disk. Then all does that the sender had prepared, even
//!   if no prepare came: they may have ended, and the newest version of their keys came instead.
//!
//! What has ended needs nobody's acknowledgement: a prepare that was committed or aborted holds up nothing.

use super::PrepareQueue;
use crate::snapshot::Snapshot;
use kedge_types::{DurabilityLevel, Seqno};
use std::collections::VecDeque;

/// A snapshot that was received and is not on disk, and matters for that.
#[derive(Clone, Copy, Debug)]
struct Unpersisted {
    end: Seqno,
    /// Until it is on disk nothing above this counts.
    hold: Seqno,
    /// Then all up to here does, whatever prepares there are.
    reached: Seqno,
}

/// The acknowledgements of a vBucket that follows an active.
#[derive(Debug, Default)]
pub(crate) struct PassiveDurabilityMonitor {
    unpersisted: VecDeque<Unpersisted>,
    /// The end of the last snapshot that was received as a whole.
    complete: Seqno,
    /// The highest prepare that had ended there.
    completed: Seqno,
    high_prepared: Seqno,
    acknowledged: Seqno,
}

impl PassiveDurabilityMonitor {
    /// Everything up to `complete` is there; of the prepares, those up to `high_prepared` count already.
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

    /// Returns whether a snapshot that was received has to be on disk first.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.unpersisted.is_empty()
    }

    /// The sender has forgotten what was acknowledged.
    pub(crate) fn acknowledge_again(&mut self) {
        self.acknowledged = Seqno(0);
    }

    /// The seqno to acknowledge, if it has moved.
    pub(crate) fn take_ack(&mut self) -> Option<Seqno> {
        (self.high_prepared > self.acknowledged).then(|| {
            self.acknowledged = self.high_prepared;
            self.high_prepared
        })
    }

    /// All of `snapshot` was received; the last seqno is `end`.
    pub(crate) fn complete(&mut self, snapshot: &Snapshot, end: Seqno, prepares: &PrepareQueue) {
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

    /// Counts anew: a snapshot was completed, or more is on disk.
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

    /// On disk is everything. Up to `complete` there were prepares up to `prepared`, known still or not.
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
