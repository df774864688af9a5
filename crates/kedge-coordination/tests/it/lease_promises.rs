//! Promises: rules, and random histories of a holder without the store and of two nodes that could take its place. Clocks
//! drift, messages are late or lost, nodes are restarted. No node takes the holder's place while the holder serves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use kedge_coordination::lease::{
    LeaseEvent, LeaseHolder, LeaseTiming, PromiseRefused, PromiseRound, Promises,
};
use kedge_coordination::{CoordinationError, DriftBound, Moment, Revision};
use kedge_disk::Rng;
use proptest::prelude::*;
use serde_json::Value;

use crate::drifting_clock::{DriftingClock, MS};

const HOLDER: &str = "h";

fn at(ms: u64) -> Moment {
    Moment::at_ns(ms * MS)
}

fn timing(ms: u64) -> LeaseTiming {
    LeaseTiming::new(Duration::from_millis(ms), None).expect("the inequality holds")
}

#[test]
fn promise_is_kept_until_its_end() {
    let time = Duration::from_secs(5);
    let mut promises = Promises::new(at(0), time, DriftBound::default());
    let early = promises.give(at(5_004), HOLDER, time, false);
    assert_eq!(early, Err(PromiseRefused::JustStarted));
    assert_eq!(promises.free_from(HOLDER), at(5_005));
    promises
        .give(at(5_005), HOLDER, time, false)
        .expect("given");
    assert_eq!(promises.free_from(HOLDER), at(10_010));
    // A shorter one does not end it.
    let second = Duration::from_secs(1);
    promises
        .give(at(6_000), HOLDER, second, false)
        .expect("given");
    assert_eq!(promises.free_from(HOLDER), at(10_010));
    assert_eq!(promises.free_from("another"), at(5_005));
    let late = promises.give(at(7_000), HOLDER, time, true);
    assert_eq!(late, Err(PromiseRefused::Superseded));
    let endless = promises.give(at(7_000), HOLDER, Duration::MAX, false);
    assert_eq!(endless, Err(PromiseRefused::TooLong));
}

fn held(timing: LeaseTiming, now: Moment) -> LeaseHolder {
    let mut holder = LeaseHolder::new("alive/h", "a", timing);
    holder.put(now, &Value::Null).expect("nobody replaces it");
    assert_eq!(holder.on_answer(now, &Ok(Revision(1))), LeaseEvent::Taken);
    holder
}

#[test]
fn holder_needs_the_promises_of_all_and_a_tenure() {
    let mut holder = held(timing(5_000), at(0));
    let others = || ["b", "c"].map(str::to_owned);
    let mut round = PromiseRound::begin(at(4_000), timing(5_000), others());
    round.on_promise("b");
    holder.on_promises(&round);
    assert_eq!(holder.ends(), at(4_995));
    round.on_promise("c");
    holder.on_promises(&round);
    assert_eq!(holder.ends(), at(8_995));
    assert_eq!(holder.serves_until(), at(8_495));
    // The store answers again, and says that the tenure has ended.
    holder.forget();
    assert_eq!(holder.ends(), Moment::default());
    holder.on_promises(&round);
    assert_eq!(holder.ends(), Moment::default());
}

/// The mistake in a run that has to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    ShortPromises,
    RestartForgetsPromises,
    PromisesAfterFollowing,
    OneIsEnough,
}

/// A node that could take the holder's place.
struct Other {
    clock: DriftingClock,
    promises: Promises,
    /// It knows that it is to take the place.
    knows: bool,
    /// The true time at which it did.
    followed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The holder begins a round.
    Ask,
    Request(usize, usize),
    Promise(usize, usize),
    /// A node learns that it is to take the holder's place.
    Learn(usize),
    /// A node looks whether it may.
    Look(usize),
    Restart(usize),
}

