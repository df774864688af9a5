//! The hybrid logical clock that CAS values come from.

use kedge_types::Cas;

/// The low bits count changes within one tick of the wall clock (65.536 us).
const COUNTER_BITS: u64 = 0xffff;

/// Wall-clock nanoseconds with the low 16 bits cleared, or the last value plus one when the wall clock has not moved
/// on (or went back). So CAS values of a vBucket only grow, and stay near real time.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridClock {
    last: u64,
}

impl HybridClock {
    /// The next CAS at wall-clock time `unix_ns`.
    pub fn next(&mut self, unix_ns: u64) -> Cas {
        let wall = unix_ns & !COUNTER_BITS;
        self.last = if wall > self.last {
            wall
        } else {
            self.last + 1
        };
        Cas(self.last)
    }

    /// Never gives out `cas` or less again.
    pub fn raise_to(&mut self, cas: Cas) {
        self.last = self.last.max(cas.get());
    }

    /// The last value given out or learned.
    #[must_use]
    pub fn last(&self) -> Cas {
        Cas(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_whatever_the_wall_clock_does() {
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
}
