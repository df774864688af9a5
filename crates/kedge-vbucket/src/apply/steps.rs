//! Creation of batches for the file of a vBucket.

use super::batch::{ApplyBatch, PrepareEnd};
use super::{ApplyProgress, FileChange, PersistedState, PersistenceMode};
use crate::checkpoint::{Change, Position};
use crate::snapshot::SnapshotKind;
use crate::store::VbStore;
use kedge_types::{RevSeqno, Seqno};

/// The start of a batch.
struct BatchStart {
    at: Position,
    /// The progress of the file at this position.
    progress: ApplyProgress,
    /// The applied seqno of the file.
    applied: Seqno,
    /// The seqno up to which the batch persists if it has only metadata.
    upto: Seqno,
    /// The highest revision of a tombstone in the file, as far as the vBucket does not know it yet.
    deleted_rev: RevSeqno,
}

impl VbStore {
    /// Returns the id of the history in the file if it is the current one. Returns `None` from a reset, deletion or
    /// rollback on until the file has followed. Until then, reads of the file say nothing about the vBucket.
    pub fn file_history(&self) -> Option<u32> {
        (!self.unapplied.is_file_void() && !self.unapplied.rewinding)
            .then_some(self.unapplied.history())
    }

    /// Returns the metadata of a file that has all logged changes.
    pub fn persisted_state(&self) -> PersistedState {
        let logged = self.unapplied.progress();
        self.state_at(&logged, &self.unapplied.applied_progress())
    }

    /// Returns the metadata of a file that is at `applied` and will have everything up to `progress`.
    fn state_at(&self, progress: &ApplyProgress, applied: &ApplyProgress) -> PersistedState {
        // Inside a snapshot, the last consistent point may be later than that of the file.
        let from = if progress.open.is_some() {
            progress
        } else {
            applied
        };
        PersistedState {
            state: self.state,
            failover: self.history.failover.clone(),
            max_cas: self.history.clock.last(),
            snap_start: from.consistent(),
            snap_end: progress.next_consistent(),
            snap_kind: progress.open.map_or(SnapshotKind::Memory, |open| open.kind),
            visible: progress.visible,
            prepared: progress.prepared.max(progress.completed),
            completed: progress.completed,
            max_deleted_rev: self.unapplied.deleted_rev().max(self.documents.purged_rev),
            purge: self.history.purge_seqno,
            may_have_xattrs: self.documents.may_have_xattrs,
            catch_up: self.history.catch_up().cloned(),
        }
    }

    /// Takes all unapplied changes, to be written to the file. Returns `None` if there are none, if another batch is
    /// being written, or if the log does not have the last reset or rollback yet. The file may follow only after the
    /// log.
    pub fn begin_apply(&mut self) -> Option<ApplyBatch> {
        let may = !self.unapplied.is_frozen()
            && !self.unapplied.rewinding
            && self.changes.is_in_last_history();
        if !may || !self.unapplied.has_work() {
            return None;
        }
        let state = self.persisted_state();
        Some(self.unapplied.freeze(state, self.history.persisted_seqno))
    }

    /// Records that a compaction removed tombstones up to `upto`. `history` is the [`crate::VBucket::history_id`] at
    /// the start of the compaction.
    pub fn on_purged(&mut self, history: u32, upto: Seqno) {
        if history == self.unapplied.history() {
            self.history.purge_seqno = self.history.purge_seqno.max(upto);
        }
    }

    /// Returns the changes that the file lacks with [`PersistenceMode::Direct`], bounded as in
    /// [`crate::Checkpoints::peek`], and the position of their end. The caller passes that position to
    /// [`crate::VBucket::on_logged`] after the write. Without a batch there is nothing to write up to the position.
    pub fn direct_batch(&self, max: usize, max_bytes: usize) -> (Option<ApplyBatch>, Position) {
        let begin = BatchStart {
            at: self.changes.checkpoints.position(self.changes.log_cursor()),
            progress: self.unapplied.progress(),
            applied: self.unapplied.applied(),
            upto: self.history.persisted_seqno,
            deleted_rev: RevSeqno(0),
        };
        self.direct_batch_from(&begin, max, max_bytes)
    }

