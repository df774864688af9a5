//! The holder of a lease: when it renews, and until when it serves.
//!
//! Invariants:
//! * Every put compares the key with what this holder knows of it, so that at most one of the puts since then is made.
//! * While the outcome of a put is unknown, the holder serves no longer than each record that may be in the store allows, or
//!   the promises of all that could take its place.
//! * A holder whose record was replaced, deleted, or created anew in between has lost its tenure, and serves nothing
//!   until it has a new one.
//! * The record of another process is replaced only if that process has ended: it held the lock that this one holds. Any other
//!   may serve, by its lease or by promises. Its record is deleted by one that could have promised, as in a failover, or
//!   replaced when it has lapsed and there is nobody who could promise.

use serde_json::Value;

use crate::lease::{LEASE_TIME_MAX, LeaseRecord, LeaseTiming, PromiseRound};
use crate::{Compare, CoordinationError, Entry, Moment, Revision, Transaction};

/// The largest number of puts with unknown outcomes that are remembered. The validity of an older one is not used.
const SENT_MAX: usize = 64;

/// The holder of a lease, as a state machine.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    key: String,
    process: String,
    /// The lock that this process holds; empty if there is none.
    lock: String,
    timing: LeaseTiming,
    counter: u64,
    tenure: Tenure,
    /// The process that has the lease, and may serve.
    occupant: Option<Occupant>,
    /// The puts whose outcomes are unknown, the oldest first.
    sent: Vec<SentPut>,
    /// The moment of the next put.
    next: Moment,
    /// The promises of all nodes that could take the place of this tenure.
    promised: Validity,
}

#[derive(Clone, Debug)]
enum Tenure {
    /// The lease is not held.
    None {
        /// The revision of the record that is to be replaced.
        found: Option<Revision>,
        /// True if this holder has had a tenure before.
        again: bool,
    },
    /// The lease is held, or was until its time ended.
    Held {
        /// The revision of the first put of this tenure.
        since: Revision,
        /// The revision of the last put.
        revision: Revision,
        validity: Validity,
        /// The times of the last put; `None` if others were set since, or it is not remembered.
        timing: Option<LeaseTiming>,
    },
    /// Another process of the same name has taken the lease.
    Replaced(String),
}

/// Another process of the same name that has the lease, and may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The UUID of the process; empty if the record cannot be read.
    pub process: String,
    /// The revision of its record.
    revision: Revision,
    /// The moment at which its lease has lapsed, if the record stays as it is.
    lapses: Moment,
}

/// The effects of a put on its holder.
#[derive(Clone, Copy, Debug, Default)]
struct Validity {
    serves_until: Moment,
    ends: Moment,
}

impl Validity {
    fn of(sent: Moment, timing: LeaseTiming) -> Self {
        Validity {
            serves_until: timing.serves_until(sent),
            ends: timing.ends(sent),
        }
    }

    fn min(self, other: Self) -> Self {
        Validity {
            serves_until: self.serves_until.min(other.serves_until),
            ends: self.ends.min(other.ends),
        }
    }

