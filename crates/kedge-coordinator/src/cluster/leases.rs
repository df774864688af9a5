//! The leases of the members, the office of the orchestrator and the settings of automatic failover, as this node has seen
//! them in the coordination store. No call is made here.
//!
//! Invariants:
//! * The time of a lease counts from when this node received its record, and anew after the store could not be reached. So does that
//!   of a lease without a record, from when this node saw that there is none: a store that was restored may have lost it.
//! * The compare by which a node is failed over is returned only when this node's promise to it has ended, and this node
//!   promises it nothing from then on, see [`Promises`].

use std::collections::BTreeMap;
use std::time::Duration;

use kedge_cluster::{AutoFailoverSettings, LeaseSeen, NodeHealth};
use kedge_coordination::lease::{
    LeaseObserver, LeaseRecord, LeaseState, Office, OfficeStep, PromiseRefused, PromiseRequest,
    Promises,
};
use kedge_coordination::{
    Change, Compare, DriftBound, Entry, Moment, Revision, Snapshot, StorePosition, Transaction,
};
use kedge_types::SystemClock;

use super::store::{ALIVE_KEYS, AUTO_FAILOVER_KEY, ORCHESTRATOR_KEY, alive_key};

/// The start of this machine's clock, from which the decisions count.
const START: Moment = Moment::at_ns(0);

/// Reads the clock by which leases are measured.
pub(super) fn now() -> Moment {
    Moment::at_ns(SystemClock::new().mono_ns())
}

/// Returns the time of a moment for decisions.
pub(super) fn time(moment: Moment) -> Duration {
    moment.since(START)
}

/// The lease of one node, as seen.
#[derive(Debug)]
struct SeenLease {
    observer: LeaseObserver,
    entry: Option<Entry>,
    /// The moment since which there was no record.
    absent_since: Moment,
    /// The largest `rev` of a map that the node followed by a record that is gone.
    followed: i64,
}

/// The keys of the store that the orchestrator acts on.
#[derive(Debug)]
pub(super) struct SeenStore {
    /// The settings while the store has none.
    defaults: AutoFailoverSettings,
    /// False until everything was read since the start, or since the store could not be reached.
    is_read: bool,
    leases: BTreeMap<String, SeenLease>,
    /// The longest time that any record has stated: a lost one is taken for as long.
    longest: Duration,
    office: Option<Entry>,
    settings: Option<Entry>,
    /// The promises that this node has given.
    promises: Promises,
    /// The position of the store when everything was read last.
    read_at: Option<StorePosition>,
}

/// The reason why a node is not failed over yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MayServe {
    /// It may have a lease.
    #[error("its lease was renewed")]
    Lease,
    /// It may have a lease whose record is lost.
    #[error(
        "the coordination store has no record of its lease; if a backup was restored, the node may still serve by one: try again after the \
         timeout of automatic failover"
    )]
    Lost,
    /// It may have this node's promise.
    #[error("this node may have promised not to fail it over")]
    Promise,
    /// It may serve by promises for which it did not ask this node.
    #[error(
        "it has not renewed its lease since this node became a member, of which it may not know; have a node fail it over that was \
         a member before, start the node again with its data directory, or force the failover if it has no record of a lease and does not run"
    )]
    NewMember,
}

/// The condition that the settings are those that were seen, and the settings.
#[derive(Clone, Debug)]
pub(super) struct SeenSettings {
    pub(super) settings: AutoFailoverSettings,
    pub(super) unchanged: Compare,
}

impl SeenStore {
    /// Creates the state of a node that has seen nothing. `defaults` are the settings while the store has none.
    pub(super) fn new(defaults: AutoFailoverSettings) -> Self {
        Self {
            defaults,
            is_read: false,
            leases: BTreeMap::new(),
            longest: Duration::ZERO,
            office: None,
            settings: None,
            promises: Promises::new(DriftBound::default()),
            read_at: None,
        }
    }