struct World {
    rng: Rng,
    mutant: Mutant,
    timing: LeaseTiming,
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    clock: DriftingClock,
    holder: LeaseHolder,
    rounds: Vec<PromiseRound>,
    others: Vec<Other>,
    /// The number of times that promises prolonged the holder's time.
    prolonged: u64,
    error: Option<String>,
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed);
        let timing = timing(1_000 + rng.below(4_000));
        let clock = DriftingClock::new(&mut rng);
        let holder = held(timing, clock.at(0));
        let others = (0..2).map(|_| {
            let clock = DriftingClock::new(&mut rng);
            Other {
                // It has run for long.
                promises: Promises::new(Moment::default(), Duration::ZERO, DriftBound::default()),
                clock,
                knows: false,
                followed: None,
            }
        });
        let others = others.collect();
        let mut world = World {
            rng,
            mutant,
            timing,
            now: 0,
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            clock,
            holder,
            rounds: Vec::new(),
            others,
            prolonged: 0,
            error: None,
        };
        world.plan(0, Event::Ask);
        for node in 0..2 {
            // Not before the lease has lapsed for everyone: that is another history.
            let lapsed = 2 * timing.time().as_nanos() as u64;
            let later = world.rng.below(4 * lapsed);
            world.plan(lapsed + later, Event::Learn(node));
            let restart = world.rng.below(4 * lapsed);
            world.plan(restart, Event::Restart(node));
        }
        world
    }

    fn plan(&mut self, after: u64, event: Event) {
        self.agenda
            .push(Reverse((self.now + after, self.events.len())));
        self.events.push(Some(event));
    }

    fn delay(&mut self) -> u64 {
        let time = self.timing.time().as_millis() as u64;
        let longest = if self.rng.below(8) == 0 { time } else { 20 };
        self.rng.below(longest * MS)
    }

    fn run(mut self) -> Result<(u64, usize), String> {
        let end = 20 * self.timing.time().as_nanos() as u64;
        while let Some(Reverse((at, number))) = self.agenda.pop() {
            if at > end {
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
        let followed = self.others.iter().filter(|it| it.followed.is_some());
        Ok((self.prolonged, followed.count()))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask => {
                let now = self.clock.at(self.now);
                let names = ["0", "1"].map(str::to_owned);
                self.rounds
                    .push(PromiseRound::begin(now, self.timing, names));
                let round = self.rounds.len() - 1;
                for node in 0..2 {
                    if self.rng.below(20) > 0 {
                        let after = self.delay();
                        self.plan(after, Event::Request(round, node));
                    }
                }
                let next = self.timing.renewal_interval().as_nanos() as u64;
                self.plan(next, Event::Ask);
                // The store does not answer.
                let lost = CoordinationError::Unreachable("cut off".to_owned());
                self.holder.on_answer(now, &Err(lost));
            }
            Event::Request(round, node) => self.on_request(round, node),
            Event::Promise(round, node) => self.on_promise(round, node),
            Event::Learn(node) => {
                self.others[node].knows = true;
                self.plan(0, Event::Look(node));
            }
            Event::Look(node) => self.look(node),
            Event::Restart(node) => {
                let longest = match self.mutant {
                    Mutant::RestartForgetsPromises => Duration::ZERO,
                    _ => self.timing.time(),
                };
                let other = &mut self.others[node];
                let now = other.clock.at(self.now);
                other.promises = Promises::new(now, longest, DriftBound::default());
            }
        }
    }

    fn on_request(&mut self, round: usize, node: usize) {
        let mut time = self.rounds[round].time();
        if self.mutant == Mutant::ShortPromises {
            time /= 2;
        }
        let other = &mut self.others[node];
        let is_superseded = other.knows && self.mutant != Mutant::PromisesAfterFollowing;
        let now = other.clock.at(self.now);
        if other
            .promises
            .give(now, HOLDER, time, is_superseded)
            .is_ok()
        {
            let after = self.delay();
            self.plan(after, Event::Promise(round, node));
        }
    }

    fn on_promise(&mut self, round: usize, node: usize) {
        self.rounds[round].on_promise(&node.to_string());
        if self.mutant == Mutant::OneIsEnough {
            self.rounds[round].on_promise(&(1 - node).to_string());
        }
        let before = self.holder.ends();
        self.holder.on_promises(&self.rounds[round]);
        self.prolonged += u64::from(self.holder.ends() > before);
        self.check();
    }

    fn look(&mut self, node: usize) {
        let other = &mut self.others[node];
        let now = other.clock.at(self.now);
        if other.followed.is_some() {
            return;
        }
        if other.promises.free_from(HOLDER) <= now {
            other.followed = Some(self.now);
            self.check();
        } else {
            self.plan(MS, Event::Look(node));
        }
    }

    fn check(&mut self) {
        let over = self.holder.serves_until().plus(self.timing.pause());
        let followed = self.others.iter().filter_map(|it| it.followed);
        for at in followed {
            if self.clock.at(at) < over {
                self.error = Some(format!(
                    "followed at {at} ns, the holder serves until {over:?}"
                ));
            }
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
    let (mut prolonged, mut followed) = (0, 0);
    for seed in 0..50 {
        let run = World::new(seed, Mutant::None).run();
        let (more, places) = run.expect("nobody takes the place of a holder that serves");
        prolonged += more;
        followed += places;
    }
    assert!(prolonged > 100 && followed > 50, "{prolonged}, {followed}");
}

#[test]
fn wrong_promises_are_found() {
    for mutant in [
        Mutant::ShortPromises,
        Mutant::RestartForgetsPromises,
        Mutant::PromisesAfterFollowing,
        Mutant::OneIsEnough,
    ] {
        let fails = |seed| World::new(seed, mutant).run().is_err();
        assert!((0..300).any(fails), "{mutant:?} is not found");
    }
}
