//! The judge of a node's own disk: counters of its calls go in, its health comes out.

use std::time::Duration;

use kedge_types::limits::DISK_CALL_SLOW_MS;

use super::DiskHealth;

/// The duration from which on a call to the disk counts as slow.
const SLOW_CALL: Duration = Duration::from_millis(DISK_CALL_SLOW_MS);
/// The shortest time over which calls are judged together.
const WINDOW: Duration = Duration::from_secs(1);
/// The time after which trouble is forgotten that no further call has shown.
const EVIDENCE_LASTS: Duration = Duration::from_secs(10);

/// Counters of a disk's calls since the start of the process, and the calls that have not returned.
///
/// A write that finds the disk full has not failed: the other nodes' disks fill as well, and a failover would make no
/// room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSample {
    /// The number of reads that have returned.
    pub reads: u64,
    /// The number of reads that have failed.
    pub failed_reads: u64,
    /// The number of writes and syncs that have returned.
    pub writes: u64,
    /// The number of writes and syncs that have failed.
    pub failed_writes: u64,
    /// The number of calls that have returned after [`DISK_CALL_SLOW_MS`] or later.
    pub slow: u64,
    /// The number of calls in flight that began [`DISK_CALL_SLOW_MS`] ago or earlier.
    pub slow_in_flight: u64,
    /// The age of the oldest call in flight.
    pub oldest_in_flight: Duration,
}

impl DiskSample {
    /// Returns the sum of two parts of a disk's calls.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            failed_reads: self.failed_reads + other.failed_reads,
            writes: self.writes + other.writes,
            failed_writes: self.failed_writes + other.failed_writes,
            slow: self.slow + other.slow,
            slow_in_flight: self.slow_in_flight + other.slow_in_flight,
            oldest_in_flight: self.oldest_in_flight.max(other.oldest_in_flight),
        }
    }

    /// Returns the calls since an earlier sample. Counters may have become smaller, as those of a dropped bucket are gone.
    fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            failed_reads: self.failed_reads.saturating_sub(earlier.failed_reads),
            writes: self.writes.saturating_sub(earlier.writes),
            failed_writes: self.failed_writes.saturating_sub(earlier.failed_writes),
            slow: self.slow.saturating_sub(earlier.slow),
            ..self
        }
    }

    /// Returns whether its calls fail: a write or sync did, or at least half of the reads; `None` without calls.
    fn fails(&self) -> Option<bool> {
        let calls = self.reads + self.writes + self.failed_reads + self.failed_writes;
        let reads_fail = self.failed_reads > 0 && self.failed_reads * 2 >= self.reads;
        (calls > 0).then_some(self.failed_writes > 0 || reads_fail)
    }

    /// Returns whether at least half of its calls are slow; `None` without calls.
    fn is_slow(&self) -> Option<bool> {
        let calls = self.reads + self.writes + self.slow_in_flight;
        let slow = self.slow + self.slow_in_flight;
        (calls > 0).then_some(slow > 0 && slow * 2 >= calls)
    }
}

/// Trouble that windows of calls have shown without a good one in between.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// The start of the first such window, and the end of the last one.
    span: Option<(Duration, Duration)>,
}

impl Evidence {
    /// Notes whether the window shows trouble; `None` if it has no calls. Only calls prolong trouble, and only calls end it
    /// early.
    fn note(&mut self, window: (Duration, Duration), is_bad: Option<bool>) {
        self.span = match (self.span, is_bad) {
            (_, Some(false)) => None,
            (None, Some(true)) => Some(window),
            (Some((since, _)), Some(true)) => Some((since, window.1)),
            (span, None) => span.filter(|(_, last)| window.1 - *last <= EVIDENCE_LASTS),
        };
    }

    fn millis(&self) -> u64 {
        let lasted = self.span.map(|(since, last)| last - since);
        lasted.map_or(0, |lasted| {
            u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
        })
    }
}

/// The judge of a disk.
#[derive(Clone, Debug, Default)]
pub struct DiskJudge {
    /// The start of the current window, and the counters at that time.
    began: Option<(Duration, DiskSample)>,
    failing: Evidence,
    slow: Evidence,
}

