//! A process's part in promises: those that it gives, and those that it asks for while the store does not answer.

use crate::control::Times;
use crate::map::{SimMap, name, text};
use crate::messages::Message;
use crate::network::Network;
use crate::trace::note;
use kedge_coordination::lease::{LeaseHolder, LeaseTiming, PromiseRound, Promises};
use kedge_coordination::{Entry, Moment, StorePosition};
use kedge_disk::Rng;
use std::collections::BTreeMap;

/// A round of requests that waits for its answers.
#[derive(Debug)]
struct OpenRound {
    number: u64,
    round: PromiseRound,
    deadline: Moment,
}

/// The promises of a process.
#[derive(Debug)]
pub(crate) struct PromiseExchange {
    given: Promises,
    /// The position of the store when everything was read last.
    read_at: Option<StorePosition>,
    /// The records of leases, as seen last.
    leases: BTreeMap<usize, Entry>,
    /// True if the last renewal got no answer.
    is_wanted: bool,
    round: Option<OpenRound>,
    /// The number of rounds in which all others have promised.
    pub(crate) complete: u64,
}

impl PromiseExchange {
    pub(crate) fn new(timing: LeaseTiming) -> Self {
        Self {
            given: Promises::new(timing.drift()),
            read_at: None,
            leases: BTreeMap::new(),
            is_wanted: false,
            round: None,
            complete: 0,
        }
    }

    /// Notes that everything was read.
    pub(crate) fn on_read(&mut self, position: StorePosition) {
        let was_restored = self.read_at.is_some_and(|before| {
            before.store != position.store || position.revision < before.revision
        });
        self.given.on_read(position.revision, was_restored);
        self.read_at = Some(position);
    }

    /// Notes the record of a node's lease.
    pub(crate) fn note_lease(&mut self, node: usize, entry: Option<&Entry>) {
        match entry {
            Some(entry) => drop(self.leases.insert(node, entry.clone())),
            None => drop(self.leases.remove(&node)),
        }
    }

    /// Asks for promises, as a renewal got no answer.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Returns whether answers are awaited. Nothing is renewed meanwhile.
    pub(crate) fn is_asking(&self) -> bool {
        self.round.is_some()
    }

    /// Promises a node nothing until it has renewed its lease: it is to be failed over.
    pub(crate) fn withhold(&mut self, node: usize) {
        self.given.withhold(&text(node), self.leases.get(&node));
    }

    /// Returns whether the promise to a node has ended.
    pub(crate) fn has_ended(&self, now: Moment, node: usize) -> bool {
        self.given.end_of(&text(node)) <= now
    }

    /// Handles messages, and asks the other members of the followed map if that is wanted.
    pub(crate) fn step(
        &mut self,
        times: Times,
        me: usize,
        holder: &mut LeaseHolder,
        followed: &SimMap,
        network: &mut Network,
        rng: &mut Rng,
    ) {
        let now = times.local;
        for (from, message) in network.take_messages(times.true_ns, me, rng) {
            match message {
                Message::AskPromise { round, request } => {
                    let seen = self.leases.get(&from);
                    match self.given.give(now, &text(from), request, seen) {
                        Ok(()) => {
                            note!(name(me), "promises not to fail {} over", name(from));
                            let answer = Message::Promised { round };
                            network.send_message(times.true_ns, (me, from), answer, rng);
                        }
                        Err(why) => note!(name(me), "promises {} nothing: {why}", name(from)),
                    }
                }
                Message::Promised { round } => {
                    if let Some(open) = self.round.as_mut().filter(|it| it.number == round) {
                        open.round.on_promise(&text(from));
                    }
                }
            }
        }
        // The holder decides whether the promises suffice.
        let is_over =
            |open: &mut OpenRound| open.round.missing().next().is_none() || open.deadline <= now;
        if let Some(open) = self.round.take_if(is_over)
            && holder.on_promises(&open.round)
        {
            note!(name(me), "serves by promises");
            self.complete += 1;
        }
        if !std::mem::take(&mut self.is_wanted) || self.round.is_some() || followed.is_out(me) {
            return;
        }
        let others: Vec<usize> = followed.members().filter(|other| *other != me).collect();
        let names = others.iter().map(|other| text(*other));
        let Some(round) = holder.begin_round(now, names) else {
            return;
        };
        let number = network.next_round();
        let request = round.request();
        for other in others {
            let ask = Message::AskPromise {
                round: number,
                request,
            };
            network.send_message(times.true_ns, (me, other), ask, rng);
        }
        self.round = Some(OpenRound {
            number,
            round,
            deadline: now.plus(holder.timing().request_timeout()),
        });
    }
}
