//! Promises: rules, and random histories of a holder and of nodes that could take its place, with the store in between.
//! Clocks drift, messages are late or lost, nodes lose the store, are restarted, and are added. At no moment of true time does
//! the holder serve after a transaction took its place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use kedge_coordination::lease::{
    LeaseEvent, LeaseHolder, LeaseObserver, LeaseTiming, PromiseRefused, PromiseRequest,
    PromiseRound, Promises,
};
use kedge_coordination::{
    Compare, Conflict, CoordinationError, DriftBound, Entry, Moment, Op, Revision, Transaction,
};
use kedge_disk::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::drifting_clock::{DriftingClock, MS};

const HOLDER: &str = "h";
const KEY: &str = "alive/h";

fn at(ms: u64) -> Moment {
    Moment::at_ns(ms * MS)
}

fn timing(ms: u64) -> LeaseTiming {
    LeaseTiming::new(Duration::from_millis(ms), None).expect("the inequality holds")
}

fn record(revision: u64, revoked: bool) -> Entry {
    let value = json!({
        "version": 1, "process": "a", "counter": 1, "lease_ms": 5_000, "revoked": revoked,
    });
    Entry {
        key: KEY.to_owned(),
        value: value.to_string().into_bytes(),
        create_revision: Revision(1),
        mod_revision: Revision(revision),
    }
}

fn request(time: Duration) -> PromiseRequest {
    PromiseRequest {
        time,
        known: Revision(1),
    }
}

#[test]
fn promise_is_given_to_a_holder_that_has_renewed_and_kept_until_its_end() {
    let time = Duration::from_secs(5);
    let mut promises = Promises::new(DriftBound::default());
    let mut give = |ms, time, entry: Option<&Entry>| {
        let given = promises.give(at(ms), HOLDER, request(time), entry);
        (given, promises.end_of(HOLDER))
    };
    let refused = |until| (Err(PromiseRefused::NotRenewed), at(until));
    assert_eq!(give(0, time, Some(&record(9, false))), refused(0));
    promises.on_read(Revision(7), false);
    let mut give = |ms, time, entry: Option<&Entry>| {
        let given = promises.give(at(ms), HOLDER, request(time), entry);
        (given, promises.end_of(HOLDER))
    };
    assert_eq!(give(0, time, None), refused(0));
    assert_eq!(give(0, time, Some(&record(7, false))), refused(0));
    assert_eq!(give(0, time, Some(&record(8, true))), refused(0));
    assert_eq!(give(0, time, Some(&record(8, false))), (Ok(()), at(5_005)));
    // A shorter one does not end it.
    let second = Duration::from_secs(1);
    let shorter = give(1_000, second, Some(&record(8, false)));
    assert_eq!(shorter, (Ok(()), at(5_005)));
    let endless = give(1_000, Duration::MAX, Some(&record(8, false)));
    assert_eq!(endless, (Err(PromiseRefused::TooLong), at(5_005)));
    assert_eq!(promises.given(at(5_004)), 1);
    assert_eq!(promises.given(at(5_005)), 0);
    // The node is about to take its place.
    promises.withhold(HOLDER, Some(&record(8, false)));
    let mut give =
        |ms, entry: Option<&Entry>| promises.give(at(ms), HOLDER, request(time), entry).is_ok();
    assert!(!give(6_000, Some(&record(8, false))));
    assert!(!give(6_000, Some(&record(9, true))));
    assert!(give(6_000, Some(&record(9, false))));
    assert!(give(6_000, Some(&record(9, false))));
    // The holder does not know that its record was deleted and created anew.
    let late = PromiseRequest {
        time,
        known: Revision(0),
    };
    let given = promises.give(at(6_000), HOLDER, late, Some(&record(9, false)));
    assert_eq!(given, Err(PromiseRefused::NotRenewed));
    // One without a record has a new one.
    promises.withhold(HOLDER, None);
    let mut give = |entry: Option<&Entry>| {
        promises
            .give(at(7_000), HOLDER, request(time), entry)
            .is_ok()
    };
    assert!(!give(None));
    assert!(give(Some(&record(10, false))));
}

