//! Reading documents, and letting go of what expired.

use crate::checkpoint::Change;
use crate::hash_table::KeyHash;
use crate::item::{Deletion, Item, ItemMeta};
use crate::value::kept_by_tombstone;
use crate::vbucket::{VBucket, VbState};
use crate::write::Outcome;
use kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
use kedge_types::{Cas, CollectionId, Datatype, DocKey, Expiry, Now, RevSeqno, Seqno, Status};

/// A document as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// Key, value and metadata.
    pub item: &'a Item,
    /// Its version; [`Cas::LOCKED`] while another holds its lock.
    pub cas: Cas,
}

/// A document that was picked at random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked<R> {
    /// It was shown.
    Shown(R),
    /// Its value is on disk only. This is its key.
    OnDisk(Box<[u8]>),
}

/// What GET_META tells of a document or tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its version; [`Cas::LOCKED`] while it is locked.
    pub cas: Cas,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires, or was deleted.
    pub expiry: Expiry,
    /// Count of changes.
    pub rev_seqno: RevSeqno,
    /// Place in the vBucket's order.
    pub seqno: Seqno,
    /// What the value is made of.
    pub datatype: Datatype,
    /// Whether it is a tombstone.
    pub deleted: bool,
}

impl Meta {
    pub(crate) fn of(item: &Item, cas: Cas) -> Self {
        Self {
            cas,
            flags: item.flags(),
            expiry: item.expiry(),
            rev_seqno: item.rev_seqno(),
            seqno: item.seqno(),
            datatype: item.datatype(),
            deleted: item.is_deleted(),
        }
    }
}

