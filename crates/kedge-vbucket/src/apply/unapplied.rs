//! Changes that are in the log but not in the file.
//!
//! Invariants:
//! * `applied <= frozen.upto <=` the last seqno in `waiting`. The frozen batch and `waiting` together have every change
//!   in (applied, logged], in order, except those that a newer change in `waiting` replaces.
//! * `pinned` counts items that only this structure keeps alive: prepares, aborts, and documents that left the hash
//!   table.
//! * `history` changes with every reset and rollback. A batch of another history applies nothing.

use super::batch::{ApplyBatch, PrepareEnd};
use super::unapplied_list::UnappliedList;
use super::{ApplyProgress, FileChange, PersistedState};
use crate::checkpoint::Change;
use crate::item::Item;
use kedge_types::{RevSeqno, Seqno};

/// The persistence mode of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistenceMode {
    /// Changes go to the log first, and are applied to the file later.
    LogThenFile,
    /// Changes go directly to the file. There is no log.
    Direct,
}

/// Statistics of the unapplied changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnappliedFigures {
    /// The number of changes, with each key counted once. A batch counts until its write has ended.
    pub items: usize,
    /// The bytes that only the unapplied changes keep alive: versions that left the hash table, and the list itself.
    pub pinned_bytes: usize,
    /// True if the metadata in the file is outdated.
    pub state_changed: bool,
    /// True if the content of the file is void because the vBucket was reset.
    pub replaces_file: bool,
    /// True if the file is to be removed because the vBucket was deleted.
    pub removes_file: bool,
}

#[derive(Debug)]
pub(crate) struct Unapplied {
    pub(crate) persistence: PersistenceMode,
    waiting: UnappliedList,
    /// The bytes of all items in `waiting`.
    bytes: usize,
    pinned: usize,
    /// The applied seqno.
    applied: Seqno,
    at_applied: ApplyProgress,
    at_logged: ApplyProgress,
    /// The highest revision of a tombstone in the log, or in the file without a log.
    deleted_rev: RevSeqno,
    /// The end of the last disk snapshot that has changes in `waiting`.
    disk_end: Seqno,
    history: u32,
    pub(crate) state_changed: bool,
    pub(crate) replaces_file: bool,
    pub(crate) removes_file: bool,
    /// True if the vBucket was rolled back and the file has not followed yet.
    pub(crate) rewinding: bool,
    frozen: Option<FrozenBatch>,
}

/// The sizes of a batch that is being written.
#[derive(Debug)]
struct FrozenBatch {
    /// The applied seqno when the batch was taken.
    from: Seqno,
    upto: Seqno,
    /// True if the file has the whole batch.
    is_applied: bool,
    items: usize,
    bytes: usize,
    pinned: usize,
    list_bytes: usize,
}

impl Unapplied {
    pub(crate) fn new(persistence: PersistenceMode) -> Self {
        Self {
            persistence,
            waiting: UnappliedList::default(),
            bytes: 0,
            pinned: 0,
            applied: Seqno(0),
            at_applied: ApplyProgress::default(),
            at_logged: ApplyProgress::default(),
            deleted_rev: RevSeqno(0),
            disk_end: Seqno(0),
            history: 0,
            state_changed: false,
            replaces_file: false,
            removes_file: false,
            rewinding: false,
            frozen: None,
        }
    }

    pub(crate) fn applied(&self) -> Seqno {
        self.applied
    }

    pub(crate) fn history(&self) -> u32 {
        self.history
    }

    pub(crate) fn progress(&self) -> ApplyProgress {
        self.at_logged
    }

    /// Returns the progress of the file.
    pub(crate) fn applied_progress(&self) -> ApplyProgress {
        self.at_applied
    }

