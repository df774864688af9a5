//! The clock of an executor: real, or moved by hand.

#[cfg(not(kedge_model))]
mod ticks;

// Not from `sync`: threads do not synchronise through the clock, and the model checker need not explore orders of clock
// readings.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(kedge_model))]
use ticks::monotonic_ns;

#[derive(Debug)]
pub(crate) enum ExecutorClock {
    /// The real clock, with the start time of the executor in ns.
    #[cfg(not(kedge_model))]
    Real(u64),
    #[cfg(kedge_model)]
    Real(AtomicU64),
    Virtual(AtomicU64),
}

impl ExecutorClock {
    pub(crate) fn real() -> Self {
        #[cfg(not(kedge_model))]
        return Self::Real(monotonic_ns());
        #[cfg(kedge_model)]
        return Self::Real(AtomicU64::new(0));
    }

    /// Returns the number of nanoseconds since the executor was created, plus one, so that 0 can mean "never".
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            #[cfg(not(kedge_model))]
            Self::Real(start_ns) => monotonic_ns().saturating_sub(*start_ns) + 1,
            // A run of the model may depend on its schedule only, so each reading of the clock takes one microsecond.
            #[cfg(kedge_model)]
            Self::Real(ticks) => ticks.fetch_add(1_000, Ordering::SeqCst) + 1,
            Self::Virtual(now) => now.load(Ordering::SeqCst),
        }
    }
}

/// Starts the calibration of the processor's counter in the background, which makes readings of the real clock cheaper.
pub(crate) fn calibrate() {
    #[cfg(not(kedge_model))]
    ticks::calibrate();
}

/// Converts a duration to ns, saturating at `u64::MAX` (centuries).
pub(crate) fn nanos(duration: Duration) -> u64 {
    let ns = duration.as_secs().checked_mul(1_000_000_000);
    ns.map_or(u64::MAX >> 1, |ns| ns + u64::from(duration.subsec_nanos()))
}
