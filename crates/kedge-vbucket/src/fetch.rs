//! Documents that are on disk only: what of them is looked for, and what is made of the answer.
//!
//! A step that needs more than memory has returns [`crate::Outcome::Fetch`] and has changed nothing. Its caller takes a
//! [`FetchTicket`], reads the key from the file without the vBucket's lock, hands over what it found with
//! [`VBucket::fetched`], and runs the step again, best without letting go of the lock in between. Whatever happened
//! meanwhile, what was read never takes the place of something newer: the step finds that out when it runs again.

use crate::hash_table::KeyHash;
use crate::item::Item;
use crate::residency::ResidencyFigures;
use crate::vbucket::VBucket;
use kedge_types::Seqno;

/// What the file is known to have at least when it is read. Taken before that.
#[derive(Clone, Copy, Debug)]
pub struct FetchTicket {
    /// `None`: the file was void, or had not followed a rollback.
    history: Option<u32>,
    applied: Seqno,
}

/// What became of what was read.
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

impl VBucket {
    /// Whether a key that is not in memory may be on disk.
    #[must_use]
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        self.may_have(self.table.hash(key), key)
    }

    pub(crate) fn may_have(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.residency.may_have(hash, key) && self.table.find(hash, key).is_none()
    }

    /// To be taken before the file is read.
    #[must_use]
    pub fn fetch_ticket(&self) -> FetchTicket {
        FetchTicket {
            history: self.file_history(),
            applied: self.applied_seqno(),
        }
    }

    /// The file was read for `key`: its document or tombstone with the value, or nothing.
    pub fn fetched(&mut self, ticket: FetchTicket, key: &[u8], found: Option<Item>) -> Fetched {
        if ticket.history != Some(self.history()) || self.is_rewinding() {
            return Fetched::Stale;
        }
        if self.is_of_dropped(key) {
            return Fetched::Known;
        }
        let hash = self.table.hash(key);
        match self.table.find(hash, key) {
            Some(there) if there.is_resident() => Fetched::Known,
            Some(there) => {
                let stored = found.filter(|found| found.seqno() == there.seqno());
                match stored {
                    Some(stored) => {
                        let whole = there.with_value(&stored);
                        self.table.put(hash, whole);
                        Fetched::Known
                    }
                    None if there.seqno() <= ticket.applied => Fetched::Lost,
                    None => Fetched::Stale,
                }
            }
            // Memory has everything: what was read is of a file that is void.
            None if !self.residency.may_have(hash, key) => Fetched::Known,
            // What has left memory since may be newer than what was read.
            None if ticket.applied < self.residency.left_seqno() => Fetched::Stale,
            None => {
                match found {
                    Some(item) => self.put_known(hash, item),
                    None => self.residency.on_missing(key),
                }
                Fetched::Known
            }
        }
    }

    /// Puts in an item that is in the file, and not in memory.
    pub(crate) fn put_known(&mut self, hash: KeyHash, item: Item) {
        if !item.is_deleted() {
            self.residency.on_known();
        }
        self.table.put(hash, item);
    }

    /// `item` of a batch of `history` is blind ([`Item::is_blind`]) and was written to the file, which had a live
    /// document of its key before, or not. To be told together with [`VBucket::applied`], before the lock is let go of:
    /// [`VBucket::documents`] is too high until then.
    pub fn applied_over(&mut self, history: u32, item: &Item, had_document: bool) {
        if history == self.history() {
            self.find_out(self.table.hash(item.key()), item.key(), had_document);
        }
    }

    /// What the file has of a key is known, beside what stands in the hash table.
    pub(crate) fn find_out(&mut self, hash: KeyHash, key: &[u8], has_document: bool) {
        let there = self.table.find(hash, key);
        if let Some(blind) = there.filter(|item| item.is_blind()) {
            blind.unmark_blind();
            if has_document {
                self.residency.on_known();
                self.collections.on_known(key);
            }
        }
    }

    /// Whether all was read from the file that is to be in memory. Until then any miss may be on disk, and nothing
    /// leaves memory with its key.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.residency.is_warm()
    }

    /// Reading the file with [`VBucket::warm`], begun when [`VBucket::history`] was `history`, has ended. `complete`: no
    /// live document was left out.
    pub fn warmed(&mut self, history: u32, complete: bool) {
        if history == self.history() {
            self.residency.end_warming(complete);
        }
    }

    /// Begins a filter of the keys that the file has, for about `keys` of them. From now on it gets what leaves memory;
    /// the keys of the file follow.
    pub fn begin_filter(&mut self, keys: usize) {
        self.residency.begin_filter(keys);
    }

    /// Keys that the file had, in any moment since [`VBucket::begin_filter`].
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

    /// What of it is in memory.
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
}
