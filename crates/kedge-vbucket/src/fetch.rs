//! Documents that are on disk only: what of them is looked for, and what is made of the answer.
//!
//! A step that needs more than memory has returns [`crate::StepOutcome::Fetch`] and has changed nothing. Its caller takes a
//! [`FetchTicket`], reads the key from the file without the vBucket's lock, hands over what it found with
//! [`VbStore::fetched`], and runs the step again, best without letting go of the lock in between. Whatever happened
//! meanwhile, what was read never takes the place of something newer: the step finds that out when it runs again.

use crate::hash_table::KeyHash;
use crate::item::{Item, ItemMeta};
use crate::store::VbStore;
use kedge_types::Seqno;

/// The least progress of the file when it is read. Taken before that.
#[derive(Clone, Copy, Debug)]
pub struct FetchTicket {
    /// `None`: the file was void, or had not followed a rollback.
    history: Option<u32>,
    applied: Seqno,
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a file may be damaged"]
pub enum Fetched {
    /// The step can go on.
    Known,
    /// Too much has changed meanwhile; the step finds out what is to be done.
    Stale,
    /// The file does not have what it must have: it is damaged, and a step that needs it will never go on.
    Lost,
}

impl VbStore {
    /// To be taken before the file is read.
    #[must_use]
    pub fn fetch_ticket(&self) -> FetchTicket {
        FetchTicket {
            history: self.file_history(),
            applied: self.unapplied.applied(),
        }
    }

    /// The file was read for `key`: its document or tombstone with the value, or nothing.
    pub fn fetched(&mut self, ticket: FetchTicket, key: &[u8], found: Option<Item>) -> Fetched {
        if ticket.history != Some(self.unapplied.history()) || self.unapplied.rewinding {
            return Fetched::Stale;
        }
        if self.collections.is_of_dropped(key) {
            return Fetched::Known;
        }
        let hash = self.documents.hash(key);
        match self.documents.find(hash, key) {
            Some(there) if there.is_resident() => Fetched::Known,
            Some(there) => {
                let stored = found.filter(|found| found.seqno() == there.seqno());
                match stored {
                    Some(stored) => {
                        let whole = there.with_value(&stored);
                        self.documents.table.put(hash, whole);
                        Fetched::Known
                    }
                    None if there.seqno() <= ticket.applied => Fetched::Lost,
                    None => Fetched::Stale,
                }
            }
            // Memory has everything: what was read is of a file that is void.
            None if !self.documents.residency.may_have(hash, key) => Fetched::Known,
            // What has left memory since may be newer than what was read.
            None if ticket.applied < self.documents.residency.left_seqno() => Fetched::Stale,
            None => {
                match found {
                    Some(item) => self.documents.put_known(hash, item),
                    None => self.documents.residency.on_missing(key),
                }
                Fetched::Known
            }
        }
    }

    /// `item` of a batch of `history` is blind ([`Item::is_blind`]) and was written to the file, which had a live
    /// document of its key before, or not. To be told together with [`VbStore::on_applied`], before the lock is let go
    /// of: The count of documents is too high until then.
    pub fn applied_over(&mut self, history: u32, item: &Item, had_document: bool) {
        if history == self.unapplied.history() {
            self.find_out(self.documents.hash(item.key()), item.key(), had_document);
        }
    }

    /// The file was looked at for a key that stands in the hash table.
    pub(crate) fn find_out(&mut self, hash: KeyHash, key: &[u8], has_document: bool) {
        let there = self.documents.find(hash, key);
        if let Some(blind) = there.filter(|item| item.is_blind()) {
            blind.unmark_blind();
            if has_document {
                self.documents.residency.on_known();
                self.collections.on_known(key);
            }
        }
    }

    /// Reading the file with [`VbStore::warm`], begun when [`crate::VBucket::history_id`] was `history`, has ended.
    /// `complete`: no live document was left out.
    pub fn warmed(&mut self, history: u32, complete: bool) {
        if history == self.unapplied.history() {
            self.documents.residency.end_warming(complete);
        }
    }

    /// As [`VbStore::warm`], of a document whose value stays on disk.
    pub fn warm_without_value(&mut self, history: u32, meta: &ItemMeta, key: &[u8]) -> bool {
        self.warm(history, Item::on_disk(meta, key))
    }

    /// A document or tombstone was read from the file while [`crate::VBucket::history_id`] was `history`: it goes into
    /// the hash table unless its key is there. Says whether it did.
    pub fn warm(&mut self, history: u32, item: Item) -> bool {
        let is_late = self.documents.is_warm() || item.seqno() > self.unapplied.applied();
        if history != self.unapplied.history()
            || is_late
            || self.collections.is_of_dropped(item.key())
        {
            return false;
        }
        let hash = self.documents.hash(item.key());
        if self.documents.find(hash, item.key()).is_some() {
            self.find_out(hash, item.key(), !item.is_deleted());
            return false;
        }
        self.documents.put_known(hash, item);
        true
    }
}
