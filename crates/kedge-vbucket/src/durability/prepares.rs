//! The queue of prepares.

use super::{Prepare, PrepareState};
use crate::completion::ClientWaiter;
use crate::hash_table::KeyHash;
use crate::item::Item;
use hashbrown::HashTable;
use kedge_types::Seqno;
use std::collections::VecDeque;

/// The deadline of a prepare without a timeout.
const NEVER: u64 = u64::MAX;

/// The prepares of a vBucket, in seqno order.
#[derive(Debug)]
pub(crate) struct PrepareQueue {
    queue: VecDeque<Prepare>,
    keys: HashTable<(KeyHash, Item)>,
    /// Prepares up to this seqno are inherited: they have no timeout.
    inherited: Seqno,
    /// The highest completed prepare.
    completed: Seqno,
    /// The number of prepares with a waiting client.
    clients: usize,
    /// A lower bound of the clients' deadlines.
    deadline_ns: u64,
}

impl Default for PrepareQueue {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            keys: HashTable::new(),
            inherited: Seqno(0),
            completed: Seqno(0),
            clients: 0,
            deadline_ns: NEVER,
        }
    }
}

impl PrepareQueue {
    /// Returns whether a SyncWrite of the key is in flight.
    pub(crate) fn holds(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.of_key(hash, key).is_some()
    }

    /// Returns whether a client may have seen the commit of the key's prepare.
    pub(crate) fn may_be_visible(&self, hash: KeyHash, key: &[u8]) -> bool {
        let first = self.queue.front();
        first.is_some_and(|first| first.item.seqno() <= self.inherited)
            && self
                .of_key(hash, key)
                .is_some_and(|item| item.seqno() <= self.inherited)
    }

