//! Random histories of a holder and an observer: clocks that drift, messages that are late or lost, pauses of both, outages
//! of the store. At no moment of true time does a holder serve after an observer's deposing transaction was made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use kedge_coordination::lease::{LeaseEvent, LeaseHolder, LeaseObserver, LeaseTiming};
use kedge_coordination::{
    Compare, Conflict, CoordinationError, DriftBound, Entry, Op, Revision, Transaction,
};
use kedge_disk::Rng;
use proptest::prelude::*;
use serde_json::Value;

use crate::drifting_clock::{DriftingClock, MS};

const KEY: &str = "alive/one";
/// The length of a history.
const END: u64 = 120_000 * MS;

/// The mistake in a run that has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// The observer waits for half of the time.
    ImpatientObserver,
    /// The deposing transaction does not compare the lease.
    NoCompare,
    /// The holder counts from the answer, not from before the request.
    CountsFromAnswer,
}

/// A linearizable store.
#[derive(Default)]
struct Store {
    revision: u64,
    lease: Option<Entry>,
}

impl Store {
    fn transact(&mut self, transaction: &Transaction) -> Result<Revision, CoordinationError> {
        let holds = |compare: &Compare| match compare {
            Compare::Absent(_) => self.lease.is_none(),
            Compare::Unchanged(_, at) => self.lease.as_ref().map(|it| it.mod_revision) == Some(*at),
            Compare::Value(..) => false,
        };
        if !transaction.compares().iter().all(holds) {
            return Err(CoordinationError::Conflict(Conflict {
                revision: Revision(self.revision),
                present: vec![(KEY.to_owned(), self.lease.clone())],
            }));
        }
        self.revision += 1;
        let now = Revision(self.revision);
        for op in transaction.ops().iter().filter(|op| op.key() == KEY) {
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

type Answer = Result<Revision, CoordinationError>;

/// An event, in the order of true time.
enum Event {
    /// The holder wakes up.
    Wake,
    /// A renewal arrives at the store.
    Renewal(u64, Transaction),
    /// The holder gets the answer to a renewal, or gives it up.
    Answer(u64, Answer),
    /// The observer asks the store.
    Look,
    /// The observer gets what the store had.
    Seen(Option<Entry>),
    /// The observer finds the store unreachable.
    Outage,
    /// A deposing transaction arrives at the store.
    Deposition(Transaction),
}

struct World {
    rng: Rng,
    mutant: Mutant,
    timing: LeaseTiming,
    now: u64,
    /// Times and numbers of events, which are in `events`.
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    store: Store,
    clocks: [DriftingClock; 2],
    holder: LeaseHolder,
    /// The number of the renewal whose answer the holder waits for.
    waits_for: Option<u64>,
    renewals: u64,
    observer: LeaseObserver,
    /// The true times and revisions of deposing transactions.
    deposed: Vec<(u64, Revision)>,
    takes: u64,
    error: Option<String>,
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed);
        let ms = 1_000 + rng.below(6_000);
        let timing = LeaseTiming::new(Duration::from_millis(ms), None);
        let timing = timing.expect("the inequality holds");
        let clocks = [DriftingClock::new(&mut rng), DriftingClock::new(&mut rng)];
        let mut world = World {
            rng,
            mutant,
            timing,
            now: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            store: Store::default(),
            clocks,
            holder: LeaseHolder::new(KEY, "a", timing),
            waits_for: None,
            renewals: 0,
            observer: LeaseObserver::new(KEY, DriftBound::default()),
            deposed: Vec::new(),
            takes: 0,
            error: None,
        };
        world.plan(0, Event::Wake);
        world.plan(0, Event::Look);
        world
    }

    fn plan(&mut self, after: u64, event: Event) {
        self.agenda
            .push(Reverse((self.now + after, self.events.len())));
        self.events.push(Some(event));
    }

    /// A delay: mostly short, sometimes longer than a lease.
    fn delay(&mut self) -> u64 {
        let longest = match self.rng.below(20) {
            0 => 3 * self.timing.time().as_millis() as u64,
            1..=3 => self.timing.time().as_millis() as u64 / 2,
            _ => 20,
        };
        self.rng.below(longest * MS)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    fn run(mut self) -> Result<(usize, u64), String> {
        while let Some(Reverse((at, number))) = self.agenda.pop() {
            if at > END {
                break;
            }
            self.now = at;
            if let Some(event) = self.events[number].take() {
                self.handle(event);
            }
            if let Some(error) = self.error {
                return Err(error);
            }
        }
        Ok((self.deposed.len(), self.takes))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake => self.wake(),
            Event::Renewal(number, put) => {
                let answer = self.store.transact(&put);
                if !self.chance(8) {
                    let after = self.delay();
                    self.plan(after, Event::Answer(number, answer));
                }
            }
            Event::Answer(number, answer) => self.on_answer(number, &answer),
            Event::Look => self.look(),
            Event::Seen(entry) => {
                let now = self.clocks[1].at(self.now);
                self.observer.on_entry(now, entry.as_ref());
                self.depose();
            }
            Event::Outage => self.observer.on_interruption(),
            Event::Deposition(transaction) => {
                if let Ok(revision) = self.store.transact(&transaction) {
                    self.deposed.push((self.now, revision));
                    self.check();
                }
            }
        }
    }

    /// The holder renews, if it is due. It may be paused between its look at the clock and the request.
    fn wake(&mut self) {
        let now = self.clocks[0].at(self.now);
        let due = self.holder.next_put().expect("nobody replaces it");
        if self.waits_for.is_none() && now >= due {
            let put = self.holder.put(now, &Value::Null);
            let put = put.expect("nobody replaces it");
            self.check();
            self.renewals += 1;
            let number = self.renewals;
            self.waits_for = Some(number);
            if !self.chance(8) {
                let after = self.delay();
                self.plan(after, Event::Renewal(number, put));
            }
            let lost = CoordinationError::OutcomeUnknown("lost".to_owned());
            let timeout = self.timing.request_timeout().as_nanos() as u64;
            self.plan(timeout, Event::Answer(number, Err(lost)));
        }
        let pause = 10 * MS + if self.chance(50) { self.delay() } else { 0 };
        self.plan(pause, Event::Wake);
    }

    fn on_answer(&mut self, number: u64, answer: &Answer) {
        if self.waits_for != Some(number) {
            return;
        }
        self.waits_for = None;
        let now = self.clocks[0].at(self.now);
        if self.mutant == Mutant::CountsFromAnswer && answer.is_ok() {
            // As if the request had been sent just now.
            let put = self.holder.put(now, &Value::Null);
            put.expect("nobody replaces it");
        }
        if self.holder.on_answer(now, answer) == LeaseEvent::Taken {
            self.takes += 1;
        }
        self.check();
    }

    fn look(&mut self) {
        let interval = self.timing.time().as_nanos() as u64 / 8;
        let pause = interval + if self.chance(50) { self.delay() } else { 0 };
        self.plan(pause, Event::Look);
        if self.chance(30) {
            self.plan(0, Event::Outage);
            return;
        }
        let entry = self.store.lease.clone();
        // Answers may overtake each other, as a watch and a read do.
        let after = self.delay();
        self.plan(after, Event::Seen(entry));
        self.depose();
    }

    fn depose(&mut self) {
        let mut now = self.clocks[1].at(self.now);
        if self.mutant == Mutant::ImpatientObserver {
            now = now.plus(self.timing.time() / 2);
        }
        let Some(lapsed) = self.observer.deposition(now, self.timing.time()) else {
            return;
        };
        if matches!(lapsed, Compare::Absent(_)) {
            return;
        }
        let transaction = match self.mutant {
            Mutant::NoCompare => Transaction::new(),
            _ => Transaction::new().when(lapsed),
        };
        let after = self.delay();
        self.plan(after, Event::Deposition(transaction.delete(KEY)));
    }

    /// Whatever the holder has begun in a tenure is over when the tenure was ended.
    fn check(&mut self) {
        let Some(since) = self.holder.since() else {
            return;
        };
        let over = self.holder.serves_until().plus(self.timing.pause());
        let ended = self.deposed.iter().find(|(_, at)| *at > since);
        if let Some((at, revision)) = ended
            && self.clocks[0].at(*at) < over
        {
            self.error = Some(format!(
                "deposed in revision {revision} at {at} ns, where the clock of the holder shows {:?}, which may serve until \
                 {over:?}",
                self.clocks[0].at(*at)
            ));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_holder_serves_after_it_was_deposed(seed in any::<u64>()) {
        let run = World::new(seed, Mutant::None).run();
        prop_assert!(run.is_ok(), "seed {seed}: {}", run.unwrap_err());
    }
}

#[test]
fn histories_have_depositions_and_new_tenures() {
    let runs = (0..50).map(|seed| World::new(seed, Mutant::None).run());
    let (mut depositions, mut takes) = (0, 0);
    for run in runs {
        let (deposed, taken) = run.expect("no holder serves after it was deposed");
        depositions += deposed;
        takes += taken;
    }
    assert!(depositions > 100 && takes > 100, "{depositions}, {takes}");
}

#[test]
fn wrong_ends_of_a_lease_are_found() {
    for mutant in [
        Mutant::ImpatientObserver,
        Mutant::NoCompare,
        Mutant::CountsFromAnswer,
    ] {
        let fails = |seed| World::new(seed, mutant).run().is_err();
        assert!((0..200).any(fails), "{mutant:?} is not found");
    }
}
