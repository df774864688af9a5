//! A shard of a hash table: buckets of one cache line, each with up to seven items and a tag of each.
//!
//! A lookup reads one cache line to find the item, and then the item itself to compare the key. The layout is that of F14 with
//! shorter chunks (N. Bronson and X. Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019).
//!
//! Invariants:
//! * A tag is zero if, and only if, its place is empty.
//! * An item is in its home bucket or in the first one behind it that had an empty place. The overflow of its home, and that of
//!   each bucket between, counts it. An overflow of [`OVERFLOW_MAX`] stays until the shard is rebuilt.

use super::KeyHash;
use crate::item::{Item, prefetch};
use std::collections::VecDeque;

/// The number of items in a bucket, which fills a cache line of 64 bytes.
const PLACES: usize = 7;
/// The average number of items in a bucket at which a shard with more than one bucket grows.
const ITEMS_PER_BUCKET_MAX: usize = 6;
/// A shard grows by one bucket in this number: seldom enough that few items move, and so little that few places are empty.
const GROWTH: usize = 4;

/// The number of items that are requested from memory before they move.
const MOVED_AHEAD: usize = 16;

/// The hash bits that select the bucket. The bits above them select the shard and make the tag.
const HOME_BITS: u32 = super::SHARD_SHIFT;
const TAG_SHIFT: u32 = 57;

/// The shift of the overflow in the word of tags.
const OVERFLOW_SHIFT: u32 = 56;
const OVERFLOW_MAX: u64 = 255;
const ONE_OVERFLOW: u64 = 1 << OVERFLOW_SHIFT;
/// The bits that no tag has.
const OVERFLOW_BITS: u64 = OVERFLOW_MAX << OVERFLOW_SHIFT;
/// The lowest bit of each tag.
const LOW_BITS: u64 = 0x0001_0101_0101_0101;
/// All bits but the highest of each byte.
const LOW_SEVEN_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

/// The size of a bucket in bytes.
pub(super) const BUCKET_BYTES: usize = 64;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// The tags of the items in the low seven bytes. The highest byte is the overflow: the number of items that have their home
    /// here or before, and are in a later bucket.
    tags: u64,
    items: [Option<Item>; PLACES],
}

impl Bucket {
    fn overflow(&self) -> u64 {
        self.tags >> OVERFLOW_SHIFT
    }

    fn add_overflow(&mut self) {
        if self.overflow() < OVERFLOW_MAX {
            self.tags += ONE_OVERFLOW;
        }
    }

    fn remove_overflow(&mut self) {
        if self.overflow() < OVERFLOW_MAX {
            self.tags -= ONE_OVERFLOW;
        }
    }

    /// Returns the places with this tag; zero is that of empty places.
    fn places(&self, tag: u64) -> Places {
        let other = (self.tags ^ (tag * LOW_BITS)) | OVERFLOW_BITS;
        // The highest bit of a byte is set if the byte is zero.
        Places(!(((other & LOW_SEVEN_BITS) + LOW_SEVEN_BITS) | other | LOW_SEVEN_BITS))
    }

    fn take(&mut self, place: usize) -> Option<Item> {
        self.tags &= !(0xff << (8 * place));
        self.items[place].take()
    }
}

/// Places of a bucket, as the highest bits of the bytes of a word.
#[derive(Clone, Copy)]
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 8);
        self.0 &= self.0.wrapping_sub(1);
        place
    }
}

fn tag(hash: KeyHash) -> u64 {
    // Not zero.
    hash.0 >> TAG_SHIFT | 0x80
}

/// The items of a shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    buckets: Box<[Bucket]>,
    len: usize,
}

impl Shard {
    /// Returns an empty shard that has room for this number of items.
    pub(super) fn with_capacity(items: usize) -> Self {
        Self::with_buckets(Self::bucket_count(items))
    }

    fn bucket_count(items: usize) -> usize {
        match items {
            0..=PLACES => items.min(1),
            _ => items.div_ceil(ITEMS_PER_BUCKET_MAX),
        }
    }

    fn with_buckets(count: usize) -> Self {
        Self {
            buckets: std::iter::repeat_with(Bucket::default)
                .take(count)
                .collect(),
            len: 0,
        }
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of items for which the shard has room.
    pub(super) fn capacity(&self) -> usize {
        match self.buckets.len() {
            count @ 0..=1 => count * PLACES,
            count => count * ITEMS_PER_BUCKET_MAX,
        }
    }

    /// Returns the size of the buckets in bytes.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.buckets.len() * BUCKET_BYTES
    }

    fn home(&self, hash: KeyHash) -> usize {
        let bits = hash.0 & ((1 << HOME_BITS) - 1);
        ((bits * self.buckets.len() as u64) >> HOME_BITS) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        let next = bucket + 1;
        if next < self.buckets.len() { next } else { 0 }
    }

    /// Returns the bucket and the place of the item with this key.
    fn position(&self, hash: KeyHash, key: &[u8]) -> Option<(usize, usize)> {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut places = bucket.places(tag(hash));
            let is_it = |place: &usize| {
                bucket.items[*place]
                    .as_ref()
                    .is_some_and(|it| it.key() == key)
            };
            if let Some(place) = places.find(is_it) {
                return Some((at, place));
            }
            if bucket.overflow() == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Returns the item with this key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        let (bucket, place) = self.position(hash, key)?;
        self.buckets[bucket].items[place].as_ref()
    }