/// Shows a document to `read` if its value is in memory. `random` decides whether the access counts, after that.
fn show<R>(item: &Item, cas: Cas, random: u64, read: impl FnOnce(Document<'_>) -> R) -> Outcome<R> {
    if !item.is_resident() {
        return Outcome::Fetch;
    }
    // It is shown as it was before.
    let shown = read(Document { item, cas });
    item.count_access(random);
    Outcome::Done(shown)
}

impl VBucket {
    /// The document or tombstone of a key, if memory has its value. Nothing is checked, and nothing counted.
    #[must_use]
    pub fn peek(&self, key: &DocKey) -> Option<Item> {
        let bytes = key.as_bytes();
        let found = self.table.find(self.table.hash(bytes), bytes);
        found.filter(|item| item.is_resident()).cloned()
    }

    /// Shows the document to `read`.
    ///
    /// # Errors
    /// `KeyNotFound`; `SyncWriteReCommitInProgress` while a SyncWrite on it has not ended that someone may have seen
    /// committed: with another active, or before a restart.
    pub fn get<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.table.hash(bytes);
        self.check_not_pending(hash, bytes)?;
        let random = self.next_random();
        let locked = self.locks.holds(bytes, now);
        match self.table.find(hash, bytes) {
            Some(item) if !item.is_deleted() && !item.expiry().has_passed(now.unix_secs()) => {
                let cas = if locked { Cas::LOCKED } else { item.cas() };
                if item.is_resident() {
                    self.collections.count(bytes, |ops| &mut ops.reads);
                }
                Ok(show(item, cas, random, read))
            }
            Some(_) => {
                // Lets go of it if it just expired.
                self.live(now, hash, bytes);
                Err(Status::KeyNotFound)
            }
            None => self.absent(hash, bytes),
        }
    }

    /// Shows a replica's document to `read`. Nothing becomes of one that has expired: that is for the active to say.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn get_replica<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.get_copy(now, key, false, read)
    }

    /// [`Self::get_replica`], and its tombstones too.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn get_replica_with_tombstones<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.get_copy(now, key, true, read)
    }

    fn get_copy<R>(
        &mut self,
        now: Now,
        key: &DocKey,
        tombstones: bool,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.table.hash(bytes);
        let random = self.next_random();
        let is_shown = |item: &Item| match item.is_deleted() {
            true => tombstones,
            false => !item.expiry().has_passed(now.unix_secs()),
        };
        match self.table.find(hash, bytes) {
            Some(item) if is_shown(item) => Ok(show(item, item.cas(), random, read)),
            Some(_) => Err(Status::KeyNotFound),
            None => self.absent(hash, bytes),
        }
    }

    /// Whether what is visible of a key is all that anyone has seen of it.
    pub(crate) fn check_not_pending(&self, hash: KeyHash, key: &[u8]) -> Result<(), Status> {
        if self.prepares.may_be_visible(hash, key) {
            Err(Status::SyncWriteReCommitInProgress)
        } else {
            Ok(())
        }
    }

    /// What there is to say of a key without a live document in memory.
    pub(crate) fn absent<R>(&self, hash: KeyHash, key: &[u8]) -> Result<Outcome<R>, Status> {
        if self.may_have(hash, key) {
            Ok(Outcome::Fetch)
        } else {
            Err(Status::KeyNotFound)
        }
    }

    /// The metadata of a document or tombstone.
    ///
    /// # Errors
    /// As [`VBucket::get`].
    pub fn get_meta(&mut self, now: Now, key: &DocKey) -> Result<Outcome<Meta>, Status> {
        self.collections.check(key)?;
        let bytes = key.as_bytes();
        let hash = self.table.hash(bytes);
        self.check_not_pending(hash, bytes)?;
        self.live(now, hash, bytes);
        let locked = self.locks.holds(bytes, now);
        let Some(item) = self.table.find(hash, bytes) else {
            return self.absent(hash, bytes);
        };
        if self.expires_with_value(now, item) {
            return Ok(Outcome::Fetch);
        }
        let cas = if locked { Cas::LOCKED } else { item.cas() };
        Ok(Outcome::Done(Meta::of(item, cas)))
    }

    /// Whether a document has expired and stays until its value was read, as its tombstone keeps some of that.
    pub(crate) fn expires_with_value(&self, now: Now, item: &Item) -> bool {
        self.state == VbState::Active
            && !item.is_deleted()
            && item.has_xattrs()
            && !item.is_resident()
            && item.expiry().has_passed(now.unix_secs())
    }

    /// The live document with this key. One that has expired becomes a tombstone here, unless a SyncWrite on it is in
    /// flight, which will replace it, or its value is needed for that and on disk only.
    pub(crate) fn live(&mut self, now: Now, hash: KeyHash, key: &[u8]) -> Option<Item> {
        let item = self.table.find(hash, key)?;
        if item.is_deleted() {
            return None;
        }
        if !item.expiry().has_passed(now.unix_secs()) {
            return Some(item.clone());
        }
        // Of others the active one says what has expired.
        if self.state == VbState::Active
            && !self.prepares.holds(hash, key)
            && !self.expires_with_value(now, item)
        {
            let item = item.clone();
            self.expire(now, hash, &item);
        }
        None
    }

    fn expire(&mut self, now: Now, hash: KeyHash, item: &Item) {
        let tombstone = self.tombstone(now, item);
        self.locks.remove(item.key());
        self.expired += 1;
        self.visible_seqno = self.high_seqno;
        let replaced = self.put(hash, tombstone.clone());
        self.checkpoints
            .push_over(Change::Document(tombstone), replaced);
    }

    /// The tombstone of a document that has expired.
    fn tombstone(&mut self, now: Now, expired: &Item) -> Item {
        // Nothing is kept of attributes that are none.
        let (datatype, kept) = kept_by_tombstone(expired).unwrap_or_default();
        let meta = ItemMeta {
            cas: self.clock.next(now.unix_ns),
            seqno: self.next_seqno(),
            rev: RevSeqno(expired.rev_seqno().get() + 1),
            expiry: Expiry(u32::try_from(now.unix_secs()).unwrap_or(u32::MAX)),
            datatype,
            deleted: Some(Deletion::Expired),
            ..ItemMeta::default()
        };
        Item::new(&meta, expired.key(), &[&kept])
    }

    /// Visits one shard of the hash table: lets expired documents go, forgets tombstones that are old enough and in the
    /// file, and forgets locks whose time is up.
    pub fn sweep(&mut self, now: Now, shard: usize) {
        self.locks.forget_late(now);
        if self.is_rewinding() {
            return;
        }
        // Of others the active one says what has expired.
        let expires = self.state == VbState::Active;
        let secs = now.unix_secs();
        let applied = self.applied_seqno();
        let mut expired = Vec::new();
        let mut old = Vec::new();
        for item in self.table.shard(shard) {
            if item.is_deleted() {
                let age = secs.saturating_sub(u64::from(item.expiry().0));
                let known = self.is_warm() && !item.is_blind();
                if age > TOMBSTONE_PURGE_AGE_SECS && item.seqno() <= applied && known {
                    old.push(item.clone());
                }
            } else if expires
                && item.expiry().has_passed(secs)
                && !self.expires_with_value(now, item)
                && !self.prepares.holds(self.table.hash(item.key()), item.key())
            {
                expired.push(item.clone());
            }
        }
        for item in expired {
            let hash = self.table.hash(item.key());
            self.expire(now, hash, &item);
        }
        for item in old {
            let hash = self.table.hash(item.key());
            self.purged_rev = self.purged_rev.max(item.rev_seqno());
            self.residency.on_forgotten(&item);
            self.table.remove(hash, item.key());
        }
    }

    /// A live document of `collection` in a shard of the hash table, chosen by `random`, if there is one.
    pub fn random_document<R>(
        &self,
        now: Now,
        collection: CollectionId,
        shard: usize,
        random: u64,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Option<Picked<R>> {
        let wanted = |item: &&Item| {
            !item.is_deleted()
                && !item.expiry().has_passed(now.unix_secs())
                && in_collection(item.key(), collection)
                && (self.prepares.is_empty()
                    || self
                        .check_not_pending(self.table.hash(item.key()), item.key())
                        .is_ok())
        };
        let items = || self.table.shard(shard);
        let skip = (random >> 16) as usize % items().len().max(1);
        let after = items().skip(skip).find(wanted);
        let item = after.or_else(|| items().take(skip).find(wanted))?;
        if !item.is_resident() {
            return Some(Picked::OnDisk(item.key().into()));
        }
        let cas = item.cas();
        Some(Picked::Shown(read(Document { item, cas })))
    }

    /// The live keys of a shard of the hash table from `start` on in order of their bytes, at most `count`, without
    /// collection prefix.
    #[must_use]
    pub fn keys_from(
        &self,
        now: Now,
        shard: usize,
        start: &DocKey,
        count: usize,
    ) -> Vec<Box<[u8]>> {
        let collection = start.collection();
        let prefix = start.as_bytes().len() - start.logical().len();
        let mut keys: Vec<&[u8]> = self
            .table
            .shard(shard)
            .filter(|item| !item.is_deleted() && !item.expiry().has_passed(now.unix_secs()))
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
