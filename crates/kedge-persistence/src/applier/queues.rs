//! vBuckets that have something to apply, and the pressure on their appliers.

use crate::events::Events;
use crate::truncation::{InLog, TruncationPoint, has_work};
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
const HURRY_RATIO: f64 = 0.9;
/// The part of its time that an applier works at most while nothing presses it.
const SHARE_MIN: f64 = 0.25;
/// vBuckets whose time has come are applied no closer together than this, unless it is urgent: so the syncs of many
/// files do not come all at once.
pub(super) const GAP: Duration = Duration::from_millis(10);

/// The queue of an applier, and the way to its task.
#[derive(Debug, Default)]
pub(crate) struct ApplierShard {
    /// vBuckets that are to go into the queue, and since when they wait.
    pub(super) new: RankedMutex<ApplierNew, Vec<(VbId, u64)>>,
    /// So many wait for it.
    waiting: AtomicUsize,
    pub(crate) parker: Parker,
    /// The [`Pressure`] that it knows of.
    pressed: AtomicU8,
}

impl ApplierShard {
    /// Calls `wait`, which waits for the applier; it does not rest meanwhile.
    pub(super) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let applier = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        applier
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Why appliers have to work before the time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Pressure {
    /// They need not.
    None,
    /// The log grows long.
    Long,
    /// It is nearly full, or memory is short.
    Urgent,
}

impl ApplierShard {
    /// Notes how hard it is pressed. Returns whether it did not know.
    fn press(&self, pressure: Pressure) -> bool {
        self.pressed.fetch_max(pressure as u8, Ordering::SeqCst) < pressure as u8
    }

    /// It wants to hear of what is more than this.
    pub(super) fn is_told(&self, pressure: Pressure) {
        self.pressed.store(pressure as u8, Ordering::SeqCst);
    }
}

/// The queues of all appliers of a bucket.
pub(crate) struct ApplyQueues {
    pub(super) core: Arc<BucketCore>,
    events: Arc<Events>,
    truncation: Arc<TruncationPoint>,
    pub(crate) shards: Box<[ApplierShard]>,
}

impl ApplyQueues {
    pub(crate) fn new(
        core: Arc<BucketCore>,
        events: Arc<Events>,
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
        shard.new.lock().push((vb, since_ns));
        if self.events.is_file_wanted(Some(vb)) {
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
    pub(crate) fn note_unapplied(&self, vbucket: &VBucket, in_log: InLog, now_ns: u64) {
        if !has_work(vbucket) {
            return;
        }
        let need = self.truncation.need(vbucket.id());
        need.note(in_log);
        if !need.queued.swap(true, Ordering::Relaxed) {
            self.push(vbucket.id(), now_ns);
        }
    }

    /// The log was replayed for a vBucket, which the caller has locked.
    pub(crate) fn queue_replayed(&self, vbucket: &VBucket, now_ns: u64) {
        let need = self.truncation.need(vbucket.id());
        if has_work(vbucket) && !need.queued.swap(true, Ordering::Relaxed) {
            self.push(vbucket.id(), now_ns);
        }
    }

    /// The log has grown: wakes the appliers when they have to begin early.
    pub(crate) fn look_at_pressure(&self) {
        let pressure = self.pressure();
        if pressure == Pressure::None {
            return;
        }
        for shard in &self.shards {
            if shard.press(pressure)
                && let Some(task) = shard.parker.task()
            {
                self.core.setup.executor.wake(task);
            }
        }
    }

    pub(super) fn pressure(&self) -> Pressure {
        let begin = self.part_of_log(BEGIN_RATIO);
        if self.is_applying_urgent() {
            Pressure::Urgent
        } else if self.truncation.needed_bytes(begin) > begin {
            Pressure::Long
        } else {
            Pressure::None
        }
    }

    fn part_of_log(&self, ratio: f64) -> u64 {
        (self.core.config().log_bytes_max as f64 * ratio) as u64
    }

    fn is_applying_urgent(&self) -> bool {
        let limit = self.part_of_log(HURRY_RATIO);
        self.truncation.needed_bytes(limit) > limit
            || self.core.quota.is_short_of_applying()
            || self.core.quota.is_room_wanted()
    }

    /// Returns the pause of an applier after a commit, within which it worked and rested for so long, while others are queued.
    pub(super) fn rest(
        &self,
        shard: &ApplierShard,
        worked: Duration,
        rested: Duration,
        queued: usize,
    ) -> Next {
        let pressure = self.pressure();
        // Who finds more of it during the rest wakes the task.
        shard.is_told(pressure);
        if queued == 0 || pressure == Pressure::Urgent || self.events.is_file_wanted(None) {
            return Next::Again;
        }
        let rest = self.rest_after(worked, pressure).saturating_sub(rested);
        if pressure == Pressure::None {
            return Next::Snooze(rest.max(GAP).min(self.rest_at_most(queued)));
        }
        Next::Snooze(rest)
    }

    /// Returns whether someone waits for the applier of a vBucket, for a file, or for a thread.
    pub(super) fn is_wanted(&self, vb: VbId) -> bool {
        self.core.phase() != Phase::Open
            || self.events.is_file_wanted(None)
            || self.shard_of(vb).is_waited_for()
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Returns the pause of an applier that worked for so long.
    pub(super) fn rest_after(&self, worked: Duration, pressure: Pressure) -> Duration {
        let filled = match pressure {
            Pressure::None => BEGIN_RATIO,
            Pressure::Long => {
                let needed = self.truncation.needed_bytes(self.part_of_log(BEGIN_RATIO));
                needed as f64 / self.core.config().log_bytes_max as f64
            }
            Pressure::Urgent => return Duration::ZERO,
        };
        rest_of(worked, filled)
    }

    /// With no more rest than this for each, all that are queued have their turn before the next changes are old enough.
    pub(super) fn rest_at_most(&self, queued: usize) -> Duration {
        let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
        age / 2 / u32::try_from(queued).unwrap_or(u32::MAX).max(1)
    }
}

/// The rest after work of so long, at this part of the log's greatest length.
fn rest_of(took: Duration, filled: f64) -> Duration {
    let pressed = (filled - BEGIN_RATIO) / (HURRY_RATIO - BEGIN_RATIO);
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
            let rest = rest_of(second, filled).as_secs_f64();
            assert!((rest - seconds).abs() < 1e-6, "{filled}: {rest}");
        }
        assert_eq!(rest_of(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
