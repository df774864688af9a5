//! The progress of a stage of warmup.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Least time between two lines of the log about it.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a stage.
#[derive(Debug, Default)]
pub(super) struct StageProgress {
    /// Documents that were read in this stage, whether or not there was room for them.
    read: AtomicU64,
    /// Documents that are likely to be read.
    expected: AtomicU64,
    /// The time of the last line of the log about it.
    logged_ns: AtomicU64,
}

impl StageProgress {
    /// Begins a stage.
    pub(super) fn begin(&self, expected: u64, now_ns: u64) {
        self.expected.store(expected, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
        self.logged_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(super) fn note_read(&self, documents: usize) {
        self.read.fetch_add(documents as u64, Ordering::Relaxed);
    }

    /// Returns the numbers of documents that were read and are expected, if it is time to log them: to one of the workers.
    pub(super) fn to_log(&self, now_ns: u64) -> Option<(u64, u64)> {
        let logged_ns = self.logged_ns.load(Ordering::Relaxed);
        let relaxed = Ordering::Relaxed;
        let is_time = now_ns.saturating_sub(logged_ns) >= LOG_INTERVAL.as_nanos() as u64
            && self
                .logged_ns
                .compare_exchange(logged_ns, now_ns, relaxed, relaxed)
                .is_ok();
        is_time.then(|| (self.read.load(relaxed), self.expected.load(relaxed)))
    }
}