    /// Replaces the item with the same key. Returns `item` if there is none.
    pub(super) fn replace(&mut self, hash: KeyHash, item: Item) -> Result<Item, Item> {
        let Some((bucket, place)) = self.position(hash, item.key()) else {
            return Err(item);
        };
        match &mut self.buckets[bucket].items[place] {
            Some(there) => Ok(std::mem::replace(there, item)),
            None => Err(item),
        }
    }

    /// Inserts an item whose key is not in the shard. `hash_of` returns the hash of an item.
    pub(super) fn insert(&mut self, hash: KeyHash, item: Item, hash_of: impl Fn(&Item) -> KeyHash) {
        if self.len == self.capacity() {
            let count = self.buckets.len();
            self.rebuild(count + (count / GROWTH).max(1), hash_of);
        }
        self.place(hash, item);
    }

    /// Puts an item into the first empty place. There is one.
    fn place(&mut self, hash: KeyHash, item: Item) {
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.places(0).next() {
                bucket.tags |= tag(hash) << (8 * place);
                bucket.items[place] = Some(item);
                break;
            }
            bucket.add_overflow();
            at = self.after(at);
        }
        self.len += 1;
    }

    /// Removes and returns the item with this key.
    pub(super) fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let (bucket, place) = self.position(hash, key)?;
        let item = self.buckets[bucket].take(place);
        self.on_removed(hash, bucket);
        item
    }

    /// Removes an item with this hash from the counts. It was in `bucket`.
    fn on_removed(&mut self, hash: KeyHash, bucket: usize) {
        let mut at = self.home(hash);
        while at != bucket {
            self.buckets[at].remove_overflow();
            at = self.after(at);
        }
        self.len -= 1;
    }

    /// Removes the items for which `keep` returns false. `keep` may replace an item by one with the same key.
    pub(super) fn retain(
        &mut self,
        hash_of: impl Fn(&Item) -> KeyHash,
        mut keep: impl FnMut(&mut Item) -> bool,
    ) {
        for at in 0..self.buckets.len() {
            for place in 0..PLACES {
                let bucket = &mut self.buckets[at];
                if bucket.items[place].as_mut().is_none_or(&mut keep) {
                    continue;
                }
                if let Some(item) = bucket.take(place) {
                    self.on_removed(hash_of(&item), at);
                }
            }
        }
    }

    /// Gives back memory, but keeps room for this number of items and for all that are there.
    pub(super) fn shrink_to(&mut self, items: usize, hash_of: impl Fn(&Item) -> KeyHash) {
        let count = Self::bucket_count(items.max(self.len));
        if count < self.buckets.len() {
            self.rebuild(count, hash_of);
        }
    }

    /// Moves all items into this number of new buckets.
    fn rebuild(&mut self, buckets: usize, hash_of: impl Fn(&Item) -> KeyHash) {
        let before = std::mem::replace(self, Self::with_buckets(buckets));
        let mut items = before.into_items();
        let mut next: VecDeque<Item> = items.by_ref().take(MOVED_AHEAD).collect();
        next.iter().for_each(Item::prefetch);
        while let Some(item) = next.pop_front() {
            next.extend(items.next().inspect(Item::prefetch));
            self.place(hash_of(&item), item);
        }
    }

    /// Requests the bucket of a hash from memory.
    pub(super) fn prefetch_bucket(&self, hash: KeyHash) {
        if let Some(bucket) = self.buckets.get(self.home(hash)) {
            prefetch(std::ptr::from_ref(bucket).cast(), 1);
        }
    }

    /// Requests the items that may have a hash from memory.
    pub(super) fn prefetch_items(&self, hash: KeyHash) {
        if let Some(bucket) = self.buckets.get(self.home(hash)) {
            let items = bucket.places(tag(hash)).map(|place| &bucket.items[place]);
            items.flatten().for_each(Item::prefetch);
        }
    }

    /// Returns the items themselves in any order.
    pub(super) fn into_items(self) -> impl Iterator<Item = Item> {
        let items = |bucket: Bucket| bucket.items;
        self.buckets
            .into_vec()
            .into_iter()
            .flat_map(items)
            .flatten()
    }

    /// Returns the items in any order. Their keys may not change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Item> {
        self.buckets
            .iter_mut()
            .flat_map(|bucket| &mut bucket.items)
            .flatten()
    }

    /// Returns the items in any order.
    pub(super) fn iter(&self) -> ShardItems<'_> {
        ShardItems {
            buckets: self.buckets.iter(),
            places: [].iter(),
            left: self.len,
        }
    }
}

/// The items of a shard in any order.
#[derive(Debug)]
pub(super) struct ShardItems<'a> {
    buckets: std::slice::Iter<'a, Bucket>,
    places: std::slice::Iter<'a, Option<Item>>,
    left: usize,
}

impl Default for ShardItems<'_> {
    fn default() -> Self {
        Self {
            buckets: [].iter(),
            places: [].iter(),
            left: 0,
        }
    }
}

impl<'a> Iterator for ShardItems<'a> {
    type Item = &'a Item;

    fn next(&mut self) -> Option<&'a Item> {
        loop {
            if let Some(item) = self.places.by_ref().flatten().next() {
                self.left -= 1;
                return Some(item);
            }
            self.places = self.buckets.next()?.items.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ShardItems<'_> {}

#[cfg(test)]
mod tests;
