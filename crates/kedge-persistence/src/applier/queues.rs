//! The queues of vBuckets with changes to apply, and the pressure on their appliers.

use crate::events::EventSink;
use crate::truncation::{LoggedRecords, TruncationPoint, has_work};
use kedge_bucket_core::{BucketCore, BucketPhase, Parker};
use kedge_executor::{Next, Pool};
use kedge_sync::{RankedMutex, ranks::ApplierNew};
use kedge_types::VbId;
use kedge_vbucket::VBucket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// The share of `log_bytes_max` from which on vBuckets are applied before they are due.
const BEGIN_RATIO: f64 = 0.5;
/// The share of `log_bytes_max` from which on appliers make no pauses, so that the log stays below the limit.
const URGENT_RATIO: f64 = 0.9;
/// The maximum share of its time that an applier works while there is no pressure.
const SHARE_MIN: f64 = 0.25;
/// The minimum time between two commits unless applying is urgent. It spreads the syncs of many files.
pub(super) const COMMIT_GAP: Duration = Duration::from_millis(10);

/// The requests to an applier, and the parker of its task.
#[derive(Debug, Default)]
pub(crate) struct ApplierShard {
    /// vBuckets that are not in the applier's queue yet, with the time of their oldest change in nanoseconds of the
    /// monotonic clock.
    pub(super) incoming: RankedMutex<ApplierNew, Vec<(VbId, u64)>>,
    /// The number of threads that wait for the applier's lock.
    waiting_threads: AtomicUsize,
    pub(crate) parker: Parker,
    /// The [`ApplyPressure`] that the applier has taken into account.
    known_pressure: AtomicU8,
}

impl ApplierShard {
    /// Calls `wait`, which waits for the applier. The applier makes no pauses meanwhile.
    pub(super) fn without_pauses<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting_threads.fetch_add(1, Ordering::Relaxed);
        let applier = wait();
        self.waiting_threads.fetch_sub(1, Ordering::Relaxed);
        applier
    }

    fn has_waiting_thread(&self) -> bool {
        self.waiting_threads.load(Ordering::Relaxed) > 0
    }
}

/// The reasons to apply vBuckets before they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum ApplyPressure {
    /// No reason: vBuckets are applied when they are due.
    Normal,
    /// The log is longer than [`BEGIN_RATIO`] of its limit.
    Elevated,
    /// The log is nearly full, or memory is short.
    Urgent,
}

impl ApplierShard {
    /// Raises the known pressure. Returns whether it was lower.
    fn raise_pressure(&self, pressure: ApplyPressure) -> bool {
        self.known_pressure
            .fetch_max(pressure as u8, Ordering::SeqCst)
            < pressure as u8
    }

    /// Sets the known pressure. A higher one wakes the task.
    pub(super) fn set_known_pressure(&self, pressure: ApplyPressure) {
        self.known_pressure.store(pressure as u8, Ordering::SeqCst);
    }
}

/// The queues of all appliers of a bucket.
pub(crate) struct ApplyQueues {
    pub(super) core: Arc<BucketCore>,
    events: Arc<EventSink>,
    truncation: Arc<TruncationPoint>,
    pub(crate) shards: Box<[ApplierShard]>,
}

impl ApplyQueues {
    pub(crate) fn new(
        core: Arc<BucketCore>,
        events: Arc<EventSink>,
        truncation: Arc<TruncationPoint>,
    ) -> Self {
        let shards = core.config().shards();
        Self {
            core,
            events,
            truncation,
            shards: (0..shards).map(|_| ApplierShard::default()).collect(),
        }
    }

    pub(crate) fn shard_of(&self, vb: VbId) -> &ApplierShard {
        &self.shards[vb.index() % self.shards.len()]
    }

    /// Queues a vBucket, locked by the caller, that has had changes to apply since `since_ns`.
    pub(crate) fn push(&self, vb: VbId, since_ns: u64) {
        let shard = self.shard_of(vb);
        shard.incoming.lock().push((vb, since_ns));
        if self.events.has_file_waiter(Some(vb)) {
            shard.parker.unpark();
            if let Some(task) = shard.parker.task() {
                self.core.setup.executor.wake(task);
            }
            return;
        }
        if let Some(task) = shard.parker.unpark() {
            let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
            let executor = &self.core.setup.executor;
            // No thread wakes before the vBucket is due. A task that is about to sleep reads the queue again.
            if !executor.snooze(task, age) {
                executor.wake(task);
            }
        }
    }

    /// Notes records of a vBucket, locked by the caller, in the log, and queues the vBucket if it has changes to apply.
    pub(crate) fn on_logged(&self, vbucket: &VBucket, logged: LoggedRecords, now_ns: u64) {
        if !has_work(vbucket) {
            return;
        }
        let retention = self.truncation.retention(vbucket.id());
        retention.note_record(logged);
        if !retention.is_queued.swap(true, Ordering::Relaxed) {
            self.push(vbucket.id(), now_ns);
        }
    }

