//! A node's part in the coordination of the cluster: it reads the store, watches it, holds its lease, observes those of
//! the others, and changes the map.
//!
//! Calls have a timeout by the node's own clock. A transaction without an answer may have been made: the node reads
//! again before it makes another change.

use crate::change::MapChange;
use crate::map::{MAP_KEY, SimMap, name, text};
use crate::network::Network;
use crate::promises::PromiseExchange;
use crate::service::{Answer, CallId, SimStore, StoreAnswer, StoreCall};
use crate::trace::note;
use kedge_cluster::{
    AutoFailover, AutoFailoverSettings, ClusterObservation, Decision, LeaseSeen, MemberObservation,
    MoveStart, NodeHealth,
};
use kedge_coordination::lease::{
    LeaseEvent, LeaseHolder, LeaseObserver, LeaseRecord, LeaseState, LeaseTiming, Office,
    OfficeStep,
};
use kedge_coordination::{
    Change, Compare, CoordinationError, Entry, Moment, ReadAgain, Revision, StorePosition,
    Transaction, WatchEvent,
};
use kedge_disk::Rng;
use kedge_types::VbId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The largest number of attempts of a change.
const ATTEMPTS_MAX: u32 = 5;
/// The prefix of the keys of leases.
pub(crate) const LEASE_KEYS: &str = "alive/";
/// The key of the orchestrator's office.
const OFFICE_KEY: &str = "orchestrator";

/// The present times: the true one, and that of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) true_ns: u64,
    pub(crate) local: Moment,
}

