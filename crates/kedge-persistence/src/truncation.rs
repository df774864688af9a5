//! The log truncation point: the position before which no vBucket needs the log.
//!
//! A vBucket needs the log from the oldest record on that its file lacks. Two positions keep track of it: the oldest
//! record that is queued to be applied, and the oldest one that is being written.
//!
//! Invariants:
//! * Positions are written under the lock of their vBucket, and read without it.
//! * While a vBucket needs a record, one of its two positions is at or below it at every moment: a position is stored
//!   in `writing_lsn` before it leaves `queued_lsn`, and readers load `queued_lsn` first.
//! * The log is truncated only under the committer's lock, so that no record is appended between reading the positions
//!   and removing the segments before them.

use kedge_log::{Log, Lsn};
use kedge_vbucket::VBucket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The value for no position: no record is needed.
const NONE: u64 = u64::MAX;

/// The position of a vBucket's records in the log, and whether a reset is among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedRecords {
    pub(crate) lsn: Lsn,
    pub(crate) is_reset: bool,
}

/// The oldest position of the log that one vBucket needs.
#[derive(Debug)]
pub(crate) struct RetentionLsn {
    queued_lsn: AtomicU64,
    writing_lsn: AtomicU64,
    /// True if the vBucket is in the queue of its applier.
    pub(crate) is_queued: AtomicBool,
}

impl Default for RetentionLsn {
    fn default() -> Self {
        Self {
            queued_lsn: AtomicU64::new(NONE),
            writing_lsn: AtomicU64::new(NONE),
            is_queued: AtomicBool::new(false),
        }
    }
}

impl RetentionLsn {
    /// Notes records at `lsn`. A reset makes earlier records obsolete.
    pub(crate) fn note_record(&self, logged: LoggedRecords) {
        if logged.is_reset || self.queued_lsn.load(Ordering::Relaxed) == NONE {
            self.queued_lsn.store(logged.lsn.0, Ordering::SeqCst);
        }
    }

    /// Clears the position of queued records: no change of the vBucket waits to be applied.
    pub(crate) fn forget_queued(&self) {
        self.queued_lsn.store(NONE, Ordering::SeqCst);
    }

    /// Notes a record that was replayed.
    pub(crate) fn note_replayed(&self, vbucket: &VBucket, logged: LoggedRecords) {
        if has_work(vbucket) {
            self.note_record(logged);
        } else {
            self.forget_queued();
        }
    }

    /// Marks all queued records as being written.
    pub(crate) fn begin_write(&self) {
        let oldest = self.oldest();
        self.writing_lsn.store(oldest, Ordering::SeqCst);
        self.queued_lsn.store(NONE, Ordering::SeqCst);
    }

    /// Ends a successful write.
    pub(crate) fn end_write(&self) {
        self.writing_lsn.store(NONE, Ordering::SeqCst);
    }

    /// Ends a failed write: its records are queued again. `writing_lsn` stays set, as a reader may have loaded
    /// `queued_lsn` already.
    pub(crate) fn fail_write(&self) {
        self.queued_lsn.store(self.oldest(), Ordering::SeqCst);
    }

    fn oldest(&self) -> u64 {
        let queued_lsn = self.queued_lsn.load(Ordering::SeqCst);
        queued_lsn.min(self.writing_lsn.load(Ordering::SeqCst))
    }
}

/// The positions of all vBuckets, and a lower bound that is known without reading them.
#[derive(Debug)]
pub(crate) struct TruncationPoint {
    retained: Box<[RetentionLsn]>,
    /// A position that is retained until the files are known to be durable.
    hold_lsn: AtomicU64,
    /// A lower bound of the truncation point.
    lower_bound: AtomicU64,
    /// The position of the next record.
    next_lsn: AtomicU64,
    /// The end of the oldest segment that could be removed, or `NONE` if there is none.
    oldest_end: AtomicU64,
}