    /// Queues a vBucket, locked by the caller, that has changes to apply after the replay of the log.
    pub(crate) fn queue_replayed(&self, vbucket: &VBucket, now_ns: u64) {
        let retention = self.truncation.retention(vbucket.id());
        if has_work(vbucket) && !retention.is_queued.swap(true, Ordering::Relaxed) {
            self.push(vbucket.id(), now_ns);
        }
    }

    /// Wakes the appliers if the length of the log or the use of memory requires it.
    pub(crate) fn update_apply_pressure(&self) {
        let pressure = self.pressure();
        if pressure == ApplyPressure::Normal {
            return;
        }
        for shard in &self.shards {
            if shard.raise_pressure(pressure)
                && let Some(task) = shard.parker.task()
            {
                self.core.setup.executor.wake(task);
            }
        }
    }

    pub(super) fn pressure(&self) -> ApplyPressure {
        let begin = self.log_bytes_at(BEGIN_RATIO);
        if self.is_urgent() {
            ApplyPressure::Urgent
        } else if self.truncation.needed_bytes(begin) > begin {
            ApplyPressure::Elevated
        } else {
            ApplyPressure::Normal
        }
    }

    fn log_bytes_at(&self, ratio: f64) -> u64 {
        (self.core.config().log_bytes_max as f64 * ratio) as u64
    }

    fn is_urgent(&self) -> bool {
        let limit = self.log_bytes_at(URGENT_RATIO);
        self.truncation.needed_bytes(limit) > limit
            || self.core.quota.is_short_of_applying()
            || self.core.quota.is_room_wanted()
    }

    /// Returns the next state of an applier after a commit. `worked` and `paused` are the time of work and the pauses
    /// within the commit, `queued` is the number of other vBuckets in the queue.
    pub(super) fn next_run(
        &self,
        shard: &ApplierShard,
        worked: Duration,
        paused: Duration,
        queued: usize,
    ) -> Next {
        let pressure = self.pressure();
        // A higher pressure during the pause wakes the task.
        shard.set_known_pressure(pressure);
        if queued == 0 || pressure == ApplyPressure::Urgent || self.events.has_file_waiter(None) {
            return Next::Again;
        }
        let pause = self.pause_after(worked, pressure).saturating_sub(paused);
        if pressure == ApplyPressure::Normal {
            return Next::Snooze(pause.max(COMMIT_GAP).min(self.pause_max(queued)));
        }
        Next::Snooze(pause)
    }

    /// Returns whether a thread waits for the applier of a vBucket, a reader for a file, or a task for a thread.
    pub(super) fn has_waiter(&self, vb: VbId) -> bool {
        self.core.phase() != BucketPhase::Open
            || self.events.has_file_waiter(None)
            || self.shard_of(vb).has_waiting_thread()
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Returns the pause of an applier after work of this duration.
    pub(super) fn pause_after(&self, worked: Duration, pressure: ApplyPressure) -> Duration {
        let filled = match pressure {
            ApplyPressure::Normal => BEGIN_RATIO,
            ApplyPressure::Elevated => {
                let needed = self.truncation.needed_bytes(self.log_bytes_at(BEGIN_RATIO));
                needed as f64 / self.core.config().log_bytes_max as f64
            }
            ApplyPressure::Urgent => return Duration::ZERO,
        };
        pause_of(worked, filled)
    }

    /// Returns the longest pause with which all queued vBuckets are applied before newer changes are due.
    pub(super) fn pause_max(&self, queued: usize) -> Duration {
        let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
        age / 2 / u32::try_from(queued).unwrap_or(u32::MAX).max(1)
    }
}

/// Returns the pause after work of this duration, when the log fills the share `filled` of its maximum length.
fn pause_of(took: Duration, filled: f64) -> Duration {
    let pressed = (filled - BEGIN_RATIO) / (URGENT_RATIO - BEGIN_RATIO);
    let share = SHARE_MIN + (1.0 - SHARE_MIN) * pressed.clamp(0.0, 1.0);
    took.mul_f64(1.0 / share - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applier_pauses_shrink_as_the_log_grows() {
        let second = Duration::from_secs(1);
        for (filled, seconds) in [(0.0, 3.0), (0.5, 3.0), (0.7, 0.6), (0.9, 0.0), (2.0, 0.0)] {
            let pause = pause_of(second, filled).as_secs_f64();
            assert!((pause - seconds).abs() < 1e-6, "{filled}: {pause}");
        }
        assert_eq!(pause_of(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
