//! Reads of documents, and removal of expired ones.

use crate::checkpoint::Change;
use crate::hash_table::KeyHash;
use crate::item::{Deletion, Item, ItemMeta};
use crate::results::{DocumentRef, Meta, RandomDocument, StepOutcome};
use crate::step::Step;
use crate::value::kept_by_tombstone;
use kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
use kedge_types::{Cas, CollectionId, DocKey, Expiry, RevSeqno, Status};

/// Passes a document to `read` if its value is in memory. Counts the access afterwards, depending on `random`.
#[inline]
fn show<R>(
    item: &Item,
    cas: Cas,
    random: u64,
    read: impl FnOnce(DocumentRef<'_>) -> R,
) -> StepOutcome<R> {
    if !item.is_resident() {
        return StepOutcome::Fetch;
    }
    // The visitor sees the frequency before this access.
    let shown = read(DocumentRef { item, cas });
    item.count_access(random);
    StepOutcome::Done(shown)
}

impl Step<'_> {
    /// Passes the document to `read`.
    ///
    /// # Errors
    /// `KeyNotFound`; `SyncWriteReCommitInProgress` while the key has a prepare whose commit a client may have seen, on
    /// another active node or before a restart.
    pub fn get<R>(
        &mut self,
        key: &DocKey,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        self.check_not_pending(hash, bytes)?;
        let random = self.store.documents.next_random();
        let locked = self.store.documents.locks.holds(bytes, self.now);
        match self.store.documents.find(hash, bytes) {
            Some(item) if !item.is_deleted() && !item.expiry().has_passed(self.now.unix_secs()) => {
                let cas = if locked { Cas::LOCKED } else { item.cas() };
                if item.is_resident() {
                    self.store.collections.count(bytes, |ops| &mut ops.reads);
                }
                Ok(show(item, cas, random, read))
            }
            Some(_) => {
                // Removes the document if it has just expired.
                self.live(hash, bytes);
                Err(Status::KeyNotFound)
            }
            None => self.absent(hash, bytes),
        }
    }

    /// Passes a replica's document to `read`. Does not remove an expired document, because only the active vBucket
    /// does.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn get_replica<R>(
        &mut self,
        key: &DocKey,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.get_copy(key, false, read)
    }

    /// Passes a replica's document or tombstone to `read`.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn get_replica_with_tombstones<R>(
        &mut self,
        key: &DocKey,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.get_copy(key, true, read)
    }

    fn get_copy<R>(
        &mut self,
        key: &DocKey,
        tombstones: bool,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<StepOutcome<R>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        let random = self.store.documents.next_random();
        let is_shown = |item: &Item| match item.is_deleted() {
            true => tombstones,
            false => !item.expiry().has_passed(self.now.unix_secs()),
        };
        match self.store.documents.find(hash, bytes) {
            Some(item) if is_shown(item) => Ok(show(item, item.cas(), random, read)),
            Some(_) => Err(Status::KeyNotFound),
            None => self.absent(hash, bytes),
        }
    }

    /// Checks that no client may have seen the commit of the key's prepare.
    pub(crate) fn check_not_pending(&self, hash: KeyHash, key: &[u8]) -> Result<(), Status> {
        if self.durability.prepares.may_be_visible(hash, key) {
            Err(Status::SyncWriteReCommitInProgress)
        } else {
            Ok(())
        }
    }

    /// Returns the result for a key without a live document in memory.
    pub(crate) fn absent<R>(&self, hash: KeyHash, key: &[u8]) -> Result<StepOutcome<R>, Status> {
        if self.store.documents.may_have(hash, key) {
            Ok(StepOutcome::Fetch)
        } else {
            Err(Status::KeyNotFound)
        }
    }

    /// Returns the metadata of a document or tombstone.
    ///
    /// # Errors
    /// As [`Step::get`].
    pub fn get_meta(&mut self, key: &DocKey) -> Result<StepOutcome<Meta>, Status> {
        self.store.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.store.documents.hash(bytes);
        self.check_not_pending(hash, bytes)?;
        self.live(hash, bytes);
        let locked = self.store.documents.locks.holds(bytes, self.now);
        let Some(item) = self.store.documents.find(hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if self.expires_with_value(item) {
            return Ok(StepOutcome::Fetch);
        }
        let cas = if locked { Cas::LOCKED } else { item.cas() };
        Ok(StepOutcome::Done(Meta::of(item, cas)))
    }

    /// Returns whether a document has expired but its value must be read first, because the tombstone keeps system
    /// attributes.
    pub(crate) fn expires_with_value(&self, item: &Item) -> bool {
        self.store.is_active()
            && !item.is_deleted()
            && item.has_xattrs()
            && !item.is_resident()
            && item.expiry().has_passed(self.now.unix_secs())
    }

    /// Returns the live document with this key. Replaces an expired document by a tombstone, unless a SyncWrite of the
    /// key is in flight, which will replace it, or its value is needed and on disk only.
    pub(crate) fn live(&mut self, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let item = self.store.documents.find(hash, key)?;
        if item.is_deleted() {
            return None;
        }
        if !item.expiry().has_passed(self.now.unix_secs()) {
            return Some(item.clone());
        }
        // For other states, the active node decides which documents have expired.
        if self.store.is_active()
            && !self.durability.prepares.holds(hash, key)
            && !self.expires_with_value(item)
        {
            let item = item.clone();
            self.expire(hash, &item);
        }
        None
    }

    fn expire(&mut self, hash: KeyHash, item: &Item) {
        let tombstone = self.tombstone(item);
        self.store.documents.locks.remove(item.key());
        self.store.documents.expired += 1;
        let change = Change::Document(tombstone.clone());
        self.store.put_and_push(hash, tombstone, change);
    }

    /// Returns the tombstone of an expired document.
    fn tombstone(&mut self, expired: &Item) -> Item {
        // Invalid attributes are not kept.
        let (datatype, kept) = kept_by_tombstone(expired).unwrap_or_default();
        let meta = ItemMeta {
            cas: self.store.history.clock.next(self.now.unix_ns),
            seqno: self.store.history.next_seqno(),
            rev: RevSeqno(expired.rev_seqno().get() + 1),
            expiry: Expiry(u32::try_from(self.now.unix_secs()).unwrap_or(u32::MAX)),
            datatype,
            deleted: Some(Deletion::Expired),
            ..ItemMeta::default()
        };
        Item::new(&meta, expired.key(), &[&kept])
    }

    /// Visits one shard of the hash table: expires documents, removes applied tombstones that are old enough, and
    /// removes expired locks.
    pub fn sweep(&mut self, shard: usize) {
        self.store.documents.locks.remove_expired(self.now);
        if self.store.unapplied.rewinding {
            return;
        }
        // For other states, the active node decides which documents have expired.
        let expires = self.store.is_active();
        let secs = self.now.unix_secs();
        let applied = self.store.unapplied.applied();
        let mut expired = Vec::new();
        let mut old = Vec::new();
        for item in self.store.documents.table.shard(shard) {
            if item.is_deleted() {
                let age = secs.saturating_sub(u64::from(item.expiry().0));
                let known = self.store.documents.is_warm() && !item.is_blind();
                if age > TOMBSTONE_PURGE_AGE_SECS && item.seqno() <= applied && known {
                    old.push(item.clone());
                }
            } else if expires
                && item.expiry().has_passed(secs)
                && !self.expires_with_value(item)
                && !self
                    .durability
                    .prepares
                    .holds(self.store.documents.hash(item.key()), item.key())
            {
                expired.push(item.clone());
            }
        }
        for item in expired {
            let hash = self.store.documents.hash(item.key());
            self.expire(hash, &item);
        }
        for item in old {
            let hash = self.store.documents.hash(item.key());
            let documents = &mut self.store.documents;
            documents.purged_rev = documents.purged_rev.max(item.rev_seqno());
            documents.residency.on_forgotten(&item);
            documents.table.remove(hash, item.key());
        }
    }

    /// Selects a live document of `collection` in a shard of the hash table with the number `random`.
    pub fn random_document<R>(
        &self,
        collection: CollectionId,
        shard: usize,
        random: u64,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Option<RandomDocument<R>> {
        let wanted = |item: &&Item| {
            !item.is_deleted()
                && !item.expiry().has_passed(self.now.unix_secs())
                && in_collection(item.key(), collection)
                && (self.durability.prepares.is_empty()
                    || self
                        .check_not_pending(self.store.documents.hash(item.key()), item.key())
                        .is_ok())
        };
        let items = || self.store.documents.table.shard(shard);
        let skip = (random >> 16) as usize % items().len().max(1);
        let after = items().skip(skip).find(wanted);
        let item = after.or_else(|| items().take(skip).find(wanted))?;
        if !item.is_resident() {
            return Some(RandomDocument::OnDisk(item.key().into()));
        }
        let cas = item.cas();
        Some(RandomDocument::Shown(read(DocumentRef { item, cas })))
    }

    /// Returns at most `count` live keys of a shard of the hash table from `start` on, in byte order and without
    /// collection prefix.
    #[must_use]
    pub fn keys_from(&self, shard: usize, start: &DocKey, count: usize) -> Vec<Box<[u8]>> {
        let collection = start.collection();
        let prefix = start.as_bytes().len() - start.logical().len();
        let mut keys: Vec<&[u8]> = self
            .store
            .documents
            .table
            .shard(shard)
            .filter(|item| !item.is_deleted() && !item.expiry().has_passed(self.now.unix_secs()))
            .filter(|item| in_collection(item.key(), collection) && item.key() >= start.as_bytes())
            .map(|item| &item.key()[prefix..])
            .collect();
        keys.sort_unstable();
        keys.truncate(count);
        keys.into_iter().map(Into::into).collect()
    }
}

fn in_collection(key: &[u8], collection: CollectionId) -> bool {
    kedge_types::decode_leb128(key).is_some_and(|(id, _)| id == collection.get())
}
