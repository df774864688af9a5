//! The events that residency receives, by way of its parked tasks, and those that it reports.

use crate::parked::ParkedOperations;
use crate::sweeper::interval;
use kedge_bucket_core::{BucketCore, Parker};
use kedge_vbucket::StepEffects;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause of the compressor between two chunks of its work.
pub(crate) const COMPRESSOR_PAUSE: Duration = Duration::from_millis(250);

/// The receiver of residency's reports.
pub trait ResidencyEvents: Send + Sync {
    /// Documents cannot leave memory before their changes are in the files.
    fn apply_wanted(&self);
}

/// The queue and the parked tasks of residency that steps of vBuckets reach. They keep no component alive.
#[derive(Debug, Default)]
pub struct MemorySignals {
    /// Writes that wait for memory, in one line.
    pub(crate) writes: ParkedOperations<()>,
    /// True while nothing may be evicted, nor will be when all changes are in the files.
    hopeless: AtomicBool,
    pub(crate) admission: Parker,
    pub(crate) pager: Parker,
    pub(crate) expiry_sweep: Parker,
    pub(crate) dropped_sweep: Parker,
    pub(crate) compressor: Parker,
    pub(crate) defragmenter: Parker,
}

impl MemorySignals {
    /// Passes the effects of a step on to the tasks that they concern.
    #[inline]
    pub fn on_step(&self, core: &BucketCore, effects: &StepEffects) {
        if effects.new_work.expiry {
            core.wake_parked(&self.expiry_sweep);
        }
        if effects.new_work.dropped {
            core.wake_parked(&self.dropped_sweep);
        }
        if effects.new_work.compression {
            self.on_values_to_compress(core);
        }
        self.on_memory(core);
    }

    /// Reports that memory has changed. Cheap unless the pager sleeps and has to begin, or a write waits for memory.
    #[inline]
    pub fn on_memory(&self, core: &BucketCore) {
        if self.pager.is_asleep() && core.quota.is_high() {
            core.wake_parked(&self.pager);
        }
        self.wake_admission(core);
    }

    /// Reports that changes are in the files: documents that had to wait for that may leave memory now, and versions that
    /// were kept for the files have left it.
    pub fn on_applied(&self, core: &BucketCore) {
        self.on_free_blocks(core);
        if core.quota.is_room_wanted() {
            self.wake_pager(core);
        }
    }

    /// Wakes the admission of writes if the first write need not wait any more: memory was given back, or waiting has
    /// become vain. Cheap unless a write waits.
    #[inline]
    pub fn wake_admission(&self, core: &BucketCore) {
        if self.admission.is_asleep() && self.has_admissible_write(core) {
            core.wake_parked(&self.admission);
        }
    }

    /// Reports values that the compressor has not tried. Cheap unless it is parked.
    pub(crate) fn on_values_to_compress(&self, core: &BucketCore) {
        if self.compressor.is_asleep() && core.dynamic.compresses() {
            run_after(core, &self.compressor, COMPRESSOR_PAUSE);
        }
    }

    /// Reports that memory between documents may have become free. Cheap unless the defragmenter is parked.
    pub(crate) fn on_free_blocks(&self, core: &BucketCore) {
        if self.defragmenter.is_asleep()
            && let Some(interval) = interval(core)
        {
            run_after(core, &self.defragmenter, interval);
        }
    }

    /// Makes the pager run, also if it snoozes.
    pub(crate) fn wake_pager(&self, core: &BucketCore) {
        if let Some(task) = self.pager.task() {
            core.setup.executor.wake(task);
        }
    }

    /// Sets whether anything may be evicted. If nothing may, writes wait only as long as changes wait for the disk.
    pub(crate) fn set_pageable(&self, core: &BucketCore, something: bool) {
        if something {
            self.hopeless.store(false, Ordering::Relaxed);
        } else if self.writes.waiting() > 0 && !has_unwritten_changes(core) {
            self.hopeless.store(true, Ordering::Relaxed);
            self.wake_admission(core);
        }
    }

    /// Returns whether a write that waits for memory would wait in vain.
    pub(crate) fn is_waiting_in_vain(&self, core: &BucketCore) -> bool {
        core.quota.withholds_writes() || self.hopeless.load(Ordering::Relaxed)
    }

    /// Returns whether a write waits for memory, and need not any more.
    pub(crate) fn has_admissible_write(&self, core: &BucketCore) -> bool {
        self.writes.waiting() > 0
            && (core.quota.has_what_is_wanted() || self.is_waiting_in_vain(core))
    }
}

/// Makes a parked task run after a pause. No thread is woken before it is over. A task that is still falling asleep runs at
/// once.
fn run_after(core: &BucketCore, parked: &Parker, pause: Duration) {
    if let Some(task) = parked.unpark()
        && !core.setup.executor.snooze(task, pause)
    {
        core.setup.executor.wake(task);
    }
}

fn has_unwritten_changes(core: &BucketCore) -> bool {
    core.vbuckets.iter().any(|vbucket| {
        let vbucket = vbucket.lock();
        vbucket.changes().queued() > 0 || vbucket.unapplied().items > 0
    })
}