impl DiskJudge {
    /// Notes the counters at the time `now` of a clock that never goes backwards, and returns the health of the disk.
    pub fn judge(&mut self, now: Duration, sample: DiskSample) -> DiskHealth {
        let (began, before) = *self.began.get_or_insert((now, sample));
        if now.saturating_sub(began) >= WINDOW {
            let calls = sample.since(before);
            self.failing.note((began, now), calls.fails());
            self.slow.note((began, now), calls.is_slow());
            self.began = Some((now, sample));
        }
        let hung = Some(sample.oldest_in_flight).filter(|age| *age >= SLOW_CALL);
        let hung_ms = hung.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        DiskHealth {
            failing_ms: self.failing.millis(),
            hung_ms,
            slow_ms: self.slow.millis(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The health after each second of a list of windows.
    fn judged(windows: &[DiskSample]) -> Vec<DiskHealth> {
        let mut judge = DiskJudge::default();
        let mut total = DiskSample::default();
        let mut now = Duration::from_secs(100);
        judge.judge(now, total);
        let mut healths = Vec::new();
        for window in windows {
            now += Duration::from_secs(1);
            let (in_flight, oldest) = (window.slow_in_flight, window.oldest_in_flight);
            total = total.plus(*window);
            total.slow_in_flight = in_flight;
            total.oldest_in_flight = oldest;
            healths.push(judge.judge(now, total));
        }
        healths
    }

    const GOOD: DiskSample = DiskSample {
        reads: 10,
        failed_reads: 0,
        writes: 10,
        failed_writes: 0,
        slow: 0,
        slow_in_flight: 0,
        oldest_in_flight: Duration::ZERO,
    };
    const IDLE: DiskSample = DiskSample {
        reads: 0,
        writes: 0,
        ..GOOD
    };
    const FAILED_WRITE: DiskSample = DiskSample {
        failed_writes: 1,
        ..GOOD
    };

    fn failing(windows: &[DiskSample]) -> Vec<u64> {
        judged(windows).iter().map(|it| it.failing_ms).collect()
    }

    #[test]
    fn failing_writes_last_until_a_window_without_failures() {
        assert_eq!(
            failing(&[GOOD, FAILED_WRITE, FAILED_WRITE, GOOD, FAILED_WRITE]),
            [0, 1_000, 2_000, 0, 1_000]
        );
    }

    #[test]
    fn one_failure_before_an_idle_time_does_not_grow_and_is_forgotten() {
        let mut windows = vec![FAILED_WRITE];
        windows.extend([IDLE; 12]);
        let healths = failing(&windows);
        assert_eq!(healths[..11], [1_000; 11]);
        assert_eq!(healths[11..], [0, 0]);
        // Failures far apart are no lasting trouble either.
        windows.push(FAILED_WRITE);
        assert_eq!(failing(&windows)[13], 1_000);
    }

    #[test]
    fn single_failed_reads_are_no_failing_disk() {
        let reads = |failed_reads| DiskSample {
            failed_reads,
            ..GOOD
        };
        assert_eq!(failing(&[reads(4), reads(5), reads(10)]), [0, 1_000, 2_000]);
        let only_failures = DiskSample {
            reads: 0,
            failed_reads: 1,
            writes: 0,
            ..GOOD
        };
        assert_eq!(failing(&[only_failures]), [1_000]);
    }

    #[test]
    fn half_of_the_calls_must_be_slow() {
        let calls = |slow, slow_in_flight| DiskSample {
            slow,
            slow_in_flight,
            ..GOOD
        };
        let slow: Vec<u64> = judged(&[
            calls(9, 0),
            calls(10, 0),
            calls(0, 20),
            calls(5, 5),
            calls(0, 0),
        ])
        .iter()
        .map(|it| it.slow_ms)
        .collect();
        assert_eq!(slow, [0, 1_000, 2_000, 0, 0]);
    }

    #[test]
    fn call_that_does_not_return_hangs_from_its_beginning() {
        let hanging = |ms| DiskSample {
            slow_in_flight: 1,
            oldest_in_flight: Duration::from_millis(ms),
            ..IDLE
        };
        let healths = judged(&[hanging(999), hanging(1_999), hanging(2_999), GOOD]);
        let hung: Vec<u64> = healths.iter().map(|it| it.hung_ms).collect();
        assert_eq!(hung, [0, 1_999, 2_999, 0]);
    }

    #[test]
    fn counters_of_a_dropped_bucket_are_no_calls() {
        let mut judge = DiskJudge::default();
        judge.judge(Duration::ZERO, FAILED_WRITE);
        let health = judge.judge(Duration::from_secs(1), IDLE);
        assert!(health.is_good(), "{health:?}");
    }

    #[test]
    fn shorter_intervals_are_judged_together() {
        let mut judge = DiskJudge::default();
        let at = |ms| Duration::from_millis(ms);
        judge.judge(at(0), DiskSample::default());
        assert_eq!(judge.judge(at(250), FAILED_WRITE).failing_ms, 0);
        assert_eq!(judge.judge(at(1_000), FAILED_WRITE).failing_ms, 1_000);
    }
}
