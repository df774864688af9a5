//! The clocks of the server, as a trait, so that time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A reading of both clocks. State machines receive it as an argument and never read a clock themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time in nanoseconds since the Unix epoch, for CAS and expiry. It may jump.
    pub unix_ns: u64,
    /// Monotonic time in nanoseconds, for timeouts and leases. It advances while the machine is suspended. Its zero is
    /// arbitrary.
    pub mono_ns: u64,
}

impl Now {
    /// Returns the wall-clock time in whole seconds since the Unix epoch.
    #[must_use]
    pub const fn unix_secs(self) -> u64 {
        self.unix_ns / 1_000_000_000
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Reads both clocks.
    fn now(&self) -> Now;
}

/// The clocks of the operating system. Its monotonic time is that since the machine's boot, with the time for which it was
/// suspended (`CLOCK_BOOTTIME`): a lease of this node ends while it sleeps. [`std::time::Instant`] stands still
/// meanwhile, so the two must not be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Creates a clock.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Returns the monotonic time of [`Clock::now`] alone, in nanoseconds. Linux answers without a system call (vDSO).
    #[must_use]
    pub fn mono_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        // Both are positive, and the sum lasts for 584 years after the boot.
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        // A wall clock before 1970 reads as 1970: documents then expire late, but the server runs.
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            mono_ns: self.mono_ns(),
        }
    }
}

/// A clock for tests and simulation that moves only when a test advances it.
#[derive(Debug, Default)]
pub struct ManualClock {
    unix_ns: AtomicU64,
    mono_ns: AtomicU64,
}

impl ManualClock {
    /// Creates a clock that shows `now`.
    #[must_use]
    pub const fn new(now: Now) -> Self {
        Self {
            unix_ns: AtomicU64::new(now.unix_ns),
            mono_ns: AtomicU64::new(now.mono_ns),
        }
    }

    /// Advances both clocks by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.unix_ns.fetch_add(ns, Ordering::Relaxed);
        self.mono_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Sets the wall clock to `ns` nanoseconds since the Unix epoch, as an administrator does. The monotonic clock does
    /// not change.
    pub fn set_unix_ns(&self, unix_ns: u64) {
        self.unix_ns.store(unix_ns, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        Now {
            unix_ns: self.unix_ns.load(Ordering::Relaxed),
            mono_ns: self.mono_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_is_that_since_boot() {
        let boot = || clock_gettime(ClockId::Boottime).tv_sec as u64;
        let before_secs = boot();
        let secs = SystemClock::new().mono_ns() / 1_000_000_000;
        assert!((before_secs..=boot()).contains(&secs));
    }
}
