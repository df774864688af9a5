//! Eviction: values or whole documents leave memory once they are applied.

use crate::durability::PrepareQueue;
use crate::hash_table::{EvictionDecision, KeyHash};
use crate::item::Item;
use crate::lock::Locks;
use crate::step::Step;
use foldhash::fast::RandomState;
use kedge_types::{Now, Seqno};

/// The eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Evicts values. Keys and metadata stay in memory.
    ValueOnly,
    /// Evicts documents and tombstones with their keys.
    Full,
}

/// The parameters of an eviction.
#[derive(Clone, Copy, Debug)]
pub struct PageOut {
    /// The eviction policy.
    pub eviction: Eviction,
    /// The highest access frequency of an evicted item ([`Item::frequency`]).
    pub frequency_max: u8,
    /// The number of freed bytes at which the eviction ends.
    pub bytes: usize,
    /// True if the access frequencies of the remaining items decay.
    pub decay: bool,
}

/// Statistics of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagedOut {
    /// The number of evicted values.
    pub values: usize,
    /// The number of documents and tombstones that were evicted with their keys.
    pub items: usize,
    /// The number of freed bytes.
    pub bytes: usize,
    /// The number of evictions by access frequency.
    pub by_frequency: FrequencyCounts,
}

/// Numbers of documents by access frequency ([`Item::frequency`]).
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

/// The state that prevents items from being evicted.
struct EvictionGuard<'a> {
    applied: Seqno,
    now: Now,
    locks: &'a Locks,
    prepares: &'a PrepareQueue,
    hasher: RandomState,
}

impl EvictionGuard<'_> {
    /// Returns whether an item may be evicted: it can be read from the file again and is neither locked nor prepared.
    fn may_evict(&self, item: &Item) -> bool {
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
        if !unwanted || !guard.may_evict(item) {
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
    /// Evicts items of one shard of the hash table. Items that are not applied, locked or prepared stay. A document
    /// that was locked keeps its metadata, because the CAS of a lock is not on disk.
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

    /// Counts the items of one shard that could be evicted by access frequency, so that the caller can choose a
    /// threshold.
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
            if has_something && guard.may_evict(item) {
                counts[usize::from(item.frequency())] += 1;
            }
        }
    }
}