    /// Notes everything that the store has. `now` was read after the answer had come.
    pub(super) fn on_snapshot(&mut self, now: Moment, snapshot: &Snapshot) {
        let position = snapshot.position;
        let was_restored = self.read_at.is_some_and(|before| {
            before.store != position.store || position.revision < before.revision
        });
        if was_restored {
            // Renewals that this node has not seen are lost, and their holders serve.
            self.on_interruption();
        }
        self.is_read = true;
        self.promises.on_read(position.revision, was_restored);
        self.read_at = Some(position);
        self.office = snapshot.entry(ORCHESTRATOR_KEY).cloned();
        self.settings = snapshot.entry(AUTO_FAILOVER_KEY).cloned();
        let alive = snapshot.entries.iter();
        let alive: Vec<&Entry> = alive.filter(|it| name_of(&it.key).is_some()).collect();
        for entry in &alive {
            self.on_lease(now, &entry.key, Some(entry));
        }
        let is_gone = |name: &String| alive.iter().all(|it| it.key != alive_key(name));
        let gone: Vec<String> = self
            .leases
            .keys()
            .filter(|it| is_gone(it))
            .cloned()
            .collect();
        for name in gone {
            self.on_lease(now, &alive_key(&name), None);
        }
    }

    /// Notes a change. `now` was read after the event had come.
    pub(super) fn on_change(&mut self, now: Moment, change: &Change) {
        let entry = match change {
            Change::Put(entry) => Some(entry),
            Change::Delete(_) => None,
        };
        match change.key() {
            ORCHESTRATOR_KEY => self.office = entry.cloned(),
            AUTO_FAILOVER_KEY => self.settings = entry.cloned(),
            key => self.on_lease(now, key, entry),
        }
    }

    /// Notes that the store cannot be reached, or that changes were missed: everything has to be read again.
    pub(super) fn on_interruption(&mut self) {
        self.is_read = false;
        for lease in self.leases.values_mut() {
            lease.observer.on_interruption();
        }
    }

    fn on_lease(&mut self, now: Moment, key: &str, entry: Option<&Entry>) {
        let Some(name) = name_of(key) else {
            return;
        };
        let follows = match entry {
            None => self.health(name).follows,
            Some(_) => None,
        };
        let lease = self.lease(now, name);
        if entry.is_none() && lease.entry.is_some() {
            lease.absent_since = now;
            lease.followed = lease.followed.max(follows.map_or(0, |it| it.rev));
        }
        lease.observer.on_entry(now, entry);
        lease.entry = entry.cloned();
        let time = lease.observer.record().map(LeaseRecord::time);
        self.longest = self.longest.max(time.unwrap_or_default());
    }

    fn lease(&mut self, now: Moment, name: &str) -> &mut SeenLease {
        let is_read = self.is_read;
        let lease = self.leases.entry(name.to_owned());
        lease.or_insert_with(|| {
            let mut observer = LeaseObserver::new(alive_key(name), DriftBound::default());
            if is_read {
                observer.on_entry(now, None);
            }
            SeenLease {
                observer,
                entry: None,
                absent_since: now,
                followed: 0,
            }
        })
    }

    /// Returns whether everything was read, and no change was missed since.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns the settings; the defaults if the store has none, or none that can be read.
    pub(super) fn settings(&self) -> SeenSettings {
        let key = AUTO_FAILOVER_KEY.to_owned();
        let Some(entry) = &self.settings else {
            return SeenSettings {
                settings: self.defaults.clone(),
                unchanged: Compare::Absent(key),
            };
        };
        let settings = AutoFailoverSettings::from_json(&entry.value);
        let settings = settings.unwrap_or_else(|error| {
            tracing::error!(%error, "the settings of automatic failover cannot be read: it is disabled");
            let mut settings = AutoFailoverSettings::default();
            settings.enabled = false;
            settings
        });
        SeenSettings {
            settings,
            unchanged: Compare::Unchanged(key, entry.mod_revision),
        }
    }

