//! The hash table of a vBucket, which maps stored keys to documents and tombstones.
//!
//! The table is divided into shards by hash and grows by one shard at a time with linear hashing (W. Litwin, "Linear
//! Hashing: A New Tool for File and Table Addressing", 1980): when the shards have [`SHARD_ITEMS`] items on average,
//! the oldest shard that was not split in this round is split in two. No shard therefore has many more than twice that
//! number. Neither growth nor a visit of a shard holds the vBucket's lock for more than about a millisecond, whatever
//! the number of documents.
//!
//! The second half of a split shard always becomes the last shard, and shards are never merged. A visit from the first
//! shard to the last, which reads [`HashTable::shard_count`] at each step, therefore finds every item that is present
//! throughout. It may find an item twice.

mod shard;

use crate::item::Item;
use foldhash::fast::RandomState;
use kedge_types::Expiry;
use shard::Shard;
use std::hash::BuildHasher;

/// The least size of a slot in bytes: the pointer and one byte of tag.
pub const SLOT_BYTES: usize = size_of::<Item>() + 1;

/// The inverse fill factor below which a shard shrinks.
const SHRINK_BELOW: usize = 4;

/// The average number of items in a shard at which a shard is added. A shard is split at up to twice this number.
const SHARD_ITEMS: usize = 3_072;

/// The number of hash bits that select the shard. They are below the seven bits of the tag, and above those that select the
/// bucket.
const SHARD_BITS: u32 = 17;
const SHARD_SHIFT: u32 = 57 - SHARD_BITS;

/// The decision about an item in an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionDecision {
    Keep,
    EvictValue,
    Remove,
}

/// The documents and tombstones of a vBucket by stored key.
#[derive(Debug)]
pub struct HashTable {
    shards: Vec<Shard>,
    /// The mask of shard indexes: the least power of two that is not below the number of shards, minus one.
    mask: usize,
    hasher: RandomState,
    documents: usize,
    tombstones: usize,
    /// The number of live documents with an expiry.
    expiring: usize,
    /// The number of live documents whose value is on disk only.
    without_value: usize,
    /// The number of documents whose compression was not attempted.
    compressible: usize,
    item_bytes: usize,
    slot_bytes: usize,
}

/// Statistics of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashFigures {
    /// The capacity in items before the table grows.
    pub slots: usize,
    /// The number of shards.
    pub shards: usize,
    /// The number of live documents.
    pub documents: usize,
    /// The number of tombstones.
    pub tombstones: usize,
    /// The number of live documents whose value is on disk only.
    pub without_value: usize,
    /// The bytes of the items.
    pub item_bytes: usize,
    /// The bytes of the slots.
    pub slot_bytes: usize,
    /// The number and the bytes of the items, counted one by one.
    pub counted: Option<(usize, usize)>,
}

/// The hash of a key, computed once for each command.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash(u64);

impl KeyHash {
    pub(crate) fn of(hasher: &RandomState, key: &[u8]) -> Self {
        Self(hasher.hash_one(key))
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

fn hash_of(hasher: &RandomState) -> impl Fn(&Item) -> KeyHash {
    |item| KeyHash::of(hasher, item.key())
}

impl HashTable {
    /// Returns an empty table with this number of shards, rounded up to a power of two. It allocates nothing for
    /// documents yet.
    #[must_use]
    pub fn new(shards: usize, hasher: RandomState) -> Self {
        let shards = shards.clamp(1, 1 << SHARD_BITS).next_power_of_two();
        Self {
            shards: std::iter::repeat_with(Shard::default)
                .take(shards)
                .collect(),
            mask: shards - 1,
            hasher,
            documents: 0,
            tombstones: 0,
            expiring: 0,
            without_value: 0,
            compressible: 0,
            item_bytes: 0,
            slot_bytes: 0,
        }
    }

    /// Returns the hash of a stored key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(&self.hasher, key)
    }

    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Returns the shard index of a hash.
    fn shard_index(&self, hash: KeyHash) -> usize {
        let bits = (hash.0 >> SHARD_SHIFT) as usize;
        let index = bits & self.mask;
        if index < self.shards.len() {
            index
        } else {
            // This shard was not split in this round.
            bits & (self.mask >> 1)
        }
    }

    /// Splits the next shard in two if the shards have too many items.
    fn split_if_full(&mut self) {
        let items = self.documents + self.tombstones;
        if items <= self.shards.len() * SHARD_ITEMS || self.shards.len() >> SHARD_BITS > 0 {
            return;
        }
        let new = self.shards.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let split = new & (self.mask >> 1);
        let items = std::mem::take(&mut self.shards[split]);
        self.slot_bytes -= items.allocated_bytes();
        // A half may have slightly more than half of the items.
        let capacity = items.len() / 2 + items.len() / 16;
        self.shards[split] = Shard::with_capacity(capacity);
        self.shards.push(Shard::with_capacity(capacity));
        let hasher = self.hasher.clone();
        for item in items.into_items() {
            let hash = KeyHash::of(&hasher, item.key());
            let index = self.shard_index(hash);
            self.shards[index].insert(hash, item, hash_of(&hasher));
        }
        for index in [split, new] {
            self.slot_bytes += self.shards[index].allocated_bytes();
        }
    }

    /// Requests the bucket of a hash from memory.
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        self.shards[self.shard_index(hash)].prefetch_bucket(hash);
    }

