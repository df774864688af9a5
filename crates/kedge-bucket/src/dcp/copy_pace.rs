//! The rate at which the receiver of a connection takes new copies.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u128 = 1_000_000_000;

/// The limit of a receiver, for all backfills of its connection that build new copies. The receiver changes the limit, and the
/// task that executes the backfills asks for pauses.
#[derive(Debug, Default)]
pub(super) struct CopyPace {
    /// 0 is no limit.
    bytes_per_sec: AtomicU64,
    /// The time at which everything that was read has passed at the limit.
    passed_ns: AtomicU64,
}

impl CopyPace {
    /// Sets the limit; 0 is none.
    pub(super) fn limit(&self, bytes_per_sec: u64) {
        self.bytes_per_sec.store(bytes_per_sec, Ordering::Relaxed);
    }

    /// Returns the pause after so many bytes, in nanoseconds. Unused time does not accumulate.
    pub(super) fn pause_ns(&self, bytes: u64, now_ns: u64) -> u64 {
        let rate = u128::from(self.bytes_per_sec.load(Ordering::Relaxed));
        let Some(took_ns) = (u128::from(bytes) * SECOND_NS).checked_div(rate) else {
            return 0;
        };
        let took_ns = u64::try_from(took_ns).unwrap_or(u64::MAX);
        let from_ns = self.passed_ns.load(Ordering::Relaxed).max(now_ns);
        let until_ns = from_ns.saturating_add(took_ns);
        self.passed_ns.store(until_ns, Ordering::Relaxed);
        until_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backfills_of_a_connection_share_the_limit() {
        let pace = CopyPace::default();
        assert_eq!(pace.pause_ns(1 << 40, 0), 0, "no limit yet");
        pace.limit(1_000);
        assert_eq!(pace.pause_ns(500, 1), 500_000_000);
        assert_eq!(pace.pause_ns(500, 1), 1_000_000_000);
        // Later, without credit for the time in between.
        let later_ns = 10_000_000_000;
        assert_eq!(pace.pause_ns(1_000, later_ns), 1_000_000_000);
        pace.limit(0);
        assert_eq!(pace.pause_ns(1_000, later_ns), 0);
    }
}
