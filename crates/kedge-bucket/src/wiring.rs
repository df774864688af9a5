//! The wiring of events between a bucket's components.
//!
//! Steps of vBuckets report to [`Signals`], which hold no strong reference to a component: an event is added to a queue or
//! wakes a task. Persistence reports to the bucket, once per commit.

use crate::bucket::Bucket;
use crate::dcp::StreamSignals;
use kedge_bucket_core::{BucketCore, CoreEvents};
use kedge_persistence::{PersistenceEvents, WriteQueues};
use kedge_residency::{MemorySignals, ResidencyEvents};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::StepEffects;
use std::sync::{Arc, OnceLock, Weak};

/// The queues and parked tasks that steps of vBuckets reach.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) queues: Arc<WriteQueues>,
    pub(crate) streams: Arc<StreamSignals>,
    pub(crate) memory: Arc<MemorySignals>,
    bucket: OnceLock<Weak<Bucket>>,
}

impl Signals {
    pub(crate) fn new(queues: Arc<WriteQueues>, vbuckets: u16) -> Self {
        Self {
            queues,
            streams: Arc::new(StreamSignals::new(vbuckets)),
            memory: Arc::new(MemorySignals::default()),
            bucket: OnceLock::new(),
        }
    }

    /// Sets the bucket, which receives rare events.
    pub(crate) fn set_bucket(&self, bucket: &Arc<Bucket>) {
        // The bucket is set once, so `set` cannot fail.
        let _ = self.bucket.set(Arc::downgrade(bucket));
    }

    fn bucket(&self) -> Option<Arc<Bucket>> {
        self.bucket.get().and_then(Weak::upgrade)
    }
}

/// The receiver of a core's events.
pub(crate) struct StepEvents(pub(crate) Arc<Signals>);

impl CoreEvents for StepEvents {
    fn on_step(&self, core: &BucketCore, vb: VbId, effects: &StepEffects) {
        let signals = &self.0;
        if effects.memory.cursors != 0 {
            signals.streams.on_cursor_memory(core);
        }
        signals.streams.record_news(vb, effects.stream_events);
        signals.memory.on_step(core, effects);
        signals.streams.wake_receivers_if_room(core);
    }

    fn on_dirty(&self, core: &BucketCore, vb: VbId, since_ns: u64) {
        self.0.queues.on_dirty(core, vb, since_ns);
    }

    fn after_step(&self, core: &BucketCore) {
        self.0.streams.notify_streams(core);
    }

    fn on_change(&self, _: &BucketCore, vb: VbId) {
        if let Some(bucket) = self.0.bucket() {
            bucket.residency.pending_state().on_vbucket_state(vb);
            // Readers of an earlier history must stop waiting.
            bucket.files.deliver_file(vb);
        }
    }

    fn on_failed(&self, _: &BucketCore) {
        if let Some(bucket) = self.0.bucket() {
            bucket.persistence.compactions().wake_paused();
        }
    }
}

impl PersistenceEvents for Bucket {
    fn persisted(&self, acks: &mut Vec<(VbId, Seqno)>) {
        self.dcp.forward_acks(acks);
    }

    fn file_advanced(&self, vb: VbId) {
        self.files.deliver_file(vb);
    }

    fn memory_freed(&self) {
        self.signals.memory.on_applied(&self.core);
    }

    fn writes_refused(&self) {
        self.signals.memory.wake_admission(&self.core);
    }

    fn has_file_waiter(&self, vb: Option<VbId>) -> bool {
        self.files.has_waiter(vb)
    }

    fn key_changed(&self) {
        self.residency.remove_access_log_of_another_key();
    }

    fn read_failed(&self, vb: VbId, error: &str) {
        self.residency.fetcher().on_read_failed(vb, error);
    }
}

impl ResidencyEvents for Bucket {
    fn apply_wanted(&self) {
        self.persistence.update_apply_pressure();
    }
}
