//! The rate at which this node asks a peer to send new copies.
//!
//! New copies that are received pass the throttle of their bucket as everything else does that reads and writes its files.
//! They cannot wait for it themselves: the connection carries replicas, too. Therefore the peer is told a rate instead, to
//! which it limits its backfills for new copies, and nothing else. It is the throttle's, shared by the peers that send copies,
//! and lower the longer those have to wait that do: compactions, and new copies that this node sends.

/// The pause at the throttle at which copies get half of its rate, in nanoseconds.
const HALF_AT_NS: u64 = 100_000_000;
/// The lowest rate, in bytes per second, at which every copy ends.
const BYTES_PER_SEC_MIN: u64 = 512 << 10;
/// The shortest time between two changes of a limit, in nanoseconds.
const INTERVAL_NS: u64 = 50_000_000;
/// The change of a limit that is not worth a message, one in so many.
const SMALL_PART: u64 = 8;

/// The throttle of the bucket, after bytes of new copies were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThrottleState {
    /// The rate in bytes per second.
    pub(super) bytes_per_sec: u64,
    /// The pause of those that wait for the throttle, in nanoseconds.
    pub(super) pause_ns: u64,
}

impl ThrottleState {
    /// Returns the limit for each of so many peers.
    fn share(self, peers: u64) -> u64 {
        let half_at = u128::from(HALF_AT_NS);
        let all = u128::from(self.bytes_per_sec) * half_at / (half_at + u128::from(self.pause_ns));
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        (all / peers.max(1)).max(BYTES_PER_SEC_MIN)
    }
}

/// The limit that one peer knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyLimit {
    /// The rate in bytes per second; 0 is no limit.
    told: u64,
    told_ns: u64,
}

impl CopyLimit {
    /// Returns the rate that the peer knows; 0 is no limit.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// Returns the limit to tell the peer now, if it has changed; 0 is none. `throttle` is `None` without a throttle.
    pub(super) fn change(
        &mut self,
        throttle: Option<ThrottleState>,
        peers: u64,
        now_ns: u64,
    ) -> Option<u64> {
        let wanted = throttle.map_or(0, |throttle| throttle.share(peers));
        let is_switched = (wanted == 0) != (self.told == 0);
        let is_due = now_ns.saturating_sub(self.told_ns) >= INTERVAL_NS;
        let is_small = wanted.abs_diff(self.told) <= self.told / SMALL_PART;
        if !is_switched && (!is_due || is_small) {
            return None;
        }
        (self.told, self.told_ns) = (wanted, now_ns);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn throttle(mib_per_sec: u64, pause_ms: u64) -> Option<ThrottleState> {
        Some(ThrottleState {
            bytes_per_sec: mib_per_sec * MIB,
            pause_ns: pause_ms * MS,
        })
    }

    #[test]
    fn copies_get_less_of_the_rate_the_longer_others_wait_for_it() {
        let share = |mib_per_sec, pause_ms, peers| {
            throttle(mib_per_sec, pause_ms).map(|throttle| throttle.share(peers))
        };
        assert_eq!(share(40, 0, 1), Some(40 * MIB));
        assert_eq!(share(40, 100, 1), Some(20 * MIB));
        assert_eq!(share(40, 300, 2), Some(5 * MIB));
        // Every copy ends.
        assert_eq!(share(4, 1_000_000, 100), Some(BYTES_PER_SEC_MIN));
    }

    #[test]
    fn peer_is_told_of_larger_changes_at_intervals() {
        let mut limit = CopyLimit::default();
        assert_eq!(limit.change(None, 1, 0), None, "no limit is known to all");
        let first = limit.change(throttle(40, 0), 1, 0);
        assert_eq!(first, Some(40 * MIB), "a first limit at once");
        assert_eq!(limit.change(throttle(4, 0), 1, 49 * MS), None);
        assert_eq!(limit.change(throttle(4, 0), 1, 50 * MS), Some(4 * MIB));
        assert_eq!(limit.change(throttle(4, 5), 1, 200 * MS), None);
        assert_eq!(limit.change(throttle(8, 0), 2, 300 * MS), None);
        assert_eq!(limit.change(None, 2, 301 * MS), Some(0));
        assert_eq!(limit.told(), 0);
    }
}
