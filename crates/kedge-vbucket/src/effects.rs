//! The effects of a step of a vBucket on everything around it.
//!
//! Invariants:
//! * Whoever runs a step takes its effects before the vBucket's lock is released, so that each effect is handed out once
//!   and to the thread that caused it.
//! * [`MemoryUse`] is a difference to what was handed out last. The sum over all steps is the memory of the vBucket, also
//!   where a step went wrong or changed nothing.

use crate::completion::CompletedCommand;
use crate::cursors::StreamEvents;

/// Bytes that a vBucket takes, or by how many more of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Documents, slots, filters, checkpoints, and what waits to be applied.
    pub total: i64,
    /// Those among them of changes that the log has not written.
    pub checkpoints: i64,
    /// Those among them of versions that only wait to be applied.
    pub pinned: i64,
    /// Those among them of changes that only cursors of streams keep.
    pub cursors: i64,
}

/// The effects of one or more steps.
#[derive(Debug, Default)]
pub struct StepEffects {
    /// Change of the memory that it takes.
    pub memory: MemoryUse,
    /// Changes wait for the log, which has not been told.
    pub newly_dirty: bool,
    /// Events for its streams.
    pub stream_events: StreamEvents,
    /// Parked commands that ended.
    pub completions: Vec<CompletedCommand>,
    /// Documents may expire or unlock by themselves: [`crate::VBucket::sweep`] is wanted soon.
    pub wants_sweep: bool,
    /// Documents of dropped collections are in memory: [`crate::VBucket::sweep_dropped`] has work.
    pub has_dropped_documents: bool,
    /// Values are in memory that nobody has tried to compress.
    pub has_values_to_compress: bool,
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
