//! The memory that requests may take while they are received and executed, of all connections together.
//!
//! A request that is larger than what is received in any case is given room for all of its length before more of it is
//! received. So no two requests wait for each other: who was given room needs no more.
//!
//! Invariants:
//! * What was given is given back exactly once: by the connection that has it, or for a connection that is gone.
//! * Who waits is served in order, those who logged in apart from those who did not. Nobody is given room past one who
//!   waits in front, and while there is room for the first one he does not wait.
//! * Those who did not log in have a quarter at most, so that they leave room for others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kedge_sync::{RankedMutex, ranks::RequestLedger};

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds};

/// Incomplete requests up to this length, in bytes, are received without asking.
pub(crate) const FREE_BYTES: usize = 4 << 10;

/// The kind of client that asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientClass {
    /// Somebody who logged in.
    User = 0,
    /// Anybody else.
    Anonymous = 1,
}

#[derive(Debug)]
struct MemoryWaiter {
    id: ConnectionId,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Bytes given to each kind of asker.
    given: [usize; 2],
    waiting: [VecDeque<MemoryWaiter>; 2],
}

impl Ledger {
    fn has_room(&self, max: usize, asker: ClientClass, bytes: usize) -> bool {
        let [users, anonymous] = self.given;
        let is_below = users + anonymous + bytes <= max;
        match asker {
            ClientClass::User => is_below,
            ClientClass::Anonymous => is_below && anonymous + bytes <= max / 4,
        }
    }

    /// Gives room to those in front who wait for it.
    fn serve(&mut self, max: usize) -> Vec<(ConnectionId, MemoryGrant)> {
        let mut served = Vec::new();
        for asker in [ClientClass::User, ClientClass::Anonymous] {
            while let Some(&MemoryWaiter { id, bytes }) = self.waiting[asker as usize].front() {
                if !self.has_room(max, asker, bytes) {
                    break;
                }
                self.waiting[asker as usize].pop_front();
                self.given[asker as usize] += bytes;
                served.push((id, MemoryGrant { asker, bytes }));
            }
        }
        served
    }
}

/// The memory of requests.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    max: usize,
    ledger: RankedMutex<RequestLedger, Ledger>,
    /// As in the ledger, to be read without its lock.
    used: AtomicUsize,
    /// True if somebody of each kind waits.
    scarce: [AtomicBool; 2],
    /// Times that somebody had to wait.
    waits: AtomicU64,
}

/// Room that a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGrant {
    asker: ClientClass,
    bytes: usize,
}

