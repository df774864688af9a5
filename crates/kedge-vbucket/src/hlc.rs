//! The hybrid logical clock for CAS values.

use kedge_types::Cas;
use kedge_types::limits::{CAS_AHEAD_MS_MAX, CAS_DRIFT_MS};

/// The mask of the low bits, which count changes within one tick of the wall clock (65.536 us).
const COUNTER_BITS: u64 = 0xffff;

/// The highest CAS of a wall clock, in the year 2262. A later clock counts as this value, and documents from other
/// nodes may not have a higher CAS.
const CAS_MAX: u64 = i64::MAX as u64;

/// The highest value to count up from without overflow. No assigned value exceeds it, because its clock part is at most
/// [`CAS_MAX`]. Versions without that limit stay below it until the year 2552.
const COUNT_FROM_MAX: u64 = u64::MAX - (1 << 56);

/// The drift between the clocks of other nodes and this node, measured by received CAS values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// The sum of the absolute differences on receipt, in microseconds.
    pub total_us: u64,
    /// The number of received CAS values.
    pub samples: u64,
    /// The number of values that were more than [`CAS_DRIFT_MS`] ahead.
    pub ahead: u64,
    /// The number of values that were more than [`CAS_DRIFT_MS`] behind.
    pub behind: u64,
}

impl std::ops::AddAssign for Drift {
    fn add_assign(&mut self, other: Self) {
        self.total_us = self.total_us.saturating_add(other.total_us);
        self.samples += other.samples;
        self.ahead += other.ahead;
        self.behind += other.behind;
    }
}

/// A hybrid logical clock. A CAS value is the wall clock in nanoseconds with the low 16 bits cleared. It is the last
/// value plus one if the wall clock has not advanced, went back, or exceeds `CAS_MAX`. The CAS values of a vBucket
/// therefore only grow and stay near real time. After a restart, [`HybridClock::raise_to`] restores the last value,
/// which must not be limited to less than was assigned.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridClock {
    last: u64,
    drift: Drift,
}

impl HybridClock {
    /// Returns the next CAS at wall-clock time `unix_ns`.
    pub fn next(&mut self, unix_ns: u64) -> Cas {
        let wall = unix_ns.min(CAS_MAX) & !COUNTER_BITS;
        self.last = if wall > self.last {
            wall
        } else {
            self.last + 1
        };
        Cas(self.last)
    }

    /// Ensures that later values exceed `cas`, unless `cas` is too high to count up from.
    pub fn raise_to(&mut self, cas: Cas) {
        self.last = self.last.max(cas.get().min(COUNT_FROM_MAX));
    }

    /// Applies [`Self::raise_to`] to a CAS of another node, received at wall-clock time `unix_ns`, and records the
    /// drift.
    pub fn learn(&mut self, cas: Cas, unix_ns: u64) {
        let apart_us = cas.get().abs_diff(unix_ns) / 1_000;
        let drift = &mut self.drift;
        drift.total_us = drift.total_us.saturating_add(apart_us);
        drift.samples += 1;
        if apart_us > CAS_DRIFT_MS * 1_000 {
            let is_ahead = cas.get() > unix_ns;
            drift.ahead += u64::from(is_ahead);
            drift.behind += u64::from(!is_ahead);
        }
        self.raise_to(cas);
    }

    /// Returns whether a document may get this CAS at wall-clock time `unix_ns`. A CAS from the far future would stop
    /// the clock, because all later values would count up from there.
    #[must_use]
    pub fn accepts(&self, cas: Cas, unix_ns: u64) -> bool {
        let latest = unix_ns.saturating_add(CAS_AHEAD_MS_MAX * 1_000_000);
        !cas.is_none() && cas.get() <= latest.min(CAS_MAX)
    }

    /// Returns the drift to other clocks.
    #[must_use]
    pub fn drift(&self) -> Drift {
        self.drift
    }

    /// Returns the last value that was assigned or received.
    #[must_use]
    pub fn last(&self) -> Cas {
        Cas(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_grows_when_the_wall_clock_goes_back() {
        let mut clock = HybridClock::default();
        let mut last = 0;
        for unix_ns in [
            5_000_000, 5_000_001, 9_000_000, 1_000, 0, 9_100_000, 9_100_000,
        ] {
            let cas = clock.next(unix_ns).get();
            assert!(cas > last, "{unix_ns}");
            last = cas;
        }
        clock.raise_to(Cas(1 << 60));
        assert_eq!(clock.next(9_200_000), Cas((1 << 60) + 1));
        assert_eq!(
            clock.next(2 << 60).get(),
            2 << 60,
            "back to the wall clock when it is ahead"
        );
    }

    /// Regression: a clock beyond the year 2262 assigned CAS values that a restart limited to that year, so later
    /// values were below them.
    #[test]
    fn cas_grows_after_a_clock_from_the_far_future_and_a_restart() {
        let now = 1_700_000_000_000_000_000;
        for wrong in [
            CAS_MAX - 1,
            CAS_MAX + 1,
            10_000_000_000_000_000_000,
            u64::MAX,
        ] {
            let mut last = 0;
            let mut clock = HybridClock::default();
            for unix_ns in [now, wrong, wrong, now] {
                let cas = clock.next(unix_ns);
                assert!(cas.get() > last, "{wrong}: {cas:?}");
                last = cas.get();
                let mut restarted = HybridClock::default();
                restarted.raise_to(cas);
                assert!(restarted.next(now).get() > last, "{wrong}");
                clock = restarted;
                last = clock.last().get();
            }
            assert!(last <= CAS_MAX + 20, "{wrong}: {last}");
        }
        // Values of versions without the limit are accepted too.
        let mut clock = HybridClock::default();
        clock.raise_to(Cas(10_000_000_000_000_000_000));
        assert_eq!(clock.next(now), Cas(10_000_000_000_000_000_001));
    }

    #[test]
    fn cas_from_the_far_future_is_refused_and_drift_is_counted() {
        let clock = HybridClock::default();
        let now = 1_700_000_000_000_000_000;
        let hour = 3_600_000_000_000;
        let table = [
            (0, false),
            (1, true),
            (now, true),
            (now + hour, true),
            (now + 2 * hour, false),
            (u64::MAX - 1, false),
            (u64::MAX, false),
        ];
        for (cas, expected) in table {
            assert_eq!(clock.accepts(Cas(cas), now), expected, "{cas}");
        }
        assert!(!clock.accepts(Cas(CAS_MAX + 1), u64::MAX));
        let mut clock = clock;
        for cas in [now + 4_000_000, now - 6_000_000_000, now + 7_000_000_000] {
            clock.learn(Cas(cas), now);
        }
        let mut twice = clock.drift();
        twice += clock.drift();
        let expected = |times| Drift {
            total_us: 13_004_000 * times,
            samples: 3 * times,
            ahead: times,
            behind: times,
        };
        assert_eq!((clock.drift(), twice), (expected(1), expected(2)));
        assert_eq!(clock.next(now), Cas(now + 7_000_000_001));
        clock.learn(Cas(u64::MAX), now);
        assert_eq!(clock.next(now).get(), COUNT_FROM_MAX + 1, "and it goes on");
    }
}
