//! A node's part in the coordination of the cluster: it reads the store, watches it, and changes the map.
//!
//! Calls have a timeout by the node's own clock. A transaction without an answer may have been made: the node reads
//! again before it makes another change.

use crate::change::MapChange;
use crate::map::{MAP_KEY, SimMap, name};
use crate::service::{Answer, CallId, SimStore, StoreAnswer, StoreCall};
use crate::trace::note;
use kedge_coordination::{
    Change, CoordinationError, Entry, ReadAgain, Revision, StorePosition, WatchEvent,
};
use kedge_disk::Rng;
use std::collections::{BTreeMap, VecDeque};

/// The timeout of a call.
const CALL_TIMEOUT_NS: u64 = 60_000_000;
/// The largest number of attempts of a change.
const ATTEMPTS_MAX: u32 = 5;

/// The present times: the true one, and that of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) true_ns: u64,
    pub(crate) local_ns: u64,
}

/// The content of the store, as a node knows it.
#[derive(Debug)]
pub(crate) struct StoreView {
    at: StorePosition,
    pub(crate) map: SimMap,
    /// The revision in which the map was last changed.
    pub(crate) map_revision: Revision,
}

#[derive(Debug)]
enum CallPurpose {
    Read,
    Change { change: MapChange, attempts: u32 },
}

#[derive(Debug)]
struct PendingCall {
    purpose: CallPurpose,
    deadline_ns: u64,
    /// The newest position when the call was sent: its answer is not older.
    before: Option<StorePosition>,
}

/// The state of a process.
#[derive(Debug, Default)]
pub(crate) struct Control {
    node: usize,
    seen: Option<StorePosition>,
    view: Option<StoreView>,
    /// The member that the watch reads from.
    member: usize,
    calls: BTreeMap<CallId, PendingCall>,
    /// Changes that wait for the present one.
    todo: VecDeque<(MapChange, u32)>,
}

