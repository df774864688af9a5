//! The pressure on appliers, and their pauses between two commits.
//!
//! A commit of a file of many documents keeps a processor and the disk busy, and clients wait meanwhile. So an applier begins
//! long before the log is full, and rests for longer than it works: within a commit every now and then, and after it for
//! its last part. It goes the faster the less room is left.
//!
//! A rest within a commit keeps the thread and the right to write to the file. There is none while a task has no thread, or
//! someone waits for the applier or for a file; a compaction that has come to its end waits for the commit.

use super::queues::{ApplyPressure, ApplyQueues};
use kedge_bucket_core::Total;
use kedge_storage::Storage;
use kedge_types::VbId;
use std::time::Duration;

/// It works for so long before it rests within a commit.
const WORK_SLICE: Duration = Duration::from_micros(500);
/// It looks whether anything waits for it at least as often as this; what is missing of a rest comes later.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Pauses within a commit.
pub(super) struct CommitThrottle<'a> {
    queues: &'a ApplyQueues,
    vb: VbId,
    /// The end of the last one.
    since_ns: u64,
    /// All of them.
    pub(super) taken: Duration,
    pause_max: Duration,
}

impl<'a> CommitThrottle<'a> {
    /// Of a commit that begins, while others are queued.
    pub(super) fn new(queues: &'a ApplyQueues, vb: VbId, queued: usize) -> Self {
        let mut throttle = Self {
            queues,
            vb,
            since_ns: 0,
            taken: Duration::ZERO,
            pause_max: queues.pause_max(queued),
        };
        throttle.since_ns = throttle.now_ns();
        throttle
    }

    fn now_ns(&self) -> u64 {
        self.queues.core.setup.clock.now().mono_ns
    }

    /// Called every now and then by an applier that works: rests if it is time for that.
    pub(super) fn take(&mut self, storage: &Storage) {
        let now_ns = self.now_ns();
        let worked = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if worked < WORK_SLICE {
            return;
        }
        self.since_ns = now_ns;
        let pause = self.pause_wanted(worked);
        if pause.is_zero() {
            return;
        }
        self.queues.core.totals.add(Total::ApplyThrottles, 1);
        storage.pause(self.vb, pause.min(PAUSE_MAX), || true);
        self.since_ns = self.now_ns();
        self.taken += Duration::from_nanos(self.since_ns.saturating_sub(now_ns));
    }

    fn pause_wanted(&self, worked: Duration) -> Duration {
        let queues = self.queues;
        if queues.has_waiter(self.vb) {
            return Duration::ZERO;
        }
        let pressure = queues.pressure();
        let pause = queues.pause_after(worked, pressure);
        if pressure == ApplyPressure::Normal {
            return pause.min(self.pause_max.saturating_sub(self.taken));
        }
        pause
    }
}
