//! Promises of other nodes, by which a holder serves on while the store is unreachable for all.
//!
//! A holder that cannot renew asks every other node that could take its place: "follow nothing that takes my place, for the
//! time `D` from now on". With the promises of all of them, to requests that were sent when its clock showed `s`, it
//! serves while its clock shows less than `s + D · (1 − ρ) − P`. A promise lasts until the clock of its giver has advanced by
//! `D · (1 + ρ)` since the request came, which is later than `s`. The argument is that of [the lease](super).
//!
//! Invariants:
//! * A node that knows of something that takes the place of a holder, whether it follows that already or waits for the end
//!   of a promise, gives that holder no further promise.
//! * A process does not know what the process before it has promised. It follows nothing that takes another's place before
//!   the longest promise has ended, and promises nothing until then.
//! * Promises do not prolong a tenure that has ended.
//!
//! The holder has to ask all nodes that could take its place. That includes a node that has become one since the holder last
//! saw the store: a holder that serves by promises gives its data to nobody else than those that it asks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::lease::{LEASE_TIME_MAX, LeaseTiming};
use crate::{DriftBound, Moment};

/// The promises that a process has given.
#[derive(Clone, Debug)]
pub struct Promises {
    drift: DriftBound,
    /// The end of the promises that the process before may have given.
    unknown_until: Moment,
    /// The ends of the promises, by holder.
    given: BTreeMap<String, Moment>,
}

/// The reason why there is no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseRefused {
    /// The process has not run for long enough.
    #[error("the node has started a short time ago")]
    JustStarted,
    /// The node knows of something that takes the place of the holder.
    #[error("another node takes the place of the holder")]
    Superseded,
    /// The time is longer than any lease.
    #[error("a promise lasts for 120 s at most")]
    TooLong,
}

impl Promises {
    /// Creates the promises of a process that starts at `now`. `longest` is the longest time that the process before may have
    /// promised.
    #[must_use]
    pub fn new(now: Moment, longest: Duration, drift: DriftBound) -> Self {
        Promises {
            drift,
            unknown_until: now.plus(drift.lengthened(longest)),
            given: BTreeMap::new(),
        }
    }

    /// Promises a holder to follow nothing that takes its place for `time`. `is_superseded` is true if the node knows of
    /// something that does.
    ///
    /// # Errors
    /// The reason why there is no promise.
    pub fn give(
        &mut self,
        now: Moment,
        holder: &str,
        time: Duration,
        is_superseded: bool,
    ) -> Result<(), PromiseRefused> {
        if now < self.unknown_until {
            return Err(PromiseRefused::JustStarted);
        }
        if is_superseded {
            return Err(PromiseRefused::Superseded);
        }
        if time > LEASE_TIME_MAX {
            return Err(PromiseRefused::TooLong);
        }
        self.given.retain(|_, until| *until > now);
        let until = now.plus(self.drift.lengthened(time));
        let end = self.given.entry(holder.to_owned()).or_insert(until);
        *end = until.max(*end);
        Ok(())
    }

    /// Returns the moment from which on the node may follow something that takes the place of a holder; not later than
    /// `now` if it may at once.
    #[must_use]
    pub fn free_from(&self, holder: &str) -> Moment {
        let given = self.given.get(holder).copied();
        given.unwrap_or_default().max(self.unknown_until)
    }
}

/// A round of requests for promises.
#[derive(Clone, Debug)]
pub struct PromiseRound {
    sent: Moment,
    timing: LeaseTiming,
    missing: BTreeSet<String>,
}

impl PromiseRound {
    /// Begins a round. `now` is read before the first request is sent.
    pub fn begin(
        now: Moment,
        timing: LeaseTiming,
        others: impl IntoIterator<Item = String>,
    ) -> Self {
        PromiseRound {
            sent: now,
            timing,
            missing: others.into_iter().collect(),
        }
    }

    /// Returns the time for which promises are asked.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.timing.time()
    }

    /// Notes the promise of a node, as the answer to a request of this round.
    pub fn on_promise(&mut self, node: &str) {
        self.missing.remove(node);
    }

    /// Returns the moment at which the requests were sent and the times of the promises, if all nodes have given theirs.
    pub(super) fn complete(&self) -> Option<(Moment, LeaseTiming)> {
        self.missing.is_empty().then_some((self.sent, self.timing))
    }
}
