//! The rate that all compactions of a bucket share.
//!
//! What is measured is what clients wait for: the syncs of the log; without a log, the commits of files. Commits that
//! apply what the log has are left out: nobody waits for them, they take as long as they have to write, and between
//! the others they would look like disturbance.

use kedge_bucket_core::CompactionRate;
use kedge_storage::{Throttle, ThrottleStats};
use kedge_sync::{RankedMutex, ranks::CompactionThrottleState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug)]
struct ThrottleState {
    throttle: Throttle,
    rate: CompactionRate,
}

impl ThrottleState {
    fn is_off(&self) -> bool {
        self.rate == CompactionRate::Off
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct CompactionThrottle {
    state: RankedMutex<CompactionThrottleState, ThrottleState>,
    /// Compactions under way that nobody slows down.
    unthrottled: AtomicUsize,
    /// Counts the times that the rate became another.
    changes: AtomicU64,
}

impl CompactionThrottle {
    pub(crate) fn new(rate: CompactionRate) -> Self {
        Self {
            state: RankedMutex::new(ThrottleState {
                throttle: Throttle::new(rate.bounds().unwrap_or_default()),
                rate,
            }),
            unthrottled: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Returns whether it is another rate than before.
    pub(super) fn set(&self, rate: CompactionRate) -> bool {
        let mut state = self.state.lock();
        if state.rate == rate {
            return false;
        }
        state.rate = rate;
        if let Some(bounds) = rate.bounds() {
            state.throttle.reconfigure(bounds);
        }
        drop(state);
        self.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn is_on(&self) -> bool {
        !self.state.lock().is_off()
    }

    /// Another number than before: there is another rate since, and a rest that it asked for has lost its reason.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// A commit that clients wait for took so long.
    pub(crate) fn on_commit(&self, latency_us: u64) {
        // What goes on beside compactions that are not slowed down says nothing of what is usual.
        if self.unthrottled.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut state = self.state.lock();
        if !state.is_off() {
            state.throttle.on_commit(latency_us);
        }
    }

    /// A compaction begins of a file that has so many times the garbage that makes it due.
    pub(super) fn on_backlog(&self, times: u64) {
        self.state.lock().throttle.on_backlog(times);
    }

    /// Returns the pause before so many bytes, in nanoseconds.
    pub(super) fn on_bytes(&self, bytes: u64, now_ns: u64) -> u64 {
        let mut state = self.state.lock();
        if state.is_off() {
            return 0;
        }
        state.throttle.on_bytes(bytes, now_ns)
    }

    pub(super) fn figures(&self) -> ThrottleStats {
        let state = self.state.lock();
        if state.is_off() {
            return ThrottleStats::default();
        }
        state.throttle.figures()
    }

    /// A compaction that nobody slows down is under way as long as what is returned lives.
    pub(super) fn begin_unthrottled(&self) -> UnthrottledGuard<'_> {
        self.unthrottled.fetch_add(1, Ordering::Relaxed);
        UnthrottledGuard(self)
    }
}

pub(super) struct UnthrottledGuard<'a>(&'a CompactionThrottle);

impl Drop for UnthrottledGuard<'_> {
    fn drop(&mut self) {
        self.0.unthrottled.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000_000;

    #[test]
    fn rate_can_change_at_any_time() {
        let throttle = CompactionThrottle::new(CompactionRate::BytesPerSec(1_000));
        let pause_ns = throttle.on_bytes(1_000, SEC);
        assert!((SEC * 9 / 10..=SEC).contains(&pause_ns), "{pause_ns}");
        assert!(!throttle.set(CompactionRate::BytesPerSec(1_000)));
        assert_eq!(throttle.changes(), 0);
        assert!(throttle.set(CompactionRate::Off));
        assert_eq!(throttle.changes(), 1);
        assert_eq!(throttle.on_bytes(1 << 40, 2 * SEC), 0);
        assert_eq!(throttle.figures(), ThrottleStats::default());
        throttle.set(CompactionRate::BytesPerSec(2_000));
        assert_eq!(throttle.figures().bytes_per_sec, 2_000);
        throttle.set(CompactionRate::Auto);
        assert!(throttle.figures().bytes_per_sec >= 1 << 20);
    }

    #[test]
    fn usual_latency_is_learnt_only_without_unthrottled_compactions() {
        let throttle = CompactionThrottle::new(CompactionRate::Auto);
        let unthrottled = throttle.begin_unthrottled();
        (0..100).for_each(|_| throttle.on_commit(90_000));
        drop(unthrottled);
        (0..100).for_each(|_| throttle.on_commit(500));
        throttle.on_bytes(1, SEC);
        assert_eq!(throttle.figures().undisturbed_us, Some(500));
    }
}
