//! What of a vBucket is in memory, and what only its file has.
//!
//! Invariants:
//! * Memory has every key of the file, unless warming has not ended or something was evicted with its key: only then may
//!   a miss be on disk.
//! * A key that leaves memory was applied, and is put into the filters first: a filter that says no is right.
//! * `left_seqno` is the highest seqno that left memory with its key. What was read from the file when it had less may
//!   be older than that.
//! * A document that is written while nobody knows whether the file has its key is *blind* until someone finds out; it
//!   may be counted twice until then, here and with the hash table's.

use crate::hash_table::KeyHash;
use crate::item::Item;
use fastbloom::BloomFilter;
use kedge_types::{RevSeqno, Seqno};
use std::collections::VecDeque;

/// One in a hundred keys that the file does not have is looked for there.
const FALSE_POSITIVES: f64 = 0.01;
/// A filter is made for at least as many keys.
const FILTER_KEYS_MIN: usize = 1_024;
/// So many keys that were looked for in vain are remembered until their commands have gone on.
const MISSING_MAX: usize = 64;

/// Figures of the documents of a vBucket in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidencyFigures {
    /// Live documents that are on disk only, key and all. May be too high until what was written over them is applied.
    pub on_disk_only: usize,
    /// Live documents whose value is on disk only.
    pub without_value: usize,
    /// Keys that were put into the filter.
    pub filter_keys: usize,
    /// Keys that it was made for; with more of them it says "perhaps" more often.
    pub filter_keys_max: usize,
}

#[derive(Debug)]
pub(crate) struct DocumentResidency {
    warm: bool,
    /// Keys have left memory, or never came.
    evicted: bool,
    on_disk_only: usize,
    evicted_rev: RevSeqno,
    left_seqno: Seqno,
    filter: Option<KeyFilter>,
    /// The filter that is being made anew.
    next_filter: Option<KeyFilter>,
    /// Keys that the file does not have, as was found out lately. Void once anything leaves memory.
    missing: VecDeque<Box<[u8]>>,
}

impl DocumentResidency {
    /// There is no file, or it is void: memory has everything.
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

    /// There is a file with so many documents, of which memory has none.
    pub(crate) fn cold(documents: usize) -> Self {
        Self {
            warm: false,
            on_disk_only: documents,
            ..Self::complete()
        }
    }

    /// The file goes back in time. Documents that were deleted since may be in it again.
    pub(crate) fn on_rollback(&mut self) {
        *self = Self {
            warm: false,
            evicted: self.evicted,
            evicted_rev: self.evicted_rev,
            on_disk_only: self.on_disk_only,
            ..Self::complete()
        };
    }

    /// The file has `documents` now, and memory `there` of them.
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

    /// Returns whether a key that is not in the hash table may be in the file. Cheap as long as everything is in
    /// memory.
    pub(crate) fn may_have(&self, hash: KeyHash, key: &[u8]) -> bool {
        (!self.warm || self.evicted)
            && self.filter.as_ref().is_none_or(|filter| filter.has(hash))
            && self.missing.iter().all(|missing| **missing != *key)
    }

    pub(crate) fn left_seqno(&self) -> Seqno {
        self.left_seqno
    }

    /// A document made anew without a look at the file gets a revision above this: each revision took a seqno, so the
    /// vBucket's last one is not below any that began here.
    pub(crate) fn rev_floor(&self, high: Seqno) -> RevSeqno {
        self.evicted_rev.max(RevSeqno(high.get()))
    }

    pub(crate) fn on_disk_only(&self) -> usize {
        self.on_disk_only
    }

    /// A document that was on disk only is known to memory.
    pub(crate) fn on_known(&mut self) {
        self.on_disk_only = self.on_disk_only.saturating_sub(1);
    }

    /// Documents are of use again that may have left memory, and no filter knows their keys.
    pub(crate) fn on_reopened(&mut self) {
        self.evicted = true;
        self.filter = None;
    }

    /// So many documents that are on disk only are of no use to anyone any more.
    pub(crate) fn on_gone(&mut self, documents: u64) {
        let documents = usize::try_from(documents).unwrap_or(usize::MAX);
        self.on_disk_only = self.on_disk_only.saturating_sub(documents);
    }

    /// An item leaves memory with its key. `keys`: so many there are.
    pub(crate) fn on_left(&mut self, hash: KeyHash, item: &Item, keys: usize) {
        if self.warm && !self.evicted {
            // Nothing else is on disk only: the filter knows all of it.
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

    /// An item leaves memory, and nobody will look for it.
    pub(crate) fn on_forgotten(&mut self, item: &Item) {
        self.evicted_rev = self.evicted_rev.max(item.rev_seqno());
        self.left_seqno = self.left_seqno.max(item.seqno());
        self.missing.clear();
    }

    /// The file does not have this key.
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

/// The keys that the file may have. It is asked about hashes that are good and secret already.
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
    fn a_filter_forgets_nothing_and_is_wrong_about_one_key_in_a_hundred() {
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
