//! The request memory: a limit for the memory of all requests that are received and executed.
//!
//! A request above [`FREE_BYTES`] is granted memory for all of its length before more of it is received. So no two
//! requests wait for each other: a request with a grant needs no more.
//!
//! Invariants:
//! * Each grant is given back exactly once: by its connection, or for a connection that has ended.
//! * Requests wait in order, with a queue for clients with a login and one for those without. None overtakes another of
//!   its queue, and the first one waits only while there is no memory for it.
//! * Clients without a login get a quarter at most, so that they leave memory for others.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kedge_sync::{RankedMutex, ranks::RequestLedger};

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds};
use crate::memory_return::{MemoryReturn, RETURN_BYTES_MIN};

/// Length up to which incomplete requests are received without a grant, in bytes.
pub(crate) const FREE_BYTES: usize = 4 << 10;

/// The class of a client, which decides on its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientClass {
    /// A client with a login.
    User = 0,
    /// A client without a login.
    Anonymous = 1,
}

#[derive(Debug)]
struct MemoryWaiter {
    id: ConnectionId,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Bytes granted to each class of clients.
    given: [usize; 2],
    waiting: [VecDeque<MemoryWaiter>; 2],
}

impl Ledger {
    fn has_room(&self, max: usize, class: ClientClass, bytes: usize) -> bool {
        let [users, anonymous] = self.given;
        let is_below = users + anonymous + bytes <= max;
        match class {
            ClientClass::User => is_below,
            ClientClass::Anonymous => is_below && anonymous + bytes <= max / 4,
        }
    }

    /// Grants memory to the first waiting requests, as far as it suffices.
    fn serve(&mut self, max: usize) -> Vec<(ConnectionId, MemoryGrant)> {
        let mut served = Vec::new();
        for class in [ClientClass::User, ClientClass::Anonymous] {
            while let Some(&MemoryWaiter { id, bytes }) = self.waiting[class as usize].front() {
                if !self.has_room(max, class, bytes) {
                    break;
                }
                self.waiting[class as usize].pop_front();
                self.given[class as usize] += bytes;
                served.push((id, MemoryGrant { class, bytes }));
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
    /// Bytes granted, to be read without the lock of the ledger.
    used: AtomicUsize,
    /// True if a client of each class waits.
    scarce: [AtomicBool; 2],
    /// Number of requests that had to wait.
    waits: AtomicU64,
    /// Highest value of `used` since memory was returned to the system.
    peak: AtomicUsize,
    /// Number of times that memory was returned to the system.
    returns: AtomicU64,
    memory_return: OnceLock<MemoryReturn>,
}

/// Memory that was granted to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGrant {
    class: ClientClass,
    bytes: usize,
}

impl MemoryGrant {
    /// The size of the grant, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl RequestMemory {
    /// A limit of `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ledger: RankedMutex::default(),
            used: AtomicUsize::new(0),
            scarce: Default::default(),
            waits: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            returns: AtomicU64::new(0),
            memory_return: OnceLock::new(),
        }
    }

    /// Sets the task that returns memory to the system, once.
    pub(crate) fn set_memory_return(&self, task: MemoryReturn) {
        // It is set once.
        let _ = self.memory_return.set(task);
    }

    /// Returns true if memory is to be returned to the system: requests had much, and have none now.
    pub(crate) fn begin_return(&self) -> bool {
        let is_due = self.is_return_due();
        if is_due {
            self.peak.store(0, Ordering::Relaxed);
            self.returns.fetch_add(1, Ordering::Relaxed);
        }
        is_due
    }

    fn is_return_due(&self) -> bool {
        self.used() == 0 && self.peak.load(Ordering::Relaxed) >= RETURN_BYTES_MIN
    }

    /// Requests a grant of this length. Without one, the connection waits for a [`FrontEndMessage::MemoryGranted`].
    pub(crate) fn request(
        &self,
        id: ConnectionId,
        class: ClientClass,
        bytes: usize,
    ) -> Option<MemoryGrant> {
        let mut ledger = self.ledger.lock();
        let is_first = ledger.waiting[class as usize].is_empty();
        if is_first && ledger.has_room(self.max, class, bytes) {
            ledger.given[class as usize] += bytes;
            self.publish(&ledger);
            return Some(MemoryGrant { class, bytes });
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        ledger.waiting[class as usize].push_back(MemoryWaiter { id, bytes });
        self.publish(&ledger);
        None
    }

    /// Takes a grant back, and serves waiting requests.
    pub(crate) fn release(&self, grant: MemoryGrant, front_ends: &FrontEnds) {
        self.change(front_ends, |ledger| {
            ledger.given[grant.class as usize] -= grant.bytes;
        });
    }

    /// Removes a connection that waited and has ended.
    pub(crate) fn cancel(&self, id: ConnectionId, front_ends: &FrontEnds) {
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
        if let Some(task) = self.memory_return.get().filter(|_| self.is_return_due()) {
            task.request();
        }
        for (id, room) in served {
            front_ends.send(id.thread, FrontEndMessage::MemoryGranted(id, room));
        }
    }

    fn publish(&self, ledger: &Ledger) {
        let used = ledger.given.iter().sum();
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        for (scarce, waiting) in self.scarce.iter().zip(&ledger.waiting) {
            scarce.store(!waiting.is_empty(), Ordering::Relaxed);
        }
    }

    /// Returns true if a client of this class waits: others then receive no more than [`FREE_BYTES`] without a grant.
    pub(crate) fn is_scarce(&self, class: ClientClass) -> bool {
        self.scarce[class as usize].load(Ordering::Relaxed)
    }

    /// Bytes granted.
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
            (
                "request_memory_returns",
                self.returns.load(Ordering::Relaxed),
            ),
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
        fn ask(&self, slot: usize, class: ClientClass, bytes: usize) -> Option<MemoryGrant> {
            self.memory.request(id(slot), class, bytes)
        }

        fn give_back(&self, grant: MemoryGrant) {
            self.memory.release(grant, &self.front_ends);
        }

        /// The connections with a grant since the last call.
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
    fn grants_are_in_order_and_never_exceed_the_limit() {
        let rig = rig(100);
        let first = rig.ask(1, ClientClass::User, 60).unwrap();
        assert_eq!(rig.ask(2, ClientClass::User, 50), None);
        assert_eq!(rig.ask(3, ClientClass::User, 10), None, "nobody passes by");
        assert_eq!(rig.memory.used(), 60);
        rig.give_back(first);
        let served = rig.served();
        let slots: Vec<_> = served
            .iter()
            .map(|(slot, grant)| (*slot, grant.bytes()))
            .collect();
        assert_eq!(slots, [(2, 50), (3, 10)]);
        assert_eq!(rig.memory.used(), 60);
        served.into_iter().for_each(|(_, room)| rig.give_back(room));
        assert_eq!(rig.memory.used(), 0);
    }

    #[test]
    fn clients_without_login_get_a_quarter() {
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
    fn ended_connection_does_not_block_the_queue() {
        let rig = rig(100);
        let first = rig.ask(1, ClientClass::User, 60).unwrap();
        assert_eq!(rig.ask(2, ClientClass::User, 90), None);
        assert_eq!(rig.ask(3, ClientClass::User, 40), None);
        rig.memory.cancel(id(2), &rig.front_ends);
        assert_eq!(rig.served().len(), 1);
        assert_eq!(rig.memory.used(), 100);
        rig.give_back(first);
        assert!(rig.served().is_empty());
    }
}
