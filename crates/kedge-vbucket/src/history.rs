//! The history of a vBucket: failover table, seqnos, CAS clock and open snapshot.
//!
//! Invariants:
//! * `high_seqno` is the last seqno that was assigned or received. `visible_seqno` and `persisted_seqno` do not exceed
//!   it.
//! * While a snapshot is open, its start is the last consistent point. In a disk snapshot, the visible seqno stays at
//!   that point until the end.

use crate::catch_up::CatchUpPoint;
use crate::failover::FailoverTable;
use crate::hlc::{Drift, HybridClock};
use crate::item::Item;
use crate::results::{Mutated, ObservedSeqno, ResumePoint};
use crate::snapshot::DcpSnapshot;
use kedge_types::{Cas, Seqno, Status, VbUuid};

/// The failover table, seqnos, clock and open snapshot of a vBucket.
#[derive(Debug)]
pub struct History {
    pub(crate) failover: FailoverTable,
    pub(crate) clock: HybridClock,
    pub(crate) high_seqno: Seqno,
    pub(crate) visible_seqno: Seqno,
    pub(crate) persisted_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    /// The incomplete snapshot.
    pub(crate) open: Option<DcpSnapshot>,
    /// The last document in the disk snapshot that is being received.
    seen: Seqno,
    /// True if the vBucket is new and nothing was ever written on its branch.
    pub(crate) is_unwritten: bool,
    /// The point to reach since a rollback, which may be reached already.
    pub(crate) catch_up: Option<Box<CatchUpPoint>>,
}

impl History {
    pub(crate) fn new(uuid: VbUuid) -> Self {
        Self {
            failover: FailoverTable::new(uuid),
            clock: HybridClock::default(),
            high_seqno: Seqno(0),
            visible_seqno: Seqno(0),
            persisted_seqno: Seqno(0),
            purge_seqno: Seqno(0),
            open: None,
            seen: Seqno(0),
            is_unwritten: false,
            catch_up: None,
        }
    }

    /// Resets to an empty history. The clock continues, because no CAS is assigned twice.
    pub(crate) fn reset(&mut self, failover: FailoverTable) {
        *self = Self {
            failover,
            clock: self.clock,
            ..Self::new(VbUuid(0))
        };
    }

    /// Removes everything after `to`, where the branch `uuid` begins.
    pub(crate) fn rollback_to(&mut self, to: Seqno, uuid: VbUuid) {
        self.failover.begin(uuid, to);
        self.high_seqno = to;
        self.persisted_seqno = to;
        self.visible_seqno = self.visible_seqno.min(to);
        self.open = None;
        self.seen = Seqno(0);
    }

    /// Records that the vBucket may have acknowledged prepares up to `acknowledged`, some of which are about to be removed.
    pub(crate) fn require(&mut self, acknowledged: Seqno) {
        let known = self.catch_up().cloned();
        let mut point = known.unwrap_or_else(|| CatchUpPoint::new(Seqno(0), self.failover.clone()));
        point.seqno = point.seqno.max(acknowledged);
        point.has_arrived = false;
        self.catch_up = Some(Box::new(point));
    }

    /// Adopts the failover table of an active.
    pub(crate) fn follow(&mut self, failover: FailoverTable) {
        if let Some(point) = &mut self.catch_up {
            point.follow(&failover);
        }
        self.failover = failover;
    }

    /// Returns the point that the vBucket must reach again since a rollback, or `None` if it has.
    #[must_use]
    pub fn catch_up(&self) -> Option<&CatchUpPoint> {
        let has = self.persisted_seqno.min(self.consistent_seqno());
        self.catch_up.as_deref().filter(|point| point.seqno > has)
    }

    /// Returns the failover table.
    #[must_use]
    pub fn failover(&self) -> &FailoverTable {
        &self.failover
    }

    /// Returns the high seqno: the last one that was assigned or received.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// Returns the visible seqno: the last seqno that a client without SyncWrites may see. Prepares and aborts do not
    /// count.
    #[must_use]
    pub fn visible_seqno(&self) -> Seqno {
        self.visible_seqno
    }

    /// Returns the persisted seqno: everything up to it is on disk.
    #[must_use]
    pub fn persisted_seqno(&self) -> Seqno {
        self.persisted_seqno
    }