impl MemoryGrant {
    /// Its size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl RequestMemory {
    /// At most `max` bytes are given at a time.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ledger: RankedMutex::default(),
            used: AtomicUsize::new(0),
            scarce: Default::default(),
            waits: AtomicU64::new(0),
        }
    }

    /// Room for a request of this length; without it the connection waits for a [`FrontEndMessage::MemoryGrant`].
    pub(crate) fn ask(
        &self,
        id: ConnectionId,
        asker: ClientClass,
        bytes: usize,
    ) -> Option<MemoryGrant> {
        let mut ledger = self.ledger.lock();
        let is_first = ledger.waiting[asker as usize].is_empty();
        if is_first && ledger.has_room(self.max, asker, bytes) {
            ledger.given[asker as usize] += bytes;
            self.publish(&ledger);
            return Some(MemoryGrant { asker, bytes });
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        ledger.waiting[asker as usize].push_back(MemoryWaiter { id, bytes });
        self.publish(&ledger);
        None
    }

    /// Takes room back, and gives it to those who wait.
    pub(crate) fn give_back(&self, room: MemoryGrant, front_ends: &FrontEnds) {
        self.change(front_ends, |ledger| {
            ledger.given[room.asker as usize] -= room.bytes;
        });
    }

    /// A connection that waited is gone.
    pub(crate) fn forget(&self, id: ConnectionId, front_ends: &FrontEnds) {
        self.change(front_ends, |ledger| {
            for waiting in &mut ledger.waiting {
                waiting.retain(|waiter| waiter.id != id);
            }
        });
    }

    fn change(&self, front_ends: &FrontEnds, change: impl FnOnce(&mut Ledger)) {
        let served = {
            let mut ledger = self.ledger.lock();
            change(&mut ledger);
            let served = ledger.serve(self.max);
            self.publish(&ledger);
            served
        };
        for (id, room) in served {
            front_ends.send(id.thread, FrontEndMessage::MemoryGranted(id, room));
        }
    }

    fn publish(&self, ledger: &Ledger) {
        let used = ledger.given.iter().sum();
        self.used.store(used, Ordering::Relaxed);
        for (scarce, waiting) in self.scarce.iter().zip(&ledger.waiting) {
            scarce.store(!waiting.is_empty(), Ordering::Relaxed);
        }
    }

    /// Returns whether somebody of this kind waits for room: others are to receive no more than goes without asking.
    pub(crate) fn is_scarce(&self, asker: ClientClass) -> bool {
        self.scarce[asker as usize].load(Ordering::Relaxed)
    }

    /// Bytes that are given now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Calls `each` with the names and values of its statistics.
    pub(crate) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let waiting: usize = self.ledger.lock().waiting.iter().map(VecDeque::len).sum();
        for (name, value) in [
            ("request_memory_max", self.max as u64),
            ("request_memory_used", self.used() as u64),
            ("request_memory_waiting", waiting as u64),
            ("request_memory_waits", self.waits.load(Ordering::Relaxed)),
        ] {
            each(name, &value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Waker};

    use crate::front_end::WAKER;
    use kedge_node::inbox::Inbox;

    struct Rig {
        memory: RequestMemory,
        front_ends: FrontEnds,
        _poll: Poll,
    }

    fn rig(max: usize) -> Rig {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), WAKER).unwrap();
        Rig {
            memory: RequestMemory::new(max),
            front_ends: FrontEnds::new(vec![Inbox::new(waker)]),
            _poll: poll,
        }
    }

    fn id(slot: usize) -> ConnectionId {
        ConnectionId::new(0, slot, 1)
    }

    impl Rig {
        fn ask(&self, slot: usize, asker: ClientClass, bytes: usize) -> Option<MemoryGrant> {
            self.memory.ask(id(slot), asker, bytes)
        }

        fn give_back(&self, room: MemoryGrant) {
            self.memory.give_back(room, &self.front_ends);
        }

        /// The connections that were given room since the last call.
        fn served(&self) -> Vec<(usize, MemoryGrant)> {
            let mut messages = Vec::new();
            self.front_ends.inbox(0).take(&mut messages);
            let served = messages.into_iter().map(|message| match message {
                FrontEndMessage::MemoryGranted(id, room) => (id.slot as usize, room),
                _ => panic!("another message"),
            });
            served.collect()
        }
    }

    #[test]
    fn room_is_given_in_order_and_never_beyond_the_limit() {
        let rig = rig(100);
        let first = rig.ask(1, ClientClass::User, 60).unwrap();
        assert_eq!(rig.ask(2, ClientClass::User, 50), None);
        assert_eq!(rig.ask(3, ClientClass::User, 10), None, "nobody passes by");
        assert_eq!(rig.memory.used(), 60);
        rig.give_back(first);
        let served = rig.served();
        let slots: Vec<_> = served
            .iter()
            .map(|(slot, room)| (*slot, room.bytes()))
            .collect();
        assert_eq!(slots, [(2, 50), (3, 10)]);
        assert_eq!(rig.memory.used(), 60);
        served.into_iter().for_each(|(_, room)| rig.give_back(room));
        assert_eq!(rig.memory.used(), 0);
    }

    #[test]
    fn who_did_not_log_in_has_a_quarter() {
        let rig = rig(100);
        let anonymous = rig.ask(1, ClientClass::Anonymous, 20).unwrap();
        assert_eq!(rig.ask(2, ClientClass::Anonymous, 10), None);
        let user = rig.ask(3, ClientClass::User, 80).unwrap();
        assert_eq!(rig.ask(4, ClientClass::User, 1), None);
        rig.give_back(anonymous);
        let slots: Vec<_> = rig.served().into_iter().map(|(slot, _)| slot).collect();
        assert_eq!(slots, [4, 2]);
        rig.give_back(user);
        assert_eq!(rig.memory.used(), 11);
    }

    #[test]
    fn who_is_gone_holds_nobody_up() {
        let rig = rig(100);
        let first = rig.ask(1, ClientClass::User, 60).unwrap();
        assert_eq!(rig.ask(2, ClientClass::User, 90), None);
        assert_eq!(rig.ask(3, ClientClass::User, 40), None);
        rig.memory.forget(id(2), &rig.front_ends);
        assert_eq!(rig.served().len(), 1);
        assert_eq!(rig.memory.used(), 100);
        rig.give_back(first);
        assert!(rig.served().is_empty());
    }
}
