//! The outage of one node: damped, so that a node that comes back for moments is down all the same.

use std::fmt;
use std::time::Duration;

use super::{DiskTrouble, LeaseSeen};

/// The time that a member has for its start, if this process has not seen it yet: the whole cluster may be starting.
const START_GRACE: Duration = Duration::from_secs(30);

/// The reason why a node counts as down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// Its lease has ended.
    LeaseEnded,
    /// It was late for so long in total, and never punctual for as long as the timeout.
    Flapping(Duration),
    /// Its disk is in trouble for so long.
    Disk(DiskTrouble, Duration),
}

impl fmt::Display for DownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DownCause::LeaseEnded => f.write_str("its lease has ended"),
            DownCause::Flapping(late) => write!(
                f,
                "it comes and goes: its lease was late for {:.1} s",
                late.as_secs_f64()
            ),
            DownCause::Disk(trouble, lasted) => {
                write!(f, "its disk {trouble} for {:.1} s", lasted.as_secs_f64())
            }
        }
    }
}

/// The outage of a node, as far as its lease shows it.
///
/// A lease that is renewed four times in its duration is late after half of it. The time beyond that is the outage. It adds
/// up, and goes back to zero only after the node was punctual for as long as the timeout: a node that stalls again and
/// again is down before its lease ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// The time until which the node may still be starting, if it was never seen to renew its lease.
    starts_until: Duration,
    /// The time at which the node was last seen to live.
    seen: Duration,
    /// The beginning of the time since which it was always punctual.
    punctual_since: Duration,
    /// The sum of the times for which renewals were late.
    late: Duration,
}

impl Outage {
    /// Creates the outage of a node at the time `now`. `is_known` if it was seen to renew its lease before.
    pub(super) fn new(now: Duration, lease: &LeaseSeen, is_known: bool) -> Self {
        let seen = lease.last_seen();
        Self {
            starts_until: match is_known {
                true => now,
                false => now + START_GRACE,
            },
            seen,
            punctual_since: seen,
            late: Duration::ZERO,
        }
    }

    /// Notes the lease at the time `now`, and returns whether it was renewed. Renewals that were late by the fault of the store, which was slow for this node as
    /// well at the time `slow_store`, do not count.
    pub(super) fn note(
        &mut self,
        now: Duration,
        lease: &LeaseSeen,
        timeout: Duration,
        slow_store: Option<Duration>,
    ) -> bool {
        let seen = lease.last_seen();
        let excess = excess(seen.saturating_sub(self.seen), lease);
        if !excess.is_zero() {
            self.punctual_since = seen;
            if slow_store.is_none_or(|at| at < self.seen) {
                self.late += excess;
            }
        }
        let is_renewed = seen > self.seen;
        if is_renewed {
            self.seen = seen;
            self.starts_until = Duration::ZERO;
        }
        if !Self::is_late(now, lease) && now.saturating_sub(self.punctual_since) >= timeout {
            self.late = Duration::ZERO;
        }
        is_renewed
    }

    /// Returns whether the lease should have been renewed by now.
    pub(super) fn is_late(now: Duration, lease: &LeaseSeen) -> bool {
        !excess(now.saturating_sub(lease.last_seen()), lease).is_zero()
    }

    /// Returns the time at which the node is down, if its lease is not renewed.
    pub(super) fn down_at(&self, lease: &LeaseSeen) -> Duration {
        lease.ends().max(self.starts_until)
    }

    /// Returns whether the last gap between two renewals was too long, or the current one is at the time `now`.
    pub(super) fn was_late(&self, now: Duration, lease: &LeaseSeen) -> bool {
        let gap = lease.last_seen().saturating_sub(self.seen);
        !excess(gap, lease).is_zero() || Self::is_late(now, lease)
    }

    /// Returns the reason why the node counts as down at the time `now`; `None` if it is up.
    pub(super) fn cause(
        &self,
        now: Duration,
        lease: &LeaseSeen,
        timeout: Duration,
    ) -> Option<DownCause> {
        if now >= self.down_at(lease) {
            return Some(DownCause::LeaseEnded);
        }
        // A node that has come back is up until it is late again.
        let open = excess(now.saturating_sub(lease.last_seen()), lease);
        let late = self.late + open;
        (now < lease.ends() && !open.is_zero() && late >= timeout)
            .then_some(DownCause::Flapping(late))
    }
}

/// Returns the part of a time without renewals that is late.
fn excess(gap: Duration, lease: &LeaseSeen) -> Duration {
    let punctual = lease.ends().saturating_sub(lease.last_seen()) / 2;
    gap.saturating_sub(punctual)
}
