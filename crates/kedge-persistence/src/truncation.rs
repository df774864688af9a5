//! Which part of the log the vBuckets still need.
//!
//! A vBucket needs the log from its oldest record on that its file does not have. Two positions say where that is: of
//! what is waiting to be applied, and of what is being written just now.
//!
//! Invariants:
//! * Positions are written under the lock of their vBucket, and read without.
//! * While a vBucket needs a record, one of its two positions is at or below it at every moment: a position moves from
//!   `waiting` to `writing` by being written there first, and readers look at `waiting` first.
//! * The log is released only under the committer's lock, so that no record is appended between looking at the positions
//!   and releasing what is before them.

use kedge_log::{Log, Lsn};
use kedge_vbucket::VBucket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No position: nothing is needed.
const NONE: u64 = u64::MAX;

/// Where changes stand in the log, and whether a reset is among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedRecords {
    pub(crate) lsn: Lsn,
    pub(crate) is_reset: bool,
}

/// The oldest part of the log that one vBucket needs.
#[derive(Debug)]
pub(crate) struct RetentionLsn {
    queued_lsn: AtomicU64,
    writing_lsn: AtomicU64,
    /// It is in the queue of its applier.
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
    /// A record stands at `lsn`. With a reset, those before it are not needed any more.
    pub(crate) fn note_record(&self, logged: LoggedRecords) {
        if logged.is_reset || self.queued_lsn.load(Ordering::Relaxed) == NONE {
            self.queued_lsn.store(logged.lsn.0, Ordering::SeqCst);
        }
    }

    /// Nothing of the vBucket waits: what was noted does not count.
    pub(crate) fn forget_queued(&self) {
        self.queued_lsn.store(NONE, Ordering::SeqCst);
    }

    /// A record was read back from the log.
    pub(crate) fn note_replayed(&self, vbucket: &VBucket, logged: LoggedRecords) {
        if has_work(vbucket) {
            self.note_record(logged);
        } else {
            self.forget_queued();
        }
    }

    /// All that waits is being written from now on.
    pub(crate) fn begin_write(&self) {
        let oldest = self.oldest();
        self.writing_lsn.store(oldest, Ordering::SeqCst);
        self.queued_lsn.store(NONE, Ordering::SeqCst);
    }

    /// It was written.
    pub(crate) fn end_write(&self) {
        self.writing_lsn.store(NONE, Ordering::SeqCst);
    }

    /// It was not: it waits again. `writing` stays where it is, as a reader may have looked at `waiting` already.
    pub(crate) fn fail_write(&self) {
        self.queued_lsn.store(self.oldest(), Ordering::SeqCst);
    }

    fn oldest(&self) -> u64 {
        let queued_lsn = self.queued_lsn.load(Ordering::SeqCst);
        queued_lsn.min(self.writing_lsn.load(Ordering::SeqCst))
    }
}

/// What all vBuckets need, and what of it is known without looking at each.
#[derive(Debug)]
pub(crate) struct TruncationPoint {
    retained: Box<[RetentionLsn]>,
    /// Needed as long as files are not known to be durable.
    hold_lsn: AtomicU64,
    /// At or below what is needed.
    lower_bound: AtomicU64,
    /// Where the log goes on.
    next_lsn: AtomicU64,
    /// Where the oldest segment ends that could be released; `NONE` when there is none.
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

    /// The oldest position that is needed; `NONE` when none is.
    fn oldest_needed(&self) -> u64 {
        let hold_lsn = self.hold_lsn.load(Ordering::SeqCst);
        let retained = self.retained.iter().map(RetentionLsn::oldest);
        let truncation = retained.fold(hold_lsn, u64::min);
        let next = self.next_lsn.load(Ordering::SeqCst);
        self.lower_bound
            .store(truncation.min(next), Ordering::Relaxed);
        truncation
    }

    /// The log from `lsn` on is kept until [`TruncationPoint::release_hold`].
    pub(crate) fn hold(&self, lsn: Lsn) {
        self.hold_lsn.store(lsn.0, Ordering::SeqCst);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.hold_lsn.load(Ordering::SeqCst) != NONE
    }

    pub(crate) fn release_hold(&self) {
        self.hold_lsn.store(NONE, Ordering::SeqCst);
    }

    /// Returns whether there is a record that some vBucket needs.
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

    /// Bytes of the log from the oldest record on that is needed. Looks at all vBuckets only if that matters for whether
    /// it is above `limit`.
    pub(crate) fn needed_bytes(&self, limit: u64) -> u64 {
        let next = self.next_lsn.load(Ordering::SeqCst);
        let known = next.saturating_sub(self.lower_bound.load(Ordering::Relaxed));
        if known <= limit {
            return known;
        }
        next.saturating_sub(self.oldest_needed().min(next))
    }

    /// The log was appended to, or released.
    pub(crate) fn update_log_bounds(&self, log: &Log) {
        self.next_lsn.store(log.next_lsn().0, Ordering::SeqCst);
        let oldest_end = log.oldest_end().map_or(NONE, |lsn| lsn.0);
        self.oldest_end.store(oldest_end, Ordering::SeqCst);
    }
}

/// Returns whether a vBucket has something to apply, now or when the log has it, or its file has to go back.
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
    fn the_oldest_record_that_is_needed_holds_the_log() {
        let truncation = TruncationPoint::new(2);
        let (a, b) = (truncation.retention(VbId(0)), truncation.retention(VbId(1)));
        assert_eq!(truncation.oldest_needed(), NONE);
        a.note_record(at(100));
        a.note_record(at(200));
        b.note_record(at(150));
        assert_eq!(truncation.oldest_needed(), 100);
        a.begin_write();
        a.note_record(at(300));
        assert_eq!(truncation.oldest_needed(), 100, "it is not written yet");
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
            "what was before a reset is void"
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
