//! The throttle that all compactions of a bucket share, with new copies that it sends and receives.
//!
//! The throttle observes the latencies that clients notice. One is that of the syncs of the log, or of the commits of files in a
//! bucket without a log. Commits of the log applier are ignored. No client waits for them, their duration depends on their size,
//! and they would be mistaken for an effect of the compactions. The others are measured at the end of each window
//! ([`ClientRequests`]), and only if the rate may change.

use super::clients::ClientRequests;
use kedge_bucket_core::CompactionRate;
use kedge_storage::{Throttle, ThrottleStats};
use kedge_sync::{RankedMutex, ranks::CompactionThrottleState, ranks::ThrottleClients};
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
    clients: Clients,
}

/// The clients of the bucket.
struct Clients {
    /// Returns the number of reads so far.
    reads: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The number of reads at the last measurement.
    measured: AtomicU64,
    requests: RankedMutex<ThrottleClients, Box<dyn ClientRequests>>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl CompactionThrottle {
    pub(crate) fn new(rate: CompactionRate, requests: Box<dyn ClientRequests>) -> Self {
        let clients = Clients {
            reads: requests.reads(),
            measured: AtomicU64::new(0),
            requests: RankedMutex::new(requests),
        };
        Self {
            clients,
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
        self.measure_clients(now_ns);
        let mut state = self.state.lock();
        if state.is_off() {
            return 0;
        }
        state.throttle.on_bytes(bytes, now_ns)
    }

    /// Measures the latencies of clients' requests if the throttle evaluates them now.
    fn measure_clients(&self, now_ns: u64) {
        let is_due = || {
            let reads = (self.clients.reads)();
            let new = reads.saturating_sub(self.clients.measured.load(Ordering::Relaxed));
            let mut state = self.state.lock();
            let is_due =
                state.rate == CompactionRate::Auto && state.throttle.wants_clients(new, now_ns);
            is_due.then_some(reads)
        };
        if is_due().is_none() {
            return;
        }
        let mut requests = self.clients.requests.lock();
        // Another thread may have done so meanwhile.
        let Some(reads) = is_due() else {
            return;
        };
        self.clients.measured.store(reads, Ordering::Relaxed);
        let clients = requests.measure();
        let mut state = self.state.lock();
        state.throttle.on_clients(clients);
        state.throttle.on_bytes(0, now_ns);
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
    use kedge_storage::{ClientLatencies, ThrottleSignal};
    use std::sync::Arc;

    const SEC: u64 = 1_000_000_000;

    /// Clients that wait for a processor for the set time, and read as much as the test counts.
    #[derive(Clone, Debug, Default)]
    struct Fake {
        processor_us: Arc<AtomicU64>,
        reads: Arc<AtomicU64>,
        measured: Arc<AtomicUsize>,
    }

    impl ClientRequests for Fake {
        fn reads(&self) -> Box<dyn Fn() -> u64 + Send + Sync> {
            let reads = self.reads.clone();
            Box::new(move || reads.load(Ordering::Relaxed))
        }

        fn measure(&mut self) -> ClientLatencies {
            self.measured.fetch_add(1, Ordering::Relaxed);
            ClientLatencies {
                reads_us: None,
                processor_us: Some(self.processor_us.load(Ordering::Relaxed)),
            }
        }
    }

    fn throttle(rate: CompactionRate, clients: &Fake) -> CompactionThrottle {
        CompactionThrottle::new(rate, Box::new(clients.clone()))
    }

    #[test]
    fn rate_can_change_at_any_time() {
        let throttle = throttle(CompactionRate::BytesPerSec(1_000), &Fake::default());
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
        let throttle = throttle(CompactionRate::Auto, &Fake::default());
        let unthrottled = throttle.begin_unthrottled();
        (0..100).for_each(|_| throttle.on_commit(90_000));
        drop(unthrottled);
        (0..100).for_each(|_| throttle.on_commit(500));
        throttle.on_bytes(1, SEC);
        assert_eq!(
            throttle.figures().undisturbed_us[ThrottleSignal::Commits],
            Some(500)
        );
    }

    #[test]
    fn clients_are_measured_once_for_each_window_of_a_rate_that_may_change() {
        let fake = Fake::default();
        let fixed = throttle(CompactionRate::BytesPerSec(1 << 20), &fake);
        fixed.on_bytes(1, SEC);
        assert_eq!(fake.measured.load(Ordering::Relaxed), 0);
        let throttle = throttle(CompactionRate::Auto, &fake);
        for (at_ms, reads, measured) in [
            (1_000, 0, 1),
            (1_099, 0, 1),
            (1_100, 0, 2),
            // A few new reads extend the window; enough of them end it.
            (1_200, 3, 2),
            (1_210, 8, 3),
            (1_310, 8, 4),
        ] {
            fake.reads.store(reads, Ordering::Relaxed);
            throttle.on_bytes(1, at_ms * SEC / 1_000);
            let times = fake.measured.load(Ordering::Relaxed);
            assert_eq!(times, measured, "{at_ms}");
        }
    }

    #[test]
    fn waits_for_a_processor_halve_the_rate() {
        let fake = Fake::default();
        let throttle = throttle(CompactionRate::Auto, &fake);
        let mut now_ns = SEC;
        for _ in 0..20 {
            throttle.on_bytes(1, now_ns);
            now_ns += SEC / 10;
        }
        let before = throttle.figures();
        assert!(before.bytes_per_sec > before.bytes_per_sec_min);
        fake.processor_us.store(5_000, Ordering::Relaxed);
        throttle.on_bytes(1, now_ns);
        let after = throttle.figures();
        assert_eq!(after.bytes_per_sec, before.bytes_per_sec / 2);
        assert_eq!(after.last_slowdown, Some(ThrottleSignal::Processor));
    }
}
