//! Adaptive polling: a front-end thread polls for the end of its reads while reads end soon, and sleeps otherwise.
//!
//! A wake-up takes longer than many reads of a fast disk, and a sleeping processor answers the disk late.

use std::time::Duration;

/// The number of waits in the moving average.
const WAITS: u64 = 16;
/// Largest duration that a wait counts with, as a multiple of the limit. So one slow read does not stop the polling for
/// long.
const LONGEST: u64 = 4;

/// The durations of waits for the disk.
#[derive(Debug)]
pub(super) struct AdaptivePolling {
    limit_ns: u64,
    mean_ns: u64,
}

impl AdaptivePolling {
    /// Polls for `limit` at most before a sleep; never if it is zero.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            mean_ns: 0,
        }
    }

    /// The time to poll before a sleep, or `None` while waits are too long for that.
    pub(super) fn poll_time(&self) -> Option<Duration> {
        let pays = self.limit_ns > 0 && self.mean_ns <= self.limit_ns / 2;
        pays.then_some(Duration::from_nanos(self.limit_ns))
    }

    /// Records the duration of a wait.
    pub(super) fn record(&mut self, time: Duration) {
        let longest = self.limit_ns.saturating_mul(LONGEST);
        let ns = u64::try_from(time.as_nanos()).map_or(longest, |ns| ns.min(longest));
        self.mean_ns = self.mean_ns - self.mean_ns / WAITS + ns / WAITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(200);

    #[test]
    fn thread_polls_while_waits_are_short() {
        let mut waits = AdaptivePolling::new(LIMIT);
        for us in [0, 80, 20, 90].into_iter().cycle().take(100) {
            assert_eq!(waits.poll_time(), Some(LIMIT));
            waits.record(Duration::from_micros(us));
        }
        // A single long wait changes nothing.
        waits.record(Duration::from_secs(1));
        assert_eq!(waits.poll_time(), Some(LIMIT));
    }

    #[test]
    fn thread_sleeps_on_a_slow_disk_and_polls_again_on_a_fast_one() {
        let mut waits = AdaptivePolling::new(LIMIT);
        let mut after = |us, wanted: Option<Duration>| {
            (0..100).position(|_| {
                let is_so = waits.poll_time() == wanted;
                waits.record(Duration::from_micros(us));
                is_so
            })
        };
        assert!(after(5_000, None).is_some_and(|count| count < 10));
        assert!(after(50, Some(LIMIT)).is_some_and(|count| count < 50));
    }

    #[test]
    fn zero_limit_disables_polling() {
        let mut waits = AdaptivePolling::new(Duration::ZERO);
        assert_eq!(waits.poll_time(), None);
        waits.record(Duration::from_micros(1));
        assert_eq!(waits.poll_time(), None);
        let mut longest = AdaptivePolling::new(Duration::MAX);
        longest.record(Duration::MAX);
        assert!(longest.poll_time().is_some());
    }
}