impl TruncationPoint {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            retained: (0..vbuckets).map(|_| RetentionLsn::default()).collect(),
            hold_lsn: AtomicU64::new(NONE),
            lower_bound: AtomicU64::new(0),
            next_lsn: AtomicU64::new(0),
            oldest_end: AtomicU64::new(NONE),
        }
    }

    pub(crate) fn retention(&self, vb: kedge_types::VbId) -> &RetentionLsn {
        &self.retained[vb.index()]
    }

    /// Returns the oldest position that is needed, or `NONE` if none is.
    fn oldest_needed(&self) -> u64 {
        let hold_lsn = self.hold_lsn.load(Ordering::SeqCst);
        let retained = self.retained.iter().map(RetentionLsn::oldest);
        let truncation = retained.fold(hold_lsn, u64::min);
        let next = self.next_lsn.load(Ordering::SeqCst);
        self.lower_bound
            .store(truncation.min(next), Ordering::Relaxed);
        truncation
    }

    /// Retains the log from `lsn` on until [`TruncationPoint::release_hold`].
    pub(crate) fn hold(&self, lsn: Lsn) {
        self.hold_lsn.store(lsn.0, Ordering::SeqCst);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold_lsn.load(Ordering::SeqCst) != NONE
    }

    pub(crate) fn release_hold(&self) {
        self.hold_lsn.store(NONE, Ordering::SeqCst);
    }

    /// Returns whether a vBucket needs a record of the log.
    pub(crate) fn is_log_needed(&self) -> bool {
        self.oldest_needed() != NONE
    }

    /// Returns the position before which no vBucket needs the log.
    pub(crate) fn point(&self) -> Lsn {
        Lsn(self.oldest_needed())
    }

    /// Returns whether the oldest segment is not needed any more, so that the log can be truncated.
    pub(crate) fn can_truncate(&self) -> bool {
        let oldest_end = self.oldest_end.load(Ordering::SeqCst);
        oldest_end != NONE && self.oldest_needed() >= oldest_end
    }

    /// Returns the length of the log from the truncation point on, in bytes. Reads the positions of all vBuckets only
    /// if the result may exceed `limit`.
    pub(crate) fn needed_bytes(&self, limit: u64) -> u64 {
        let next = self.next_lsn.load(Ordering::SeqCst);
        let known = next.saturating_sub(self.lower_bound.load(Ordering::Relaxed));
        if known <= limit {
            return known;
        }
        next.saturating_sub(self.oldest_needed().min(next))
    }

    /// Updates the ends of the log after an append or a truncation.
    pub(crate) fn update_log_bounds(&self, log: &Log) {
        self.next_lsn.store(log.next_lsn().0, Ordering::SeqCst);
        let oldest_end = log.oldest_end().map_or(NONE, |lsn| lsn.0);
        self.oldest_end.store(oldest_end, Ordering::SeqCst);
    }
}

/// Returns whether a vBucket has changes to apply, including those that the log does not have yet, or a file to roll
/// back.
pub(crate) fn has_work(vbucket: &VBucket) -> bool {
    let figures = vbucket.unapplied();
    figures.items > 0
        || figures.state_changed
        || figures.replaces_file
        || figures.removes_file
        || vbucket.store().is_rewinding()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::VbId;

    fn at(lsn: u64) -> LoggedRecords {
        LoggedRecords {
            lsn: Lsn(lsn),
            is_reset: false,
        }
    }

    #[test]
    fn truncation_point_is_the_oldest_needed_record() {
        let truncation = TruncationPoint::new(2);
        let (a, b) = (truncation.retention(VbId(0)), truncation.retention(VbId(1)));
        assert_eq!(truncation.oldest_needed(), NONE);
        a.note_record(at(100));
        a.note_record(at(200));
        b.note_record(at(150));
        assert_eq!(truncation.oldest_needed(), 100);
        a.begin_write();
        a.note_record(at(300));
        assert_eq!(truncation.oldest_needed(), 100, "the write has not ended");
        a.fail_write();
        assert_eq!(truncation.oldest_needed(), 100);
        a.begin_write();
        a.note_record(at(400));
        a.end_write();
        assert_eq!(truncation.oldest_needed(), 150);
        b.note_record(LoggedRecords {
            lsn: Lsn(500),
            is_reset: true,
        });
        assert_eq!(
            truncation.oldest_needed(),
            400,
            "a reset makes earlier records obsolete"
        );
        truncation.next_lsn.store(1_000, Ordering::SeqCst);
        assert_eq!(truncation.needed_bytes(10), 600);
        a.begin_write();
        a.end_write();
        b.begin_write();
        b.end_write();
        assert_eq!(
            (truncation.oldest_needed(), truncation.needed_bytes(10)),
            (NONE, 0)
        );
    }
}
