//! The time of an executor: real, or moved by hand.

// Not of `sync`: threads do not meet here, and a model has enough to try without the orders of looks at the clock.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(kedge_model))]
use std::time::Instant;

#[derive(Debug)]
pub(crate) enum Clock {
    #[cfg(not(kedge_model))]
    Real(Instant),
    #[cfg(kedge_model)]
    Real(AtomicU64),
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn real() -> Self {
        #[cfg(not(kedge_model))]
        return Self::Real(Instant::now());
        #[cfg(kedge_model)]
        return Self::Real(AtomicU64::new(0));
    }

    /// Nanoseconds since the executor began, plus one: 0 is free for "never".
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            #[cfg(not(kedge_model))]
            Self::Real(start) => nanos(start.elapsed()) + 1,
            // A model's run must depend on nothing but its schedule: every look at the clock takes a microsecond.
            #[cfg(kedge_model)]
            Self::Real(ticks) => ticks.fetch_add(1_000, Ordering::SeqCst) + 1,
            Self::Virtual(now) => now.load(Ordering::SeqCst),
        }
    }
}

/// A duration in ns; those that do not fit are centuries.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX >> 1)
}
