//! SyncWrites in flight, and others who wait for the disk.
//!
//! Invariants:
//! * Prepares stand in seqno order and end in that order: the first that is not ready holds up all behind it.
//! * A key has at most one prepare.
//! * A prepare that was read back from the log has no deadline: someone may have seen it committed, so it is committed
//!   and never given up.

use crate::hash_table::KeyHash;
use crate::item::Item;
use crate::observe::ObserveState;
use crate::read::Meta;
use crate::write::Mutated;
use hashbrown::HashTable;
use kedge_types::{Cas, DurabilityLevel, Seqno, Status};
use std::collections::VecDeque;

/// What a parked command is known by; the number means something to who gave it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// The end of a parked command.
#[derive(Clone, Debug)]
pub enum Completion {
    /// A SyncWrite ended, or another mutation that was parked: it needed the document from the disk first. `item` is
    /// the document now; `None` when it failed.
    SyncWrite {
        /// What the client is told.
        result: Result<Mutated, Status>,
        /// The committed document or tombstone.
        item: Option<Item>,
    },
    /// A counter was changed that had to be read from the disk first.
    Counter {
        /// What the client is told, and the new number.
        result: Result<(Mutated, u64), Status>,
    },
    /// A document was read from the disk, and locked if that was asked for.
    Read {
        /// The document with its value, and the CAS that the client is told.
        result: Result<(Item, Cas), Status>,
    },
    /// The metadata of a document or tombstone was read from the disk.
    Meta {
        /// What GET_META tells.
        result: Result<Meta, Status>,
    },
    /// OBSERVE had to look at the disk.
    Observed {
        /// What OBSERVE tells of the key.
        result: Result<(ObserveState, Cas), Status>,
    },
    /// Keys were listed from the disk.
    Keys {
        /// In order, without collection prefix.
        result: Result<Vec<Box<[u8]>>, Status>,
    },
    /// A wait ended of which there is nothing to tell but whether it went well: for a seqno to be persisted, say.
    Persisted(Result<(), Status>),
}

/// A parked command that ended, and how long it took.
#[derive(Clone, Debug)]
pub struct Done {
    /// Whose.
    pub cookie: Cookie,
    /// How it ended.
    pub completion: Completion,
    /// The level, for a SyncWrite that was committed.
    pub committed: Option<DurabilityLevel>,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
}

/// One SyncWrite that waits.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) hash: KeyHash,
    pub(crate) item: Item,
    pub(crate) level: DurabilityLevel,
    pub(crate) waiter: Option<Waiter>,
}

impl Prepare {
    /// One that the disk had, for which nobody waits any more.
    pub(crate) fn found(hash: KeyHash, item: Item, level: DurabilityLevel) -> Self {
        Self {
            hash,
            item,
            level,
            waiter: None,
        }
    }
}

/// Who waits for a prepare, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) cookie: Cookie,
    pub(crate) began_ns: u64,
    pub(crate) deadline_ns: u64,
}

/// The durability monitor of an active vBucket whose chain is itself alone: a majority of one.
#[derive(Debug, Default)]
pub(crate) struct Prepares {
    queue: VecDeque<Prepare>,
    keys: HashTable<(KeyHash, Item)>,
}

impl Prepares {
    /// Whether a SyncWrite is in flight for the key.
    pub(crate) fn holds(&self, hash: KeyHash, key: &[u8]) -> bool {
        !self.keys.is_empty()
            && self
                .keys
                .find(hash.get(), |(_, item)| item.key() == key)
                .is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether there is a prepare at `seqno` or behind it.
    pub(crate) fn has_reached(&self, seqno: Seqno) -> bool {
        let last = self.queue.back();
        last.is_some_and(|last| last.item.seqno() >= seqno)
    }

    pub(crate) fn add(&mut self, prepare: Prepare) {
        let Prepare { hash, item, .. } = &prepare;
        assert!(
            !self.has_reached(item.seqno()),
            "prepares come in seqno order"
        );
        assert!(
            !self.holds(*hash, item.key()),
            "a key has one prepare at most"
        );
        self.keys
            .insert_unique(hash.get(), (*hash, item.clone()), |(hash, _)| hash.get());
        self.queue.push_back(prepare);
    }

    /// Takes the first prepare if its level is reached with what is on disk.
    pub(crate) fn take_ready(&mut self, persisted: Seqno) -> Option<Prepare> {
        let first = self.queue.front()?;
        let ready = !first.level.needs_persistence() || first.item.seqno() <= persisted;
        if ready { self.take_first() } else { None }
    }

    /// Takes the first prepare if its time is up.
    pub(crate) fn take_late(&mut self, mono_ns: u64) -> Option<Prepare> {
        let waiter = self.queue.front()?.waiter?;
        if waiter.deadline_ns <= mono_ns {
            self.take_first()
        } else {
            None
        }
    }

    /// Takes the prepare of a key at `seqno`, wherever it stands: replay of a commit or abort.
    pub(crate) fn take(&mut self, hash: KeyHash, key: &[u8], seqno: Seqno) -> Option<Prepare> {
        let wanted = |prepare: &Prepare| prepare.item.seqno() == seqno && prepare.item.key() == key;
        let index = self.queue.iter().position(wanted)?;
        self.forget_key(hash, key);
        self.queue.remove(index)
    }

    fn forget_key(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let entry = self
            .keys
            .find_entry(hash.get(), |(_, item)| item.key() == key)
            .ok()?;
        Some(entry.remove().0.1)
    }

    /// Gives up waiting for all of them; they stay prepared.
    pub(crate) fn take_waiters(&mut self) -> impl Iterator<Item = Waiter> {
        self.queue
            .iter_mut()
            .filter_map(|prepare| prepare.waiter.take())
    }

    fn take_first(&mut self) -> Option<Prepare> {
        let prepare = self.queue.pop_front()?;
        self.forget_key(prepare.hash, prepare.item.key());
        Some(prepare)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A wait for a seqno to be persisted.
#[derive(Clone, Debug)]
pub(crate) struct PersistWaiter {
    pub(crate) seqno: Seqno,
    pub(crate) waiter: Waiter,
    /// The write whose answer was held back, see [`crate::VBucket::hold_back`]; `None` for who asked for the wait.
    pub(crate) write: Option<(Mutated, Item)>,
}

impl PersistWaiter {
    /// How it ends. A write that was held back has succeeded long before, whatever becomes of the wait.
    pub(crate) fn end(self, result: Result<(), Status>) -> Done {
        let completion = match self.write {
            Some((mutated, item)) => Completion::SyncWrite {
                result: Ok(mutated),
                item: Some(item),
            },
            None => Completion::Persisted(result),
        };
        let Waiter {
            cookie, began_ns, ..
        } = self.waiter;
        Done {
            cookie,
            completion,
            committed: None,
            began_ns,
        }
    }
}
