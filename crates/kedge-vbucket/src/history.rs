//! The history of a vBucket: its branches, how far its seqnos and CAS values go, and the snapshot that it is in.
//!
//! Invariants:
//! * `high_seqno` is the last seqno that was given out or received; `visible_seqno` and `persisted_seqno` are not above it.
//! * While a snapshot is open, the last consistent point is its start. In a disk snapshot the visible seqno stays at that
//!   point until its end.

use crate::failover::FailoverTable;
use crate::hlc::{Drift, HybridClock};
use crate::item::Item;
use crate::results::{Mutated, ObservedSeqno, ResumePoint};
use crate::snapshot::Snapshot;
use kedge_types::{Cas, Seqno, Status, VbUuid};

/// Failover table, seqnos, clock and open snapshot of a vBucket.
#[derive(Debug)]
pub struct History {
    pub(crate) failover: FailoverTable,
    pub(crate) clock: HybridClock,
    pub(crate) high_seqno: Seqno,
    pub(crate) visible_seqno: Seqno,
    pub(crate) persisted_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    /// The snapshot that it is in the middle of.
    pub(crate) open: Option<Snapshot>,
    /// The last document of the disk snapshot that is being received.
    seen: Seqno,
    /// It was just made, and nobody ever wrote on its branch.
    pub(crate) is_unwritten: bool,
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
        }
    }

    /// Begins anew from nothing. The clock goes on, as no CAS is given out twice.
    pub(crate) fn reset(&mut self, failover: FailoverTable) {
        *self = Self {
            failover,
            clock: self.clock,
            ..Self::new(VbUuid(0))
        };
    }

    /// Forgets all behind `to`, where the branch `uuid` begins.
    pub(crate) fn rollback_to(&mut self, to: Seqno, uuid: VbUuid) {
        self.failover.begin(uuid, to);
        self.high_seqno = to;
        self.persisted_seqno = to;
        self.visible_seqno = self.visible_seqno.min(to);
        self.open = None;
        self.seen = Seqno(0);
    }

    /// The branches.
    #[must_use]
    pub fn failover(&self) -> &FailoverTable {
        &self.failover
    }

    /// The last seqno given out.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// The last seqno that a client without SyncWrites may hear of: all but prepares and aborts count.
    #[must_use]
    pub fn visible_seqno(&self) -> Seqno {
        self.visible_seqno
    }

    /// Everything up to this seqno is on disk.
    #[must_use]
    pub fn persisted_seqno(&self) -> Seqno {
        self.persisted_seqno
    }

    /// The highest seqno of a tombstone that was forgotten.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// The last CAS given out.
    #[must_use]
    pub fn last_cas(&self) -> Cas {
        self.clock.last()
    }

    /// The distance of the clocks whose CAS values it took.
    #[must_use]
    pub fn drift(&self) -> Drift {
        self.clock.drift()
    }

    /// The last consistent point.
    #[must_use]
    pub fn consistent_seqno(&self) -> Seqno {
        self.open.map_or(self.high_seqno, |open| open.start)
    }

    /// The place where a stream goes on.
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

    /// The progress of the branch `uuid`.
    ///
    /// # Errors
    /// `KeyNotFound` when it is not in the failover table.
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

    /// The last change is visible to every client.
    pub(crate) fn show_all(&mut self) {
        self.visible_seqno = self.high_seqno;
    }

    /// A document came that stands at `seqno`.
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

    pub(crate) fn begin_snapshot(&mut self, snapshot: Snapshot) {
        self.purge_seqno = self.purge_seqno.max(snapshot.purge.unwrap_or_default());
        self.open = Some(snapshot);
    }

    /// The last seqno is `seqno` now. Returns the snapshot that ends there: then this is a consistent point.
    pub(crate) fn reach(&mut self, seqno: Seqno) -> Option<Snapshot> {
        let ended = self.open.take_if(|open| open.end <= seqno)?;
        if ended.is_disk() {
            let seen = std::mem::take(&mut self.seen);
            let told = ended.max_visible.unwrap_or_default().min(seqno);
            self.visible_seqno = self.visible_seqno.max(seen).max(told);
        }
        Some(ended)
    }

    /// A snapshot that broke off counts as whole: nobody will send the rest.
    pub(crate) fn end_snapshot_here(&mut self) {
        if self.open.take().is_some_and(|open| open.is_disk()) {
            let seen = std::mem::take(&mut self.seen);
            self.visible_seqno = self.visible_seqno.max(seen);
        }
    }

    /// The branch `uuid` begins at `began`. Nobody has anything of one on which nothing was written: it leaves no
    /// entry.
    pub(crate) fn begin_branch(&mut self, uuid: VbUuid, began: Seqno, is_unwritten: bool) {
        if is_unwritten {
            self.failover = FailoverTable::new(uuid);
        } else {
            self.failover.begin(uuid, began);
        }
    }
}
