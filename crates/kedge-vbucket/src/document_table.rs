//! The documents of a vBucket in memory, with what is known of those on disk only.

use crate::dropped_purge::DroppedPurge;
use crate::effects::SweepWork;
use crate::hash_table::{HashTable, KeyHash};
use crate::item::Item;
use crate::lock::Locks;
use crate::residency::{DocumentResidency, ResidencyFigures};
use foldhash::fast::RandomState;
use kedge_types::{RevSeqno, Seqno};

/// The hash table, residency state and locks of a vBucket.
#[derive(Debug)]
pub struct DocumentTable {
    pub(crate) table: HashTable,
    pub(crate) residency: DocumentResidency,
    pub(crate) locks: Locks,
    pub(crate) dropped: DroppedPurge,
    /// The highest revision of a tombstone that was removed from memory. A re-created document must start above it.
    pub(crate) purged_rev: RevSeqno,
    /// True if a value, in memory or on disk, may have extended attributes.
    pub(crate) may_have_xattrs: bool,
    pub(crate) expired: u64,
    /// The state of the random number generator, which decides only which accesses are counted.
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

    /// Resets to an empty table.
    pub(crate) fn reset(&mut self) {
        self.table.clear();
        self.locks = Locks::default();
        self.dropped = DroppedPurge::default();
        self.residency = DocumentResidency::complete();
        self.may_have_xattrs = false;
        self.purged_rev = RevSeqno(0);
    }

    /// Removes all documents after `to` and all knowledge about the file. Returns the keys of the removed documents, of
    /// which the file may have older versions.
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

    /// Returns the documents and tombstones in memory.
    #[must_use]
    pub fn table(&self) -> &HashTable {
        &self.table
    }

    /// Returns the number of live documents, in memory and on disk only.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.documents() + self.residency.on_disk_only()
    }

    /// Returns the number of documents that expired since the start.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Returns whether a sweep is due soon because documents have an expiry or are locked. Tombstones can wait.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        self.table.expiring() > 0 || !self.locks.is_empty()
    }

    pub(crate) fn sweep_work(&self) -> SweepWork {
        SweepWork {
            expiry: self.wants_sweep(),
            dropped: self.has_dropped(),
            compression: self.table.compressible() > 0,
        }
    }

    /// Returns whether documents of dropped collections may be in memory.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        self.dropped.is_wanted()
    }

    /// Returns whether warmup has finished. Until then, a key that is not in memory may be on disk, and no document is
    /// evicted with its key.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.residency.is_warm()
    }

    /// Returns whether a key that is not in memory may be on disk.
    #[must_use]
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        self.may_have(self.table.hash(key), key)
    }

    /// Returns the residency statistics.
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

    /// Starts a new filter of the keys in the file, sized for the current number of documents. From now on it receives
    /// evicted keys. The caller adds the keys of the file.
    pub fn begin_filter(&mut self) {
        self.residency.begin_filter(self.count());
    }

    /// Adds keys that the file had at any moment since [`DocumentTable::begin_filter`].
    pub fn add_to_filter<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) {
        for key in keys {
            let hash = self.table.hash(key);
            self.residency.add_to_filter(hash);
        }
    }

    /// Activates the new filter, which has all keys of the file, unless it was invalidated meanwhile.
    pub fn finish_filter(&mut self) {
        self.residency.finish_filter();
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.table.hash(key)
    }

    /// Returns the document or tombstone of this key in memory.
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Item> {
        self.table.find(hash, key)
    }

    pub(crate) fn may_have(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.residency.may_have(hash, key) && self.table.find(hash, key).is_none()
    }

    /// Adds an item that is in the file and not in memory.
    pub(crate) fn put_known(&mut self, hash: KeyHash, item: Item) {
        if !item.is_deleted() {
            self.residency.on_known();
        }
        self.table.put(hash, item);
    }

    /// Returns the revision after which a re-created document continues. `high` is the high seqno.
    pub(crate) fn rev_before(&self, hash: KeyHash, key: &[u8], high: Seqno) -> RevSeqno {
        match self.table.find(hash, key) {
            Some(tombstone) => tombstone.rev_seqno(),
            None if self.residency.may_have(hash, key) => {
                self.residency.rev_floor(high).max(self.purged_rev)
            }
            None => self.purged_rev,
        }
    }

    /// Returns the next number of xorshift64 (G. Marsaglia, 2003).
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Takes the documents, to be dropped without the vBucket's lock.
    pub(crate) fn take_table(&mut self) -> HashTable {
        self.table.take()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.residency.bytes()
    }
}