    /// Returns the lease of a member at the moment `now`. One without a record has the time of a lease to begin one.
    pub(super) fn seen(&mut self, now: Moment, name: &str, lease_time: Duration) -> LeaseSeen {
        let drift = DriftBound::default();
        let lost = drift.lengthened(self.lost_time().max(lease_time));
        let lease = self.lease(now, name);
        let record = lease.observer.record().map(LeaseRecord::time);
        match lease.observer.state(now) {
            LeaseState::Held { until } | LeaseState::Lapsed { at: until } => {
                let ends = time(until);
                let lasted = drift.lengthened(record.unwrap_or(lease_time));
                LeaseSeen::Held {
                    renewed: ends.saturating_sub(lasted),
                    ends,
                }
            }
            LeaseState::Absent { since } => LeaseSeen::Absent {
                since: time(lease.absent_since),
                ends: time(since.plus(lost)),
            },
            LeaseState::Unknown => LeaseSeen::Absent {
                since: time(lease.absent_since),
                ends: time(lease.absent_since.plus(lost)),
            },
        }
    }

    /// Returns the health of a node by its last record.
    pub(super) fn health(&self, name: &str) -> NodeHealth {
        let record = self.leases.get(name).and_then(|it| it.observer.record());
        let health = record.map(|record| record.health.clone());
        let health = health.and_then(|health| serde_json::from_value(health).ok());
        health.unwrap_or_default()
    }

    /// Returns the time of a lease whose record may be lost: as long as the timeout, and as any record that was seen. That is too
    /// short only if the timeout was lengthened after the backup that was restored.
    pub(super) fn lost_time(&self) -> Duration {
        self.longest.max(self.settings().settings.timeout())
    }

    /// Returns the condition under which a node serves no more by its lease.
    fn deposition(&mut self, now: Moment, name: &str) -> Result<Compare, MayServe> {
        if !self.is_read {
            return Err(MayServe::Lease);
        }
        let lost = self.lost_time();
        let observer = &self.lease(now, name).observer;
        observer
            .deposition(now, lost)
            .ok_or_else(|| match observer.state(now) {
                LeaseState::Absent { .. } => MayServe::Lost,
                _ => MayServe::Lease,
            })
    }

    /// Returns the compare of the end of a node's lease, and the deletion of its record. Until the node has renewed its
    /// lease, this node promises it nothing. `joined` is the `rev` in which the node became a member: without a record it follows
    /// that map or a later one. It is `i64::MAX` if a user vouches for that. `is_member_since` says of a `rev` of the map whether this node is a member since then.
    ///
    /// # Errors
    /// The reason why the node may serve.
    pub(super) fn end(
        &mut self,
        now: Moment,
        name: &str,
        joined: i64,
        is_member_since: impl FnOnce(i64) -> bool,
    ) -> Result<Transaction, MayServe> {
        let ended = self.deposition(now, name)?;
        if now < self.promises.end_of(name) {
            return Err(MayServe::Promise);
        }
        let follows = match &ended {
            Compare::Absent(_) => self.lease(now, name).followed.max(joined),
            _ => self.health(name).follows.map_or(0, |it| it.rev),
        };
        if !is_member_since(follows) {
            return Err(MayServe::NewMember);
        }
        let end = match &ended {
            Compare::Absent(_) => Transaction::new(),
            _ => Transaction::new().delete(alive_key(name)),
        };
        self.withhold_promises(name);
        Ok(end.when(ended))
    }

    /// Promises a node nothing any more until it has renewed its lease: it is to be failed over.
    pub(super) fn withhold_promises(&mut self, name: &str) {
        let lease = self.leases.get(name);
        let entry = lease.and_then(|lease| lease.entry.as_ref());
        self.promises.withhold(name, entry);
    }

    /// Promises a node not to fail it over for a time.
    ///
    /// # Errors
    /// The reason why it is not promised.
    pub(super) fn promise(
        &mut self,
        now: Moment,
        name: &str,
        request: PromiseRequest,
    ) -> Result<(), PromiseRefused> {
        let lease = self.leases.get(name);
        let entry = lease.and_then(|lease| lease.entry.as_ref());
        self.promises.give(now, name, request, entry)
    }

