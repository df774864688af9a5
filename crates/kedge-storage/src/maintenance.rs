//! What takes long, and how it is asked to end.
//!
//! Compaction, rollback, replacing and removing of one vBucket's file exclude each other. A compaction gives way to all
//! others: it ends at its next entry when one of them waits, or when the bucket is closed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kedge_sync::{RankedMutex, RankedMutexGuard, ranks::SlotMaintenance};

use crate::compact::CompactionProgress;
use crate::throttle_pause::ThrottlePause;

/// The right to do one of them.
pub(crate) type Alone<'a> = RankedMutexGuard<'a, SlotMaintenance, ()>;

/// Operations that exclude each other, one of which can be asked to end.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    lock: RankedMutex<SlotMaintenance, ()>,
    waiting: AtomicU32,
    progress: CompactionProgress,
}

impl Maintenance {
    /// For whoever has to wait for nobody: a compaction under way ends at its next entry, and its rest at once.
    pub(crate) fn exclusive(&self, pauses: &ThrottlePause) -> Alone<'_> {
        if let Some(guard) = self.lock.try_lock() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        pauses.wake();
        let guard = self.lock.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// For a compaction, unless something else is under way.
    pub(crate) fn begin(&self) -> Option<Alone<'_>> {
        self.lock.try_lock()
    }

    /// Whether the compaction under way has to end.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How far the compaction is, if there is one.
    pub(crate) fn progress(&self) -> &CompactionProgress {
        &self.progress
    }
}

/// Whether everything is to end.
#[derive(Debug, Default)]
pub(crate) struct Stopping(AtomicBool);

impl Stopping {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
