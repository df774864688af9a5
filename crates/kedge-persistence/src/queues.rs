//! The queues of vBuckets whose changes are not durable, and the wake-up of the writers.
//!
//! Steps of vBuckets and parked commands reach the writers through these queues alone, without [`crate::Persistence`].

use crate::dirty::{DirtyList, DirtyVb};
use crate::flusher::lists::Flushers;
use crate::writer::{IDLE, INTERVAL_PENDING, RUNNING, TIMED, WriterState};
use kedge_bucket_core::{BucketConfig, BucketCore, DiskWriters};
use kedge_types::VbId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The queues of a bucket's writers.
#[derive(Debug)]
pub struct WriteQueues {
    /// One writer for the log, or one for each shard of the vBuckets in a bucket without a log.
    pub(crate) writers: Box<[WriterState]>,
    pub(crate) dirty: DirtyList,
    /// Present in a bucket without a log.
    pub(crate) flushers: Option<Flushers>,
}

impl WriteQueues {
    /// Returns the queues of a bucket with these settings.
    #[must_use]
    pub fn new(config: &BucketConfig, commit_log: bool) -> Self {
        let parts = config.shards();
        let writers = if commit_log { 1 } else { parts };
        Self {
            writers: (0..writers).map(|_| WriterState::default()).collect(),
            dirty: DirtyList::default(),
            flushers: (!commit_log).then(|| Flushers::new(parts, config.vbuckets)),
        }
    }

    /// Queues a vBucket that has changes since `since_ns`, in nanoseconds of the monotonic clock, and has its writer
    /// wake after the interval.
    pub fn on_dirty(&self, core: &BucketCore, vb: VbId, since_ns: u64) {
        let lane = if let Some(flushers) = &self.flushers {
            flushers.push(vb, since_ns)
        } else {
            self.dirty.push(DirtyVb { vb, since_ns });
            0
        };
        self.start_interval(core, lane);
    }

    /// Starts the interval of an idle writer, because a vBucket became dirty.
    pub(crate) fn start_interval(&self, core: &BucketCore, lane: usize) {
        let writer = &self.writers[lane];
        if writer.state.load(Ordering::SeqCst) != IDLE || !writer.change(IDLE, TIMED) {
            return;
        }
        let Some(task) = writer.task.get() else {
            return;
        };
        let interval = Duration::from_millis(core.config().log_interval_ms);
        // No thread wakes before the interval is over.
        if !core.setup.executor.snooze(*task, interval) {
            // The task is about to sleep, so one more run starts the interval.
            writer.change(TIMED, INTERVAL_PENDING);
            core.setup.executor.wake(*task);
        }
    }

    /// Wakes a writer for a command that waits for a sync.
    pub(crate) fn on_urgent(&self, core: &BucketCore, lane: usize) {
        let writer = &self.writers[lane];
        writer.urgent.store(true, Ordering::SeqCst);
        if writer.state.swap(RUNNING, Ordering::SeqCst) != RUNNING
            && let Some(task) = writer.task.get()
        {
            core.setup.executor.wake(*task);
        }
    }
}

impl DiskWriters for WriteQueues {
    fn on_waiting(&self, vb: VbId) {
        match &self.flushers {
            Some(flushers) => flushers.request_urgent(vb),
            None => self.writers[0].note_waiter(),
        }
    }

    fn request_flush(&self, core: &BucketCore) {
        match &self.flushers {
            Some(flushers) => {
                for lane in flushers.take_waiting_lanes() {
                    self.on_urgent(core, lane);
                }
            }
            None => {
                if self.writers[0].take_waiters() {
                    self.on_urgent(core, 0);
                }
            }
        }
    }

    fn write_all_soon(&self, core: &BucketCore) {
        for lane in 0..self.writers.len() {
            self.on_urgent(core, lane);
        }
    }
}
