//! The vBuckets whose changes wait for the disk, and the way to the writers that make them durable.
//!
//! Steps of vBuckets and parked commands reach the writers through these queues alone, so they need no
//! [`crate::Persistence`].

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
    /// One for the log; without a log one for each part of the vBuckets.
    pub(crate) writers: Box<[WriterState]>,
    pub(crate) dirty: DirtyList,
    /// Without a log.
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

    /// Queues a vBucket that has changes since `since_ns`, and wakes its writer when the interval is over.
    pub fn on_dirty(&self, core: &BucketCore, vb: VbId, since_ns: u64) {
        let lane = if let Some(flushers) = &self.flushers {
            flushers.push(vb, since_ns)
        } else {
            self.dirty.push(DirtyVb { vb, since_ns });
            0
        };
        self.start_interval(core, lane);
    }

    /// Has a writer that is idle write when the interval is over: a vBucket became dirty.
    pub(crate) fn start_interval(&self, core: &BucketCore, lane: usize) {
        let writer = &self.writers[lane];
        if writer.state.load(Ordering::SeqCst) != IDLE || !writer.change(IDLE, TIMED) {
            return;
        }
        let Some(task) = writer.task.get() else {
            return;
        };
        let interval = Duration::from_millis(core.config().log_interval_ms);
        // No thread is woken before the interval is over.
        if !core.setup.executor.snooze(*task, interval) {
            // It was falling asleep just now: one more run begins the interval.
            writer.change(TIMED, INTERVAL_PENDING);
            core.setup.executor.wake(*task);
        }
    }

    /// Wakes a writer: a command waits for a sync.
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
