//! The service in front of the store: members with or without a quorum, and calls that are under way.
//!
//! A call that was sent may be executed after its sender has given it up, or has died; the answer may be lost. Watches
//! read at one member, which may be behind.

use crate::change::MapChange;
use crate::control::LEASE_KEYS;
use crate::map::{MAP_KEY, SimMap, name};
use crate::store::StoreModel;
use crate::trace::note;
use kedge_coordination::{
    CoordinationError, ReadAgain, Revision, Snapshot, StorePosition, Transaction, WatchEvent,
};
use kedge_disk::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The usual delay of a message, and the largest one.
const DELAY_NS: u64 = 2_000_000;
const DELAY_NS_MAX: u64 = 200_000_000;
/// The number of revisions up to which a backup is young: leases are renewed so often within some of their times.
const YOUNG_REVISIONS: u64 = 64;
/// The largest delay of a change of the map that arrives late, which may be after its sender has given it up.
const LATE_NS_MAX: u64 = 1_500_000_000;
/// The pause between two attempts of a call that waits for a quorum or a connection.
const RETRY_NS: u64 = 10_000_000;

/// The number of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(u64);

/// A call of the store.
#[derive(Debug)]
pub(crate) enum StoreCall {
    Read,
    /// A transaction, with the change of the map that it makes.
    Transact(Transaction, Option<MapChange>),
}

/// The answer to a call that was executed.
#[derive(Debug)]
pub(crate) enum StoreAnswer {
    Read(Snapshot),
    Transacted(Revision),
}

/// A call on its way to the store.
#[derive(Debug)]
struct Request {
    id: CallId,
    node: usize,
    member: usize,
    at_ns: u64,
    call: StoreCall,
}

/// An answer on its way to a node.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: CallId,
    node: usize,
    at_ns: u64,
    pub(crate) position: StorePosition,
    pub(crate) result: Result<StoreAnswer, CoordinationError>,
}

/// A member of the store.
#[derive(Clone, Copy, Debug)]
struct Member {
    is_up: bool,
    /// True while it applies nothing.
    is_slow: bool,
    /// The revision that its watches have.
    applied: Revision,
}

/// A committed change of the map.
pub(crate) struct CommittedMap {
    pub(crate) map: SimMap,
    pub(crate) change: MapChange,
}

/// The store, as nodes reach it.
pub(crate) struct SimStore {
    model: StoreModel,
    backup: Option<StoreModel>,
    members: Vec<Member>,
    requests: Vec<Request>,
    answers: Vec<Answer>,
    calls: u64,
    /// The nodes that do not reach the store.
    cut: BTreeSet<usize>,
    /// The nodes whose calls arrive, and to which no answer comes.
    deaf: BTreeSet<usize>,
    /// The nodes to which answers are slow, and the time at which they are cut off.
    slow: BTreeMap<usize, u64>,
    /// The nodes that hear of no changes by their watches, and the times at which they do again.
    lagging: BTreeMap<usize, u64>,
    /// The nodes that do not reach the store whatever heals, and the times at which they do again.
    away: BTreeMap<usize, u64>,
    /// The time until which no node reaches the store.
    fails_until_ns: u64,
    now_ns: u64,
}

impl SimStore {
    pub(crate) fn new(members: usize, map: &SimMap) -> Self {
        let mut model = StoreModel::new(1);
        let first = Transaction::new().put(MAP_KEY, map.to_json());
        let created = model.transact(&first).expect("nothing is compared");
        let member = Member {
            is_up: true,
            is_slow: false,
            applied: created,
        };
        Self {
            model,
            backup: None,
            members: vec![member; members],
            requests: Vec::new(),
            answers: Vec::new(),
            calls: 0,
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            slow: BTreeMap::new(),
            lagging: BTreeMap::new(),
            away: BTreeMap::new(),
            fails_until_ns: 0,
            now_ns: 0,
        }
    }