    /// Returns the number of nodes that have a promise.
    pub(super) fn promised(&self, now: Moment) -> usize {
        self.promises.given(now)
    }

    /// Returns the transaction that takes the lease from a node that may serve; `None` if that was done, or it has none.
    pub(super) fn revocation(&self, name: &str) -> Option<Transaction> {
        let lease = self.leases.get(name)?;
        let is_revoked = lease.observer.record().is_some_and(|it| it.revoked);
        let entry = lease.entry.as_ref().filter(|_| !is_revoked)?;
        Some(LeaseRecord::revocation(entry))
    }

    /// Returns the revision in which a node has renewed its lease, as seen last.
    pub(super) fn renewed(&self, name: &str) -> Option<Revision> {
        let entry = self.leases.get(name)?.entry.as_ref();
        entry.map(|entry| entry.mod_revision)
    }

    /// Returns whether the process holds the lease of a node, as far as its record shows.
    pub(super) fn is_held_by(&self, now: Moment, name: &str, process: &str) -> bool {
        let Some(lease) = self.leases.get(name) else {
            return false;
        };
        let record = lease.observer.record();
        let is_own = record.is_some_and(|it| it.process == process && !it.revoked);
        is_own && matches!(lease.observer.state(now), LeaseState::Held { .. })
    }

    /// Returns whether a node holds its lease, and its record does not show yet that it follows a map or a later one.
    pub(super) fn is_behind(&self, now: Moment, name: &str, map: kedge_cluster::Revision) -> bool {
        let lease = self.leases.get(name);
        let is_held =
            lease.is_some_and(|lease| matches!(lease.observer.state(now), LeaseState::Held { .. }));
        is_held && self.health(name).follows < Some(map)
    }

    /// Returns the next step of a candidate for the office.
    pub(super) fn office_step(&self, now: Moment, office: &Office) -> OfficeStep {
        office.step(self.office.as_ref(), |holder| {
            match self.leases.get(&holder.node) {
                Some(lease) => lease.observer.end_of(&holder.process, now),
                None => Some(Compare::Absent(alive_key(&holder.node))),
            }
        })
    }
}

/// Returns the name of the node whose lease has this key.
fn name_of(key: &str) -> Option<&str> {
    key.strip_prefix(ALIVE_KEYS)
}

#[cfg(test)]
mod tests {
    use kedge_coordination::Op;

    use super::*;

    const TIME: Duration = Duration::from_secs(5);
    const REQUEST: PromiseRequest = PromiseRequest {
        time: TIME,
        known: Revision(1),
    };

    fn at(ms: u64) -> Moment {
        Moment::at_ns(ms * 1_000_000)
    }

