//! How hard settlers are pressed, and how long they rest between two commits.
//!
//! A commit of a file of many documents keeps the disk busy, and clients wait for the log's syncs meanwhile. So a settler
//! begins long before the log is full, and rests for longer than it worked; it goes the faster the less room is left.

use super::SettleShard;
use crate::bucket::Bucket;
use kedge_executor::Next;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Settling begins at this part of `log_bytes_max`.
const BEGIN_RATIO: f64 = 0.5;
/// From this part on nothing is waited for, so that the log stays below while it goes on.
const HURRY_RATIO: f64 = 0.9;
/// The part of its time that a settler works at most while nothing presses it.
const SHARE_MIN: f64 = 0.25;
/// vBuckets whose time has come are settled no closer together than this, unless it is urgent: so the syncs of many
/// files do not come all at once.
pub(super) const GAP: Duration = Duration::from_millis(10);

/// Why settlers have to work before the time has come.
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

impl SettleShard {
    /// Notes how hard it is pressed. Returns whether it did not know.
    fn press(&self, pressure: Pressure) -> bool {
        self.pressed.fetch_max(pressure as u8, Ordering::SeqCst) < pressure as u8
    }

    /// It wants to hear of what is more than this.
    pub(super) fn is_told(&self, pressure: Pressure) {
        self.pressed.store(pressure as u8, Ordering::SeqCst);
    }
}

impl Bucket {
    /// The log has grown: wakes the settlers when they have to begin early.
    pub(crate) fn look_at_pressure(&self) {
        let pressure = self.pressure();
        if pressure == Pressure::None {
            return;
        }
        for shard in &self.settlers {
            if shard.press(pressure)
                && let Some(task) = shard.sleeper.task()
            {
                self.setup.executor.wake(task);
            }
        }
    }

    pub(super) fn pressure(&self) -> Pressure {
        let begin = self.part_of_log(BEGIN_RATIO);
        if self.is_settling_urgent() {
            Pressure::Urgent
        } else if self.floor.needed_bytes(begin) > begin {
            Pressure::Long
        } else {
            Pressure::None
        }
    }

    fn part_of_log(&self, ratio: f64) -> u64 {
        (self.config().log_bytes_max as f64 * ratio) as u64
    }

    fn is_settling_urgent(&self) -> bool {
        let limit = self.part_of_log(HURRY_RATIO);
        self.floor.needed_bytes(limit) > limit
            || self.quota.is_short_of_settling()
            || self.is_room_wanted()
    }

    /// How long a settler rests after a commit that took so long, while others are queued.
    pub(super) fn rest(&self, shard: &SettleShard, took: Duration, queued: usize) -> Next {
        let pressure = self.pressure();
        // Who finds more of it during the rest wakes the task.
        shard.is_told(pressure);
        if queued == 0 || pressure == Pressure::Urgent || self.is_any_file_wanted() {
            return Next::Again;
        }
        if pressure == Pressure::Long {
            let begin = self.part_of_log(BEGIN_RATIO);
            let needed = self.floor.needed_bytes(begin) as f64;
            return Next::Snooze(rest_of(took, needed / self.config().log_bytes_max as f64));
        }
        // All have had their turn before the next changes are old enough.
        let age = Duration::from_millis(self.config().settle_age_ms);
        let at_most = age / 2 / queued as u32;
        Next::Snooze(rest_of(took, BEGIN_RATIO).max(GAP).min(at_most))
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
    fn a_settler_works_the_more_the_longer_the_log_is() {
        let second = Duration::from_secs(1);
        for (filled, seconds) in [(0.0, 3.0), (0.5, 3.0), (0.7, 0.6), (0.9, 0.0), (2.0, 0.0)] {
            let rest = rest_of(second, filled).as_secs_f64();
            assert!((rest - seconds).abs() < 1e-6, "{filled}: {rest}");
        }
        assert_eq!(rest_of(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