    /// Returns the batch after `batch`, which ended at `to` and is not published yet. See [`VbStore::direct_batch`].
    /// Returns `None` if there is nothing to write, or if the next changes may not follow in the same file.
    pub fn direct_batch_behind(
        &self,
        batch: &ApplyBatch,
        to: Position,
        max: usize,
        max_bytes: usize,
    ) -> Option<(ApplyBatch, Position)> {
        // A batch that replaces or removes the file is published before any other.
        let is_first = batch.replaces_file || batch.removes_file;
        let is_same = batch.history == self.unapplied.history()
            && self.changes.checkpoints.is_behind_last_reset(to);
        if is_first || !is_same {
            return None;
        }
        let begin = BatchStart {
            at: to,
            progress: batch.after,
            applied: batch.upto,
            upto: batch.upto,
            deleted_rev: batch.state.max_deleted_rev,
        };
        let (next, to) = self.direct_batch_from(&begin, max, max_bytes);
        Some((next?, to))
    }

    fn direct_batch_from(
        &self,
        begin: &BatchStart,
        max: usize,
        max_bytes: usize,
    ) -> (Option<ApplyBatch>, Position) {
        let to = self
            .changes
            .checkpoints
            .until_from(begin.at, max, max_bytes);
        let before = begin.progress;
        let mut after = before;
        let mut deleted_rev = begin.deleted_rev;
        let mut disk_end = Seqno(0);
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        let mut state_changed = false;
        for (change, _) in self.changes.checkpoints.between(begin.at, to) {
            let disk = after.disk_end();
            let in_disk = disk.is_some();
            disk_end = disk.unwrap_or(disk_end);
            after.on_change(change);
            state_changed |= matches!(change, Change::State(..) | Change::Advance(_));
            if let Change::Document(item) | Change::Commit { item, .. } = change
                && item.is_deleted()
            {
                deleted_rev = deleted_rev.max(item.rev_seqno());
            }
            ends.extend(PrepareEnd::of(change, in_disk));
            items.extend(FileChange::of(change));
        }
        let replaces_file =
            self.unapplied.replaces_file && self.changes.checkpoints.is_behind_last_reset(to);
        let removes_file =
            self.unapplied.removes_file && self.changes.checkpoints.is_behind_last_reset(to);
        if items.is_empty() && !state_changed && !replaces_file && !removes_file {
            return (None, to);
        }
        let last = items.last().map(|apply| apply.item().seqno());
        let mut state = self.state_at(&after, &before);
        state.max_deleted_rev = state.max_deleted_rev.max(deleted_rev);
        let batch = ApplyBatch {
            items,
            skipped_prepares: Vec::new(),
            ends,
            may_repeat: true,
            before,
            after,
            state,
            history: self.unapplied.history(),
            replaces_file,
            removes_file,
            from: begin.applied,
            upto: last.unwrap_or(begin.upto),
            disk_end,
        };
        (Some(batch), to)
    }

    /// Records that the log has everything up to `to`. Without a log, the file has.
    pub(crate) fn on_logged(&mut self, to: Position) {
        let cursor = self.changes.log_cursor();
        let checkpoints = &self.changes.checkpoints;
        if let Some(seqno) = checkpoints.seqno_before(cursor, to) {
            self.history.persisted_seqno = self.history.persisted_seqno.max(seqno);
        }
        for (change, replaced) in checkpoints.passing(cursor, to) {
            match self.unapplied.persistence {
                PersistenceMode::LogThenFile => self.unapplied.on_logged(change, replaced),
                PersistenceMode::Direct => self.unapplied.on_written(change),
            }
        }
        self.changes.checkpoints.advance(cursor, to);
        if self.unapplied.persistence == PersistenceMode::Direct
            && self.changes.is_in_last_history()
        {
            self.unapplied.apply_now(self.history.persisted_seqno);
        }
    }
}
