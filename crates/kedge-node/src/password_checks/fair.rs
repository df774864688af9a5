//! A fair queue: the addresses take turns, and so do the users of an address.
//!
//! Invariants:
//! * An address, or a user of one, without waiting items is not in the queue, so the queue has no more entries than
//!   items.
//! * `turns` has each source once, in the order of their turns.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;

use crate::client_source;

/// The largest numbers of waiting items.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// The total.
    pub(super) all: usize,
    /// Those of one address.
    pub(super) of_address: usize,
    /// Those of one user of one address.
    pub(super) of_user: usize,
}

/// The items of one level, by source.
struct Sources<K, Q> {
    queues: HashMap<K, Q>,
    turns: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, Q: Default> Sources<K, Q> {
    fn of(&mut self, source: &K) -> &mut Q {
        match self.queues.entry(source.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.turns.push_back(source.clone());
                entry.insert(Q::default())
            }
        }
    }

    fn forget(&mut self, source: &K) {
        self.queues.remove(source);
        self.turns.retain(|it| it != source);
    }
}

impl<K, Q> Default for Sources<K, Q> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

/// The waiting items of one address.
struct OfAddress<T> {
    users: Sources<String, VecDeque<T>>,
    len: usize,
}

impl<T> Default for OfAddress<T> {
    fn default() -> Self {
        Self {
            users: Sources::default(),
            len: 0,
        }
    }
}

impl<T> OfAddress<T> {
    fn waiting(&self, user: &str) -> usize {
        self.users.queues.get(user).map_or(0, VecDeque::len)
    }

    fn pop(&mut self) -> Option<T> {
        let user = self.users.turns.pop_front()?;
        let queue = self.users.queues.get_mut(&user)?;
        let item = queue.pop_front();
        self.len -= usize::from(item.is_some());
        if queue.is_empty() {
            self.users.queues.remove(&user);
        } else {
            self.users.turns.push_back(user);
        }
        item
    }

    /// Takes the newest item of the user with most of them, if that has more than `at_least`.
    fn take_of_greediest(&mut self, at_least: usize) -> Option<T> {
        let users = self.users.queues.iter();
        let (user, queue) = users.max_by_key(|(_, queue)| queue.len())?;
        if queue.len() <= at_least {
            return None;
        }
        let user = user.clone();
        let queue = self.users.queues.get_mut(&user)?;
        let item = queue.pop_back();
        self.len -= usize::from(item.is_some());
        if queue.is_empty() {
            self.users.forget(&user);
        }
        item
    }
}

/// The queue.
pub(super) struct FairQueue<T> {
    addresses: Sources<IpAddr, OfAddress<T>>,
    len: usize,
    limits: QueueLimits,
}