/// The content of the store, as a node knows it.
#[derive(Debug)]
pub(crate) struct StoreView {
    pub(crate) at: StorePosition,
    pub(crate) map: SimMap,
    /// The revision in which the map was last changed.
    map_revision: Revision,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum CallPurpose {
    Read,
    Renew,
    TakeOffice,
    Revoke,
    Change { change: MapChange, attempts: u32 },
}

#[derive(Debug)]
struct PendingCall {
    purpose: CallPurpose,
    deadline: Moment,
    /// The newest position when the call was sent: its answer is not older.
    before: Option<StorePosition>,
}

/// The state of a process.
#[derive(Debug)]
pub(crate) struct Control {
    node: usize,
    timing: LeaseTiming,
    seen: Option<StorePosition>,
    view: Option<StoreView>,
    /// The member that the watch reads from.
    member: usize,
    calls: BTreeMap<CallId, PendingCall>,
    /// Changes that wait for the present one.
    todo: VecDeque<(MapChange, u32)>,
    pub(crate) holder: LeaseHolder,
    /// The tenure in which the node has applied a map that was current when the tenure began.
    confirmed: Option<Revision>,
    observers: BTreeMap<usize, LeaseObserver>,
    office: Office,
    token: Option<Revision>,
    auto: AutoFailover,
    pub(crate) promises: PromiseExchange,
    /// The node that an administrator wants to be failed over by this one.
    pub(crate) deposing: Option<usize>,
    /// True if the administrator knows that it does not run.
    pub(crate) is_dead: bool,
    /// The attempts of failovers that were given up, for which nodes follow others no more.
    pub(crate) given_up_failovers: Vec<u64>,
    /// vBuckets that the node has taken over by moves with these starts, whose change was given up: it is begun again.
    pub(crate) unfinished: Vec<(VbId, MoveStart)>,
}

/// Returns the key of a node's lease.
fn lease_key(node: usize) -> String {
    format!("{LEASE_KEYS}{}", text(node))
}

impl Control {
    /// Creates the state of the `start`th process of a node.
    pub(crate) fn new(node: usize, nodes: usize, start: u64, timing: LeaseTiming) -> Self {
        let process = format!("{}-{start}", text(node));
        let observer = |other| {
            let observer = LeaseObserver::new(lease_key(other), timing.drift());
            (other, observer)
        };
        Self {
            node,
            timing,
            seen: None,
            view: None,
            member: 0,
            calls: BTreeMap::new(),
            todo: VecDeque::new(),
            holder: LeaseHolder::new(lease_key(node), &process, timing).holding(text(node)),
            confirmed: None,
            observers: (0..nodes).map(observer).collect(),
            office: Office::new(OFFICE_KEY, text(node), &process),
            token: None,
            auto: AutoFailover::default(),
            promises: PromiseExchange::new(timing),
            deposing: None,
            is_dead: false,
            given_up_failovers: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    /// Returns the content of the store, once it was read.
    pub(crate) fn view(&self) -> Option<&StoreView> {
        self.view.as_ref()
    }

    /// Returns the moment until which the node serves.
    pub(crate) fn serves_until(&self) -> Moment {
        let has_map = self.confirmed.is_some() && self.confirmed == self.holder.since();
        if has_map {
            self.holder.serves_until()
        } else {
            Moment::default()
        }
    }

    /// Notes that the node has applied the map of the view.
    pub(crate) fn has_applied(&mut self) {
        let at = self.view.as_ref().map(|view| view.at.revision);
        if let Some(since) = self.holder.since().filter(|since| at >= Some(*since)) {
            self.confirmed = Some(since);
        }
    }

    /// Handles answers and changes of the store, and sends what is due. `followed` is the node's map: if the store has an
    /// older one, it was restored, and gets that map back before any other change.
    pub(crate) fn step(
        &mut self,
        times: Times,
        followed: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        for answer in store.take_answers(times.true_ns, self.node) {
            self.on_answer(times, answer, store, rng);
        }
        self.end_late_calls(times);
        self.follow(times, store, rng);
        self.tend_office(times, store, rng);
        let view = self.view.as_ref().filter(|_| !self.is_changing());
        if let Some(map) = view.and_then(|view| followed.put_over(self.node, &view.map)) {
            let change = MapChange::PutBack(self.node);
            let guarded = Transaction::new();
            self.send_change(times, change, guarded, &map, store, rng);
        }
        self.begin_changes(times, store, rng);
    }

    /// Renews the lease if that is due, with a record that says which map the node follows. The serving gate has to be moved
    /// to [`Self::serves_until`] before anything else.
    pub(crate) fn renew(
        &mut self,
        times: Times,
        followed: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        let is_due = self.holder.next_put().is_some_and(|at| at <= times.local);
        let is_busy =
            self.is_calling(|it| matches!(it, CallPurpose::Renew)) || self.promises.is_asking();
        if !is_due || is_busy {
            return;
        }
        let health = NodeHealth {
            follows: Some(followed.revision()),
            ..NodeHealth::default()
        };
        let health = serde_json::to_value(health).expect("it is numbers");
        if let Some(put) = self.holder.put(times.local, &health) {
            let call = StoreCall::Transact(put, None);
            self.send(times, call, CallPurpose::Renew, store, rng);
        }
    }

    /// Gives promises to other nodes, and asks them for some if the store does not answer.
    pub(crate) fn exchange_promises(
        &mut self,
        times: Times,
        followed: &SimMap,
        network: &mut Network,
        rng: &mut Rng,
    ) {
        let (me, holder) = (self.node, &mut self.holder);
        self.promises
            .step(times, me, holder, followed, network, rng);
    }

    /// Makes a change as soon as there is no other.
    pub(crate) fn request(&mut self, change: MapChange) {
        let is_known = |(known, _): &(MapChange, u32)| *known == change;
        let is_making = |purpose: &CallPurpose| matches!(purpose, CallPurpose::Change { change: it, .. } if *it == change);
        if self.is_calling(is_making) || self.todo.iter().any(is_known) {
            return;
        }
        if !self.todo.iter_mut().any(|(known, _)| known.join(&change)) {
            self.todo.push_back((change, 0));
        }
    }

    /// Returns whether a change of the map waits for its answer.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_calling(|purpose| matches!(purpose, CallPurpose::Change { .. }))
    }

    fn is_calling(&self, wanted: impl Fn(&CallPurpose) -> bool) -> bool {
        self.calls.values().any(|call| wanted(&call.purpose))
    }

    fn send(
        &mut self,
        times: Times,
        call: StoreCall,
        purpose: CallPurpose,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        let id = store.send(times.true_ns, self.node, call, rng);
        let pending = PendingCall {
            purpose,
            deadline: times.local.plus(self.timing.request_timeout()),
            before: self.seen,
        };
        self.calls.insert(id, pending);
    }

    /// Sends a change that was planned from the map of the view.
    pub(crate) fn send_change(
        &mut self,
        times: Times,
        change: MapChange,
        guarded: Transaction,
        next: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        self.send_attempt(times, (change, 0), guarded, next, store, rng);
    }

    fn send_attempt(
        &mut self,
        times: Times,
        (change, attempts): (MapChange, u32),
        guarded: Transaction,
        next: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        let Some(view) = &self.view else { return };
        let next = next.clone().stamped(rng.next());
        let transaction = MapChange::transaction(guarded, view.map_revision, &next);
        let call = StoreCall::Transact(transaction, Some(change.clone()));
        let purpose = CallPurpose::Change {
            change,
            attempts: attempts + 1,
        };
        self.send(times, call, purpose, store, rng);
    }

    fn on_answer(&mut self, times: Times, answer: Answer, store: &SimStore, rng: &mut Rng) {
        // Others were given up.
        let Some(call) = self.calls.remove(&answer.id) else {
            return;
        };
        let found = answer.position;
        let is_older =
            |before: StorePosition| before.store != found.store || before.revision > found.revision;
        if call.before.is_some_and(is_older) {
            // A change is to be made again.
            self.calls.insert(answer.id, call);
            self.on_restored(found);
            return;
        }
        self.note_position(found);
        match (call.purpose, answer.result) {
            (CallPurpose::Read, Ok(StoreAnswer::Read(snapshot))) => {
                let entry = snapshot.entry(MAP_KEY).expect("nobody deletes the map");
                self.view = Some(StoreView {
                    at: snapshot.position,
                    map: SimMap::from_json(&entry.value),
                    map_revision: entry.mod_revision,
                    entries: BTreeMap::new(),
                });
                for entry in snapshot.entries {
                    self.on_change(Change::Put(entry));
                }
                self.promises.on_read(found);
                self.observe(times);
                self.member = store.any_member(rng);
            }
            (CallPurpose::Renew, Ok(StoreAnswer::Transacted(revision))) => {
                self.on_renewed(times, &Ok(revision));
            }
            (CallPurpose::Renew, Err(error)) => self.on_renewed(times, &Err(error)),
            (
                CallPurpose::Change { change, attempts },
                Err(CoordinationError::Conflict(conflict)),
            ) => {
                if let Some(entry) = conflict.entry(MAP_KEY) {
                    self.on_map(entry);
                }
                note!(name(self.node), "another change came before {change:?}");
                if let MapChange::FailOver(_, attempt) = &change {
                    self.given_up_failovers.push(*attempt);
                }
                if attempts < ATTEMPTS_MAX {
                    self.todo.push_front((change, attempts));
                } else {
                    self.give_up(change);
                }
            }
            _ => {}
        }
    }

    /// Gives a change up after too many attempts.
    fn give_up(&mut self, change: MapChange) {
        if let MapChange::Taken { vbuckets, .. } = change {
            self.unfinished.extend(vbuckets);
        }
    }

    fn on_renewed(&mut self, times: Times, answer: &Result<Revision, CoordinationError>) {
        let event = self.holder.on_answer(times.local, answer);
        match event {
            LeaseEvent::Renewed => {}
            LeaseEvent::Unknown => self.promises.want(),
            _ => note!(name(self.node), "lease: {event:?}"),
        }
        if event == LeaseEvent::Deposed {
            // Another map says who took its vBuckets.
            self.view = None;
        }
    }

    fn note_position(&mut self, found: StorePosition) {
        if self.seen.is_none_or(|seen| seen.revision < found.revision) {
            self.seen = Some(found);
        }
    }

    fn on_restored(&mut self, found: StorePosition) {
        let before = self.seen.take();
        note!(
            name(self.node),
            "finds the store at {found}, after {before:?}"
        );
        self.view = None;
        self.token = None;
        self.holder.forget();
        self.auto.store_was_restored();
        for observer in self.observers.values_mut() {
            observer.on_interruption();
        }
        for call in std::mem::take(&mut self.calls).into_values() {
            if let CallPurpose::Change { change, attempts } = call.purpose {
                self.todo.push_back((change, attempts));
            }
        }
    }

    fn on_change(&mut self, change: Change) {
        match change {
            Change::Put(entry) if entry.key == MAP_KEY => self.on_map(&entry),
            Change::Put(entry) => {
                if let Some(view) = &mut self.view {
                    view.entries.insert(entry.key.clone(), entry);
                }
            }
            Change::Delete(key) => {
                if let Some(view) = &mut self.view {
                    view.entries.remove(&key);
                }
            }
        }
    }

    fn on_map(&mut self, entry: &Entry) {
        let is_newer = |view: &&mut StoreView| view.map_revision < entry.mod_revision;
        if let Some(view) = self.view.as_mut().filter(is_newer) {
            view.map = SimMap::from_json(&entry.value);
            view.map_revision = entry.mod_revision;
        }
    }

    /// Shows the leases of the view to their observers.
    fn observe(&mut self, times: Times) {
        let Some(view) = &self.view else { return };
        for (node, observer) in &mut self.observers {
            let entry = view.entries.get(&lease_key(*node));
            observer.on_entry(times.local, entry);
            self.promises.note_lease(*node, entry);
        }
    }

    /// Gives up calls whose time is over.
    fn end_late_calls(&mut self, times: Times) {
        let is_late = |_: &CallId, call: &mut PendingCall| call.deadline <= times.local;
        let late: Vec<(CallId, PendingCall)> = self.calls.extract_if(.., is_late).collect();
        for (_, call) in late {
            match call.purpose {
                CallPurpose::Read | CallPurpose::TakeOffice | CallPurpose::Revoke => {}
                CallPurpose::Renew => {
                    let unknown = CoordinationError::OutcomeUnknown("no answer".to_owned());
                    self.on_renewed(times, &Err(unknown));
                }
                CallPurpose::Change { change, attempts } => {
                    note!(name(self.node), "does not know the outcome of {change:?}");
                    // The store may have the change.
                    self.view = None;
                    if attempts < ATTEMPTS_MAX {
                        self.todo.push_back((change, attempts));
                    } else {
                        self.give_up(change);
                    }
                }
            }
        }
    }

    /// Reads the changes of the store, or everything.
    fn follow(&mut self, times: Times, store: &mut SimStore, rng: &mut Rng) {
        let Some(at) = self.view.as_ref().map(|view| view.at) else {
            if !self.is_calling(|purpose| matches!(purpose, CallPurpose::Read)) {
                self.send(times, StoreCall::Read, CallPurpose::Read, store, rng);
            }
            return;
        };
        let Some((position, events)) = store.watch(self.node, self.member, at) else {
            self.member = store.any_member(rng);
            for observer in self.observers.values_mut() {
                observer.on_interruption();
            }
            return;
        };
        for event in events {
            match event {
                WatchEvent::ReadAgain(why) => {
                    note!(name(self.node), "reads the store again: {why:?}");
                    match why {
                        ReadAgain::Compacted => self.view = None,
                        ReadAgain::WentBackwards => self.on_restored(position),
                    }
                    return;
                }
                WatchEvent::Changes { changes, .. } => {
                    for change in changes {
                        self.on_change(change);
                    }
                }
            }
        }
        if let Some(view) = &mut self.view {
            view.at = position;
        }
        self.note_position(position);
        self.observe(times);
    }

    /// Returns the condition that the node is the orchestrator; `None` unless it is, as far as it knows.
    pub(crate) fn in_office(&self) -> Option<Transaction> {
        let token = self.token?;
        Some(Transaction::new().when(self.office.guard(token)))
    }

    /// Takes the office if it is free, for as long as the node has its own lease. A node that is no member gives it up.
    fn tend_office(&mut self, times: Times, store: &mut SimStore, rng: &mut Rng) {
        self.token = None;
        let Some(view) = self.view.as_ref() else {
            return;
        };
        let observers = &self.observers;
        let step = self.office.step(view.entries.get(OFFICE_KEY), |holder| {
            let mut nodes = observers.iter();
            let (_, observer) = nodes.find(|(node, _)| text(**node) == holder.node)?;
            observer.end_of(&holder.process, times.local)
        });
        let is_member = !view.map.is_out(self.node);
        match step {
            OfficeStep::Hold { token } if is_member => self.token = Some(token),
            OfficeStep::Hold { token } => {
                let resign = Transaction::new().when(self.office.guard(token));
                let resign = resign.delete(OFFICE_KEY);
                if !self.is_calling(|it| matches!(it, CallPurpose::TakeOffice)) {
                    let call = StoreCall::Transact(resign, None);
                    self.send(times, call, CallPurpose::TakeOffice, store, rng);
                }
            }
            OfficeStep::Take(take) => {
                let is_alive = is_member && self.holder.serves_until() > times.local;
                if is_alive && !self.is_calling(|it| matches!(it, CallPurpose::TakeOffice)) {
                    let call = StoreCall::Transact(take, None);
                    self.send(times, call, CallPurpose::TakeOffice, store, rng);
                }
            }
            OfficeStep::Wait(_) => {}
        }
    }

    fn begin_changes(&mut self, times: Times, store: &mut SimStore, rng: &mut Rng) {
        while !self.is_changing() {
            let Some(view) = &self.view else { return };
            let Some((change, attempts)) = self.todo.pop_front() else {
                return;
            };
            if !view.map.has_node(self.node) {
                continue;
            }
            if let Some(next) = change.plan(&view.map) {
                let guarded = Transaction::new();
                self.send_attempt(times, (change, attempts), guarded, &next, store, rng);
            }
        }
    }

    /// Returns the members that have to be failed over automatically. `applied` tells whether a node has applied the map.
    pub(crate) fn down(&mut self, times: Times, applied: impl Fn(usize) -> bool) -> Vec<usize> {
        let is_member = |view: &&StoreView| !view.map.is_out(self.node);
        let Some(view) = self.view.as_ref().filter(is_member) else {
            return Vec::new();
        };
        let now = times.local;
        let mut is_known = true;
        let mut members = Vec::new();
        for (node, observer) in &self.observers {
            if view.map.is_out(*node) {
                continue;
            }
            let time = observer.record().map_or(Duration::ZERO, LeaseRecord::time);
            let time = self.timing.drift().lengthened(time);
            let lease = match observer.state(now) {
                LeaseState::Unknown => {
                    is_known = false;
                    continue;
                }
                LeaseState::Absent { since } => LeaseSeen::Absent {
                    since: Duration::ZERO,
                    ends: since_start(
                        since.plus(self.timing.drift().lengthened(self.timing.time())),
                    ),
                },
                LeaseState::Held { until: ends } | LeaseState::Lapsed { at: ends } => {
                    LeaseSeen::Held {
                        renewed: since_start(ends.minus(time)),
                        ends: since_start(ends),
                    }
                }
            };
            members.push(MemberObservation {
                node: view.map.number(*node),
                name: text(*node),
                group: "one".to_owned(),
                lease,
                health: NodeHealth::default(),
                applied: applied(*node),
                leads: true,
            });
        }
        let mut settings = AutoFailoverSettings::default();
        settings.timeout = u32::try_from(self.timing.time().as_secs()).expect("at most 120");
        settings.disable_max_count = true;
        let observed = ClusterObservation {
            me: view.map.number(self.node),
            is_orchestrator: self.token.is_some(),
            store_reached: is_known,
            settings,
            operation: None,
            members,
        };
        let Decision::FailOver(down) = self.auto.decide(since_start(now), &observed) else {
            return Vec::new();
        };
        let down = down.into_iter();
        down.map(|it| view.map.index(it.node)).collect()
    }

    /// Returns the part of a transaction that deposes nodes, if their leases have lapsed, and the promises of this node to
    /// them; with the condition that this node is the orchestrator, if nobody else asked for it. It promises them nothing
    /// from then on.
    pub(crate) fn depositions(
        &mut self,
        times: Times,
        nodes: &[usize],
        is_automatic: bool,
    ) -> Option<Transaction> {
        let mut guarded = Transaction::new();
        if is_automatic {
            guarded = guarded.when(self.office.guard(self.token?));
        }
        for node in nodes {
            let lapsed = self.observers[node].deposition(times.local, self.timing.time())?;
            let is_vouched_for = self.is_dead && !is_automatic;
            let was_asked = || self.was_asked_by(*node, is_vouched_for);
            if !self.promises.has_ended(times.local, *node) || !was_asked() {
                return None;
            }
            if matches!(lapsed, Compare::Unchanged(..)) {
                guarded = guarded.delete(lease_key(*node));
            }
            self.promises.withhold(*node);
            guarded = guarded.when(lapsed);
        }
        Some(guarded)
    }

    /// Returns whether a node that asked for promises has asked this one: it followed a map of which this node was a member.
    /// Without a record it follows the map in which it became a member, or a later one.
    fn was_asked_by(&self, node: usize, is_vouched_for: bool) -> bool {
        let Some(view) = &self.view else {
            return false;
        };
        let rev = match self.observers[&node].record() {
            None if is_vouched_for => i64::MAX,
            None => view.map.joined_rev(node),
            Some(record) => {
                let health = serde_json::from_value::<NodeHealth>(record.health.clone());
                let follows = health.ok().and_then(|health| health.follows);
                follows.map_or(0, |it| it.rev)
            }
        };
        view.map.is_member_since(self.node, rev)
    }

    /// Takes the lease from a node that is to be failed over, unless that was done.
    pub(crate) fn revoke(
        &mut self,
        times: Times,
        node: usize,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        // Its promises end as well.
        self.promises.withhold(node);
        let entries = self.view.as_ref().map(|view| &view.entries);
        let entry = entries.and_then(|entries| entries.get(&lease_key(node)));
        let is_revoked = |entry: &Entry| {
            let record = LeaseRecord::parse(&entry.value);
            record.is_some_and(|record| record.revoked)
        };
        let Some(entry) = entry.filter(|entry| !is_revoked(entry)) else {
            return;
        };
        if !self.is_calling(|purpose| matches!(purpose, CallPurpose::Revoke)) {
            let call = StoreCall::Transact(LeaseRecord::revocation(entry), None);
            self.send(times, call, CallPurpose::Revoke, store, rng);
        }
    }
}

fn since_start(moment: Moment) -> Duration {
    moment.since(Moment::default())
}