fn held(timing: LeaseTiming, now: Moment) -> LeaseHolder {
    let mut holder = LeaseHolder::new(KEY, "a", timing);
    holder.put(now, &Value::Null).expect("nobody replaces it");
    assert_eq!(holder.on_answer(now, &Ok(Revision(1))), LeaseEvent::Taken);
    holder
}

#[test]
fn holder_needs_the_promises_of_all_and_a_tenure() {
    let mut holder = held(timing(5_000), at(0));
    let others = || ["b", "c"].map(str::to_owned);
    let mut round = holder
        .begin_round(at(4_000), others())
        .expect("it has a tenure");
    round.on_promise("b");
    assert!(!holder.on_promises(&round));
    assert_eq!(round.missing().collect::<Vec<_>>(), ["c"]);
    assert_eq!(holder.ends(), at(4_995));
    assert!(holder.needs_promises(at(4_495)) && !holder.needs_promises(at(4_494)));
    round.on_promise("c");
    assert!(holder.on_promises(&round));
    assert_eq!(holder.ends(), at(8_995));
    assert_eq!(holder.serves_until(), at(8_495));
    // The record has another time from then on.
    holder.set_timing(timing(2_000));
    assert_eq!(holder.ends(), at(4_995));
    assert!(!holder.on_promises(&round));
    assert!(holder.begin_round(at(5_000), others()).is_none());
    holder
        .put(at(5_000), &Value::Null)
        .expect("nobody replaces it");
    holder.on_answer(at(5_000), &Ok(Revision(2)));
    let mut round = holder
        .begin_round(at(6_000), others())
        .expect("it has a tenure");
    // The store answers again, and says that the tenure has ended.
    holder.forget();
    assert_eq!(holder.ends(), Moment::default());
    round.on_promise("b");
    round.on_promise("c");
    assert!(!holder.on_promises(&round));
    // The next tenure needs promises of its own.
    holder
        .put(at(6_000), &Value::Null)
        .expect("nobody replaces it");
    holder.on_answer(at(6_000), &Ok(Revision(3)));
    assert!(!holder.on_promises(&round));
    assert_eq!(holder.ends(), at(7_998));
}

/// The mistake in a run that has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    ShortPromises,
    /// A node promises although its transaction may be under way.
    PromisesWhileTaking,
    /// A restarted node promises to a holder that it has not seen renew.
    PromisesBlindly,
    /// A node takes the place of a holder that may not know it.
    NewMemberTakes,
    /// A node does not wait for the end of its promise.
    BreaksPromises,
    OneIsEnough,
    /// A node promises whatever the holder knows of its record.
    IgnoresTenures,
}

/// The number of nodes that could take the holder's place. The last one is added in the middle of the history.
const OTHERS: usize = 3;

/// The map: its revision, and the revisions in which members became such.
#[derive(Clone, Debug)]
struct Map {
    rev: u64,
    joined: BTreeMap<usize, u64>,
}

/// A linearizable store.
struct Store {
    revision: u64,
    lease: Option<Entry>,
    map: Map,
}

impl Store {
    /// Makes a transaction on the lease, if the map has this revision, or whatever it has.
    fn transact(
        &mut self,
        transaction: &Transaction,
        map: Option<u64>,
    ) -> Result<Revision, CoordinationError> {
        let holds = |compare: &Compare| match compare {
            Compare::Absent(_) => self.lease.is_none(),
            Compare::Unchanged(_, at) => self.lease.as_ref().map(|it| it.mod_revision) == Some(*at),
            Compare::Value(..) => false,
        };
        let is_map = map.is_none_or(|rev| rev == self.map.rev);
        if !is_map || !transaction.compares().iter().all(holds) {
            return Err(CoordinationError::Conflict(Conflict {
                revision: Revision(self.revision),
                present: vec![(KEY.to_owned(), self.lease.clone())],
            }));
        }
        self.revision += 1;
        let now = Revision(self.revision);
        for op in transaction.ops() {
            self.lease = match op {
                Op::Delete { .. } => None,
                Op::Put { key, value } => Some(Entry {
                    key: key.clone(),
                    value: value.clone(),
                    create_revision: self.lease.as_ref().map_or(now, |it| it.create_revision),
                    mod_revision: now,
                }),
            };
        }
        Ok(now)
    }
}

