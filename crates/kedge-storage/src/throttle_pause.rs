//! ThrottlePause of compactions. Whatever may end one of them wakes all, and each looks at whether it was meant.

use std::time::Duration;

use kedge_sync::{RankedCondvar, RankedMutex, ranks::ThrottlePauses};

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct ThrottlePause {
    wakes: RankedMutex<ThrottlePauses, u64>,
    woken: RankedCondvar,
}

impl ThrottlePause {
    /// Wakes all who rest. Whoever changes what they look at calls this after it.
    pub(crate) fn wake(&self) {
        *self.wakes.lock() += 1;
        self.woken.notify_all();
    }

    /// ThrottlePause for so long, or until the next wake, if `may_pause` says so. It is called without the lock. Returns whether
    /// there was a wake.
    pub(crate) fn pause(&self, time: Duration, may_pause: impl FnOnce() -> bool) -> bool {
        // Before the question: what changes after the answer brings another number.
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

    /// Longer than any test may take: only a wake ends it.
    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_wake_is_not_missed_wherever_it_comes() {
        let pauses = ThrottlePause::default();
        // During the question, the answer to which is out of date at once.
        let woken = pauses.pause(LONG, || {
            pauses.wake();
            true
        });
        assert!(woken);
        // At any time before, during and after a rest.
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
    fn a_rest_ends_by_itself_and_who_may_not_rest_does_not() {
        let pauses = ThrottlePause::default();
        assert!(!pauses.pause(Duration::from_millis(1), || true));
        assert!(!pauses.pause(LONG, || false));
        assert!(!pauses.pause(Duration::ZERO, || true));
    }
}
