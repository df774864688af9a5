//! An observer of a lease: whether its time has passed, by the observer's own clock.
//!
//! Invariants:
//! * The time of a record counts from when this observer had received its revision, and from when it could reach the store
//!   again if it could not meanwhile.
//! * A lease that has lapsed is known to have lapsed at a revision. What is built on it compares the key with that.
//! * A record that is absent may have been lost in the restore of a backup. Its lease has the time of one, from when this observer
//!   first saw that it is absent, and anew after each time when the store could not be reached.

use std::time::Duration;

use crate::lease::{LEASE_TIME_MAX, LeaseRecord};
use crate::{Compare, DriftBound, Entry, Moment, Revision};

/// An observer of the lease of one key, as a state machine.
#[derive(Clone, Debug)]
pub struct LeaseObserver {
    key: String,
    drift: DriftBound,
    seen: Option<Seen>,
    /// True if the store was unreachable since the last entry.
    interrupted: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    /// The revision of the record; `None` if there is no record.
    revision: Option<Revision>,
    record: Option<LeaseRecord>,
    since: Moment,
}

/// The state of a lease for its observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nothing was read since the start, or since the store was unreachable.
    Unknown,
    /// There is no record. A store that was restored may have lost one whose holder serves.
    Absent {
        /// The moment since which the observer knows that.
        since: Moment,
    },
    /// The holder may serve until this moment of the observer's clock.
    Held {
        /// The moment at which the lease lapses.
        until: Moment,
    },
    /// The holder serves no more, unless it has renewed the lease unseen.
    Lapsed {
        /// The moment at which it lapsed.
        at: Moment,
    },
}

impl LeaseObserver {
    /// Creates the observer of a key, which has seen nothing.
    pub fn new(key: impl Into<String>, drift: DriftBound) -> Self {
        LeaseObserver {
            key: key.into(),
            drift,
            seen: None,
            interrupted: false,
        }
    }

    /// Notes the entry of the key, or that there is none. `now` was read after the answer or the event had come.
    pub fn on_entry(&mut self, now: Moment, entry: Option<&Entry>) {
        let revision = entry.map(|entry| entry.mod_revision);
        let interrupted = std::mem::take(&mut self.interrupted);
        if !interrupted && self.seen.as_ref().is_some_and(|it| it.revision == revision) {
            return;
        }
        self.seen = Some(Seen {
            revision,
            record: entry.and_then(|entry| LeaseRecord::parse(&entry.value)),
            since: now,
        });
    }

    /// Notes that the store cannot be reached: holders could not renew either. Their times begin anew with the next entry.
    pub fn on_interruption(&mut self) {
        self.interrupted = true;
    }

    /// Returns the record that was seen last.
    #[must_use]
    pub fn record(&self) -> Option<&LeaseRecord> {
        self.seen.as_ref()?.record.as_ref()
    }

    /// Returns the state at a moment.
    #[must_use]
    pub fn state(&self, now: Moment) -> LeaseState {
        let Some(seen) = self.seen.as_ref().filter(|_| !self.interrupted) else {
            return LeaseState::Unknown;
        };
        if seen.revision.is_none() {
            return LeaseState::Absent { since: seen.since };
        }
        // A record that cannot be read may promise the longest time.
        let time = seen.record.as_ref().map(LeaseRecord::time);
        let time: Duration = self.drift.lengthened(time.unwrap_or(LEASE_TIME_MAX));
        let until = seen.since.plus(time);
        if now < until {
            LeaseState::Held { until }
        } else {
            LeaseState::Lapsed { at: until }
        }
    }

    /// Returns the condition under which a transaction may take the place of the holder: the lease has lapsed, and was not
    /// renewed since. `None` while it may be held. `lost` is the time of a lease whose record the store may have lost in the
    /// restore of a backup.
    #[must_use]
    pub fn deposition(&self, now: Moment, lost: Duration) -> Option<Compare> {
        match self.state(now) {
            LeaseState::Unknown | LeaseState::Held { .. } => None,
            LeaseState::Absent { since } => {
                let has_ended = now >= since.plus(self.drift.lengthened(lost));
                has_ended.then(|| Compare::Absent(self.key.clone()))
            }
            LeaseState::Lapsed { .. } => {
                let revision = self.seen.as_ref()?.revision?;
                Some(Compare::Unchanged(self.key.clone(), revision))
            }
        }
    }

    /// Returns the condition under which a process holds nothing any more that depends on this lease, if it is known: the
    /// lease may be taken from it, or another process of the same name has it. A record that is absent is one that has ended: an
    /// office is safe by its compare, whoever takes it.
    #[must_use]
    pub fn end_of(&self, process: &str, now: Moment) -> Option<Compare> {
        let seen = self.seen.as_ref().filter(|_| !self.interrupted)?;
        match (&seen.record, seen.revision) {
            (Some(record), Some(revision)) if record.process != process => {
                Some(Compare::Unchanged(self.key.clone(), revision))
            }
            _ => self.deposition(now, Duration::ZERO),
        }
    }
}
