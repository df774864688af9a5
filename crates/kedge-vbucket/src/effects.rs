//! Effects of vBucket steps on other components.
//!
//! Invariants:
//! * The caller of a step takes its effects before it releases the vBucket's lock. Each effect is handed out once, to
//!   the thread that caused it.
//! * [`MemoryUse`] in the effects is a difference to the previous call. The sum over all steps is the memory of the
//!   vBucket, even if a step failed or changed nothing.
//! * Work for a sweep is handed out when it begins to exist. A task that goes to sleep looks at all vBuckets once more, so
//!   it misses none.

use crate::completion::CompletedCommand;
use crate::cursors::StreamEvents;

/// The memory of a vBucket in bytes, or a difference of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Documents, slots, filters, checkpoints and unapplied changes.
    pub total: i64,
    /// The part of `total` for changes that the log has not written.
    pub checkpoints: i64,
    /// The part of `total` for versions that only unapplied changes keep alive.
    pub pinned: i64,
    /// The part of `total` for changes that only stream cursors keep alive.
    pub cursors: i64,
}

/// The effects of one or more steps.
#[derive(Debug, Default)]
pub struct StepEffects {
    /// The change of memory use.
    pub memory: MemoryUse,
    /// True if changes wait for the log and the log was not notified yet.
    pub newly_dirty: bool,
    /// Events for its streams.
    pub stream_events: StreamEvents,
    /// Parked commands that have ended.
    pub completions: Vec<CompletedCommand>,
    /// The work for sweeps that there is now and was not before.
    pub new_work: SweepWork,
}

/// Kinds of work for the tasks that visit a vBucket's documents in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepWork {
    /// Documents have an expiry or a lock, so [`crate::Step::sweep`] is due soon.
    pub expiry: bool,
    /// Documents of dropped collections are in memory, so [`crate::VBucket::sweep_dropped`] is due.
    pub dropped: bool,
    /// Memory has values whose compression was not attempted.
    pub compression: bool,
}

impl SweepWork {
    /// Returns the kinds that are not in `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            expiry: self.expiry && !before.expiry,
            dropped: self.dropped && !before.dropped,
            compression: self.compression && !before.compression,
        }
    }
}

impl MemoryUse {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            total: self.total - before.total,
            checkpoints: self.checkpoints - before.checkpoints,
            pinned: self.pinned - before.pinned,
            cursors: self.cursors - before.cursors,
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            total: self.total + other.total,
            checkpoints: self.checkpoints + other.checkpoints,
            pinned: self.pinned + other.pinned,
            cursors: self.cursors + other.cursors,
        }
    }
}