impl Control {
    pub(crate) fn new(node: usize) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    /// Returns the content of the store, once it was read.
    pub(crate) fn view(&self) -> Option<&StoreView> {
        self.view.as_ref()
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
            self.on_answer(answer, store, rng);
        }
        self.end_late_calls(times);
        self.follow(times, store, rng);
        let was_restored =
            |view: &StoreView| view.map.revision() < followed.revision() && !self.is_changing();
        if self.view.as_ref().is_some_and(was_restored) {
            let change = MapChange::PutBack(self.node);
            self.send_change(times, change, followed, store, rng);
        }
        self.begin_changes(times, store, rng);
    }

    /// Makes a change as soon as there is no other.
    pub(crate) fn request(&mut self, change: MapChange) {
        let is_known = |(known, _): &(MapChange, u32)| *known == change;
        if !self.is_making(&change) && !self.todo.iter().any(is_known) {
            self.todo.push_back((change, 0));
        }
    }

    /// Returns whether a change of the map waits for its answer.
    pub(crate) fn is_changing(&self) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| matches!(call.purpose, CallPurpose::Change { .. }))
    }

    fn is_making(&self, wanted: &MapChange) -> bool {
        self.calls.values().any(
            |call| matches!(&call.purpose, CallPurpose::Change { change, .. } if change == wanted),
        )
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
            deadline_ns: times.local_ns + CALL_TIMEOUT_NS,
            before: self.seen,
        };
        self.calls.insert(id, pending);
    }

    /// Sends a change that was planned from the map of the view.
    pub(crate) fn send_change(
        &mut self,
        times: Times,
        change: MapChange,
        next: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        let based_on = self.view.as_ref().map(|view| view.map_revision);
        if let Some(based_on) = based_on {
            self.send_attempt(times, (change, 0), based_on, next, store, rng);
        }
    }

    fn send_attempt(
        &mut self,
        times: Times,
        (change, attempts): (MapChange, u32),
        based_on: Revision,
        next: &SimMap,
        store: &mut SimStore,
        rng: &mut Rng,
    ) {
        let transaction = MapChange::transaction(based_on, next);
        let call = StoreCall::Transact(transaction, Some(change.clone()));
        let purpose = CallPurpose::Change {
            change,
            attempts: attempts + 1,
        };
        self.send(times, call, purpose, store, rng);
    }

    fn on_answer(&mut self, answer: Answer, store: &SimStore, rng: &mut Rng) {
        // Others were given up.
        let Some(call) = self.calls.remove(&answer.id) else {
            return;
        };
        let found = answer.position;
        let is_older =
            |before: StorePosition| before.store != found.store || before.revision > found.revision;
        if call.before.is_some_and(is_older) {
            self.on_restored(found);
            return;
        }
        self.seen = self.seen.max_by_revision(found);
        match (call.purpose, answer.result) {
            (CallPurpose::Read, Ok(StoreAnswer::Read(snapshot))) => {
                let entry = snapshot.entry(MAP_KEY).expect("nobody deletes the map");
                self.view = Some(StoreView {
                    at: snapshot.position,
                    map: SimMap::from_json(&entry.value),
                    map_revision: entry.mod_revision,
                });
                self.member = store.any_member(rng);
            }
            (
                CallPurpose::Change { change, attempts },
                Err(CoordinationError::Conflict(conflict)),
            ) => {
                if let Some(entry) = conflict.entry(MAP_KEY) {
                    self.on_map(entry);
                }
                note!(name(self.node), "another change came before {change:?}");
                if attempts < ATTEMPTS_MAX {
                    self.todo.push_front((change, attempts));
                }
            }
            _ => {}
        }
    }

    fn on_restored(&mut self, found: StorePosition) {
        let before = self.seen.take();
        note!(
            name(self.node),
            "finds the store at {found}, after {before:?}"
        );
        self.view = None;
        for call in std::mem::take(&mut self.calls).into_values() {
            if let CallPurpose::Change { change, attempts } = call.purpose {
                self.todo.push_back((change, attempts));
            }
        }
    }

    fn on_map(&mut self, entry: &Entry) {
        if let Some(view) = self
            .view
            .as_mut()
            .filter(|view| view.map_revision < entry.mod_revision)
        {
            view.map = SimMap::from_json(&entry.value);
            view.map_revision = entry.mod_revision;
        }
    }

    /// Gives up calls whose time is over.
    fn end_late_calls(&mut self, times: Times) {
        let is_late = |_: &CallId, call: &mut PendingCall| call.deadline_ns <= times.local_ns;
        let late: Vec<(CallId, PendingCall)> = self.calls.extract_if(.., is_late).collect();
        for (_, call) in late {
            if let CallPurpose::Change { change, attempts } = call.purpose {
                note!(name(self.node), "does not know the outcome of {change:?}");
                // The store may have the change.
                self.view = None;
                if attempts < ATTEMPTS_MAX {
                    self.todo.push_back((change, attempts));
                }
            }
        }
    }

    /// Reads the changes of the store, or everything.
    fn follow(&mut self, times: Times, store: &mut SimStore, rng: &mut Rng) {
        let Some(at) = self.view.as_ref().map(|view| view.at) else {
            let reads = |call: &PendingCall| matches!(call.purpose, CallPurpose::Read);
            if !self.calls.values().any(reads) {
                self.send(times, StoreCall::Read, CallPurpose::Read, store, rng);
            }
            return;
        };
        let Some((position, events)) = store.watch(self.node, self.member, at) else {
            self.member = store.any_member(rng);
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
                        match change {
                            Change::Put(entry) if entry.key == MAP_KEY => self.on_map(&entry),
                            _ => {}
                        }
                    }
                }
            }
        }
        if let Some(view) = &mut self.view {
            view.at = position;
        }
        self.seen = self.seen.max_by_revision(position);
    }

    fn begin_changes(&mut self, times: Times, store: &mut SimStore, rng: &mut Rng) {
        while !self.is_changing() {
            let Some(view) = &self.view else { return };
            let Some((change, attempts)) = self.todo.pop_front() else {
                return;
            };
            let based_on = view.map_revision;
            if let Some(next) = change.plan(&view.map) {
                self.send_attempt(times, (change, attempts), based_on, &next, store, rng);
            }
        }
    }
}

/// The newer of two positions of a store.
trait Newest {
    fn max_by_revision(self, other: StorePosition) -> Option<StorePosition>;
}

impl Newest for Option<StorePosition> {
    fn max_by_revision(self, other: StorePosition) -> Option<StorePosition> {
        match self {
            Some(known) if known.revision > other.revision => Some(known),
            _ => Some(other),
        }
    }
}
