//! The pressure on appliers, and their pauses between two commits.
//!
//! A commit of a file of many documents keeps a processor and the disk busy, and clients wait meanwhile. So an applier begins
//! long before the log is full, and rests for longer than it works: within a commit every now and then, and after it for
//! its last part. It goes the faster the less room is left.
//!
//! A rest within a commit keeps the thread and the right to write to the file. There is none while a task has no thread, or
//! someone waits for the applier or for a file; a compaction that has come to its end waits for the commit.

use super::ApplierShard;
use crate::persistence::Persistence;
use kedge_bucket_core::Phase;
use kedge_bucket_core::Total;
use kedge_executor::{Next, Pool};
use kedge_storage::Storage;
use kedge_types::VbId;
use std::sync::atomic::Ordering;
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
/// It works for so long before it rests within a commit.
const SPELL: Duration = Duration::from_micros(500);
/// It looks whether anything waits for it at least as often as this; what is missing of a rest comes later.
const REST_MAX: Duration = Duration::from_millis(10);

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

impl Persistence {
    /// The log has grown: wakes the appliers when they have to begin early.
    pub fn look_at_pressure(&self) {
        let pressure = self.pressure();
        if pressure == Pressure::None {
            return;
        }
        for shard in &self.appliers {
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
        if queued == 0 || pressure == Pressure::Urgent || self.is_file_wanted(None) {
            return Next::Again;
        }
        let rest = self.rest_after(worked, pressure).saturating_sub(rested);
        if pressure == Pressure::None {
            return Next::Snooze(rest.max(GAP).min(self.rest_at_most(queued)));
        }
        Next::Snooze(rest)
    }

    /// Returns whether someone waits for the applier of a vBucket, for a file, or for a thread.
    pub(super) fn is_applier_wanted(&self, vb: VbId) -> bool {
        self.core.phase() != Phase::Open
            || self.is_file_wanted(None)
            || self.applier_of(vb).is_waited_for()
            || self.core.setup.executor.lacks_threads(Pool::Writer)
    }

    /// Returns the pause of an applier that worked for so long.
    fn rest_after(&self, worked: Duration, pressure: Pressure) -> Duration {
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
    fn rest_at_most(&self, queued: usize) -> Duration {
        let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
        age / 2 / u32::try_from(queued).unwrap_or(u32::MAX).max(1)
    }
}

/// Pauses within a commit.
pub(super) struct CommitThrottle<'a> {
    persistence: &'a Persistence,
    vb: VbId,
    /// The end of the last one.
    since_ns: u64,
    /// All of them.
    pub(super) taken: Duration,
    at_most: Duration,
}

impl<'a> CommitThrottle<'a> {
    /// Of a commit that begins, while others are queued.
    pub(super) fn new(persistence: &'a Persistence, vb: VbId, queued: usize) -> Self {
        let mut throttle = Self {
            persistence,
            vb,
            since_ns: 0,
            taken: Duration::ZERO,
            at_most: persistence.rest_at_most(queued),
        };
        throttle.since_ns = throttle.now_ns();
        throttle
    }

    fn now_ns(&self) -> u64 {
        self.persistence.core.setup.clock.now().mono_ns
    }

    /// Called every now and then by an applier that works: rests if it is time for that.
    pub(super) fn take(&mut self, storage: &Storage) {
        let now_ns = self.now_ns();
        let worked = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if worked < SPELL {
            return;
        }
        self.since_ns = now_ns;
        let rest = self.wanted(worked);
        if rest.is_zero() {
            return;
        }
        self.persistence.core.totals.add(Total::ApplyThrottles, 1);
        storage.pause(self.vb, rest.min(REST_MAX), || true);
        self.since_ns = self.now_ns();
        self.taken += Duration::from_nanos(self.since_ns.saturating_sub(now_ns));
    }

    fn wanted(&self, worked: Duration) -> Duration {
        let persistence = self.persistence;
        if persistence.is_applier_wanted(self.vb) {
            return Duration::ZERO;
        }
        let pressure = persistence.pressure();
        let rest = persistence.rest_after(worked, pressure);
        if pressure == Pressure::None {
            return rest.min(self.at_most.saturating_sub(self.taken));
        }
        rest
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
