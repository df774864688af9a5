//! vBuckets that have something to apply, and the pressure on their appliers.

use crate::events::EventSink;
use crate::truncation::{LoggedRecords, TruncationPoint, has_work};
use kedge_bucket_core::{BucketCore, Parker, Phase};
use kedge_executor::{Next, Pool};
use kedge_sync::{RankedMutex, ranks::ApplierNew};
use kedge_types::VbId;
use kedge_vbucket::VBucket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// Applying begins at this part of `log_bytes_max`.
const BEGIN_RATIO: f64 = 0.5;
/// From this part on nothing is waited for, so that the log stays below while it goes on.
const URGENT_RATIO: f64 = 0.9;
/// The part of its time that an applier works at most while nothing presses it.
const SHARE_MIN: f64 = 0.25;
/// vBuckets whose time has come are applied no closer together than this, unless it is urgent: so the syncs of many
/// files do not come all at once.
pub(super) const COMMIT_GAP: Duration = Duration::from_millis(10);

/// The queue of an applier, and the way to its task.
#[derive(Debug, Default)]
pub(crate) struct ApplierShard {
    /// vBuckets that are to go into the queue, and since when they wait.
    pub(super) incoming: RankedMutex<ApplierNew, Vec<(VbId, u64)>>,
    /// So many wait for it.
    waiting_threads: AtomicUsize,
    pub(crate) parker: Parker,
    /// The [`ApplyPressure`] that it knows of.
    known_pressure: AtomicU8,
}

impl ApplierShard {
    /// Calls `wait`, which waits for the applier; it does not rest meanwhile.
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

/// Why appliers have to work before the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum ApplyPressure {
    /// They need not.
    Normal,
    /// The log grows long.
    Elevated,
    /// It is nearly full, or memory is short.
    Urgent,
}

impl ApplierShard {
    /// Notes how hard it is pressed. Returns whether it did not know.
    fn raise_pressure(&self, pressure: ApplyPressure) -> bool {
        self.known_pressure
            .fetch_max(pressure as u8, Ordering::SeqCst)
            < pressure as u8
    }

    /// It wants to hear of what is more than this.
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

    /// A vBucket, locked by the caller, has something to apply since `since_ns`.
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
            // No thread is woken before the time has come. One that is still falling asleep sees to it itself.
            if !executor.snooze(task, age) {
                executor.wake(task);
            }
        }
    }

    /// Changes of a vBucket, which the caller has locked, stand in the log; whether some wait to be applied it knows.
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

    /// The log was replayed for a vBucket, which the caller has locked.
    pub(crate) fn queue_replayed(&self, vbucket: &VBucket, now_ns: u64) {
        let retention = self.truncation.retention(vbucket.id());
        if has_work(vbucket) && !retention.is_queued.swap(true, Ordering::Relaxed) {
            self.push(vbucket.id(), now_ns);
        }
    }

    /// The log has grown: wakes the appliers when they have to begin early.
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

    /// Returns the pause of an applier after a commit, within which it worked and paused for so long, while others are queued.
    pub(super) fn next_run(
        &self,
        shard: &ApplierShard,
        worked: Duration,
        paused: Duration,
        queued: usize,
    ) -> Next {
        let pressure = self.pressure();
        // Who finds more of it during the rest wakes the task.
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

    /// Returns whether someone waits for the applier of a vBucket, for a file, or for a thread.
    pub(super) fn has_waiter(&self, vb: VbId) -> bool {
        self.core.phase() != Phase::Open
            || self.events.has_file_waiter(None)
            || self.shard_of(vb).has_waiting_thread()
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Returns the pause of an applier that worked for so long.
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

    /// With no more rest than this for each, all that are queued have their turn before the next changes are old enough.
    pub(super) fn pause_max(&self, queued: usize) -> Duration {
        let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
        age / 2 / u32::try_from(queued).unwrap_or(u32::MAX).max(1)
    }
}

/// The rest after work of so long, at this part of the log's greatest length.
fn pause_of(took: Duration, filled: f64) -> Duration {
    let pressed = (filled - BEGIN_RATIO) / (URGENT_RATIO - BEGIN_RATIO);
    let share = SHARE_MIN + (1.0 - SHARE_MIN) * pressed.clamp(0.0, 1.0);
    took.mul_f64(1.0 / share - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_applier_works_the_more_the_longer_the_log_is() {
        let second = Duration::from_secs(1);
        for (filled, seconds) in [(0.0, 3.0), (0.5, 3.0), (0.7, 0.6), (0.9, 0.0), (2.0, 0.0)] {
            let pause = pause_of(second, filled).as_secs_f64();
            assert!((pause - seconds).abs() < 1e-6, "{filled}: {pause}");
        }
        assert_eq!(pause_of(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
