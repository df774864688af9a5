//! Background fetch of documents that are on disk only.
//!
//! A step that needs such a document returns [`crate::StepOutcome::Fetch`] and changes nothing. Its caller takes a
//! [`FetchTicket`], reads the key from the file without the vBucket's lock, passes the result to [`VbStore::fetched`],
//! and runs the step again, preferably under the same lock. A fetched version never replaces a newer one, whatever
//! happened meanwhile.

use crate::hash_table::KeyHash;
use crate::item::{Item, ItemMeta};
use crate::store::VbStore;
use kedge_types::Seqno;

/// The history and the applied seqno of the file before a read. The read has at least this state.
#[derive(Clone, Copy, Debug)]
pub struct FetchTicket {
    /// `None` if the file was void or had not followed a rollback.
    history: Option<u32>,
    applied: Seqno,
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a file may be damaged"]
pub enum Fetched {
    /// The step can be repeated.
    Known,
    /// The vBucket has changed too much. The repeated step decides whether another fetch is needed.
    Stale,
    /// The file lacks a document that it must have, so it is damaged. A step that needs the document can never succeed.
    Lost,
}

impl VbStore {
    /// Returns a ticket. Must be called before the file is read.
    #[must_use]
    pub fn fetch_ticket(&self) -> FetchTicket {
        FetchTicket {
            history: self.file_history(),
            applied: self.unapplied.applied(),
        }
    }

    /// Accepts the result of a read of `key`: its document or tombstone with the value, or `None`.
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
            // Memory has everything, so the read was from a void file.
            None if !self.documents.residency.may_have(hash, key) => Fetched::Known,
            // A version that left memory since then may be newer than the read.
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

    /// Records that `item`, which is blind ([`Item::is_blind`]), was written to the file. `had_document` is true if it
    /// replaced a live document there. Must be called under the same lock as [`VbStore::on_applied`]; the count of
    /// documents is too high until then.
    pub fn applied_over(&mut self, history: u32, item: &Item, had_document: bool) {
        if history == self.unapplied.history() {
            self.resolve_blind(self.documents.hash(item.key()), item.key(), had_document);
        }
    }

    /// Records whether the file has a live document of a key that is in the hash table.
    pub(crate) fn resolve_blind(&mut self, hash: KeyHash, key: &[u8], has_document: bool) {
        let there = self.documents.find(hash, key);
        if let Some(blind) = there.filter(|item| item.is_blind()) {
            blind.unmark_blind();
            if has_document {
                self.documents.residency.on_known();
                self.collections.on_known(key);
            }
        }
    }

    /// Ends the warmup that started when [`crate::VBucket::history_id`] was `history`. `complete` is true if no live
    /// document was left out.
    pub fn warmed(&mut self, history: u32, complete: bool) {
        if history == self.unapplied.history() {
            self.documents.residency.end_warming(complete);
        }
    }

    /// Adds a document whose value stays on disk; see [`VbStore::warm`].
    pub fn warm_without_value(&mut self, history: u32, meta: &ItemMeta, key: &[u8]) -> bool {
        self.warm(history, Item::on_disk(meta, key))
    }

    /// Adds a document or tombstone that was read from the file while [`crate::VBucket::history_id`] was `history`,
    /// unless its key is in memory. Returns whether it was added.
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
            self.resolve_blind(hash, item.key(), !item.is_deleted());
            return false;
        }
        self.documents.put_known(hash, item);
        true
    }
}
