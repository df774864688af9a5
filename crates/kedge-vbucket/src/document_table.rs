//! The documents and tombstones of a vBucket that are in memory, and what is known of those that only its file has.

use crate::dropped_purge::DroppedPurge;
use crate::hash_table::{HashTable, KeyHash};
use crate::item::Item;
use crate::lock::Locks;
use crate::residency::{DocumentResidency, ResidencyFigures};
use foldhash::fast::RandomState;
use kedge_types::{RevSeqno, Seqno};

/// Hash table, residency and locks of a vBucket.
#[derive(Debug)]
pub struct DocumentTable {
    pub(crate) table: HashTable,
    pub(crate) residency: DocumentResidency,
    pub(crate) locks: Locks,
    pub(crate) dropped: DroppedPurge,
    /// The highest revision of a tombstone that was forgotten: a new document of the same key must not start below.
    pub(crate) purged_rev: RevSeqno,
    /// A value, in memory or on disk, may have extended attributes.
    pub(crate) may_have_xattrs: bool,
    pub(crate) expired: u64,
    /// Where the next random number comes from; it decides about nothing but counts of accesses.
    random: u64,
}

impl DocumentTable {
    pub(crate) fn new(shards: usize, hasher: RandomState, seed: u64) -> Self {
        Self {
            table: HashTable::new(shards, hasher),
            residency: DocumentResidency::complete(),
            locks: Locks::default(),
            dropped: DroppedPurge::default(),
            purged_rev: RevSeqno(0),
            may_have_xattrs: false,
            expired: 0,
            random: seed,
        }
    }

    /// Begins anew from nothing.
    pub(crate) fn reset(&mut self) {
        self.table.clear();
        self.locks = Locks::default();
        self.dropped = DroppedPurge::default();
        self.residency = DocumentResidency::complete();
        self.may_have_xattrs = false;
        self.purged_rev = RevSeqno(0);
    }

    /// Forgets all behind `to`, and what was known of the file. Returns the keys whose documents left memory; an older
    /// version of them may be in the file.
    pub(crate) fn rollback_to(&mut self, to: Seqno) -> Vec<Box<[u8]>> {
        let behind = self.table.iter().filter(|item| item.seqno() > to);
        let keys: Vec<Box<[u8]>> = behind.map(|item| item.key().into()).collect();
        for key in &keys {
            self.table.remove(self.table.hash(key), key);
            self.locks.remove(key);
        }
        self.residency.on_rollback();
        keys
    }

    /// The documents and tombstones in memory.
    #[must_use]
    pub fn table(&self) -> &HashTable {
        &self.table
    }

    /// The number of live documents, in memory or on disk only.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.documents() + self.residency.on_disk_only()
    }

    /// The number of documents that expired since the start.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Returns whether a sweep is wanted soon: documents have an expiry, or are locked. Tombstones can wait.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        self.table.expiring() > 0 || !self.locks.is_empty()
    }

    /// Returns whether documents of dropped collections may be in memory.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        self.dropped.is_wanted()
    }

    /// Returns whether all was read from the file that is to be in memory. Until then any miss may be on disk, and
    /// nothing leaves memory with its key.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.residency.is_warm()
    }

    /// Returns whether a key that is not in memory may be on disk.
    #[must_use]
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        self.may_have(self.table.hash(key), key)
    }

    /// Figures of what is in memory.
    #[must_use]
    pub fn residency(&self) -> ResidencyFigures {
        let (filter_keys, filter_keys_max) = self.residency.filter_keys();
        ResidencyFigures {
            on_disk_only: self.residency.on_disk_only(),
            without_value: self.table.without_value(),
            filter_keys,
            filter_keys_max,
        }
    }

    /// Begins a filter of the keys that the file has, for about as many as there are documents. From now on it gets
    /// what leaves memory; the keys of the file follow.
    pub fn begin_filter(&mut self) {
        self.residency.begin_filter(self.count());
    }

    /// Adds keys that the file had, in any moment since [`DocumentTable::begin_filter`].
    pub fn add_to_filter<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) {
        for key in keys {
            let hash = self.table.hash(key);
            self.residency.add_to_filter(hash);
        }
    }

    /// The new filter has all keys of the file and is used from now on, if nothing has made it void meanwhile.
    pub fn finish_filter(&mut self) {
        self.residency.finish_filter();
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.table.hash(key)
    }

    /// The document or tombstone of this key in memory.
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        self.table.find(hash, key)
    }

    pub(crate) fn may_have(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.residency.may_have(hash, key) && self.table.find(hash, key).is_none()
    }

    /// Puts in an item that is in the file, and not in memory.
    pub(crate) fn put_known(&mut self, hash: KeyHash, item: Item) {
        if !item.is_deleted() {
            self.residency.on_known();
        }
        self.table.put(hash, item);
    }

    /// The revision that a document made anew goes on from; `high` is the last seqno.
    pub(crate) fn rev_before(&self, hash: KeyHash, key: &[u8], high: Seqno) -> RevSeqno {
        match self.table.find(hash, key) {
            Some(tombstone) => tombstone.rev_seqno(),
            None if self.residency.may_have(hash, key) => {
                self.residency.rev_floor(high).max(self.purged_rev)
            }
            None => self.purged_rev,
        }
    }

    /// xorshift64 (G. Marsaglia, 2003).
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Takes the documents out, to be dropped without the vBucket's lock.
    pub(crate) fn take_table(&mut self) -> HashTable {
        self.table.take()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.residency.bytes()
    }
}
