//! Exclusion and cancellation of long operations.
//!
//! Compaction, rollback, replacement and removal of a vBucket's file exclude each other. A compaction yields to all
//! others: it ends at its next entry when one of them waits, or when the bucket is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kedge_sync::{RankedMutex, RankedMutexGuard, ranks::SlotMaintenance};

use crate::compact::SharedProgress;
use crate::throttle_pause::ThrottlePause;

/// The guard of an exclusive operation.
pub(crate) type ExclusiveGuard<'a> = RankedMutexGuard<'a, SlotMaintenance, ()>;

/// The lock of operations that exclude each other, one of which can be cancelled.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceLock {
    lock: RankedMutex<SlotMaintenance, ()>,
    waiting: AtomicU32,
    progress: SharedProgress,
}

impl MaintenanceLock {
    /// Acquires the lock for an operation with precedence: a running compaction ends at its next entry, and its pause
    /// immediately.
    pub(crate) fn exclusive(&self, pauses: &ThrottlePause) -> ExclusiveGuard<'_> {
        if let Some(guard) = self.lock.try_lock() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        pauses.wake();
        let guard = self.lock.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Acquires the lock for a compaction, unless it is taken.
    pub(crate) fn begin(&self) -> Option<ExclusiveGuard<'_>> {
        self.lock.try_lock()
    }

    /// Returns `true` if the running compaction has to end.
    pub(crate) fn must_end(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns the progress of the compaction, if one is running.
    pub(crate) fn progress(&self) -> &SharedProgress {
        &self.progress
    }
}

/// `true` once the bucket is closed, and all long operations have to end.
#[derive(Debug, Default)]
pub(crate) struct StopFlag(AtomicBool);

impl StopFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
