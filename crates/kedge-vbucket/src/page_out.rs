//! Making room: values, or whole documents, leave memory when the file has them.

use crate::durability::PrepareQueue;
use crate::hash_table::{EvictionDecision, KeyHash};
use crate::item::Item;
use crate::lock::Locks;
use crate::step::Step;
use foldhash::fast::RandomState;
use kedge_types::{Now, Seqno};

/// The part of an item that is to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Values; keys and metadata stay.
    ValueOnly,
    /// Documents and tombstones.
    Full,
}

/// The items that are to leave memory.
#[derive(Clone, Copy, Debug)]
pub struct PageOut {
    /// The part of an item that leaves memory.
    pub eviction: Eviction,
    /// Those that are asked for at most this often ([`Item::frequency`]).
    pub frequency_max: u8,
    /// Enough when so many bytes were freed.
    pub bytes: usize,
    /// The count of accesses of the others falls back.
    pub decay: bool,
}

/// Counts of what left memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagedOut {
    /// Values alone.
    pub values: usize,
    /// Documents and tombstones with their keys.
    pub items: usize,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Their counts by frequency of access.
    pub by_frequency: FrequencyCounts,
}

/// Counts of documents by how often they are asked for ([`Item::frequency`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyCounts(pub [u64; 256]);

impl Default for FrequencyCounts {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl std::ops::AddAssign for FrequencyCounts {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// The reasons for items to stay in memory.
struct EvictionGuard<'a> {
    applied: Seqno,
    now: Now,
    locks: &'a Locks,
    prepares: &'a PrepareQueue,
    hasher: RandomState,
}

impl EvictionGuard<'_> {
    /// Returns whether an item is where it can be read from again, and nobody is at work on it.
    fn lets_go(&self, item: &Item) -> bool {
        item.seqno() <= self.applied
            && !item.is_blind()
            && !self.locks.is_locked(item.key(), self.now)
            && (self.prepares.is_empty()
                || !self
                    .prepares
                    .holds(KeyHash::of(&self.hasher, item.key()), item.key()))
    }
}

impl PageOut {
    fn decision(
        &self,
        guard: &EvictionGuard<'_>,
        item: &Item,
        full: bool,
        freed: usize,
    ) -> EvictionDecision {
        let unwanted = item.frequency() <= self.frequency_max && freed < self.bytes;
        if !unwanted || !guard.lets_go(item) {
            EvictionDecision::Keep
        } else if full && !item.is_lock_copy() {
            EvictionDecision::Remove
        } else if item.value().is_empty() {
            EvictionDecision::Keep
        } else {
            EvictionDecision::EvictValue
        }
    }
}

impl Step<'_> {
    /// Visits one shard of the hash table and lets go of what `how` says. What the file does not have yet stays, and
    /// what is locked or has a prepare. The CAS that a lock gave is on no disk: its document keeps its metadata.
    pub fn page_out(&mut self, shard: usize, how: &PageOut) -> PagedOut {
        let mut out = PagedOut::default();
        if self.store.unapplied.rewinding {
            return out;
        }
        let full = how.eviction == Eviction::Full && self.store.documents.is_warm();
        let keys = self.store.documents.table.documents() + self.store.documents.table.tombstones();
        let guard = EvictionGuard {
            applied: self.store.unapplied.applied(),
            now: self.now,
            locks: &self.store.documents.locks,
            prepares: &self.durability.prepares,
            hasher: self.store.documents.table.hasher().clone(),
        };
        let decide = |item: &Item| {
            let decision = how.decision(&guard, item, full, out.bytes);
            if decision != EvictionDecision::Keep {
                out.by_frequency.0[usize::from(item.frequency())] += 1;
            }
            match decision {
                EvictionDecision::Keep if how.decay => item.decay(),
                EvictionDecision::Keep => {}
                EvictionDecision::EvictValue => {
                    out.values += 1;
                    out.bytes += item.value().len();
                }
                EvictionDecision::Remove => {
                    out.items += 1;
                    out.bytes += item.heap_bytes();
                }
            }
            decision
        };
        let goes = |hash, item: &Item| {
            if item.is_deleted() {
                self.store.documents.purged_rev =
                    self.store.documents.purged_rev.max(item.rev_seqno());
            }
            self.store.documents.residency.on_left(hash, item, keys);
        };
        self.store.documents.table.evict_shard(shard, decide, goes);
        out
    }

    /// Counts what could leave memory of one shard by how often it is asked for, so that a limit can be chosen.
    pub fn count_frequencies(&self, shard: usize, eviction: Eviction, counts: &mut [u64; 256]) {
        let full = eviction == Eviction::Full && self.store.documents.is_warm();
        let guard = EvictionGuard {
            applied: self.store.unapplied.applied(),
            now: self.now,
            locks: &self.store.documents.locks,
            prepares: &self.durability.prepares,
            hasher: self.store.documents.table.hasher().clone(),
        };
        for item in self.store.documents.table.shard(shard) {
            let has_something = full || !item.value().is_empty();
            if has_something && guard.lets_go(item) {
                counts[usize::from(item.frequency())] += 1;
            }
        }
    }
}