    /// Requests the documents and tombstones that may have this hash from memory. Their bucket was requested before.
    pub fn prefetch_items(&self, hash: KeyHash) {
        self.shards[self.shard_index(hash)].prefetch_items(hash);
    }

    /// Returns the document or tombstone with this key.
    #[must_use]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        self.shards[self.shard_index(hash)].find(hash, key)
    }

    /// Inserts `item`. Returns the item with the same key that it replaces, marked as replaced.
    pub fn put(&mut self, hash: KeyHash, item: Item) -> Option<Item> {
        let index = self.shard_index(hash);
        self.count(&item, true);
        let shard = &mut self.shards[index];
        let slots_before = shard.allocated_bytes();
        // A replacement needs no new slot.
        let old = match shard.replace(hash, item) {
            Ok(old) => Some(old),
            Err(item) => {
                shard.insert(hash, item, hash_of(&self.hasher));
                None
            }
        };
        self.slot_bytes = self.slot_bytes + shard.allocated_bytes() - slots_before;
        match &old {
            Some(old) => {
                old.mark_replaced();
                self.count(old, false);
            }
            None => self.split_if_full(),
        }
        old
    }

    /// Removes and returns the item with this key.
    pub fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let index = self.shard_index(hash);
        let item = self.shards[index].remove(hash, key)?;
        self.count(&item, false);
        Some(item)
    }

    fn count(&mut self, item: &Item, add: bool) {
        let kind = if item.is_deleted() {
            &mut self.tombstones
        } else {
            &mut self.documents
        };
        let expires = usize::from(!item.is_deleted() && item.expiry() != Expiry::NEVER);
        let without_value = usize::from(!item.is_deleted() && !item.is_resident());
        let compressible = usize::from(item.is_compressible());
        if add {
            *kind += 1;
            self.expiring += expires;
            self.without_value += without_value;
            self.compressible += compressible;
            self.item_bytes += item.heap_bytes();
        } else {
            *kind -= 1;
            self.expiring -= expires;
            self.without_value -= without_value;
            self.compressible -= compressible;
            self.item_bytes -= item.heap_bytes();
        }
    }

    /// Applies the decision of `decide` to each item of one shard, if the shard exists. Calls `goes` for each removed
    /// item.
    pub(crate) fn evict_shard(
        &mut self,
        index: usize,
        mut decide: impl FnMut(&Item) -> EvictionDecision,
        mut goes: impl FnMut(KeyHash, &Item),
    ) {
        let Some(shard) = self.shards.get_mut(index) else {
            return;
        };
        let mut shard = std::mem::take(shard);
        let slots_before = shard.allocated_bytes();
        let hasher = self.hasher.clone();
        shard.retain(hash_of(&hasher), |item| {
            let decision = decide(item);
            if decision == EvictionDecision::Keep {
                return true;
            }
            self.count(item, false);
            if decision == EvictionDecision::Remove {
                goes(KeyHash::of(&hasher, item.key()), item);
                return false;
            }
            *item = item.without_value();
            self.count(item, true);
            true
        });
        if shard.len() < shard.capacity() / SHRINK_BELOW {
            shard.shrink_to(shard.len() * 2, hash_of(&hasher));
        }
        self.slot_bytes = self.slot_bytes + shard.allocated_bytes() - slots_before;
        self.shards[index] = shard;
    }

    /// Moves items of one shard within memory so that slabs become free. Returns the number of visited items and that of
    /// moved ones.
    pub(crate) fn relocate_shard(&mut self, index: usize) -> (usize, usize) {
        let Some(shard) = self.shards.get_mut(index) else {
            return (0, 0);
        };
        let moved = shard
            .iter_mut()
            .map(Item::relocate)
            .filter(|moved| *moved)
            .count();
        (shard.len(), moved)
    }

    /// Removes all items and releases their memory.
    pub fn clear(&mut self) {
        drop(self.take());
    }

    /// Takes all items. The number of shards stays.
    pub(crate) fn take(&mut self) -> Self {
        let mut empty = Self::new(1, self.hasher.clone());
        empty.shards.resize_with(self.shards.len(), Shard::default);
        empty.mask = self.mask;
        std::mem::replace(self, empty)
    }

    /// Returns the number of live documents.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Returns the number of tombstones.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.tombstones
    }

    /// Returns the number of live documents with an expiry.
    #[must_use]
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Returns the number of live documents whose value is on disk only.
    #[must_use]
    pub fn without_value(&self) -> usize {
        self.without_value
    }

    /// Returns the number of documents whose compression was not attempted.
    #[must_use]
    pub fn compressible(&self) -> usize {
        self.compressible
    }

    /// Records that compression of `item`, which is in the table, does not pay.
    pub(crate) fn mark_stays_plain(&mut self, item: &Item) {
        self.compressible -= usize::from(item.is_compressible());
        item.mark_stays_plain();
    }

    /// Returns the bytes of items and slots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.item_bytes + self.slot_bytes
    }

    /// Returns statistics. With `counted`, it also visits every item, which takes time in proportion to their number.
    #[must_use]
    pub fn figures(&self, counted: bool) -> HashFigures {
        HashFigures {
            slots: self.shards.iter().map(Shard::capacity).sum(),
            shards: self.shards.len(),
            documents: self.documents,
            tombstones: self.tombstones,
            without_value: self.without_value,
            item_bytes: self.item_bytes,
            slot_bytes: self.slot_bytes,
            counted: counted.then(|| {
                let sum = |(items, bytes), item: &Item| (items + 1, bytes + item.heap_bytes());
                self.iter().fold((0, 0), sum)
            }),
        }
    }

    /// Returns all items, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Item> {
        self.shards.iter().flat_map(Shard::iter)
    }

    /// Returns the number of shards, for visits shard by shard. It never decreases.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Returns the items of a shard in any order, or none if there is no such shard.
    pub fn shard(&self, index: usize) -> impl ExactSizeIterator<Item = &Item> {
        self.shards.get(index).map(Shard::iter).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Deletion, ITEM_OVERHEAD_BYTES, ItemMeta};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Creates an item. Values of odd length get an expiry.
    fn item(key: &[u8], value: &[u8], deleted: bool) -> Item {
        let meta = ItemMeta {
            expiry: Expiry(value.len() as u32 % 2),
            deleted: deleted.then_some(Deletion::Explicit),
            ..ItemMeta::default()
        };
        Item::new(&meta, key, &[value])
    }

    #[test]
    fn document_overhead_is_at_most_64_bytes_at_every_table_size() {
        let mut table = HashTable::new(8, RandomState::default());
        let mut worst: f64 = 0.0;
        for n in 0..300_000u32 {
            let key = n.to_be_bytes();
            let hash = table.hash(&key);
            table.put(hash, item(&key, b"12345678", false));
            if n > 30_000 {
                let beside = table.bytes() as f64 / table.documents() as f64 - 12.0;
                worst = worst.max(beside);
            }
        }
        assert!(worst <= 64.0, "{worst} bytes");
        assert!(
            worst >= ITEM_OVERHEAD_BYTES as f64 + SLOT_BYTES as f64,
            "the slots are counted"
        );
    }

    #[test]
    fn compressible_values_are_counted_until_compression_is_attempted() {
        let mut table = HashTable::new(1, RandomState::default());
        let (key, hash) = (b"key", table.hash(b"key"));
        let long = || item(key, &[1; 100], false);
        table.put(hash, item(key, &[1; 10], false));
        table.put(hash, item(key, &[1; 100], true));
        assert_eq!(table.compressible(), 0);
        let first = long();
        table.put(hash, first.clone());
        assert_eq!(table.compressible(), 1);
        table.mark_stays_plain(&first);
        table.mark_stays_plain(&first);
        assert_eq!(table.compressible(), 0);
        assert_eq!(first.meta().deleted, None);
        table.put(hash, long());
        assert_eq!(table.compressible(), 1);
        table.remove(hash, key);
        assert_eq!(table.compressible(), 0);
    }

    fn key_of(n: u32) -> [u8; 4] {
        n.to_be_bytes()
    }

    fn put(table: &mut HashTable, n: u32) {
        let hash = table.hash(&key_of(n));
        table.put(hash, item(&key_of(n), b"12345678", false));
    }

    fn has(table: &HashTable, n: u32) -> bool {
        let hash = table.hash(&key_of(n));
        table.find(hash, &key_of(n)).is_some()
    }

    #[test]
    fn shards_stay_small_while_a_table_grows_by_one_shard_at_a_time() {
        let mut table = HashTable::new(1, RandomState::default());
        for n in 0..200_000u32 {
            let shards = table.shard_count();
            put(&mut table, n);
            assert!(table.shard_count() - shards <= 1);
            if n % 5 == 4 {
                let gone = key_of(n - 2);
                assert!(table.remove(table.hash(&gone), &gone).is_some());
            }
            if n % 10_000 == 0 {
                let longest = (0..table.shard_count()).map(|shard| table.shard(shard).len());
                assert!(longest.max().unwrap() <= SHARD_ITEMS * 9 / 4);
            }
        }
        assert_eq!(table.documents(), 160_000);
        assert_eq!(table.shard_count(), 160_000usize.div_ceil(SHARD_ITEMS));
        assert!((0..200_000).all(|n| has(&table, n) == (n % 5 != 2)));
        let slot_bytes: usize = table.shards.iter().map(Shard::allocated_bytes).sum();
        assert_eq!(table.slot_bytes, slot_bytes);
        assert!((0..10).all(|more| table.shard(table.shard_count() + more).len() == 0));
    }

    #[test]
    fn shard_visit_of_a_growing_table_misses_no_item() {
        let mut table = HashTable::new(1, RandomState::default());
        let before = 50_000;
        (0..before).for_each(|n| put(&mut table, n));
        let mut seen = std::collections::HashSet::new();
        let (mut shard, mut more) = (0, before);
        while shard < table.shard_count() {
            seen.extend(table.shard(shard).map(|item| item.key().to_vec()));
            shard += 1;
            // The table grows by about half a shard for every shard that is visited.
            (more..more + 1_500).for_each(|n| put(&mut table, n));
            more += 1_500;
        }
        assert!(shard > 20, "{shard} shards");
        assert!((0..before).all(|n| seen.contains(&key_of(n)[..])));
    }

    #[test]
    fn emptied_table_keeps_its_shards() {
        let mut table = HashTable::new(1, RandomState::default());
        (0..20_000).for_each(|n| put(&mut table, n));
        let shards = table.shard_count();
        let taken = table.take();
        assert_eq!((taken.documents(), taken.shard_count()), (20_000, shards));
        assert_eq!((table.documents(), table.bytes()), (0, 0));
        assert_eq!(table.shard_count(), shards);
        (0..20_000).for_each(|n| put(&mut table, n));
        assert!((0..20_000).all(|n| has(&table, n)));
        table.clear();
        assert_eq!((table.documents(), table.bytes()), (0, 0));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            steps in proptest::collection::vec((0u8..40, any::<bool>(), any::<bool>(), 0usize..30), 1..400)
        ) {
            let mut table = HashTable::new(4, RandomState::default());
            let mut model = BTreeMap::new();
            for (key, remove, deleted, len) in steps {
                let key = [key];
                let hash = table.hash(&key);
                if remove {
                    let gone = table.remove(hash, &key).map(|item| item.value().len());
                    prop_assert_eq!(gone, model.remove(&key).map(|(len, _)| len));
                } else {
                    let old = table.put(hash, item(&key, &vec![1; len], deleted));
                    prop_assert_eq!(old.map(|item| item.value().len()), model.insert(key, (len, deleted)).map(|(len, _)| len));
                }
                for (key, (len, deleted)) in &model {
                    let found = table.find(table.hash(key), key).unwrap();
                    prop_assert_eq!((found.value().len(), found.is_deleted()), (*len, *deleted));
                }
                prop_assert_eq!(table.tombstones(), model.values().filter(|(_, deleted)| *deleted).count());
                prop_assert_eq!(table.documents() + table.tombstones(), model.len());
                prop_assert_eq!(table.expiring(), model.values().filter(|(len, deleted)| !deleted && len % 2 == 1).count());
                let bytes: usize = model.values().map(|(len, _)| ITEM_OVERHEAD_BYTES + 1 + len).sum();
                prop_assert_eq!(table.item_bytes, bytes);
            }
        }
    }
}
