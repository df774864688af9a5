//! The throttle that all compactions of a bucket share.
//!
//! The throttle observes the latency that clients notice: of the syncs of the log, or of the commits of files in a bucket
//! without a log. Commits of the log applier are ignored. No client waits for them, their duration depends on their size,
//! and they would be mistaken for an effect of the compactions.

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

/// The throttle of a bucket's compactions.
#[derive(Debug)]
pub(crate) struct CompactionThrottle {
    state: RankedMutex<CompactionThrottleState, ThrottleState>,
    /// The number of running compactions without a throttle.
    unthrottled: AtomicUsize,
    /// The number of changes of the rate.
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

    /// Sets the rate. Returns whether it has changed.
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

    /// Returns the number of changes of the rate. If it has grown, a pause of the earlier rate is obsolete.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Records the latency of a commit that clients wait for, in microseconds.
    pub(crate) fn on_commit(&self, latency_us: u64) {
        // Beside unthrottled compactions, the latency is not the usual one.
        if self.unthrottled.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut state = self.state.lock();
        if !state.is_off() {
            state.throttle.on_commit(latency_us);
        }
    }

    /// Reports the garbage of a file to be compacted, as a multiple of the amount from which on a file is due.
    pub(super) fn on_backlog(&self, times: u64) {
        self.state.lock().throttle.on_backlog(times);
    }

    /// Returns the pause before the next `bytes` bytes, in nanoseconds.
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

    /// Marks a compaction without a throttle as running until the returned guard is dropped.
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
