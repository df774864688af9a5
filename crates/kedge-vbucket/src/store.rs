//! The data of a vBucket that changes touch: documents, collections, history and queues.
//!
//! Invariants:
//! * A change gets a seqno, enters the hash table if it is visible, and is queued, in one step.
//! * A replaced version is accounted for by [`Unapplied`] as long as only that keeps it alive.

use crate::apply::{ApplyBatch, FileChange, PersistenceMode, Unapplied};
use crate::catch_up::NewBranch;
use crate::change_queue::ChangeQueue;
use crate::checkpoint::Change;
use crate::collections::{OpenCollections, collection_of};
use crate::document_table::DocumentTable;
use crate::failover::FailoverTable;
use crate::hash_table::KeyHash;
use crate::history::History;
use crate::item::Item;
use crate::state::VbState;
use foldhash::fast::RandomState;
use kedge_types::{DocKey, RevSeqno, Seqno, VbId, VbUuid};

/// The documents, collections, history and queues of a vBucket.
#[derive(Debug)]
pub struct VbStore {
    pub(crate) state: VbState,
    /// True if the vBucket is dead because another node takes it over.
    pub(crate) is_handed_over: bool,
    pub(crate) documents: DocumentTable,
    pub(crate) collections: OpenCollections,
    pub(crate) history: History,
    pub(crate) changes: ChangeQueue,
    pub(crate) unapplied: Unapplied,
}

impl VbStore {
    pub(crate) fn new(
        id: VbId,
        uuid: VbUuid,
        shards: usize,
        hasher: RandomState,
        persistence: PersistenceMode,
    ) -> Self {
        Self {
            state: VbState::Active,
            is_handed_over: false,
            documents: DocumentTable::new(shards, hasher, u64::from(id.get()) + 1),
            collections: OpenCollections::new(),
            history: History::new(uuid),
            changes: ChangeQueue::new(),
            unapplied: Unapplied::new(persistence),
        }
    }

    /// Resets to an empty state under `failover`. Queued changes stay queued, because positions were handed out.
    pub(crate) fn reset(&mut self, failover: FailoverTable) {
        self.documents.reset();
        self.unapplied.begin_history();
        self.unapplied.rewinding = false;
        self.collections = OpenCollections::new();
        self.history.reset(failover);
    }

    /// Removes everything after `to`, where the branch `uuid` begins. Returns the keys of the removed documents.
    pub(crate) fn rollback_to(&mut self, to: Seqno, uuid: VbUuid) -> Vec<Box<[u8]>> {
        let keys = self.documents.rollback_to(to);
        self.history.rollback_to(to, uuid);
        self.unapplied.begin_history();
        self.unapplied.rewinding = true;
        self.changes.push(Change::Rollback {
            to,
            branch: Box::new(self.new_branch()),
        });
        keys
    }

    /// Returns the document or tombstone of a key if its value is in memory. Checks nothing and counts no access.
    #[must_use]
    pub fn peek(&self, key: &DocKey) -> Option<Item> {
        let bytes = key.as_bytes();
        let found = self.documents.find(self.documents.hash(bytes), bytes);
        found.filter(|item| item.is_resident()).cloned()
    }

    /// Returns whether the vBucket is dead because another node takes it over. One that the map has made dead is not: a
    /// failed-over node that is back may have less than the node that was promoted, which may not know that yet.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Returns whether the vBucket was rolled back and its file has not followed. Memory is incomplete then.
    #[must_use]
    pub fn is_rewinding(&self) -> bool {
        self.unapplied.rewinding
    }

    /// Returns whether the content of the file is void: a reset or deletion is applied next.
    #[must_use]
    pub fn is_file_void(&self) -> bool {
        self.unapplied.is_file_void()
    }

    /// Records that the file has everything up to `upto`, synced. `history` is that of the batch.
    pub fn on_applied(&mut self, history: u32, upto: Seqno) {
        self.unapplied.on_applied(history, upto);
    }

    /// Ends the write of a batch, successful or not. Changes that [`VbStore::on_applied`] did not cover become
    /// unapplied again. Returns items that the caller drops without the lock, because dropping them takes time.
    #[must_use = "it is to be dropped without the vBucket's lock"]
    pub fn end_apply(&mut self, batch: ApplyBatch) -> Vec<FileChange> {
        self.unapplied.thaw(batch)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == VbState::Active
    }

    /// Returns the branch that has just begun.
    pub(crate) fn new_branch(&self) -> NewBranch {
        NewBranch {
            failover: self.history.failover.clone(),
            catch_up: self.history.catch_up().cloned(),
        }
    }

    /// Queues the current state and failover table.
    pub(crate) fn push_state(&mut self) {
        let failover = Box::new(self.history.failover.clone());
        self.changes.push(Change::State(failover, self.state));
    }

    /// Makes a change that is visible to every client: stores `item` in the hash table and queues `change`.
    pub(crate) fn put_and_push(&mut self, hash: KeyHash, item: Item, change: Change) {
        self.history.make_all_visible();
        let replaced = self.put(hash, item);
        self.changes.push_over(change, replaced);
    }

    /// Stores an item in the hash table. Returns the seqno of the replaced version, which may stay alive for the file,
    /// or 0 if there is none.
    pub(crate) fn put(&mut self, hash: KeyHash, item: Item) -> Seqno {
        let documents = &mut self.documents;
        documents.may_have_xattrs |= item.has_xattrs();
        if documents.may_have(hash, item.key()) {
            item.mark_blind();
        }
        let collection = collection_of(item.key());
        let (seqno, is_live) = (item.seqno(), !item.is_deleted());
        let old = documents.table.put(hash, item);
        let was_live = old.as_ref().is_some_and(|old| !old.is_deleted());
        self.collections
            .on_put(collection, seqno, is_live, was_live);
        let Some(old) = old else {
            return Seqno(0);
        };
        if old.is_blind()
            && let Some(new) = documents.table.find(hash, old.key())
        {
            new.mark_blind();
        }
        self.on_replaced(&old);
        old.seqno()
    }

    /// Returns the revision after which a re-created document continues.
    pub(crate) fn rev_before(&self, hash: KeyHash, key: &[u8]) -> RevSeqno {
        self.documents
            .rev_before(hash, key, self.history.high_seqno)
    }

    /// Accounts for `old`, which was replaced in the hash table.
    pub(crate) fn on_replaced(&mut self, old: &Item) {
        self.unapplied
            .on_replaced(old, self.history.persisted_seqno);
    }
}