    /// Returns the times that one of two reasons allows.
    fn or(self, other: Self) -> Self {
        Validity {
            serves_until: self.serves_until.max(other.serves_until),
            ends: self.ends.max(other.ends),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SentPut {
    counter: u64,
    sent: Moment,
    timing: LeaseTiming,
}

impl SentPut {
    fn validity(self) -> Validity {
        Validity::of(self.sent, self.timing)
    }
}

/// The effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// A new tenure has begun.
    Taken,
    /// The tenure goes on.
    Renewed,
    /// The put may have been made or not. The next one shows it.
    Unknown,
    /// The store has another record than was assumed, as that of an earlier process of this node. The next put fits.
    Found,
    /// Another process of the same name has the lease, and may serve, see [`LeaseHolder::occupant`].
    Occupied,
    /// The tenure has ended: the holder was deposed, or its lease was revoked.
    Deposed,
    /// Another process of the same name has taken the lease. There are no more puts.
    Replaced,
}

impl LeaseHolder {
    /// Creates the holder of the lease of `key`, which has no tenure yet. `process` is a UUID that no other process has.
    pub fn new(key: impl Into<String>, process: impl Into<String>, timing: LeaseTiming) -> Self {
        LeaseHolder {
            key: key.into(),
            process: process.into(),
            lock: String::new(),
            timing,
            counter: 0,
            tenure: Tenure::None {
                found: None,
                again: false,
            },
            occupant: None,
            sent: Vec::new(),
            next: Moment::default(),
            promised: Validity::default(),
        }
    }

    /// States the lock that this process holds until it ends, in a text that no other lock ever has: a process that held it
    /// before has ended, so that its lease is replaced at once.
    #[must_use]
    pub fn holding(mut self, lock: impl Into<String>) -> Self {
        self.lock = lock.into();
        self
    }

    /// Sets the times of the next put and of later ones. A promise of another time than the record states counts no more.
    pub fn set_timing(&mut self, timing: LeaseTiming) {
        if timing != self.timing {
            self.promised = Validity::default();
            if let Tenure::Held { timing, .. } = &mut self.tenure {
                *timing = None;
            }
            self.timing = timing;
            self.next = Moment::default();
        }
    }

    /// Makes the next put due, if the lease is held: its record is to have news.
    pub fn renew_soon(&mut self) {
        if matches!(self.tenure, Tenure::Held { .. }) {
            self.next = Moment::default();
        }
    }

    /// Returns the times of the next put.
    #[must_use]
    pub const fn timing(&self) -> LeaseTiming {
        self.timing
    }

    /// Returns the moment of the next put; `None` if there is none, as another process has taken the lease.
    #[must_use]
    pub fn next_put(&self) -> Option<Moment> {
        (!matches!(self.tenure, Tenure::Replaced(_))).then_some(self.next)
    }

    /// Returns the next put. `now` was read before, so that everything else is later. [`LeaseHolder::serves_until`] may
    /// have become earlier, which has to take effect before the put is sent.
    pub fn put(&mut self, now: Moment, health: &Value) -> Option<Transaction> {
        let compare = match self.tenure {
            Tenure::None { found: None, .. } => Compare::Absent(self.key.clone()),
            Tenure::None {
                found: Some(revision),
                ..
            }
            | Tenure::Held { revision, .. } => Compare::Unchanged(self.key.clone(), revision),
            Tenure::Replaced(_) => return None,
        };
        self.counter += 1;
        if self.sent.len() == SENT_MAX {
            self.sent.remove(0);
        }
        self.sent.push(SentPut {
            counter: self.counter,
            sent: now,
            timing: self.timing,
        });
        self.next = now.plus(self.timing.renewal_interval());
        let holder = (self.process.as_str(), self.lock.as_str());
        let record = LeaseRecord::new(holder, self.counter, self.timing.time(), health);
        let put = Transaction::new().when(compare);
        Some(put.put(&self.key, record.encode()))
    }

    /// Handles the answer to the last put, which came at `now`.
    pub fn on_answer(
        &mut self,
        now: Moment,
        answer: &Result<Revision, CoordinationError>,
    ) -> LeaseEvent {
        match answer {
            Ok(revision) => {
                let last = self.sent.last().copied();
                self.confirm(*revision, last)
            }
            Err(CoordinationError::Conflict(conflict)) => {
                self.next = now;
                self.on_conflict(now, conflict.entry(&self.key))
            }
            // Most others have changed nothing. To take the put for one that may be made is always safe.
            Err(_) => {
                self.next = now.plus(self.timing.retry_interval());
                LeaseEvent::Unknown
            }
        }
    }

    /// Begins a round of requests for promises to the nodes that could take the place of this holder; `None` if it has no
    /// tenure, or the store may have a record with another time. `now` is read before the first request is sent.
    pub fn begin_round(
        &self,
        now: Moment,
        others: impl IntoIterator<Item = String>,
    ) -> Option<PromiseRound> {
        let Tenure::Held {
            since,
            revision,
            timing,
            ..
        } = self.tenure
        else {
            return None;
        };
        (timing == Some(self.timing))
            .then(|| PromiseRound::new(now, self.timing, (since, revision), others))
    }

    /// Serves by the promises of a round, if it is complete and the tenure has not ended. Returns whether it does.
    pub fn on_promises(&mut self, round: &PromiseRound) -> bool {
        let Tenure::Held { since, .. } = self.tenure else {
            return false;
        };
        let Some(sent) = round.complete(since, self.timing) else {
            return false;
        };
        self.promised = Validity::of(sent, self.timing);
        true
    }

    /// Ends the tenure, as the store was replaced by another one: an older state does not say who was deposed since, and
    /// may have the record of an earlier process of this node.
    pub fn forget(&mut self) {
        if !matches!(self.tenure, Tenure::Replaced(_)) {
            self.promised = Validity::default();
            self.sent.clear();
            self.occupant = None;
            self.tenure = Tenure::None {
                found: None,
                again: false,
            };
            self.next = Moment::default();
        }
    }

    /// Notes that a put was made: `put`, if it is remembered.
    fn confirm(&mut self, revision: Revision, put: Option<SentPut>) -> LeaseEvent {
        self.sent.clear();
        self.occupant = None;
        let (since, before, event) = match &self.tenure {
            Tenure::Held {
                since, validity, ..
            } => (*since, *validity, LeaseEvent::Renewed),
            _ => (revision, Validity::default(), LeaseEvent::Taken),
        };
        self.tenure = Tenure::Held {
            since,
            revision,
            validity: put.map_or(before, SentPut::validity),
            timing: put.map(|put| put.timing),
        };
        event
    }

    fn on_conflict(&mut self, now: Moment, entry: Option<&Entry>) -> LeaseEvent {
        let Some(entry) = entry else {
            return self.lose(None);
        };
        let record = LeaseRecord::parse(&entry.value);
        let record = record.filter(|record| record.process == self.process);
        let Some(record) = record else {
            return self.on_other(now, entry);
        };
        if record.revoked {
            // Time for who revoked it, whose next transaction compares the record.
            let lapse = self.timing.drift().lengthened(record.time());
            self.next = now.plus(lapse * 2);
            return self.lose(Some(entry.mod_revision));
        }
        // A put of this process. It may be a late one that came after the record had been deleted.
        let is_new = match &self.tenure {
            Tenure::Held { revision, .. } => entry.create_revision > *revision,
            _ => false,
        };
        if is_new {
            return self.lose(Some(entry.mod_revision));
        }
        let put = self.sent.iter().find(|put| put.counter == record.counter);
        let put = put.copied();
        self.confirm(entry.mod_revision, put)
    }

    /// Handles the record of another process.
    fn on_other(&mut self, now: Moment, entry: &Entry) -> LeaseEvent {
        match self.tenure {
            Tenure::None { again: false, .. } => {
                self.sent.clear();
                let record = LeaseRecord::parse(&entry.value);
                let has_ended = |it: &LeaseRecord| !it.lock.is_empty() && it.lock == self.lock;
                if record.as_ref().is_some_and(has_ended) {
                    self.take_from(entry.mod_revision);
                    return LeaseEvent::Found;
                }
                self.tenure = Tenure::None {
                    found: None,
                    again: false,
                };
                self.next = now.plus(self.timing.retry_interval());
                self.on_occupant(now, entry.mod_revision, record);
                LeaseEvent::Occupied
            }
            _ => {
                let by = LeaseRecord::parse(&entry.value).map(|record| record.process);
                self.sent.clear();
                self.promised = Validity::default();
                self.tenure = Tenure::Replaced(by.unwrap_or_default());
                LeaseEvent::Replaced
            }
        }
    }

    /// Notes the record of a process that may serve. Its time counts from when it was seen first.
    fn on_occupant(&mut self, now: Moment, revision: Revision, record: Option<LeaseRecord>) {
        if self.occupant.as_ref().map(|it| it.revision) == Some(revision) {
            return;
        }
        let time = record.as_ref().map_or(LEASE_TIME_MAX, LeaseRecord::time);
        self.occupant = Some(Occupant {
            process: record.map(|record| record.process).unwrap_or_default(),
            revision,
            lapses: now.plus(self.timing.drift().lengthened(time)),
        });
    }

    /// Has the next put replace a record.
    fn take_from(&mut self, revision: Revision) {
        self.occupant = None;
        self.tenure = Tenure::None {
            found: Some(revision),
            again: false,
        };
    }

    /// Returns the process that has the lease, and may serve.
    #[must_use]
    pub const fn occupant(&self) -> Option<&Occupant> {
        self.occupant.as_ref()
    }

    /// Has the next put replace the record of the process that has the lease, if that has lapsed. There is nobody who could
    /// have promised not to take its place.
    pub fn take_lapsed(&mut self, now: Moment) {
        let lapsed = self.occupant.as_ref().filter(|it| it.lapses <= now);
        if let Some(revision) = lapsed.map(|it| it.revision) {
            self.take_from(revision);
            self.next = now;
        }
    }

    fn lose(&mut self, found: Option<Revision>) -> LeaseEvent {
        let had = matches!(
            self.tenure,
            Tenure::Held { .. } | Tenure::None { again: true, .. }
        );
        self.sent.clear();
        self.promised = Validity::default();
        self.tenure = Tenure::None { found, again: had };
        match had {
            true => LeaseEvent::Deposed,
            false => LeaseEvent::Found,
        }
    }

    /// Returns the times that the lease allows.
    fn leased(&self) -> Validity {
        let Tenure::Held { validity, .. } = self.tenure else {
            return Validity::default();
        };
        let sent = self.sent.iter().map(|put| put.validity());
        sent.fold(validity, Validity::min)
    }

    fn validity(&self) -> Validity {
        match self.tenure {
            Tenure::Held { .. } => self.leased().or(self.promised),
            _ => Validity::default(),
        }
    }

    /// Returns whether the lease alone would not let the holder serve at `now`.
    #[must_use]
    pub fn needs_promises(&self, now: Moment) -> bool {
        self.leased().serves_until <= now
    }

    /// Returns the moment until which the holder serves; the start of the clock if it has no tenure.
    #[must_use]
    pub fn serves_until(&self) -> Moment {
        self.validity().serves_until
    }

    /// Returns the moment at which nothing may go on that was begun while the holder served.
    #[must_use]
    pub fn ends(&self) -> Moment {
        self.validity().ends
    }

    /// Returns the revision in which the present tenure began. What the store had then includes the transaction that ended
    /// the tenure before.
    #[must_use]
    pub const fn since(&self) -> Option<Revision> {
        match self.tenure {
            Tenure::Held { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Returns the UUID of the process that has taken the lease.
    #[must_use]
    pub fn replaced_by(&self) -> Option<&str> {
        match &self.tenure {
            Tenure::Replaced(by) => Some(by),
            _ => None,
        }
    }
}
