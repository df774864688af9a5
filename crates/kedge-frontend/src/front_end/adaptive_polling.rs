//! How a front-end thread waits for the disk: it looks again and again as long as reads end soon, and sleeps where not.
//!
//! To be woken takes a thread longer than many a read takes a fast disk, and a processor that sleeps answers the disk late.

use std::time::Duration;

/// The mean is about that of so many waits, the newest counting most.
const WAITS: u64 = 16;
/// No wait counts as longer than this many times the limit: one slow read does not keep the thread from looking for long.
const LONGEST: u64 = 4;

/// The durations of waits for the disk.
#[derive(Debug)]
pub(super) struct AdaptivePolling {
    limit_ns: u64,
    mean_ns: u64,
}

impl AdaptivePolling {
    /// A thread looks for `limit` at most before it sleeps; zero: it always sleeps.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            mean_ns: 0,
        }
    }

    /// The time for which the thread polls before it sleeps: as long as most waits would end meanwhile.
    pub(super) fn look(&self) -> Option<Duration> {
        let pays = self.limit_ns > 0 && self.mean_ns <= self.limit_ns / 2;
        pays.then_some(Duration::from_nanos(self.limit_ns))
    }

    /// A wait has ended, with or without sleep.
    pub(super) fn took(&mut self, time: Duration) {
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
    fn it_looks_as_long_as_waits_are_short() {
        let mut waits = AdaptivePolling::new(LIMIT);
        for us in [0, 80, 20, 90].into_iter().cycle().take(100) {
            assert_eq!(waits.look(), Some(LIMIT));
            waits.took(Duration::from_micros(us));
        }
        // One that is long changes nothing.
        waits.took(Duration::from_secs(1));
        assert_eq!(waits.look(), Some(LIMIT));
    }

    #[test]
    fn it_sleeps_where_the_disk_is_slow_and_looks_again_when_it_is_not() {
        let mut waits = AdaptivePolling::new(LIMIT);
        let mut after = |us, wanted: Option<Duration>| {
            (0..100).position(|_| {
                let is_so = waits.look() == wanted;
                waits.took(Duration::from_micros(us));
                is_so
            })
        };
        assert!(after(5_000, None).is_some_and(|count| count < 10));
        assert!(after(50, Some(LIMIT)).is_some_and(|count| count < 50));
    }

    #[test]
    fn without_a_limit_it_always_sleeps() {
        let mut waits = AdaptivePolling::new(Duration::ZERO);
        assert_eq!(waits.look(), None);
        waits.took(Duration::from_micros(1));
        assert_eq!(waits.look(), None);
        let mut longest = AdaptivePolling::new(Duration::MAX);
        longest.took(Duration::MAX);
        assert!(longest.look().is_some());
    }
}