    pub(crate) fn deleted_rev(&self) -> RevSeqno {
        self.deleted_rev
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns whether the content of the file is void: a reset or deletion is applied next.
    pub(crate) fn is_file_void(&self) -> bool {
        self.replaces_file || self.removes_file
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.state_changed || self.replaces_file || self.removes_file
    }

    pub(crate) fn figures(&self) -> UnappliedFigures {
        let frozen = self.frozen.as_ref();
        UnappliedFigures {
            items: self.waiting.len() + frozen.map_or(0, |frozen| frozen.items),
            pinned_bytes: self.pinned_bytes(),
            state_changed: self.state_changed,
            replaces_file: self.replaces_file,
            removes_file: self.removes_file,
        }
    }

    #[cfg(test)]
    pub(crate) fn items(&self) -> impl Iterator<Item = &FileChange> {
        self.waiting.iter()
    }

    #[cfg(test)]
    pub(crate) fn pinned_items_bytes(&self) -> usize {
        self.pinned + self.frozen.as_ref().map_or(0, |frozen| frozen.pinned)
    }

    /// Returns the bytes that nothing else accounts for.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let frozen = self
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.pinned + frozen.list_bytes);
        self.pinned + self.waiting.list_bytes() + frozen
    }

    /// Records that `change` is in the log, or that replay has read it. `replaced` is the seqno of the document or
    /// tombstone that it replaced, or 0.
    pub(crate) fn on_logged(&mut self, change: &Change, replaced: Seqno) {
        let disk_end = self.at_logged.disk_end();
        let in_disk = disk_end.is_some();
        self.disk_end = disk_end.unwrap_or(self.disk_end);
        self.at_logged.on_change(change);
        match change {
            // The file must record that a snapshot is incomplete, unless the log does.
            Change::State(..) | Change::Snapshot(_) | Change::Advance(_) => {
                self.state_changed = true;
            }
            Change::Document(item) | Change::Commit { item, .. } if item.is_deleted() => {
                self.deleted_rev = self.deleted_rev.max(item.rev_seqno());
            }
            _ => {}
        }
        if let Some(old) = self.waiting.forget(replaced) {
            self.discount(&old);
        }
        if let Some(end) = PrepareEnd::of(change, in_disk) {
            self.waiting.end(end);
        }
        let Some(apply) = FileChange::of(change) else {
            return;
        };
        self.count(&apply);
        self.waiting.push(apply);
        for ended in self.waiting.close() {
            self.discount(&ended);
        }
    }

    fn count(&mut self, apply: &FileChange) {
        let bytes = apply.item().heap_bytes();
        self.bytes += bytes;
        self.pinned += if is_pinned(apply) { bytes } else { 0 };
    }

    fn discount(&mut self, apply: &FileChange) {
        let bytes = apply.item().heap_bytes();
        self.bytes -= bytes;
        self.pinned -= if is_pinned(apply) { bytes } else { 0 };
    }

    /// Records that the file has `change`, without a log.
    pub(crate) fn on_written(&mut self, change: &Change) {
        assert!(
            self.waiting.is_empty() && self.frozen.is_none(),
            "what a replay brought back is applied before anything else"
        );
        self.at_logged.on_change(change);
        self.at_applied = self.at_logged;
        if let Change::Document(item) | Change::Commit { item, .. } = change
            && item.is_deleted()
        {
            self.deleted_rev = self.deleted_rev.max(item.rev_seqno());
        }
    }

    /// Records that the file has everything up to `persisted`, without a log.
    pub(crate) fn apply_now(&mut self, persisted: Seqno) {
        self.applied = persisted;
        self.state_changed = false;
        self.replaces_file = false;
        self.removes_file = false;
    }

    /// Accounts for `old`, which was replaced in the hash table. `logged` is the last seqno in the log. Later changes
    /// are accounted for by the checkpoints. Their state is checked when they are logged.
    pub(crate) fn on_replaced(&mut self, old: &Item, logged: Seqno) {
        let seqno = old.seqno();
        if old.is_lock_copy() || seqno > logged {
            return;
        }
        let bytes = old.heap_bytes();
        match &mut self.frozen {
            Some(frozen) if frozen.from < seqno && seqno <= frozen.upto => frozen.pinned += bytes,
            _ if seqno > self.applied => self.pinned += bytes,
            _ => {}
        }
    }

    /// Takes all changes. `state` is the metadata for the file after the batch.
    pub(crate) fn freeze(&mut self, state: PersistedState, upto: Seqno) -> ApplyBatch {
        assert!(self.frozen.is_none(), "one batch is written at a time");
        let list_bytes = self.waiting.list_bytes();
        let (items, ends, may_repeat) = self.waiting.take();
        self.frozen = Some(FrozenBatch {
            from: self.applied,
            upto,
            is_applied: false,
            items: items.len(),
            bytes: std::mem::take(&mut self.bytes),
            pinned: std::mem::take(&mut self.pinned),
            list_bytes,
        });
        self.state_changed = false;
        ApplyBatch {
            items,
            skipped_prepares: Vec::new(),
            ends,
            may_repeat,
            before: self.at_applied,
            after: self.at_logged,
            state,
            history: self.history,
            replaces_file: self.replaces_file,
            removes_file: self.removes_file,
            from: self.applied,
            upto,
            disk_end: std::mem::take(&mut self.disk_end),
        }
    }

    /// Records that the file has everything up to `upto`, if `history` is the current one.
    pub(crate) fn on_applied(&mut self, history: u32, upto: Seqno) {
        if history == self.history {
            self.applied = self.applied.max(upto);
            self.replaces_file = false;
            self.removes_file = false;
            if let Some(frozen) = &mut self.frozen {
                frozen.is_applied |= upto == frozen.upto;
            }
        }
    }

    /// Ends the write of a batch. Changes that were not applied become unapplied again. Returns items that the caller
    /// drops without the lock, because dropping them takes time.
    pub(crate) fn thaw(&mut self, mut batch: ApplyBatch) -> Vec<FileChange> {
        let frozen = self.frozen.take().expect("a batch was taken");
        if batch.history != self.history {
            return batch.items;
        }
        if frozen.is_applied {
            self.at_applied = batch.after;
            return batch.items;
        }
        self.at_applied = batch.progress_at(self.applied);
        self.state_changed = true;
        self.disk_end = self.disk_end.max(batch.disk_end);
        batch.restore_skipped();
        let written = batch
            .items
            .partition_point(|apply| apply.item().seqno() <= self.applied);
        let rest = batch.items.split_off(written);
        let written = std::mem::replace(&mut batch.items, rest);
        batch.ends.retain(|end| end.at > self.applied);
        for apply in &batch.items {
            self.count(apply);
        }
        let newer = std::mem::take(&mut self.waiting);
        self.waiting = UnappliedList::join(batch.items, batch.ends, newer);
        written
    }

    /// Starts with a file that has `progress` up to `applied`, and without unapplied changes.
    pub(crate) fn begin(&mut self, applied: Seqno, progress: ApplyProgress, deleted_rev: RevSeqno) {
        self.clear();
        self.applied = applied;
        self.at_applied = progress;
        self.at_logged = progress;
        self.deleted_rev = deleted_rev;
        self.state_changed = false;
        self.replaces_file = false;
        self.removes_file = false;
    }

    /// Starts an empty new history. Changes of the old one are never applied.
    pub(crate) fn begin_history(&mut self) {
        self.history = self.history.wrapping_add(1);
        self.begin(Seqno(0), ApplyProgress::default(), RevSeqno(0));
        if let Some(frozen) = &mut self.frozen {
            frozen.pinned = frozen.bytes;
            // Seqnos of the new history say nothing about the batch of the old one.
            (frozen.from, frozen.upto) = (Seqno(0), Seqno(0));
        }
    }

    fn clear(&mut self) {
        self.waiting = UnappliedList::default();
        self.disk_end = Seqno(0);
        (self.bytes, self.pinned) = (0, 0);
    }
}

/// Returns whether only the unapplied changes keep the item alive.
fn is_pinned(apply: &FileChange) -> bool {
    !apply.is_committed_namespace() || apply.item().is_replaced()
}
