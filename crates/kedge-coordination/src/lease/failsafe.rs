//! Promises of other nodes, by which a holder serves while the store is unreachable for all.
//!
//! A holder that cannot renew asks every other node that could make a change that takes its place: "make no such change, for
//! the time `D` from now on". With the promises of all of them, to requests that were sent when its clock showed `s`, it
//! serves while its clock shows less than `s + D · (1 − ρ) − P`. A promise lasts until the clock of its giver has advanced by
//! `D · (1 + ρ)` since the request came, which is later than `s`. The argument is that of [the lease](super).
//!
//! Invariants:
//! * A node that is about to take a holder's place gives that holder no promise before it has seen the holder renew its lease:
//!   its transaction compares the record, and fails from then on. It waits for the end of the promise that it gave before.
//! * A late renewal may create the record anew after it was deleted. A holder that does not know that gets no promise: it
//!   names the last revision of its record that it knows.
//! * A process does not know what the process before it has promised, or was about to do. It promises nothing to a holder that
//!   it has not seen renew its lease. Promises from before its start have ended when a lease has lapsed for it: `D` is the
//!   lease time that the record states, and a holder that changes it serves by no promises from before.
//! * Promises do not prolong a tenure that has ended.
//!
//! The holder asks all members of the map that it follows. A node that it may not have asked, because it became a member
//! later, may not take its place: the record says which map the holder follows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::lease::{LEASE_TIME_MAX, LeaseRecord, LeaseTiming};
use crate::{DriftBound, Entry, Moment, Revision};

/// The promises that a process has given.
#[derive(Clone, Debug)]
pub struct Promises {
    drift: DriftBound,
    /// The revision at which the process has read the store first.
    first_read: Option<Revision>,
    holders: BTreeMap<String, GivenPromise>,
}

/// The promise to one holder.
#[derive(Clone, Copy, Debug, Default)]
struct GivenPromise {
    until: Moment,
    /// The revision of the record that a transaction of this process may compare; zero for a record that does not exist.
    withheld: Option<Revision>,
}

/// The request of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseRequest {
    /// The time of the promise.
    pub time: Duration,
    /// The last revision of its record that the holder knows.
    pub known: Revision,
}

/// The reason why there is no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseRefused {
    /// The process may have made a change that takes the holder's place, or the process before it.
    #[error(
        "the node has not seen that the other one renewed its lease since it started, or since it was about to fail the other \
         one over"
    )]
    NotRenewed,
    /// The time is longer than any lease.
    #[error("a promise lasts for 120 s at most")]
    TooLong,
}

impl Promises {
    /// Creates the promises of a process that starts.
    #[must_use]
    pub const fn new(drift: DriftBound) -> Self {
        Promises {
            drift,
            first_read: None,
            holders: BTreeMap::new(),
        }
    }

    /// Notes that everything was read at a revision. An older one than before is of a store that was restored.
    pub fn on_read(&mut self, revision: Revision, was_restored: bool) {
        if was_restored || self.first_read.is_none() {
            self.first_read = Some(revision);
            for promise in self.holders.values_mut() {
                promise.withheld = None;
            }
        }
    }

    /// Promises a holder to make no change that takes its place for a time. `seen` is its record, as seen last.
    ///
    /// # Errors
    /// The reason why there is no promise.
    pub fn give(
        &mut self,
        now: Moment,
        holder: &str,
        request: PromiseRequest,
        seen: Option<&Entry>,
    ) -> Result<(), PromiseRefused> {
        if request.time > LEASE_TIME_MAX {
            return Err(PromiseRefused::TooLong);
        }
        let promise = self.holders.get(holder).copied().unwrap_or_default();
        let renewed = seen.filter(|entry| {
            let record = LeaseRecord::parse(&entry.value);
            let is_held = record.is_some_and(|record| !record.revoked);
            is_held && entry.create_revision <= request.known
        });
        let renewed = renewed.map(|entry| entry.mod_revision);
        if self.first_read.is_none()
            || renewed <= self.first_read
            || promise.withheld.is_some_and(|it| renewed <= Some(it))
        {
            return Err(PromiseRefused::NotRenewed);
        }
        let until = now.plus(self.drift.lengthened(request.time));
        let given = GivenPromise {
            until: until.max(promise.until),
            withheld: None,
        };
        self.holders.insert(holder.to_owned(), given);
        Ok(())
    }

    /// Gives the holder no promise until it has renewed its lease after the record that was seen last.
    pub fn withhold(&mut self, holder: &str, seen: Option<&Entry>) {
        let promise = self.holders.entry(holder.to_owned()).or_default();
        promise.withheld = Some(seen.map_or(Revision(0), |entry| entry.mod_revision));
    }

    /// Returns the end of the promise to a holder. Whoever takes its place waits for that, besides the end of the lease.
    #[must_use]
    pub fn end_of(&self, holder: &str) -> Moment {
        let given = self.holders.get(holder).map(|it| it.until);
        given.unwrap_or_default()
    }

    /// Returns the number of holders that have a promise.
    #[must_use]
    pub fn given(&self, now: Moment) -> usize {
        self.holders.values().filter(|it| now < it.until).count()
    }
}

/// A round of requests for promises, see [`super::LeaseHolder::begin_round`].
#[derive(Clone, Debug)]
pub struct PromiseRound {
    sent: Moment,
    timing: LeaseTiming,
    /// The revision in which the tenure of the holder began.
    tenure: Revision,
    /// The last revision of the record that the holder knows.
    known: Revision,
    missing: BTreeSet<String>,
}

impl PromiseRound {
    pub(super) fn new(
        now: Moment,
        timing: LeaseTiming,
        (tenure, known): (Revision, Revision),
        others: impl IntoIterator<Item = String>,
    ) -> Self {
        PromiseRound {
            sent: now,
            timing,
            tenure,
            known,
            missing: others.into_iter().collect(),
        }
    }

    /// Returns the request to the other nodes.
    #[must_use]
    pub const fn request(&self) -> PromiseRequest {
        PromiseRequest {
            time: self.timing.time(),
            known: self.known,
        }
    }

    /// Notes the promise of a node, as the answer to a request of this round.
    pub fn on_promise(&mut self, node: &str) {
        self.missing.remove(node);
    }

    /// Returns the nodes that have not promised.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(String::as_str)
    }

    /// Returns the moment at which the requests were sent, if all nodes have promised to this tenure with these times.
    pub(super) fn complete(&self, tenure: Revision, timing: LeaseTiming) -> Option<Moment> {
        let is_same = self.tenure == tenure && self.timing == timing;
        (is_same && self.missing.is_empty()).then_some(self.sent)
    }
}
