//! The queues and parked tasks of residency that steps of vBuckets reach.

use crate::fetch::Fetches;
use crate::memory_queue::MemoryAdmissionQueue;
use crate::pager::Pager;
use kedge_bucket_core::{BucketCore, Parker};
use kedge_vbucket::StepEffects;

/// The queues and parked tasks of residency that steps of vBuckets reach. They keep no component alive.
#[derive(Debug)]
pub struct MemorySignals {
    pub(crate) fetches: Fetches,
    pub(crate) memory_queue: MemoryAdmissionQueue,
    pub(crate) pager: Pager,
    pub(crate) sweeper: Parker,
    pub(crate) dropped: Parker,
    pub(crate) compressor: Parker,
}

impl MemorySignals {
    /// Returns the queues of a bucket with so many vBuckets and front-end threads.
    #[must_use]
    pub fn new(vbuckets: u16, threads: u16) -> Self {
        Self {
            fetches: Fetches::new(vbuckets, threads),
            memory_queue: MemoryAdmissionQueue::default(),
            pager: Pager::default(),
            sweeper: Parker::default(),
            dropped: Parker::default(),
            compressor: Parker::default(),
        }
    }

    /// Passes the effects of a step on to the tasks that they concern.
    pub fn on_step(&self, core: &BucketCore, effects: &StepEffects) {
        if effects.wants_sweep {
            core.wake_parked(&self.sweeper);
        }
        if effects.has_dropped_documents {
            core.wake_parked(&self.dropped);
        }
        if effects.has_values_to_compress {
            self.on_values_to_compress(core);
        }
        self.on_memory(core);
    }
}
