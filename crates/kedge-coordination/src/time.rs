//! Time for leases: a clock that does not stop, and a bound on how wrong it goes.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time on the clock of this machine that starts at its boot and includes the time that it is suspended
/// (`CLOCK_BOOTTIME`). It never goes backwards, and means nothing on another machine or after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    since_boot: Duration,
}

impl Moment {
    /// Reads the clock.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("the clock starts at zero");
        let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
        Self::at(Duration::new(seconds, nanoseconds))
    }

    /// Creates a moment from the time since the boot, or of a simulated clock.
    #[must_use]
    pub const fn at(since_boot: Duration) -> Self {
        Moment { since_boot }
    }

    /// Returns the time since the boot.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.since_boot
    }

    /// Returns the moment that is `duration` later.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self::at(self.since_boot.saturating_add(duration))
    }

    /// Returns the time from `earlier` to this moment, zero if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        self.since_boot.saturating_sub(earlier.since_boot)
    }
}

/// A bound ρ on the drift between two clocks, in parts per million: while the clock of the service advances by `t`, the
/// clock of this machine advances by at least `t · (1 − ρ)`.
///
/// # The inequality of leases
///
/// A holder sends a request at its local time `s`. The service receives it later, and then lets the lease live for the
/// time `T` of its own clock. Meanwhile the holder's clock advances by at least `T · (1 − ρ)`, so that it shows at least
/// `s + T · (1 − ρ)` when the service ends the lease. A holder that considers its lease valid while
///
/// ```text
/// now < s + T · (1 − ρ)
/// ```
///
/// therefore stops before the service ends the lease, however long request and response were under way.
///
/// It does not follow for a holder that reads the clock, is paused, and then acts: an act that has to be safe carries a
/// fencing token. The bound has to hold for this machine's clock over a pause as well, as it does for a suspended machine;
/// it does not if a virtual machine is stopped and the hypervisor lets its clock stand still.
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

    /// Returns the moment until which a lease of `ttl` is certainly valid, if the request for it was sent at `sent`.
    #[must_use]
    pub fn valid_until(self, sent: Moment, ttl: Duration) -> Moment {
        let certain = ttl.as_nanos() * u128::from(ONE_PPM - self.ppm) / u128::from(ONE_PPM);
        let certain = u64::try_from(certain).unwrap_or(u64::MAX);
        sent.plus(Duration::from_nanos(certain))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_validity_ends_before_the_lease_at_the_worst_drift() {
        let sent = Moment::at(Duration::from_secs(100));
        let ttl = Duration::from_secs(10);
        let drift = DriftBound::from_ppm(1_000).expect("less than a million");
        let until = drift.valid_until(sent, ttl);
        assert_eq!(until.since(sent), Duration::from_millis(9_990));
        // The slowest local clock, when the service has counted ten seconds.
        let slowest = sent.plus(ttl * 999 / 1_000);
        assert!(until <= slowest);
        assert_eq!(DriftBound::from_ppm(1_000_000), None);
    }
}
