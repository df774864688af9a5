//! Where a vBucket finds its documents by key.
//!
//! The table is cut into shards by hash, and each shard grows by itself, so that the longest pause of a growing table
//! is the rehash of one shard, not of all documents.

use crate::item::Item;
use foldhash::fast::RandomState;
use hashbrown::HashTable as RawTable;
use kedge_types::Expiry;
use std::hash::BuildHasher;

/// Bytes that a slot of a shard takes: the pointer and one control byte.
pub const SLOT_BYTES: usize = size_of::<Item>() + 1;

/// A shard that is filled to less than one in this many slots gives slots back.
const SHRINK_BELOW: usize = 4;

/// The fate of an item when room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stays,
    LosesValue,
    Goes,
}

/// Documents and tombstones of one vBucket, by stored key.
#[derive(Debug)]
pub struct HashTable {
    shards: Box<[RawTable<Item>]>,
    hasher: RandomState,
    documents: usize,
    tombstones: usize,
    /// Live documents that have an expiry.
    expiring: usize,
    /// Live documents whose value is on disk only.
    without_value: usize,
    /// Documents whose value nobody has tried to compress.
    compressible: usize,
    item_bytes: usize,
    slot_bytes: usize,
}

/// Sizes of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashFigures {
    /// Items that it has room for before it grows.
    pub slots: usize,
    /// Its parts.
    pub shards: usize,
    /// Live documents.
    pub documents: usize,
    /// Tombstones.
    pub tombstones: usize,
    /// Live documents whose value is on disk only.
    pub without_value: usize,
    /// Bytes of the items.
    pub item_bytes: usize,
    /// Bytes of the slots.
    pub slot_bytes: usize,
    /// Items and their bytes, as they were found one by one.
    pub counted: Option<(usize, usize)>,
}

/// A key's hash, computed once per command.
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

impl HashTable {
    /// An empty table of `shards` parts (rounded up to a power of two). It allocates nothing for documents yet.
    #[must_use]
    pub fn new(shards: usize, hasher: RandomState) -> Self {
        let shards = (0..shards.next_power_of_two())
            .map(|_| RawTable::new())
            .collect();
        Self {
            shards,
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

    /// The hash of a stored key.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(&self.hasher, key)
    }

    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// The bits that choose the shard are neither those that choose a slot (the lowest) nor those kept in the control
    /// byte (the highest).
    fn shard_index(&self, hash: KeyHash) -> usize {
        (hash.0 >> 40) as usize & (self.shards.len() - 1)
    }

    /// The document or tombstone with this key.
    #[must_use]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        self.shards[self.shard_index(hash)].find(hash.0, |item| item.key() == key)
    }

    /// Puts `item` in place of what has its key and returns that, marked as replaced.
    pub fn put(&mut self, hash: KeyHash, item: Item) -> Option<Item> {
        let index = self.shard_index(hash);
        self.count(&item, true);
        let shard = &mut self.shards[index];
        let slots_before = shard.allocation_size();
        let hasher = &self.hasher;
        // No slot is reserved for what has one.
        let old = match shard.find_mut(hash.0, |other| other.key() == item.key()) {
            Some(there) => Some(std::mem::replace(there, item)),
            None => {
                shard.insert_unique(hash.0, item, |other| hasher.hash_one(other.key()));
                None
            }
        };
        self.slot_bytes = self.slot_bytes + self.shards[index].allocation_size() - slots_before;
        if let Some(old) = &old {
            old.mark_replaced();
            self.count(old, false);
        }
        old
    }

    /// Takes the item with this key out.
    pub fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let index = self.shard_index(hash);
        let entry = self.shards[index]
            .find_entry(hash.0, |item| item.key() == key)
            .ok()?;
        let (item, _) = entry.remove();
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

    /// Does what `judge` says with each item of one shard. `goes` is told of those that leave.
    pub(crate) fn judge(
        &mut self,
        index: usize,
        mut judge: impl FnMut(&Item) -> Verdict,
        mut goes: impl FnMut(KeyHash, &Item),
    ) {
        let mut shard = std::mem::take(&mut self.shards[index]);
        let slots_before = shard.allocation_size();
        let hasher = self.hasher.clone();
        shard.retain(|item| {
            let verdict = judge(item);
            if verdict == Verdict::Stays {
                return true;
            }
            self.count(item, false);
            if verdict == Verdict::Goes {
                goes(KeyHash::of(&hasher, item.key()), item);
                return false;
            }
            *item = item.without_value();
            self.count(item, true);
            true
        });
        if shard.len() < shard.capacity() / SHRINK_BELOW {
            shard.shrink_to(shard.len() * 2, |item| hasher.hash_one(item.key()));
        }
        self.slot_bytes = self.slot_bytes + shard.allocation_size() - slots_before;
        self.shards[index] = shard;
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new(self.shards.len(), self.hasher.clone());
    }

    /// Live documents.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Tombstones.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.tombstones
    }

    /// Live documents that have an expiry.
    #[must_use]
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Live documents whose value is on disk only.
    #[must_use]
    pub fn without_value(&self) -> usize {
        self.without_value
    }

    /// Documents whose value nobody has tried to compress.
    #[must_use]
    pub fn compressible(&self) -> usize {
        self.compressible
    }

    /// Compressing the value of `item`, which is in the table, does not save enough.
    pub(crate) fn mark_stays_plain(&mut self, item: &Item) {
        self.compressible -= usize::from(item.is_compressible());
        item.mark_stays_plain();
    }

    /// Bytes of items and slots.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.item_bytes + self.slot_bytes
    }

    /// Its sizes. `counted` says whether every item is looked at, too: that takes as long as there are many.
    #[must_use]
    pub fn figures(&self, counted: bool) -> HashFigures {
        HashFigures {
            slots: self.shards.iter().map(RawTable::capacity).sum(),
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

    /// All items, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Item> {
        self.shards.iter().flatten()
    }

    /// Number of shards, for visits that go shard by shard.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// All items of one shard, in no order.
    pub fn shard(&self, index: usize) -> impl ExactSizeIterator<Item = &Item> {
        self.shards[index].iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Deletion, ITEM_OVERHEAD_BYTES, ItemMeta};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Items with a value of odd length have an expiry.
    fn item(key: &[u8], value: &[u8], deleted: bool) -> Item {
        let meta = ItemMeta {
            expiry: Expiry(value.len() as u32 % 2),
            deleted: deleted.then_some(Deletion::Explicit),
            ..ItemMeta::default()
        };
        Item::new(&meta, key, &[value])
    }

    #[test]
    fn a_document_costs_at_most_64_bytes_beside_key_and_value_at_every_size() {
        let mut table = HashTable::new(8, RandomState::default());
        let mut worst: f64 = 0.0;
        for n in 0..300_000u32 {
            let key = n.to_be_bytes();
            let hash = table.hash(&key);
            table.put(hash, item(&key, b"12345678", false));
            if n > 20_000 {
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
    fn values_are_counted_until_it_was_tried_to_compress_them() {
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
