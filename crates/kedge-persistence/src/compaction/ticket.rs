//! How one who asked for a compaction hears of its end.

use kedge_storage::{Compacted, StorageError};
use kedge_sync::{RankedCondvar, RankedMutex, ranks::CompactionTicketState};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came of a compaction that someone asked for, over all its vBuckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Files that were compacted.
    pub compacted: u32,
    /// vBuckets that have no file.
    pub without_file: u32,
    /// vBuckets whose compaction was cancelled, or given up as the bucket ends.
    pub cancelled: u32,
    /// Files whose compaction failed. It will be tried again without anyone's asking.
    pub failed: u32,
    /// What the first of these failed with; file and place are in it.
    pub first_error: Option<String>,
    /// Bytes of the files that were compacted, before.
    pub bytes_before: u64,
    /// The same, after.
    pub bytes_after: u64,
    /// Tombstones that were left out.
    pub tombstones: u64,
    /// Documents that had expired, and were deleted.
    pub expired: u64,
}

impl CompactionReport {
    /// Whether every file was compacted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.cancelled == 0 && self.failed == 0
    }
}

/// What became of one vBucket.
#[derive(Clone, Copy, Debug)]
pub(super) enum TicketEvent<'a> {
    Compacted { done: &'a Compacted, expired: u64 },
    NoFile,
    Cancelled,
    Failed(&'a StorageError),
}

type TicketListener = Box<dyn FnOnce(CompactionReport) + Send>;

#[derive(Default)]
struct TicketState {
    left: usize,
    report: CompactionReport,
    listeners: Vec<TicketListener>,
}

#[derive(Default)]
struct TicketShared {
    state: RankedMutex<CompactionTicketState, TicketState>,
    ended: RankedCondvar,
}

/// A compaction that was asked for. Dropping it changes nothing.
#[derive(Clone)]
pub struct CompactionTicket(Arc<TicketShared>);

impl fmt::Debug for CompactionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.state.lock().left;
        write!(f, "CompactionTicket({left} left)")
    }
}

impl CompactionTicket {
    /// For so many vBuckets.
    pub(super) fn new(vbuckets: usize) -> Self {
        let ticket = Self(Arc::default());
        ticket.0.state.lock().left = vbuckets;
        ticket
    }

    /// One more of its vBuckets has come to an end.
    pub(super) fn on_vbucket_end(&self, event: TicketEvent<'_>) {
        let mut state = self.0.state.lock();
        let report = &mut state.report;
        match event {
            TicketEvent::Compacted { done, expired } => {
                report.compacted += 1;
                report.bytes_before += done.bytes_before;
                report.bytes_after += done.bytes_after;
                report.tombstones += done.tombstones;
                report.expired += expired;
            }
            TicketEvent::NoFile => report.without_file += 1,
            TicketEvent::Cancelled => report.cancelled += 1,
            TicketEvent::Failed(error) => {
                report.failed += 1;
                report.first_error.get_or_insert_with(|| error.to_string());
            }
        }
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let listeners = std::mem::take(&mut state.listeners);
        let report = state.report.clone();
        drop(state);
        self.0.ended.notify_all();
        for listener in listeners {
            listener(report.clone());
        }
    }

    /// What came of it; `None` while it is not over.
    #[must_use]
    pub fn report(&self) -> Option<CompactionReport> {
        let state = self.0.state.lock();
        (state.left == 0).then(|| state.report.clone())
    }

    /// Waits for the end.
    #[must_use]
    pub fn wait(&self) -> CompactionReport {
        let mut state = self.0.state.lock();
        while state.left > 0 {
            self.0.ended.wait(&mut state);
        }
        state.report.clone()
    }

    /// Waits for the end, but no longer than `time`.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<CompactionReport> {
        let until = Instant::now() + time;
        let mut state = self.0.state.lock();
        while state.left > 0 {
            if self.0.ended.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        (state.left == 0).then(|| state.report.clone())
    }

    /// Calls `tell` at the end, from the thread that brings it about; at once if it is over by now. No lock of the
    /// bucket is held then.
    pub fn when_done(&self, listener: impl FnOnce(CompactionReport) + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.left > 0 {
            state.listeners.push(Box::new(listener));
            return;
        }
        let report = state.report.clone();
        drop(state);
        listener(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn listeners_are_called_once_after_the_last_vbucket() {
        let ticket = CompactionTicket::new(2);
        let cancelled = Arc::new(AtomicU32::new(0));
        let listen = || {
            let cancelled = Arc::clone(&cancelled);
            ticket.when_done(move |report| {
                cancelled.fetch_add(report.cancelled, Ordering::Relaxed);
            });
        };
        listen();
        ticket.on_vbucket_end(TicketEvent::NoFile);
        assert_eq!(ticket.report(), None);
        assert_eq!(ticket.wait_for(Duration::from_millis(1)), None);
        ticket.on_vbucket_end(TicketEvent::Cancelled);
        assert_eq!(cancelled.load(Ordering::Relaxed), 1);
        listen();
        assert_eq!(cancelled.load(Ordering::Relaxed), 2, "at once");
        let report = ticket.wait();
        assert_eq!((report.without_file, report.cancelled), (1, 1));
        assert!(!report.is_complete());
        assert_eq!(ticket.wait_for(Duration::ZERO), Some(report));
        assert!(CompactionTicket::new(0).wait().is_complete());
    }
}
