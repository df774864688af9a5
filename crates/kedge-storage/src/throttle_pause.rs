//! Pauses of throttled compactions. Every event that may end a pause wakes all of them, and each checks whether it
//! concerns it.

use std::time::Duration;

use kedge_sync::{RankedCondvar, RankedMutex, ranks::ThrottlePauses};

/// The pauses of all compactions of a storage.
#[derive(Debug, Default)]
pub(crate) struct ThrottlePause {
    wakes: RankedMutex<ThrottlePauses, u64>,
    woken: RankedCondvar,
}

impl ThrottlePause {
    /// Wakes all pauses. Callers change the state that the pauses check first.
    pub(crate) fn wake(&self) {
        *self.wakes.lock() += 1;
        self.woken.notify_all();
    }

    /// Pauses for `time`, or until the next wake, if `may_pause` allows it. That closure runs without the lock. Returns
    /// `true` after a wake.
    pub(crate) fn pause(&self, time: Duration, may_pause: impl FnOnce() -> bool) -> bool {
        // Read before the check: a later change increments the number.
        let seen = *self.wakes.lock();
        if time.is_zero() || !may_pause() {
            return false;
        }
        let mut wakes = self.wakes.lock();
        let sleeps_on = |wakes: &mut u64| *wakes == seen;
        let waited = self.woken.wait_while_for(&mut wakes, sleeps_on, time);
        !waited.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Longer than any test takes: only a wake ends the pause.
    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn wake_is_never_missed() {
        let pauses = ThrottlePause::default();
        // During the check, whose result is outdated immediately.
        let woken = pauses.pause(LONG, || {
            pauses.wake();
            true
        });
        assert!(woken);
        // At any time before, during and after a pause.
        for _ in 0..1_000 {
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| pauses.pause(LONG, || !ended.load(Ordering::Relaxed)));
                ended.store(true, Ordering::Relaxed);
                pauses.wake();
                waiter.join().expect("it ends");
            });
        }
    }

    #[test]
    fn pause_ends_after_its_time_and_needs_permission() {
        let pauses = ThrottlePause::default();
        assert!(!pauses.pause(Duration::from_millis(1), || true));
        assert!(!pauses.pause(LONG, || false));
        assert!(!pauses.pause(Duration::ZERO, || true));
    }
}