    fn entry(key: &str, value: &str, revision: u64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: value.as_bytes().to_vec(),
            create_revision: Revision(1),
            mod_revision: Revision(revision),
        }
    }

    fn record(process: &str, revision: u64) -> Entry {
        let value = format!(
            r#"{{"version":1,"process":"{process}","counter":1,"lease_ms":5000,"health":{{"disk":{{"hungMs":7}}}}}}"#
        );
        entry("alive/a", &value, revision)
    }

    fn snapshot(entries: Vec<Entry>) -> Snapshot {
        Snapshot {
            position: StorePosition {
                store: 1,
                revision: Revision(9),
            },
            entries,
        }
    }

    fn seen() -> SeenStore {
        SeenStore::new(AutoFailoverSettings::default())
    }

    fn end(seen: &mut SeenStore, ms: u64, name: &str) -> Result<Transaction, MayServe> {
        seen.end(at(ms), name, 0, |_| true)
    }

    #[test]
    fn lease_counts_from_when_its_record_was_received() {
        let mut seen = seen();
        assert_eq!(
            end(&mut seen, 0, "a"),
            Err(MayServe::Lease),
            "nothing was read"
        );
        seen.on_snapshot(at(1_000), &snapshot(vec![record("p", 3)]));
        let ends = Duration::from_millis(6_005);
        let held = LeaseSeen::Held {
            renewed: Duration::from_secs(1),
            ends,
        };
        assert_eq!(seen.seen(at(2_000), "a", TIME), held);
        assert!(seen.is_held_by(at(2_000), "a", "p") && !seen.is_held_by(at(2_000), "a", "q"));
        assert_eq!(seen.health("a").disk.hung_ms, 7);
        assert_eq!(
            end(&mut seen, 6_004, "a"),
            Err(MayServe::Lease),
            "it may serve"
        );
        let ended = end(&mut seen, 6_005, "a").expect("it has ended");
        let unchanged = Compare::Unchanged("alive/a".to_owned(), Revision(3));
        assert_eq!(ended.compares(), [unchanged]);
        assert!(matches!(ended.ops(), [Op::Delete { key }] if key == "alive/a"));
        seen.on_change(at(6_005), &Change::Put(record("p", 4)));
        assert_eq!(
            end(&mut seen, 6_006, "a"),
            Err(MayServe::Lease),
            "it was renewed"
        );
        // Holders could not renew while the store was away.
        seen.on_interruption();
        assert_eq!(end(&mut seen, 60_000, "a"), Err(MayServe::Lease));
        seen.on_snapshot(at(60_000), &snapshot(vec![record("p", 4)]));
        assert_eq!(end(&mut seen, 65_004, "a"), Err(MayServe::Lease));
        assert!(end(&mut seen, 65_005, "a").is_ok());
    }

    #[test]
    fn node_without_a_record_has_the_time_of_a_lease() {
        let mut seen = seen();
        seen.on_snapshot(at(1_000), &snapshot(vec![record("p", 3)]));
        assert_eq!(end(&mut seen, 2_000, "b"), Err(MayServe::Lost));
        seen.on_change(at(2_000), &Change::Delete("alive/a".to_owned()));
        let absent = LeaseSeen::Absent {
            since: Duration::from_secs(2),
            ends: Duration::from_millis(7_005),
        };
        assert_eq!(seen.seen(at(3_000), "a", TIME), absent);
        for name in ["a", "b"] {
            assert_eq!(end(&mut seen, 7_004, name), Err(MayServe::Lost));
            let ended = end(&mut seen, 7_005, name).expect("it has no lease");
            assert_eq!(ended.compares(), [Compare::Absent(alive_key(name))]);
            assert!(ended.ops().is_empty());
            assert_eq!(seen.revocation(name), None);
        }
    }

    /// A restored store had lost the record of a node that served, and a failover by hand promoted others at once.
    #[test]
    fn record_that_a_restore_lost_ends_a_lease_later_and_as_if_it_were_there() {
        let mut seen = seen();
        let mut follows = record("p", 10);
        follows.value = String::from_utf8_lossy(&follows.value)
            .replace(
                "\"hungMs\":7}",
                "\"hungMs\":7},\"follows\":{\"epoch\":1,\"rev\":20}",
            )
            .into_bytes();
        // Nothing is known before the store was read.
        seen.seen(at(0), "a", TIME);
        seen.on_snapshot(at(9_000), &snapshot(vec![]));
        assert_eq!(end(&mut seen, 14_004, "a"), Err(MayServe::Lost));
        assert!(end(&mut seen, 14_005, "a").is_ok());
        seen.on_change(at(15_000), &Change::Put(follows));
        let long = PromiseRequest {
            time: TIME * 2,
            known: Revision(10),
        };
        seen.promise(at(19_000), "a", long).expect("it has renewed");
        let mut restored = snapshot(vec![]);
        restored.position.store = 2;
        seen.on_snapshot(at(20_000), &restored);
        assert_eq!(end(&mut seen, 25_004, "a"), Err(MayServe::Lost));
        let absent = LeaseSeen::Absent {
            since: Duration::from_secs(20),
            ends: Duration::from_millis(25_005),
        };
        assert_eq!(seen.seen(at(21_000), "a", TIME), absent);
        assert_eq!(end(&mut seen, 25_005, "a"), Err(MayServe::Promise));
        // It has asked those who were members in the map that it followed, which is not older than the one in which it joined.
        let new = |joined| move |rev| rev >= joined;
        let ended = seen.end(at(29_010), "a", 0, new(21));
        assert_eq!(ended, Err(MayServe::NewMember));
        seen.end(at(29_010), "a", 0, new(20)).expect("it has asked");
        let ended = seen.end(at(29_010), "a", 21, new(21));
        assert_eq!(
            ended.expect("it has asked").compares(),
            [Compare::Absent(alive_key("a"))]
        );
        let promised = seen.promise(at(29_010), "a", REQUEST);
        assert_eq!(promised, Err(PromiseRefused::NotRenewed));
    }

    #[test]
    fn promised_node_is_not_failed_over_and_one_that_is_to_be_gets_no_promise() {
        let mut seen = seen();
        seen.on_snapshot(at(0), &snapshot(vec![record("p", 3)]));
        let early = seen.promise(at(0), "a", REQUEST);
        assert_eq!(
            early,
            Err(PromiseRefused::NotRenewed),
            "not since the start"
        );
        seen.on_change(at(1_000), &Change::Put(record("p", 10)));
        seen.promise(at(6_000), "a", REQUEST)
            .expect("it has renewed");
        assert_eq!(seen.promised(at(6_000)), 1);
        assert_eq!(end(&mut seen, 11_004, "a"), Err(MayServe::Promise));
        assert_eq!(
            seen.end(at(11_005), "a", 0, |_| false),
            Err(MayServe::NewMember)
        );
        seen.promise(at(11_005), "a", REQUEST)
            .expect("it may serve");
        end(&mut seen, 16_010, "a").expect("the promise has ended");
        let late = seen.promise(at(16_010), "a", REQUEST);
        assert_eq!(late, Err(PromiseRefused::NotRenewed));
        seen.on_change(at(17_000), &Change::Put(record("p", 11)));
        seen.promise(at(17_000), "a", REQUEST)
            .expect("it has renewed");
        // A store that went backwards counts anew.
        let mut restored = snapshot(vec![record("p", 3)]);
        restored.position.revision = Revision(4);
        seen.on_snapshot(at(18_000), &restored);
        assert!(seen.promise(at(18_000), "a", REQUEST).is_err());
        seen.on_change(at(19_000), &Change::Put(record("p", 5)));
        seen.promise(at(19_000), "a", REQUEST)
            .expect("it has renewed");
    }

    #[test]
    fn lease_is_taken_once() {
        let mut seen = seen();
        seen.on_snapshot(at(1_000), &snapshot(vec![record("p", 3)]));
        let revocation = seen.revocation("a").expect("it is held");
        let [Op::Put { value, .. }] = revocation.ops() else {
            panic!("{revocation:?}");
        };
        let mut revoked = record("p", 4);
        revoked.value.clone_from(value);
        seen.on_change(at(2_000), &Change::Put(revoked));
        assert_eq!(seen.revocation("a"), None);
        assert!(!seen.is_held_by(at(2_000), "a", "p"));
        assert_eq!(
            end(&mut seen, 7_004, "a"),
            Err(MayServe::Lease),
            "its holder may not know"
        );
        assert!(end(&mut seen, 7_005, "a").is_ok());
    }

    #[test]
    fn settings_that_cannot_be_read_disable_failovers() {
        let mut seen = seen();
        let settings = seen.settings();
        assert!(settings.settings.enabled);
        let absent = Compare::Absent(AUTO_FAILOVER_KEY.to_owned());
        assert_eq!(settings.unchanged, absent);
        let change = Change::Put(entry(AUTO_FAILOVER_KEY, "{}", 5));
        seen.on_change(at(1_000), &change);
        let settings = seen.settings();
        assert!(!settings.settings.enabled);
        let unchanged = Compare::Unchanged(AUTO_FAILOVER_KEY.to_owned(), Revision(5));
        assert_eq!(settings.unchanged, unchanged);
    }
}
