//! The residency state of a vBucket: keys in memory and keys on disk only.
//!
//! Invariants:
//! * Memory has every key of the file after warmup, until a key is evicted. Only otherwise may a miss be on disk.
//! * An evicted key is applied, and is added to the filters first, so a negative answer of a filter is always correct.
//! * `left_seqno` is the highest seqno that was evicted with its key. A version that was read from the file at a lower
//!   applied seqno may be older.
//! * A document that is written without knowledge of whether the file has its key is *blind* until that is known. Until
//!   then it may be counted twice, here and in the hash table.

use crate::hash_table::KeyHash;
use crate::item::Item;
use fastbloom::BloomFilter;
use kedge_types::{RevSeqno, Seqno};
use std::collections::VecDeque;

/// The false positive rate of the filters.
const FALSE_POSITIVES: f64 = 0.01;
/// The least capacity of a filter, in keys.
const FILTER_KEYS_MIN: usize = 1_024;
/// The number of missing keys to remember until their commands have resumed.
const MISSING_MAX: usize = 64;

/// Residency statistics of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidencyFigures {
    /// The number of live documents on disk only, including their keys. May be too high until overwriting changes are
    /// applied.
    pub on_disk_only: usize,
    /// The number of live documents whose value is on disk only.
    pub without_value: usize,
    /// The number of keys in the filter.
    pub filter_keys: usize,
    /// The capacity of the filter in keys. Beyond it, false positives become more frequent.
    pub filter_keys_max: usize,
}

#[derive(Debug)]
pub(crate) struct DocumentResidency {
    warm: bool,
    /// True if keys were evicted or never loaded.
    evicted: bool,
    on_disk_only: usize,
    evicted_rev: RevSeqno,
    left_seqno: Seqno,
    filter: Option<KeyFilter>,
    /// The filter that is being rebuilt.
    next_filter: Option<KeyFilter>,
    /// Keys that the file was recently found not to have. Cleared when anything leaves memory.
    missing: VecDeque<Box<[u8]>>,
}

impl DocumentResidency {
    /// Returns the state without a file, or with a void one: memory has everything.
    pub(crate) fn complete() -> Self {
        Self {
            warm: true,
            evicted: false,
            on_disk_only: 0,
            evicted_rev: RevSeqno(0),
            left_seqno: Seqno(0),
            filter: None,
            next_filter: None,
            missing: VecDeque::new(),
        }
    }

    /// Returns the state with a file of this number of documents, none of which is in memory.
    pub(crate) fn cold(documents: usize) -> Self {
        Self {
            warm: false,
            on_disk_only: documents,
            ..Self::complete()
        }
    }

    /// Records a rollback of the file. Deleted documents may be in the file again.
    pub(crate) fn on_rollback(&mut self) {
        *self = Self {
            warm: false,
            evicted: self.evicted,
            evicted_rev: self.evicted_rev,
            on_disk_only: self.on_disk_only,
            ..Self::complete()
        };
    }

    /// Records that the file has `documents` documents, of which `there` are in memory.
    pub(crate) fn on_rewound(&mut self, documents: usize, there: usize) {
        self.on_disk_only = documents.saturating_sub(there);
    }

    pub(crate) fn is_warm(&self) -> bool {
        self.warm
    }

    pub(crate) fn end_warming(&mut self, complete: bool) {
        if self.warm {
            return;
        }
        self.warm = true;
        self.evicted |= !complete;
        if !self.evicted {
            self.on_disk_only = 0;
        }
    }

    /// Returns whether a key that is not in the hash table may be in the file. Cheap while everything is in memory.
    pub(crate) fn may_have(&self, hash: KeyHash, key: &[u8]) -> bool {
        (!self.warm || self.evicted)
            && self.filter.as_ref().is_none_or(|filter| filter.has(hash))
            && self.missing.iter().all(|missing| **missing != *key)
    }

    pub(crate) fn left_seqno(&self) -> Seqno {
        self.left_seqno
    }

    /// Returns the revision that a document re-created without a look at the file must exceed. Each revision took a
    /// seqno, so the high seqno is not below any revision that began here.
    pub(crate) fn rev_floor(&self, high: Seqno) -> RevSeqno {
        self.evicted_rev.max(RevSeqno(high.get()))
    }

    pub(crate) fn on_disk_only(&self) -> usize {
        self.on_disk_only
    }

