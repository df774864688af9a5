//! The time of an executor: real, or moved by hand.

#[cfg(not(kedge_model))]
mod ticks;

// Not of `sync`: threads do not meet here, and a model has enough to try without the orders of looks at the clock.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(kedge_model))]
use ticks::monotonic_ns;

#[derive(Debug)]
pub(crate) enum Clock {
    /// With when it began.
    #[cfg(not(kedge_model))]
    Real(u64),
    #[cfg(kedge_model)]
    Real(AtomicU64),
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn real() -> Self {
        #[cfg(not(kedge_model))]
        return Self::Real(monotonic_ns());
        #[cfg(kedge_model)]
        return Self::Real(AtomicU64::new(0));
    }

    /// Nanoseconds since the executor began, plus one: 0 is free for "never".
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            #[cfg(not(kedge_model))]
            Self::Real(start_ns) => monotonic_ns().saturating_sub(*start_ns) + 1,
            // A model's run must depend on nothing but its schedule: every look at the clock takes a microsecond.
            #[cfg(kedge_model)]
            Self::Real(ticks) => ticks.fetch_add(1_000, Ordering::SeqCst) + 1,
            Self::Virtual(now) => now.load(Ordering::SeqCst),
        }
    }
}

/// Has it found out, beside what the caller does, how looks at the real clock become cheaper.
pub(crate) fn calibrate() {
    #[cfg(not(kedge_model))]
    ticks::calibrate();
}

/// A duration in ns; those that do not fit are centuries.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let ns = duration.as_secs().checked_mul(1_000_000_000);
    ns.map_or(u64::MAX >> 1, |ns| ns + u64::from(duration.subsec_nanos()))
}
