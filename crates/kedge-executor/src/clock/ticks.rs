//! The monotonic clock of the operating system, read through the processor's counter where one exists.
//!
//! A system call for the time takes about 25 ns, more than the rest of a snooze; the counter takes 10. But the counter
//! alone is no clock: it may continue or restart while the machine is suspended, it may tick at another rate on another
//! machine, and the operating system constantly corrects its own clock. So each thread reads the system clock and
//! extrapolates with the counter for at most [`TRUSTED_NS`].
//!
//! Invariant: the returned time differs from the system clock by at most [`APART_NS`] plus the error of the counter
//! over [`TRUSTED_NS`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::thread;
use std::time::Instant;

use quanta::Clock;

/// Time in ns for which a thread extrapolates with the counter. A counter that is wrong by a thousandth, 20 times the
/// system's corrections, is wrong by a microsecond after it.
const TRUSTED_NS: u64 = 1_000_000;
/// Largest time in ns between two readings of the counter around a reading of the system clock. If it is longer, the
/// thread lost its processor in between, and the readings do not belong together.
const APART_NS: u64 = 1_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Unset until the rate of the counter is known.
static COUNTER: OnceLock<Clock> = OnceLock::new();
/// `true` once the calibration has started.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// A reading of the system clock and the counter at the same moment.
#[derive(Clone, Copy)]
struct CounterReading {
    ticks: u64,
    ns: u64,
}

const UNKNOWN: u64 = u64::MAX;

thread_local! {
    static ANCHOR: Cell<CounterReading> = const { Cell::new(CounterReading { ticks: 0, ns: UNKNOWN }) };
}

/// Measures the rate of the counter, once, in a background thread. It usually takes a millisecond, 200 at worst.
pub(super) fn calibrate() {
    if !IS_BEGUN.swap(true, Ordering::SeqCst) {
        let find_out = || {
            COUNTER.get_or_init(Clock::new);
        };
        // Without the thread, each reading asks the system clock.
        let _ = thread::Builder::new()
            .name("clock".to_owned())
            .spawn(find_out);
    }
}

/// Returns nanoseconds of the monotonic clock since its first use in this process.
pub(super) fn monotonic_ns() -> u64 {
    match COUNTER.get() {
        Some(counter) => by_counter(counter),
        None => system_ns(),
    }
}

fn by_counter(counter: &Clock) -> u64 {
    let ticks = counter.raw();
    let anchor = ANCHOR.get();
    // 0 if the counter went back.
    let passed_ns = counter.delta_as_nanos(anchor.ticks, ticks);
    if ticks >= anchor.ticks && passed_ns < TRUSTED_NS && anchor.ns != UNKNOWN {
        return anchor.ns + passed_ns;
    }
    let ns = system_ns();
    let is_known = counter.delta_as_nanos(ticks, counter.raw()) <= APART_NS;
    ANCHOR.set(CounterReading {
        ticks,
        ns: if is_known { ns } else { UNKNOWN },
    });
    ns
}

#[cold]
fn system_ns() -> u64 {
    super::nanos(START.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_agrees_with_the_system_clock() {
        const APART_MAX_NS: u64 = 10_000;
        let counter = Clock::new();
        let until_ns = system_ns() + 30_000_000;
        let mut before_ns = system_ns();
        while before_ns < until_ns {
            let ns = by_counter(&counter);
            let after_ns = system_ns();
            assert!(ns + APART_MAX_NS >= before_ns && ns <= after_ns + APART_MAX_NS);
            before_ns = after_ns;
        }
    }

    #[test]
    fn counter_that_went_back_or_far_ahead_is_ignored() {
        let counter = Clock::new();
        let now = counter.raw();
        for (ticks, ns) in [(u64::MAX, 1), (0, 1), (now, UNKNOWN)] {
            ANCHOR.set(CounterReading { ticks, ns });
            let before_ns = system_ns();
            assert!((before_ns..UNKNOWN).contains(&by_counter(&counter)));
        }
    }
}
