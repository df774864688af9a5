//! The throttle of appliers within a commit.
//!
//! The commit of a file with many documents keeps a processor and the disk busy, which delays clients. So an applier
//! starts long before the log is full, and pauses for longer than it works: repeatedly within a commit, and after it
//! for the remaining pause. The fuller the log is, the shorter the pauses are.
//!
//! During a pause within a commit, the applier keeps its thread and the right to write to the file. There is no such
//! pause while a task lacks a thread, or a thread waits for the applier or for a file. A compaction that copies its
//! last entries waits for the commit.

use super::queues::{ApplyPressure, ApplyQueues};
use kedge_bucket_core::Total;
use kedge_storage::Storage;
use kedge_types::VbId;
use std::time::Duration;

/// The minimum duration of work between two pauses within a commit.
const WORK_SLICE: Duration = Duration::from_micros(500);
/// The maximum duration of one pause, after which the applier checks for waiting threads. The remaining pause is made
/// later.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The throttle of one commit.
pub(super) struct CommitThrottle<'a> {
    queues: &'a ApplyQueues,
    vb: VbId,
    /// The end of the last pause, in nanoseconds of the monotonic clock.
    since_ns: u64,
    /// The total duration of the pauses.
    pub(super) taken: Duration,
    pause_max: Duration,
}

impl<'a> CommitThrottle<'a> {
    /// Returns the throttle of a commit that starts while `queued` other vBuckets are in the queue.
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

    /// Makes a pause if one is due. Called repeatedly by an applier that writes a commit.
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