    /// Records that a document on disk only was loaded or replaced.
    pub(crate) fn on_known(&mut self) {
        self.on_disk_only = self.on_disk_only.saturating_sub(1);
    }

    /// Records that a dropped collection is open again. Its documents may have left memory without being added to a
    /// filter.
    pub(crate) fn on_reopened(&mut self) {
        self.evicted = true;
        self.filter = None;
    }

    /// Records the removal of documents on disk only.
    pub(crate) fn on_gone(&mut self, documents: u64) {
        let documents = usize::try_from(documents).unwrap_or(usize::MAX);
        self.on_disk_only = self.on_disk_only.saturating_sub(documents);
    }

    /// Records the eviction of an item with its key. `keys` is the number of keys in memory.
    pub(crate) fn on_left(&mut self, hash: KeyHash, item: &Item, keys: usize) {
        if self.warm && !self.evicted {
            // No other key is on disk only, so a new filter is complete.
            self.evicted = true;
            self.filter = Some(KeyFilter::new(keys));
        }
        let filters = [&mut self.filter, &mut self.next_filter];
        for filter in filters.into_iter().flatten() {
            filter.put(hash);
        }
        self.on_disk_only += usize::from(!item.is_deleted());
        self.on_forgotten(item);
    }

    /// Records that an item left memory and will not be looked up.
    pub(crate) fn on_forgotten(&mut self, item: &Item) {
        self.evicted_rev = self.evicted_rev.max(item.rev_seqno());
        self.left_seqno = self.left_seqno.max(item.seqno());
        self.missing.clear();
    }

    /// Records that the file does not have this key.
    pub(crate) fn on_missing(&mut self, key: &[u8]) {
        if self.missing.len() == MISSING_MAX {
            self.missing.pop_front();
        }
        self.missing.push_back(key.into());
    }

    pub(crate) fn begin_filter(&mut self, keys: usize) {
        self.next_filter = Some(KeyFilter::new(keys));
    }

    pub(crate) fn add_to_filter(&mut self, hash: KeyHash) {
        if let Some(filter) = &mut self.next_filter {
            filter.put(hash);
        }
    }

    pub(crate) fn finish_filter(&mut self) {
        if let Some(filter) = self.next_filter.take() {
            self.filter = Some(filter);
        }
    }

    pub(crate) fn filter_keys(&self) -> (usize, usize) {
        let filter = self.filter.as_ref();
        filter.map_or((0, 0), |filter| (filter.keys, filter.keys_max))
    }

    pub(crate) fn bytes(&self) -> usize {
        let filter_bytes = |filter: &Option<KeyFilter>| filter.as_ref().map_or(0, KeyFilter::bytes);
        filter_bytes(&self.filter) + filter_bytes(&self.next_filter)
    }
}

/// A filter of the keys that the file may have. Its input are seeded hashes of good quality.
#[derive(Debug)]
struct KeyFilter {
    bits: BloomFilter,
    keys: usize,
    keys_max: usize,
}

impl KeyFilter {
    fn new(keys: usize) -> Self {
        let keys_max = keys.max(FILTER_KEYS_MIN);
        Self {
            bits: BloomFilter::with_false_pos(FALSE_POSITIVES).expected_items(keys_max),
            keys: 0,
            keys_max,
        }
    }

    fn put(&mut self, hash: KeyHash) {
        self.keys += usize::from(!self.bits.insert_hash(hash.get()));
    }

    fn has(&self, hash: KeyHash) -> bool {
        self.bits.contains_hash(hash.get())
    }

    fn bytes(&self) -> usize {
        self.bits.num_bits() / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_table::HashTable;
    use foldhash::fast::RandomState;

    #[test]
    fn key_filter_has_no_false_negatives_and_one_percent_false_positives() {
        let table = HashTable::new(1, RandomState::default());
        let mut filter = KeyFilter::new(50_000);
        let hash = |n: u32| table.hash(&n.to_be_bytes());
        (0..50_000).for_each(|n| filter.put(hash(n)));
        assert!((0..50_000).all(|n| filter.has(hash(n))));
        let wrong = (50_000..150_000).filter(|n| filter.has(hash(*n))).count();
        assert!((500..1_500).contains(&wrong), "{wrong} of 100,000");
        assert!(filter.bytes() < 50_000 * 5 / 4, "about 9.6 bits a key");
        assert!(filter.keys <= 50_000 && filter.keys > 49_000);
    }
}
