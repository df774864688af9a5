//! The handle of a requested compaction, which reports its result.

use kedge_storage::{CompactionResult, StorageError};
use kedge_sync::{RankedCondvar, RankedMutex, ranks::CompactionTicketState};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The result of a requested compaction, over all its vBuckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionReport {
    /// The number of compacted files.
    pub compacted: u32,
    /// The number of vBuckets without a file.
    pub without_file: u32,
    /// The number of vBuckets whose compaction was cancelled, or ended by the shutdown of the bucket.
    pub cancelled: u32,
    /// The number of files whose compaction failed. It is retried automatically.
    pub failed: u32,
    /// The first error, with its file and position.
    pub first_error: Option<String>,
    /// The total size of the compacted files before, in bytes.
    pub bytes_before: u64,
    /// The total size of the compacted files after, in bytes.
    pub bytes_after: u64,
    /// The number of purged tombstones.
    pub tombstones: u64,
    /// The number of expired documents that were deleted.
    pub expired: u64,
}

impl CompactionReport {
    /// Returns whether no compaction was cancelled or failed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.cancelled == 0 && self.failed == 0
    }
}

/// The result of the compaction of one vBucket.
#[derive(Clone, Copy, Debug)]
pub(super) enum TicketEvent<'a> {
    Compacted {
        done: &'a CompactionResult,
        expired: u64,
    },
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

/// The handle of a requested compaction. Dropping it does not cancel the compaction.
#[derive(Clone)]
pub struct CompactionTicket(Arc<TicketShared>);

impl fmt::Debug for CompactionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.state.lock().left;
        write!(f, "CompactionTicket({left} left)")
    }
}

impl CompactionTicket {
    /// Returns a ticket for this number of vBuckets.
    pub(super) fn new(vbuckets: usize) -> Self {
        let ticket = Self(Arc::default());
        ticket.0.state.lock().left = vbuckets;
        ticket
    }

    /// Records the result of one vBucket, and calls the listeners after the last one.
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

    /// Returns the result, or `None` while a compaction is queued or running.
    #[must_use]
    pub fn report(&self) -> Option<CompactionReport> {
        let state = self.0.state.lock();
        (state.left == 0).then(|| state.report.clone())
    }

    /// Waits for the result.
    #[must_use]
    pub fn wait(&self) -> CompactionReport {
        let mut state = self.0.state.lock();
        while state.left > 0 {
            self.0.ended.wait(&mut state);
        }
        state.report.clone()
    }

    /// Waits for the result, for at most `time`.
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

    /// Calls `listener` with the result, on the thread that ends the last compaction, or immediately if it has ended.
    /// The thread holds no lock of the bucket then.
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
        assert_eq!(
            cancelled.load(Ordering::Relaxed),
            2,
            "a late listener is called immediately"
        );
        let report = ticket.wait();
        assert_eq!((report.without_file, report.cancelled), (1, 1));
        assert!(!report.is_complete());
        assert_eq!(ticket.wait_for(Duration::ZERO), Some(report));
        assert!(CompactionTicket::new(0).wait().is_complete());
    }
}
