//! The system's monotonic clock, by the processor's counter where there is one.
//!
//! To ask the system costs about 25 ns, more than the rest of a snooze; the counter costs 10. But the counter alone is no
//! clock: it goes on, or begins anew, while the machine sleeps, another machine's may tick at another rate, and the system
//! corrects its own clock all the time. So each thread asks the system, and goes on from there by the counter for no longer
//! than [`TRUSTED_NS`].
//!
//! Invariant: what is returned differs from the system's clock by no more than [`APART_NS`], and the counter's error over
//! [`TRUSTED_NS`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::thread;
use std::time::Instant;

use quanta::Clock;

/// So long a thread goes on by the counter. With a counter that is wrong by a thousandth, which is 20 times what
/// the system corrects, it is a microsecond.
const TRUSTED_NS: u64 = 1_000_000;
/// A thread that lost its processor between its looks at counter and clock does not know which belong together: then
/// they are further apart than this.
const APART_NS: u64 = 1_000;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Unset until it is known how fast the counter ticks.
static COUNTER: OnceLock<Clock> = OnceLock::new();
/// Whether somebody finds that out, or has.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// What the system's clock said when the counter stood there.
#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    ns: u64,
}

const UNKNOWN: u64 = u64::MAX;

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { ticks: 0, ns: UNKNOWN }) };
}

/// Finds out how fast the counter ticks, once, and beside what the caller does: usually that takes a millisecond, at worst
/// 200 of them.
pub(super) fn calibrate() {
    if !IS_BEGUN.swap(true, Ordering::SeqCst) {
        let find_out = || {
            COUNTER.get_or_init(Clock::new);
        };
        // Without it the system is asked each time.
        let _ = thread::Builder::new()
            .name("clock".to_owned())
            .spawn(find_out);
    }
}

/// Nanoseconds of the monotonic clock since its first use in this process.
pub(super) fn monotonic_ns() -> u64 {
    match COUNTER.get() {
        Some(counter) => by_counter(counter),
        None => system_ns(),
    }
}

fn by_counter(counter: &Clock) -> u64 {
    let ticks = counter.raw();
    let anchor = ANCHOR.get();
    // Of a counter that went back this is 0.
    let passed_ns = counter.delta_as_nanos(anchor.ticks, ticks);
    if ticks >= anchor.ticks && passed_ns < TRUSTED_NS && anchor.ns != UNKNOWN {
        return anchor.ns + passed_ns;
    }
    let ns = system_ns();
    let is_known = counter.delta_as_nanos(ticks, counter.raw()) <= APART_NS;
    ANCHOR.set(Anchor {
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
    fn the_counter_says_what_the_system_says() {
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
    fn a_counter_that_went_back_or_far_ahead_is_not_believed() {
        let counter = Clock::new();
        let now = counter.raw();
        for (ticks, ns) in [(u64::MAX, 1), (0, 1), (now, UNKNOWN)] {
            ANCHOR.set(Anchor { ticks, ns });
            let before_ns = system_ns();
            assert!((before_ns..UNKNOWN).contains(&by_counter(&counter)));
        }
    }
}
