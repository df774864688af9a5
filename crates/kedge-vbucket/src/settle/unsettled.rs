//! What the log has and the file has not.
//!
//! Invariants:
//! * `settled <= frozen.upto <= ` the last seqno in `items`; the frozen batch and `items` together have every change in
//!   (settled, logged], in order.
//! * `pinned` counts what only this keeps alive: prepares, aborts, and documents that are not in the hash table any
//!   more.
//! * `history` changes with every reset and rollback; a batch of another history settles nothing.

use super::batch::{End, Marks, SettleBatch};
use super::{PersistedState, Settle};
use crate::checkpoint::Change;
use crate::item::Item;
use kedge_types::{RevSeqno, Seqno};

/// Where a vBucket's changes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// In the log first, then in the vBucket's file, when it is settled.
    LogThenFile,
    /// In the vBucket's file at once; there is no log.
    Direct,
}

/// How much the log has and the file has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsettledFigures {
    /// Changes, older versions of a key among them; what is being written counts until that has ended.
    pub items: usize,
    /// Bytes that only they keep alive: versions that are not in the hash table, and the list itself.
    pub pinned_bytes: usize,
    /// What the file says of its vBucket is old.
    pub state_changed: bool,
    /// The file's content is void: the vBucket was reset.
    pub replaces_file: bool,
}

#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) persistence: Persistence,
    items: Vec<Settle>,
    ends: Vec<End>,
    /// Bytes of all of `items`.
    bytes: usize,
    pinned: usize,
    /// Everything up to here is in the file.
    settled: Seqno,
    at_settled: Marks,
    at_logged: Marks,
    /// The highest revision of a tombstone that the log has, or whoever persists the vBucket.
    deleted_rev: RevSeqno,
    history: u32,
    pub(crate) state_changed: bool,
    pub(crate) replaces_file: bool,
    frozen: Option<Frozen>,
}

/// What is known here of a batch that is being written.
#[derive(Debug)]
struct Frozen {
    /// What was settled when it was taken.
    from: Seqno,
    upto: Seqno,
    /// All of it is in the file.
    is_settled: bool,
    items: usize,
    bytes: usize,
    pinned: usize,
    list_bytes: usize,
}

impl Unsettled {
    pub(crate) fn new(persistence: Persistence) -> Self {
        Self {
            persistence,
            items: Vec::new(),
            ends: Vec::new(),
            bytes: 0,
            pinned: 0,
            settled: Seqno(0),
            at_settled: Marks::default(),
            at_logged: Marks::default(),
            deleted_rev: RevSeqno(0),
            history: 0,
            state_changed: false,
            replaces_file: false,
            frozen: None,
        }
    }

    pub(crate) fn settled(&self) -> Seqno {
        self.settled
    }

    pub(crate) fn history(&self) -> u32 {
        self.history
    }

    pub(crate) fn marks(&self) -> Marks {
        self.at_logged
    }

    pub(crate) fn deleted_rev(&self) -> RevSeqno {
        self.deleted_rev
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.items.is_empty() || self.state_changed || self.replaces_file
    }

    pub(crate) fn figures(&self) -> UnsettledFigures {
        let frozen = self.frozen.as_ref();
        UnsettledFigures {
            items: self.items.len() + frozen.map_or(0, |frozen| frozen.items),
            pinned_bytes: self.pinned_bytes(),
            state_changed: self.state_changed,
            replaces_file: self.replaces_file,
        }
    }

    #[cfg(test)]
    pub(crate) fn items(&self) -> &[Settle] {
        &self.items
    }

    #[cfg(test)]
    pub(crate) fn pinned_items_bytes(&self) -> usize {
        self.pinned + self.frozen.as_ref().map_or(0, |frozen| frozen.pinned)
    }

