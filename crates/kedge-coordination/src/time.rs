//! Time for leases: moments of a local clock that does not stop, and a bound on how wrong it goes.

use std::fmt;
use std::time::Duration;

/// A time on the clock of this machine that starts at its boot and includes the time that it is suspended
/// (`CLOCK_BOOTTIME`), or on a simulated clock. It never goes backwards, and means nothing on another machine or after a
/// reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// Creates a moment from nanoseconds of the clock.
    #[must_use]
    pub const fn at_ns(ns: u64) -> Self {
        Moment { ns }
    }

    /// Returns the nanoseconds of the clock.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.ns
    }

    /// Returns the moment that is `duration` later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::at_ns(self.ns.saturating_add(nanoseconds(duration)))
    }

    /// Returns the moment that is `duration` earlier, or the start of the clock.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self::at_ns(self.ns.saturating_sub(nanoseconds(duration)))
    }

    /// Returns the time from `earlier` to this moment, zero if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

/// A bound ρ on the drift of a clock, in parts per million: while the true time `t` passes, the clock advances by at least
/// `t · (1 − ρ)` and by at most `t · (1 + ρ)`.
///
/// The bound has to hold for a machine's clock over a pause as well, as it does for a suspended machine; it does not if a
/// virtual machine is stopped and the hypervisor lets its clock stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftBound {
    ppm: u32,
}

/// One in parts per million.
const ONE_PPM: u32 = 1_000_000;

impl DriftBound {
    /// Creates a bound of `ppm` parts per million; `None` for a million or more.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm < ONE_PPM {
            Some(DriftBound { ppm })
        } else {
            None
        }
    }

    /// Returns `time · (1 − ρ)`, rounded down: when a clock has advanced by it, at most `time` has passed.
    #[must_use]
    pub fn shortened(self, time: Duration) -> Duration {
        let ns = time.as_nanos() * u128::from(ONE_PPM - self.ppm) / u128::from(ONE_PPM);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns `time · (1 + ρ)`, rounded up: when a clock has advanced by it, at least `time` has passed.
    #[must_use]
    pub fn lengthened(self, time: Duration) -> Duration {
        let ns = (time.as_nanos() * u128::from(ONE_PPM + self.ppm)).div_ceil(u128::from(ONE_PPM));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Default for DriftBound {
    /// 1,000 parts per million: twice the 500 by which NTP slews a clock.
    fn default() -> Self {
        DriftBound { ppm: 1_000 }
    }
}

impl fmt::Display for DriftBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ppm", self.ppm)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_on_the_safe_side_of_both_clocks() {
        let drift = DriftBound::default();
        let ten = Duration::from_secs(10);
        assert_eq!(drift.shortened(ten), Duration::from_millis(9_990));
        assert_eq!(drift.lengthened(ten), Duration::from_millis(10_010));
        let odd = Duration::from_nanos(1_001);
        assert_eq!(drift.shortened(odd), Duration::from_nanos(999));
        assert_eq!(drift.lengthened(odd), Duration::from_nanos(1_003));
        assert_eq!(DriftBound::from_ppm(1_000_000), None);
    }
}