    /// Returns the purge seqno: the highest seqno of a purged tombstone.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// Returns the last CAS that was assigned.
    #[must_use]
    pub fn last_cas(&self) -> Cas {
        self.clock.last()
    }

    /// Returns the drift to the clocks of nodes whose CAS values were received.
    #[must_use]
    pub fn drift(&self) -> Drift {
        self.clock.drift()
    }

    /// Returns the last consistent point.
    #[must_use]
    pub fn consistent_seqno(&self) -> Seqno {
        self.open.map_or(self.high_seqno, |open| open.start)
    }

    /// Returns the position from which a stream resumes.
    #[must_use]
    pub fn resume_point(&self) -> ResumePoint {
        let start = self.high_seqno;
        let (snap_start, snap_end) = match &self.open {
            Some(open) => (open.start, open.end),
            None => (start, start),
        };
        let entries = self.failover.entries();
        let has_begun = |(_, began): &&(VbUuid, Seqno)| *began < start;
        let branch = entries.iter().find(has_begun).or(entries.last());
        ResumePoint {
            start,
            snap_start,
            snap_end,
            uuid: branch.map_or(VbUuid(0), |(uuid, _)| *uuid),
        }
    }

    /// Returns the progress of the branch `uuid`.
    ///
    /// # Errors
    /// `KeyNotFound` if the branch is not in the failover table.
    pub fn observe_seqno(&self, uuid: VbUuid) -> Result<ObservedSeqno, Status> {
        let failover = if uuid == self.failover.uuid() {
            None
        } else {
            Some((
                uuid,
                self.failover.ended_at(uuid).ok_or(Status::KeyNotFound)?,
            ))
        };
        Ok(ObservedSeqno {
            uuid: self.failover.uuid(),
            persisted: self.persisted_seqno,
            current: self.high_seqno,
            failover,
        })
    }

    pub(crate) fn mutated(&self, item: &Item) -> Mutated {
        Mutated {
            cas: item.cas(),
            uuid: self.failover.uuid(),
            seqno: item.seqno(),
        }
    }

    pub(crate) fn next_seqno(&mut self) -> Seqno {
        self.high_seqno = self.high_seqno.next();
        self.high_seqno
    }

    /// Makes all changes up to the high seqno visible.
    pub(crate) fn make_all_visible(&mut self) {
        self.visible_seqno = self.high_seqno;
    }

    /// Records a received document at `seqno`.
    pub(crate) fn see(&mut self, seqno: Seqno) {
        if self.is_in_disk_snapshot() {
            self.seen = seqno;
        } else {
            self.visible_seqno = seqno;
        }
    }

    pub(crate) fn is_in_disk_snapshot(&self) -> bool {
        self.open.is_some_and(|open| open.is_disk())
    }

    pub(crate) fn begin_snapshot(&mut self, snapshot: DcpSnapshot) {
        self.purge_seqno = self.purge_seqno.max(snapshot.purge.unwrap_or_default());
        self.open = Some(snapshot);
    }

    /// Advances the high seqno to `seqno`. Returns the snapshot that ends there, which makes it a consistent point.
    pub(crate) fn reach(&mut self, seqno: Seqno) -> Option<DcpSnapshot> {
        self.open.filter(|open| open.end <= seqno)?;
        if self.catch_up().is_none() {
            self.catch_up = None;
        }
        if let Some(point) = &mut self.catch_up {
            point.on_snapshot_end(seqno);
        }
        let ended = self.open.take()?;
        if ended.is_disk() {
            let seen = std::mem::take(&mut self.seen);
            let told = ended.max_visible.unwrap_or_default().min(seqno);
            self.visible_seqno = self.visible_seqno.max(seen).max(told);
        }
        Some(ended)
    }

    /// Counts an interrupted snapshot as complete, because no node will send the rest.
    pub(crate) fn end_snapshot_here(&mut self) {
        if self.open.take().is_some_and(|open| open.is_disk()) {
            let seen = std::mem::take(&mut self.seen);
            self.visible_seqno = self.visible_seqno.max(seen);
        }
    }

    /// Starts the branch `uuid` at `began`. A branch without any write leaves no entry, because no other node has
    /// changes of it.
    pub(crate) fn begin_branch(&mut self, uuid: VbUuid, began: Seqno, is_unwritten: bool) {
        if is_unwritten {
            self.failover = FailoverTable::new(uuid);
        } else {
            self.failover.begin(uuid, began);
        }
    }
}