    /// Bytes that nothing else accounts for.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let frozen = self
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.pinned + frozen.list_bytes);
        self.pinned + list_bytes(&self.items, &self.ends) + frozen
    }

    /// The log has `change`, or a replay has read it from there.
    pub(crate) fn on_logged(&mut self, change: &Change) {
        self.at_logged.on_change(change);
        match change {
            Change::State(_) => self.state_changed = true,
            Change::Document(item) | Change::Commit { item, .. } if item.is_deleted() => {
                self.deleted_rev = self.deleted_rev.max(item.rev_seqno());
            }
            _ => {}
        }
        self.ends.extend(End::of(change));
        if let Some(settle) = Settle::of(change) {
            self.push(settle);
        }
    }

    fn push(&mut self, settle: Settle) {
        let bytes = settle.item().heap_bytes();
        self.bytes += bytes;
        self.pinned += if is_pinned(&settle) { bytes } else { 0 };
        self.items.push(settle);
    }

    /// The file has `change`, as there is no log.
    pub(crate) fn on_written(&mut self, change: &Change) {
        assert!(
            self.items.is_empty() && self.frozen.is_none(),
            "what a replay brought back is settled before anything else"
        );
        self.at_logged.on_change(change);
        self.at_settled = self.at_logged;
        if let Change::Document(item) | Change::Commit { item, .. } = change
            && item.is_deleted()
        {
            self.deleted_rev = self.deleted_rev.max(item.rev_seqno());
        }
    }

    /// The file has everything up to `persisted`, as there is no log.
    pub(crate) fn settle_at_once(&mut self, persisted: Seqno) {
        self.settled = persisted;
        self.state_changed = false;
        self.replaces_file = false;
    }

    /// `old` has left the hash table for a newer version. `logged`: the log has everything up to there; what it does
    /// not have is counted with the checkpoints, and asked whether it was replaced when it comes here.
    pub(crate) fn on_replaced(&mut self, old: &Item, logged: Seqno) {
        let seqno = old.seqno();
        if old.is_lock_copy() || seqno > logged {
            return;
        }
        let bytes = old.heap_bytes();
        match &mut self.frozen {
            Some(frozen) if frozen.from < seqno && seqno <= frozen.upto => frozen.pinned += bytes,
            _ if seqno > self.settled => self.pinned += bytes,
            _ => {}
        }
    }

    /// Takes everything there is; `state` is what the file is to say then.
    pub(crate) fn freeze(&mut self, state: PersistedState, upto: Seqno) -> SettleBatch {
        assert!(self.frozen.is_none(), "one batch is written at a time");
        let items = std::mem::take(&mut self.items);
        let ends = std::mem::take(&mut self.ends);
        self.frozen = Some(Frozen {
            from: self.settled,
            upto,
            is_settled: false,
            items: items.len(),
            bytes: std::mem::take(&mut self.bytes),
            pinned: std::mem::take(&mut self.pinned),
            list_bytes: list_bytes(&items, &ends),
        });
        self.state_changed = false;
        SettleBatch {
            items,
            set_aside: Vec::new(),
            ends,
            before: self.at_settled,
            after: self.at_logged,
            state,
            history: self.history,
            replaces_file: self.replaces_file,
            upto,
        }
    }

    /// The file has everything up to `upto`, if it is of this history.
    pub(crate) fn on_settled(&mut self, history: u32, upto: Seqno) {
        if history == self.history {
            self.settled = self.settled.max(upto);
            self.replaces_file = false;
            if let Some(frozen) = &mut self.frozen {
                frozen.is_settled |= upto == frozen.upto;
            }
        }
    }

    /// A batch is not being written any more. What of it was not settled is unsettled again. Gives back what may be
    /// dropped, as that takes a while.
    pub(crate) fn thaw(&mut self, mut batch: SettleBatch) -> Vec<Settle> {
        let frozen = self.frozen.take().expect("a batch was taken");
        if batch.history != self.history {
            return batch.items;
        }
        if frozen.is_settled {
            self.at_settled = batch.after;
            return batch.items;
        }
        self.at_settled = batch.marks_at(self.settled);
        self.state_changed = true;
        batch.take_back();
        let written = batch
            .items
            .partition_point(|settle| settle.item().seqno() <= self.settled);
        let rest = batch.items.split_off(written);
        let written = std::mem::replace(&mut batch.items, rest);
        batch.ends.retain(|end| end.at > self.settled);
        let bytes = |settle: &Settle| settle.item().heap_bytes();
        self.bytes += batch.items.iter().map(bytes).sum::<usize>();
        let pinned = batch.items.iter().filter(|settle| is_pinned(settle));
        self.pinned += pinned.map(bytes).sum::<usize>();
        batch.items.append(&mut self.items);
        batch.ends.append(&mut self.ends);
        self.items = batch.items;
        self.ends = batch.ends;
        written
    }

    /// The file holds `marks` up to `settled`, and nothing is unsettled.
    pub(crate) fn begin(&mut self, settled: Seqno, marks: Marks, deleted_rev: RevSeqno) {
        self.clear();
        self.settled = settled;
        self.at_settled = marks;
        self.at_logged = marks;
        self.deleted_rev = deleted_rev;
        self.state_changed = false;
        self.replaces_file = false;
    }

    /// A new history begins, from nothing: nothing of the old one is to be settled any more.
    pub(crate) fn begin_history(&mut self) {
        self.history = self.history.wrapping_add(1);
        self.begin(Seqno(0), Marks::default(), RevSeqno(0));
        if let Some(frozen) = &mut self.frozen {
            frozen.pinned = frozen.bytes;
            // Seqnos of the new history say nothing of it.
            (frozen.from, frozen.upto) = (Seqno(0), Seqno(0));
        }
    }

    fn clear(&mut self) {
        self.items = Vec::new();
        self.ends = Vec::new();
        (self.bytes, self.pinned) = (0, 0);
    }
}

fn list_bytes(items: &Vec<Settle>, ends: &Vec<End>) -> usize {
    items.capacity() * size_of::<Settle>() + ends.capacity() * size_of::<End>()
}

fn is_pinned(settle: &Settle) -> bool {
    !settle.is_committed_namespace() || settle.item().is_replaced()
}