    fn of_key(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        if self.keys.is_empty() {
            return None;
        }
        let entry = self.keys.find(hash.get(), |(_, item)| item.key() == key);
        entry.map(|(_, item)| item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Prepare> {
        self.queue.iter()
    }

    /// Returns the prepares above `seqno`.
    pub(crate) fn behind(&self, seqno: Seqno) -> impl DoubleEndedIterator<Item = &Prepare> {
        let from = self.first_behind(seqno);
        self.queue.range(from..)
    }

    fn first_behind(&self, seqno: Seqno) -> usize {
        self.queue
            .partition_point(|prepare| prepare.item.seqno() <= seqno)
    }

    /// Returns the last prepare at or below `seqno`.
    pub(crate) fn last_upto(&self, seqno: Seqno) -> Option<Seqno> {
        let last = self.first_behind(seqno).checked_sub(1)?;
        Some(self.queue[last].item.seqno())
    }

    /// Returns whether there is a prepare at or above `seqno`.
    pub(crate) fn has_reached(&self, seqno: Seqno) -> bool {
        let last = self.queue.back();
        last.is_some_and(|last| last.item.seqno() >= seqno)
    }

    /// Returns the highest completed prepare.
    pub(crate) fn completed(&self) -> Seqno {
        self.completed
    }

    pub(crate) fn record_completed(&mut self, prepared: Seqno) {
        self.completed = self.completed.max(prepared);
    }

    pub(crate) fn add(&mut self, prepare: Prepare) {
        let Prepare {
            hash, item, state, ..
        } = &prepare;
        assert!(
            !self.has_reached(item.seqno()),
            "prepares come in seqno order"
        );
        assert!(
            !self.holds(*hash, item.key()),
            "a key has one prepare at most"
        );
        match state {
            PrepareState::Client(waiter) => {
                self.clients += 1;
                self.deadline_ns = self.deadline_ns.min(waiter.deadline_ns);
            }
            PrepareState::Inherited => self.inherited = item.seqno(),
            PrepareState::Aborting { .. } => {}
        }
        self.keys
            .insert_unique(hash.get(), (*hash, item.clone()), |(hash, _)| hash.get());
        self.queue.push_back(prepare);
    }

    pub(crate) fn first(&self) -> Option<&Prepare> {
        self.queue.front()
    }

    /// Removes and returns the first prepare, which is completed.
    pub(crate) fn take_first(&mut self) -> Option<Prepare> {
        let prepare = self.queue.pop_front()?;
        self.clients -= usize::from(prepare.has_client());
        self.forget_key(prepare.hash, prepare.item.key());
        self.record_completed(prepare.item.seqno());
        Some(prepare)
    }

    /// Removes and returns the prepare of a key at `seqno`, at any place in the queue.
    pub(crate) fn take(&mut self, hash: KeyHash, key: &[u8], seqno: Seqno) -> Option<Prepare> {
        if self.of_key(hash, key)?.seqno() == seqno {
            self.take_of(hash, key)
        } else {
            None
        }
    }

    /// Removes and returns the prepare of a key.
    pub(crate) fn take_of(&mut self, hash: KeyHash, key: &[u8]) -> Option<Prepare> {
        if self.keys.is_empty() {
            return None;
        }
        let seqno = self.forget_key(hash, key)?.seqno();
        let index = self
            .queue
            .binary_search_by_key(&seqno, |prepare| prepare.item.seqno());
        let prepare = self.queue.remove(index.ok()?)?;
        self.clients -= usize::from(prepare.has_client());
        Some(prepare)
    }

    /// Removes all prepares up to `completed`, which are completed.
    pub(crate) fn end_upto(&mut self, completed: Seqno) {
        for prepare in self.queue.drain(..self.first_behind(completed)) {
            let entry = self
                .keys
                .find_entry(prepare.hash.get(), |(_, item)| item.is_same(&prepare.item));
            if let Ok(entry) = entry {
                entry.remove();
            }
            self.clients -= usize::from(prepare.has_client());
        }
        self.record_completed(completed);
    }

    fn forget_key(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let entry = self
            .keys
            .find_entry(hash.get(), |(_, item)| item.key() == key)
            .ok()?;
        Some(entry.remove().0.1)
    }

    /// Returns whether a client waits for a prepare.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// Marks the prepares that have timed out as aborting, and returns their clients.
    pub(crate) fn take_timed_out(&mut self, mono_ns: u64, unix_secs: u64) -> Vec<ClientWaiter> {
        if self.deadline_ns > mono_ns {
            return Vec::new();
        }
        let mut late = Vec::new();
        self.deadline_ns = NEVER;
        for prepare in &mut self.queue {
            let PrepareState::Client(waiter) = prepare.state else {
                continue;
            };
            if waiter.deadline_ns <= mono_ns {
                prepare.state = PrepareState::Aborting { unix_secs };
                self.clients -= 1;
                late.push(waiter);
            } else {
                self.deadline_ns = self.deadline_ns.min(waiter.deadline_ns);
            }
        }
        late
    }

    /// Marks the prepares of the selected keys as aborting, and returns their clients.
    pub(crate) fn abort_matching(
        &mut self,
        unix_secs: u64,
        which: impl Fn(&[u8]) -> bool,
    ) -> Vec<ClientWaiter> {
        let mut waiters = Vec::new();
        for prepare in &mut self.queue {
            if let PrepareState::Client(waiter) = prepare.state
                && which(prepare.item.key())
            {
                prepare.state = PrepareState::Aborting { unix_secs };
                self.clients -= 1;
                waiters.push(waiter);
            }
        }
        waiters
    }

    /// Marks all prepares as inherited, and returns the waiting clients.
    pub(crate) fn inherit(&mut self) -> Vec<ClientWaiter> {
        let mut waiters = Vec::new();
        for prepare in &mut self.queue {
            if let PrepareState::Client(waiter) = prepare.state {
                waiters.push(waiter);
            }
            prepare.state = PrepareState::Inherited;
            self.inherited = prepare.item.seqno();
        }
        self.clients = 0;
        self.deadline_ns = NEVER;
        waiters
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