impl<T> FairQueue<T> {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self {
            addresses: Sources::default(),
            len: 0,
            limits,
        }
    }

    /// Returns the number of waiting items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item. If there are too many, returns the one that is dropped: the newest of the source with most, or the
    /// item itself if no source has more than its own.
    pub(super) fn push(&mut self, address: IpAddr, user: &str, item: T) -> Option<T> {
        let address = client_source(address);
        let (of_address, of_user) = match self.addresses.queues.get(&address) {
            Some(queue) => (queue.len, queue.waiting(user)),
            None => (0, 0),
        };
        if of_user >= self.limits.of_user {
            return Some(item);
        }
        let mut displaced = None;
        if of_address >= self.limits.of_address {
            displaced = self.take_of(address, of_user + 1);
        } else if self.len >= self.limits.all {
            let addresses = self.addresses.queues.iter();
            let greediest = addresses.max_by_key(|(_, queue)| queue.len);
            if let Some((greediest, queue)) = greediest {
                let (greediest, len) = (*greediest, queue.len);
                if greediest == address {
                    displaced = self.take_of(address, of_user + 1);
                } else if len > of_address + 1 {
                    displaced = self.take_of(greediest, 0);
                }
            }
        }
        let is_full = of_address >= self.limits.of_address || self.len >= self.limits.all;
        if is_full && displaced.is_none() {
            return Some(item);
        }
        let queue = self.addresses.of(&address);
        queue.users.of(&user.to_owned()).push_back(item);
        queue.len += 1;
        self.len += 1;
        displaced
    }

    /// Takes the newest item of the address's user with most of them, if that has more than `at_least`.
    fn take_of(&mut self, address: IpAddr, at_least: usize) -> Option<T> {
        let queue = self.addresses.queues.get_mut(&address)?;
        let item = queue.take_of_greediest(at_least);
        self.len -= usize::from(item.is_some());
        if queue.len == 0 {
            self.addresses.forget(&address);
        }
        item
    }

    /// Takes the next item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let address = self.addresses.turns.pop_front()?;
        let queue = self.addresses.queues.get_mut(&address)?;
        let item = queue.pop();
        self.len -= usize::from(item.is_some());
        if queue.len == 0 {
            self.addresses.queues.remove(&address);
        } else {
            self.addresses.turns.push_back(address);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        all: 8,
        of_address: 6,
        of_user: 4,
    };

    fn address(n: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, n).into()
    }

    fn queue() -> FairQueue<&'static str> {
        FairQueue::new(LIMITS)
    }

    fn drain(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn fair_queue_alternates_between_addresses_and_their_users() {
        let mut queue = queue();
        for (from, user, item) in [
            (1, "ada", "a1"),
            (1, "ada", "a2"),
            (1, "ada", "a3"),
            (1, "bob", "b1"),
            (2, "ada", "c1"),
            (2, "ada", "c2"),
        ] {
            assert_eq!(queue.push(address(from), user, item), None);
        }
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue), ["a1", "c1", "b1", "c2", "a2", "a3"]);
        assert_eq!(queue.len(), 0);
        assert!(queue.addresses.queues.is_empty() && queue.addresses.turns.is_empty());
    }

    #[test]
    fn fair_queue_limits_a_user_of_an_address_to_its_share() {
        let mut queue = queue();
        for item in ["1", "2", "3", "4"] {
            assert_eq!(queue.push(address(1), "ada", item), None);
        }
        assert_eq!(queue.push(address(1), "ada", "5"), Some("5"));
        assert_eq!(queue.push(address(1), "bob", "b1"), None);
        assert_eq!(queue.push(address(1), "bob", "b2"), None);
        // The address has reached its limit: other users of it get in at the cost of the one with most.
        assert_eq!(queue.push(address(1), "eve", "e1"), Some("4"));
        assert_eq!(queue.push(address(1), "bob", "b3"), Some("b3"));
        assert_eq!(drain(&mut queue), ["1", "b1", "e1", "2", "b2", "3"]);
    }

    #[test]
    fn fair_queue_drops_entries_of_a_flooding_address() {
        let mut queue = queue();
        for (user, item) in [
            ("u1", "1"),
            ("u1", "2"),
            ("u2", "3"),
            ("u3", "4"),
            ("u4", "5"),
            ("u5", "6"),
        ] {
            assert_eq!(queue.push(address(1), user, item), None);
        }
        assert_eq!(queue.push(address(2), "ada", "a"), None);
        assert_eq!(queue.push(address(3), "ada", "b"), None);
        assert_eq!(queue.push(address(4), "ada", "c"), Some("2"));
        assert_eq!(
            queue.push(address(1), "u6", "7"),
            Some("7"),
            "it has most itself"
        );
        assert_eq!(queue.len(), 8);
        assert_eq!(drain(&mut queue)[..4], ["1", "a", "b", "c"]);
    }

    /// Any order of steps leaves the counts right, keeps the limits, and loses nothing.
    #[test]
    fn fair_queue_counts_match_its_entries() {
        let mut queue = FairQueue::new(LIMITS);
        let mut random = 7_u64;
        let (mut given, mut back) = (0, 0);
        for step in 0..20_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = (random >> 33) as u8;
            if pick.is_multiple_of(3) {
                back += usize::from(queue.pop().is_some());
            } else {
                let user = format!("u{}", pick / 8 % 5);
                back += usize::from(queue.push(address(pick % 4), &user, step).is_some());
                given += 1;
            }
            let addresses = queue.addresses.queues.values();
            let lens: Vec<usize> = addresses.map(|of| of.len).collect();
            assert_eq!(lens.iter().sum::<usize>(), queue.len());
            assert!(
                queue.len() <= LIMITS.all
                    && lens.iter().all(|len| (1..=LIMITS.of_address).contains(len))
            );
            for of in queue.addresses.queues.values() {
                let users: Vec<usize> = of.users.queues.values().map(VecDeque::len).collect();
                assert_eq!(users.iter().sum::<usize>(), of.len);
                assert!(users.iter().all(|len| (1..=LIMITS.of_user).contains(len)));
                assert_eq!(of.users.turns.len(), of.users.queues.len());
            }
            assert_eq!(queue.addresses.turns.len(), queue.addresses.queues.len());
            assert_eq!(given, back + queue.len());
        }
    }
}
