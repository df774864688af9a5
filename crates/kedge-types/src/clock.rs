//! Time, passed in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading of the clocks. State machines are given one; they never look for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the Unix epoch, for CAS and expiry. May jump.
    pub unix_ns: u64,
    /// Nanoseconds of a clock that never goes back, for timeouts. Its zero is arbitrary.
    pub mono_ns: u64,
}

impl Now {
    /// Whole seconds since the Unix epoch.
    #[must_use]
    pub const fn unix_secs(self) -> u64 {
        self.unix_ns / 1_000_000_000
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Now;
}

/// The clocks of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic zero is now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Only the monotonic half of [`Clock::now`], in nanoseconds.
    #[must_use]
    pub fn mono_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        // A clock before 1970 reads as 1970: documents then expire late rather than the server not at all.
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            mono_ns: self.mono_ns(),
        }
    }
}

/// A clock that stands still until it is told otherwise, for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    unix_ns: AtomicU64,
    mono_ns: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub const fn new(now: Now) -> Self {
        Self {
            unix_ns: AtomicU64::new(now.unix_ns),
            mono_ns: AtomicU64::new(now.mono_ns),
        }
    }

    /// Lets `ns` nanoseconds pass.
    pub fn advance(&self, ns: u64) {
        self.unix_ns.fetch_add(ns, Ordering::Relaxed);
        self.mono_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Sets the wall clock, in Unix nanoseconds, as an administrator does. The monotonic one does not notice.
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