    /// Sends a call.
    pub(crate) fn send(
        &mut self,
        now_ns: u64,
        node: usize,
        call: StoreCall,
        rng: &mut Rng,
    ) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        let is_change = matches!(call, StoreCall::Transact(_, Some(_)));
        let is_late = is_change && rng.below(12) == 0;
        let late_ns = if is_late { rng.below(LATE_NS_MAX) } else { 0 };
        let request = Request {
            id,
            node,
            member: rng.below(self.members.len() as u64) as usize,
            at_ns: now_ns + delay_ns(rng) + late_ns,
            call,
        };
        self.requests.push(request);
        id
    }

    /// Executes the calls that have arrived, and returns the committed changes of the map.
    pub(crate) fn work(&mut self, now_ns: u64, rng: &mut Rng) -> Vec<CommittedMap> {
        self.now_ns = now_ns;
        let is_over = |_: &usize, at_ns: &mut u64| *at_ns <= now_ns;
        let gone: Vec<(usize, u64)> = self.slow.extract_if(.., is_over).collect();
        for (node, _) in gone {
            self.cut(node, false);
        }
        let mut committed = Vec::new();
        let is_due = |request: &mut Request| request.at_ns <= now_ns;
        let mut due: Vec<Request> = self.requests.extract_if(.., is_due).collect();
        due.sort_by_key(|request| (request.at_ns, request.id));
        for mut request in due {
            let arrives = !self.is_cut_off(request.node) && self.has_quorum();
            if !self.members[request.member].is_up || !arrives && rng.below(6) == 0 {
                continue;
            }
            if arrives {
                committed.extend(self.execute(now_ns, request, rng));
            } else {
                request.at_ns = now_ns + RETRY_NS;
                self.requests.push(request);
            }
        }
        let revision = self.model.position().revision;
        for member in &mut self.members {
            if member.is_up && !member.is_slow && rng.below(4) != 0 {
                member.applied = revision;
            }
        }
        committed
    }

    fn execute(&mut self, now_ns: u64, request: Request, rng: &mut Rng) -> Option<CommittedMap> {
        let Request { id, node, call, .. } = request;
        let mut committed = None;
        let result = match call {
            StoreCall::Read => Ok(StoreAnswer::Read(self.model.read())),
            StoreCall::Transact(transaction, change) => {
                let done = self.model.transact(&transaction);
                if let (Ok(_), Some(change)) = (&done, change) {
                    committed = Some(CommittedMap {
                        map: self.map(),
                        change,
                    });
                }
                done.map(StoreAnswer::Transacted)
            }
        };
        if self.deaf.contains(&node) || rng.below(40) == 0 {
            note!("store", "the answer to {} is lost", name(node));
            return committed;
        }
        let delay_ns = match self.slow.contains_key(&node) {
            true => rng.below(DELAY_NS_MAX),
            false => delay_ns(rng),
        };
        self.answers.push(Answer {
            id,
            node,
            at_ns: now_ns + delay_ns,
            position: self.model.position(),
            result,
        });
        committed
    }

    /// Returns the answers that have arrived at a node.
    pub(crate) fn take_answers(&mut self, now_ns: u64, node: usize) -> Vec<Answer> {
        let has_arrived = |answer: &mut Answer| answer.node == node && answer.at_ns <= now_ns;
        self.answers.extract_if(.., has_arrived).collect()
    }

    /// Returns the changes after a revision that a member has applied, with its position; `None` if a node cannot reach
    /// it.
    pub(crate) fn watch(
        &self,
        node: usize,
        member: usize,
        after: StorePosition,
    ) -> Option<(StorePosition, Vec<WatchEvent>)> {
        let at = &self.members[member];
        let fails = self.now_ns < self.fails_until_ns;
        if fails || self.is_cut_off(node) || self.deaf.contains(&node) || !at.is_up {
            return None;
        }
        let lags = self
            .lagging
            .get(&node)
            .is_some_and(|until| self.now_ns < *until);
        let applied = if lags { after.revision } else { at.applied };
        let position = StorePosition {
            revision: applied.max(after.revision),
            ..self.model.position()
        };
        let ended = |why| Some((position, vec![WatchEvent::ReadAgain(why)]));
        if position.store != after.store || self.model.position().revision < after.revision {
            return ended(ReadAgain::WentBackwards);
        }
        match self.model.changes(after.revision, position.revision) {
            Some(events) => Some((position, events)),
            None => ended(ReadAgain::Compacted),
        }
    }

    /// Returns a member.
    pub(crate) fn any_member(&self, rng: &mut Rng) -> usize {
        rng.below(self.members.len() as u64) as usize
    }

    /// Returns the map.
    pub(crate) fn map(&self) -> SimMap {
        let entry = self.model.entry(MAP_KEY).expect("nobody deletes the map");
        SimMap::from_json(&entry.value)
    }

    /// Returns whether a change is on its way to the store that adds copies which count, or removes some.
    pub(crate) fn changes_chains(&self) -> bool {
        let is_such = |request: &Request| {
            let StoreCall::Transact(_, change) = &request.call else {
                return false;
            };
            matches!(
                change,
                Some(MapChange::FailOver(..) | MapChange::Round | MapChange::Taken { .. })
            )
        };
        self.requests.iter().any(is_such)
    }

    fn has_quorum(&self) -> bool {
        let up = self.members.iter().filter(|member| member.is_up).count();
        up > self.members.len() / 2 && self.fails_until_ns <= self.now_ns
    }

    /// Stops the communication of a node with the store; `deaf` if its calls still arrive.
    pub(crate) fn cut(&mut self, node: usize, deaf: bool) {
        let to = if deaf {
            "hears nothing of the store"
        } else {
            "does not reach the store"
        };
        note!(name(node), "{to}");
        if deaf {
            self.deaf.insert(node);
        } else {
            self.cut.insert(node);
        }
    }

    /// Lets a node reach the store again.
    pub(crate) fn reconnect(&mut self, node: usize) {
        self.cut.remove(&node);
        self.deaf.remove(&node);
        self.slow.remove(&node);
    }

    /// Makes the watches of a node lag until a time: it renews its lease, and hears of no changes.
    pub(crate) fn lag(&mut self, node: usize, until_ns: u64) {
        note!(name(node), "watches of the store lag");
        self.lagging.insert(node, until_ns);
    }

    /// Makes answers to a node slow, until it is cut off.
    pub(crate) fn slow_down(&mut self, node: usize, until_ns: u64) {
        note!(name(node), "answers of the store are slow");
        self.slow.insert(node, until_ns);
    }

    /// Returns whether a node cannot use the store.
    pub(crate) fn is_cut(&self, node: usize) -> bool {
        let fails = self.now_ns < self.fails_until_ns;
        fails || self.is_cut_off(node) || self.deaf.contains(&node)
    }

    /// Returns whether nothing of a node arrives.
    fn is_cut_off(&self, node: usize) -> bool {
        let is_away = |until: &u64| self.now_ns < *until;
        self.cut.contains(&node) || self.away.get(&node).is_some_and(is_away)
    }

    /// Makes a node not reach the store until a time, whatever heals.
    pub(crate) fn send_away(&mut self, node: usize, until_ns: u64) {
        note!(name(node), "does not reach the store until {until_ns}");
        self.away.insert(node, until_ns);
    }

    /// Makes the failovers late that a node has sent, and their nodes not reach the store until then.
    pub(crate) fn delay_failovers(&mut self, by: usize, rng: &mut Rng) {
        for request in self.requests.iter_mut().filter(|it| it.node == by) {
            let StoreCall::Transact(_, Some(MapChange::FailOver(nodes, _))) = &request.call else {
                continue;
            };
            request.at_ns += rng.below(LATE_NS_MAX);
            let until_ns = request.at_ns + rng.below(LATE_NS_MAX);
            self.away.extend(nodes.iter().map(|node| (*node, until_ns)));
        }
    }

    /// Returns whether the content of the store is little newer than the backup. A store of the same identity could have more
    /// revisions again before nodes notice that it was restored.
    pub(crate) fn is_backup_young(&self) -> bool {
        let backup = self.backup.as_ref().map(|it| it.position().revision.0);
        backup
            .is_some_and(|at| self.model.position().revision.0.saturating_sub(at) < YOUNG_REVISIONS)
    }

    /// Returns the map of the backup, if there is one.
    pub(crate) fn backup_map(&self) -> Option<SimMap> {
        let entry = self.backup.as_ref()?.entry(MAP_KEY);
        Some(SimMap::from_json(
            &entry.expect("nobody deletes the map").value,
        ))
    }

    /// Stops a member, or makes it lag.
    pub(crate) fn disturb_member(&mut self, rng: &mut Rng) {
        let at = self.any_member(rng);
        let member = &mut self.members[at];
        if rng.below(2) == 0 {
            note!("store", "member {at} stops");
            member.is_up = false;
        } else {
            note!("store", "member {at} lags");
            member.is_slow = true;
        }
    }

    /// Ends all faults, also those that [`Self::heal`] leaves.
    pub(crate) fn end_all_faults(&mut self) {
        self.heal();
        self.away.clear();
        self.lagging.clear();
        self.fails_until_ns = 0;
    }

    /// Takes the store from all nodes until a time, whatever is healed meanwhile.
    pub(crate) fn fail_until(&mut self, until_ns: u64) {
        note!("store", "no node reaches it until {until_ns}");
        self.fails_until_ns = until_ns;
    }

    /// Ends all faults of members and of connections.
    pub(crate) fn heal(&mut self) {
        note!("store", "all members are there, and all nodes reach them");
        self.cut.clear();
        self.deaf.clear();
        self.slow.clear();
        for member in &mut self.members {
            member.is_up = true;
            member.is_slow = false;
        }
    }

    /// Forgets the history.
    pub(crate) fn compact(&mut self) {
        note!("store", "history is compacted");
        self.model.compact(self.model.position().revision);
    }

    /// Keeps a backup of the present content.
    pub(crate) fn back_up(&mut self) {
        note!("store", "a backup is made");
        self.backup = Some(self.model.clone());
    }

    /// Restores the backup, if there is one: calls under way are lost. With `other`, the store has another identity.
    pub(crate) fn restore(&mut self, other: bool) -> bool {
        let Some(mut backup) = self.backup.take() else {
            return false;
        };
        if other {
            backup.set_store(self.model.position().store + 1);
        }
        self.become_backup(backup);
        true
    }

    /// Restores a backup with the present map that was made before any node had taken a lease.
    pub(crate) fn restore_without_leases(&mut self) {
        let mut backup = self.model.clone();
        backup.remove_prefix(LEASE_KEYS);
        backup.set_store(self.model.position().store + 1);
        self.become_backup(backup);
    }

    fn become_backup(&mut self, backup: StoreModel) {
        note!(
            "store",
            "{} becomes {}",
            self.model.position(),
            backup.position()
        );
        self.model = backup;
        self.requests.clear();
        self.answers.clear();
        for member in &mut self.members {
            member.applied = self.model.position().revision;
        }
    }
}

fn delay_ns(rng: &mut Rng) -> u64 {
    match rng.below(24) {
        0 => rng.below(DELAY_NS_MAX),
        _ => rng.below(DELAY_NS),
    }
}