/// A node that could take the holder's place.
struct Other {
    clock: DriftingClock,
    promises: Promises,
    observer: LeaseObserver,
    entry: Option<Entry>,
    /// The number of restarts.
    process: u64,
    is_cut_off: bool,
    map: Map,
}

type Answer = Result<Revision, CoordinationError>;

enum Event {
    /// The holder wakes up.
    Wake,
    Renewal(u64, Transaction),
    Answer(u64, Answer),
    Request(usize, usize),
    Promise(usize, usize),
    /// The holder gets the map of the store.
    Follow(Map),
    /// A node asks the store.
    Look(usize),
    /// A process of a node gets what the store had.
    Seen(usize, u64, Option<Entry>, u64, Map),
    Restart(usize),
    /// The holder, or a node, loses the store or gets it back.
    Cut(Option<usize>),
    /// The last node is added.
    Add,
    /// The transaction of a node that takes the holder's place in this map.
    Take(Transaction, u64),
}

struct World {
    rng: Rng,
    mutant: Mutant,
    timing: LeaseTiming,
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    store: Store,
    clock: DriftingClock,
    holder: LeaseHolder,
    map: Map,
    is_cut_off: bool,
    waits_for: Option<u64>,
    renewals: u64,
    rounds: Vec<PromiseRound>,
    others: Vec<Other>,
    /// The number of times that promises prolonged the holder's time.
    prolonged: u64,
    /// The true times and revisions of transactions that took its place.
    taken: Vec<(u64, Revision)>,
    error: Option<String>,
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed);
        let timing = timing(1_000 + rng.below(2_000));
        let map = Map {
            rev: 1,
            joined: (0..OTHERS - 1).map(|node| (node, 0)).collect(),
        };
        let others = (0..OTHERS).map(|_| Other {
            clock: DriftingClock::new(&mut rng),
            promises: Promises::new(DriftBound::default()),
            observer: LeaseObserver::new(KEY, DriftBound::default()),
            entry: None,
            process: 0,
            is_cut_off: false,
            map: map.clone(),
        });
        let others = others.collect();
        let mut world = World {
            clock: DriftingClock::new(&mut rng),
            rng,
            mutant,
            timing,
            now: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            store: Store {
                revision: 1,
                lease: None,
                map: map.clone(),
            },
            holder: LeaseHolder::new(KEY, "a", timing),
            map,
            is_cut_off: false,
            waits_for: None,
            renewals: 0,
            rounds: Vec::new(),
            others,
            prolonged: 0,
            taken: Vec::new(),
            error: None,
        };
        world.plan(0, Event::Wake);
        let end = world.end();
        for node in 0..OTHERS {
            world.plan(0, Event::Look(node));
            for _ in 0..2 {
                let at = world.rng.below(end);
                world.plan(at, Event::Restart(node));
            }
            let at = world.rng.below(2 * end);
            world.plan(at, Event::Cut(Some(node)));
        }
        let at = world.rng.below(end / 4);
        world.plan(at, Event::Cut(None));
        let at = world.rng.below(end);
        world.plan(at, Event::Add);
        world
    }

    /// The length of the history.
    fn end(&self) -> u64 {
        30 * self.timing.time().as_nanos() as u64
    }

    fn plan(&mut self, after: u64, event: Event) {
        self.agenda
            .push(Reverse((self.now + after, self.events.len())));
        self.events.push(Some(event));
    }

    /// A delay: mostly short, sometimes longer than a lease.
    fn delay(&mut self) -> u64 {
        let time = self.timing.time().as_millis() as u64;
        let longest = match self.rng.below(20) {
            0 => 3 * time,
            1 => time / 2,
            _ => 20,
        };
        self.rng.below(longest * MS)
    }

    fn run(mut self) -> Result<(u64, usize), String> {
        let end = self.end();
        while let Some(Reverse((at, number))) = self.agenda.pop() {
            if at > end {
                break;
            }
            self.now = at;
            if let Some(event) = self.events[number].take() {
                self.handle(event);
                self.check();
            }
            if let Some(error) = self.error {
                return Err(error);
            }
        }
        Ok((self.prolonged, self.taken.len()))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake => self.wake(),
            Event::Renewal(number, put) => {
                let answer = self.store.transact(&put, None);
                let after = self.delay();
                self.plan(after, Event::Answer(number, answer));
            }
            Event::Answer(number, answer) => self.on_answer(number, &answer),
            Event::Request(round, node) => self.on_request(round, node),
            Event::Promise(round, node) => {
                self.rounds[round].on_promise(&node.to_string());
                if self.mutant == Mutant::OneIsEnough {
                    for other in 0..OTHERS {
                        self.rounds[round].on_promise(&other.to_string());
                    }
                }
                let before = self.holder.ends();
                self.holder.on_promises(&self.rounds[round]);
                self.prolonged += u64::from(self.holder.ends() > before);
            }
            Event::Follow(map) => {
                if map.rev > self.map.rev {
                    self.map = map;
                }
            }
            Event::Look(node) => self.look(node),
            Event::Seen(node, process, entry, revision, map) => {
                let other = &mut self.others[node];
                if map.rev > other.map.rev {
                    other.map = map;
                }
                if other.process == process {
                    let now = other.clock.at(self.now);
                    other.observer.on_entry(now, entry.as_ref());
                    other.entry = entry;
                    other.promises.on_read(Revision(revision), false);
                    self.take(node);
                }
            }
            Event::Restart(node) => {
                let other = &mut self.others[node];
                other.process += 1;
                other.promises = Promises::new(DriftBound::default());
                other.observer = LeaseObserver::new(KEY, DriftBound::default());
                other.entry = None;
                if self.mutant == Mutant::PromisesBlindly {
                    other.promises.on_read(Revision(0), false);
                }
            }
            Event::Cut(who) => {
                let is_cut_off = match who {
                    None => &mut self.is_cut_off,
                    Some(node) => &mut self.others[node].is_cut_off,
                };
                *is_cut_off = !*is_cut_off;
                let lasts = match who {
                    None => self.end() / 4,
                    Some(_) => self.end() / 10,
                };
                let lasts = self.rng.below(lasts);
                self.plan(lasts, Event::Cut(who));
            }
            Event::Add => {
                let map = &mut self.store.map;
                map.rev += 1;
                map.joined.insert(OTHERS - 1, map.rev);
                self.store.revision += 1;
            }
            Event::Take(transaction, rev) => {
                if let Ok(revision) = self.store.transact(&transaction, Some(rev)) {
                    self.store.map.rev += 1;
                    self.taken.push((self.now, revision));
                }
            }
        }
    }

    /// The holder renews, if it is due.
    fn wake(&mut self) {
        let now = self.clock.at(self.now);
        let due = self.holder.next_put().expect("nobody replaces it");
        if self.waits_for.is_none() && now >= due {
            let put = self.holder.put(now, &json!({ "follows": self.map.rev }));
            let put = put.expect("nobody replaces it");
            self.renewals += 1;
            let number = self.renewals;
            self.waits_for = Some(number);
            if !self.is_cut_off && self.rng.below(8) > 0 {
                let after = self.delay();
                self.plan(after, Event::Renewal(number, put));
            }
            let lost = CoordinationError::OutcomeUnknown("lost".to_owned());
            let timeout = self.timing.request_timeout().as_nanos() as u64;
            self.plan(timeout, Event::Answer(number, Err(lost)));
        }
        if !self.is_cut_off {
            let after = self.delay();
            self.plan(after, Event::Follow(self.store.map.clone()));
        }
        self.plan(10 * MS, Event::Wake);
    }

    fn on_answer(&mut self, number: u64, answer: &Answer) {
        if self.waits_for != Some(number) {
            return;
        }
        self.waits_for = None;
        let now = self.clock.at(self.now);
        if self.holder.on_answer(now, answer) != LeaseEvent::Unknown {
            return;
        }
        let members: Vec<usize> = self.map.joined.keys().copied().collect();
        let names = members.iter().map(ToString::to_string);
        let Some(round) = self.holder.begin_round(now, names) else {
            return;
        };
        self.rounds.push(round);
        for node in members {
            if self.rng.below(20) > 0 {
                let after = self.delay();
                self.plan(after, Event::Request(self.rounds.len() - 1, node));
            }
        }
    }

    fn on_request(&mut self, round: usize, node: usize) {
        let mut request = self.rounds[round].request();
        match self.mutant {
            Mutant::ShortPromises => request.time /= 2,
            Mutant::IgnoresTenures => request.known = Revision(u64::MAX),
            _ => {}
        }
        let other = &mut self.others[node];
        let now = other.clock.at(self.now);
        let given = other
            .promises
            .give(now, HOLDER, request, other.entry.as_ref());
        if given.is_ok() {
            let after = self.delay();
            self.plan(after, Event::Promise(round, node));
        }
    }

    fn look(&mut self, node: usize) {
        let pause = self.timing.time().as_nanos() as u64 / 8;
        self.plan(pause, Event::Look(node));
        if self.others[node].is_cut_off {
            self.others[node].observer.on_interruption();
            return;
        }
        let process = self.others[node].process;
        let (entry, map) = (self.store.lease.clone(), self.store.map.clone());
        let seen = Event::Seen(node, process, entry, self.store.revision, map);
        // In the order of the answers.
        let after = self.rng.below(20 * MS);
        self.plan(after, seen);
        self.take(node);
    }

    /// Takes the holder's place, if the node may.
    fn take(&mut self, node: usize) {
        let mutant = self.mutant;
        let other = &mut self.others[node];
        let now = other.clock.at(self.now);
        let Some(ended) = other.observer.deposition(now, self.timing.time()) else {
            return;
        };
        let Some(record) = other.observer.record() else {
            return;
        };
        let follows = record.health["follows"].as_u64().expect("a revision");
        let joined = other.map.joined.get(&node);
        let is_fit =
            joined.is_some_and(|joined| *joined <= follows || mutant == Mutant::NewMemberTakes);
        let is_promised = now < other.promises.end_of(HOLDER);
        if !is_fit || is_promised && mutant != Mutant::BreaksPromises {
            return;
        }
        if mutant != Mutant::PromisesWhileTaking {
            other.promises.withhold(HOLDER, other.entry.as_ref());
        }
        let rev = other.map.rev;
        if self.rng.below(4) == 0 {
            // While its transaction is under way.
            let after = self.rng.below(20 * MS);
            self.plan(after, Event::Restart(node));
        }
        let after = self.delay();
        let take = Transaction::new().when(ended).delete(KEY);
        self.plan(after, Event::Take(take, rev));
    }

    /// Whatever the holder has begun in a tenure is over when its place was taken.
    fn check(&mut self) {
        let Some(since) = self.holder.since() else {
            return;
        };
        let over = self.holder.serves_until().plus(self.timing.pause());
        let ended = self.taken.iter().find(|(_, at)| *at > since);
        if let Some((at, revision)) = ended
            && self.clock.at(*at) < over
        {
            self.error = Some(format!(
                "taken in revision {revision} at {at} ns, where the clock of the holder shows {:?}, which may serve until \
                 {over:?}",
                self.clock.at(*at)
            ));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_takes_the_place_of_a_holder_that_serves_by_promises(seed in any::<u64>()) {
        let run = World::new(seed, Mutant::None).run();
        prop_assert!(run.is_ok(), "seed {seed}: {}", run.unwrap_err());
    }
}

#[test]
fn histories_have_promises_and_changes_of_the_place() {
    let (mut prolonged, mut taken) = (0, 0);
    for seed in 0..50 {
        let run = World::new(seed, Mutant::None).run();
        let (more, places) = run.expect("nobody takes the place of a holder that serves");
        prolonged += more;
        taken += places;
    }
    assert!(prolonged > 100 && taken > 50, "{prolonged}, {taken}");
}

#[test]
fn wrong_promises_are_found() {
    for mutant in [
        Mutant::ShortPromises,
        Mutant::PromisesWhileTaking,
        Mutant::PromisesBlindly,
        Mutant::NewMemberTakes,
        Mutant::BreaksPromises,
        Mutant::OneIsEnough,
        Mutant::IgnoresTenures,
    ] {
        let fails = |seed| World::new(seed, mutant).run().is_err();
        assert!((0..2_000).any(fails), "{mutant:?} is not found");
    }
}
