//! Batches of changes for a vBucket's file.

use super::batch::{ApplyBatch, PrepareEnd};
use super::{ApplyProgress, FileChange, PersistedState, PersistenceMode};
use crate::checkpoint::{Change, Position};
use crate::snapshot::SnapshotKind;
use crate::store::VbStore;
use kedge_types::{RevSeqno, Seqno};

/// Where a batch begins.
struct BatchStart {
    at: Position,
    /// The progress of the file there.
    progress: ApplyProgress,
    /// It has everything up to here.
    applied: Seqno,
    /// The persisted seqno when there is nothing but state to write.
    upto: Seqno,
    /// The highest revision of a tombstone that it has, as far as the vBucket does not know.
    deleted_rev: RevSeqno,
}

impl VbStore {
    /// The history that the vBucket's file is of, if that is the vBucket's own: `None` from a reset, deletion or
    /// rollback on until the file has followed. Until then nothing that is read from the file says anything of the
    /// vBucket.
    pub fn file_history(&self) -> Option<u32> {
        (!self.unapplied.is_file_void() && !self.unapplied.rewinding)
            .then_some(self.unapplied.history())
    }

    /// The state for a file that has everything that the log has.
    pub fn persisted_state(&self) -> PersistedState {
        let logged = self.unapplied.progress();
        self.state_at(&logged, &self.unapplied.applied_progress())
    }

    /// The state for a file that is at `applied` and gets everything up to `progress`.
    fn state_at(&self, progress: &ApplyProgress, applied: &ApplyProgress) -> PersistedState {
        // In the middle of a snapshot the last consistent point may lie behind the one that the file was at.
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
        }
    }

    /// Takes everything that the log has and the file has not, to be written to the file. `None` when there is
    /// nothing, when a batch is being written already, or when the log does not have the last reset or rollback yet:
    /// the file may follow only then.
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

    /// A compaction of the file, begun when [`crate::VBucket::history`] was `history`, has left tombstones out, none of
    /// them above `upto`.
    pub fn on_purged(&mut self, history: u32, upto: Seqno) {
        if history == self.unapplied.history() {
            self.history.purge_seqno = self.history.purge_seqno.max(upto);
        }
    }

    /// With [`PersistenceMode::Direct`]: what the file lacks, bounded as in [`crate::Checkpoints::peek`], and where that
    /// ends, which [`crate::VBucket::on_logged`] is told once it is written. No batch: there is nothing to write up to
    /// there.
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

    /// As [`crate::VBucket::direct_batch`], for what comes behind `batch`, which ended at `to` and is not published
    /// yet. `None` if there is nothing to write, or nothing that may follow it in the same file.
    pub fn direct_batch_behind(
        &self,
        batch: &ApplyBatch,
        to: Position,
        max: usize,
        max_bytes: usize,
    ) -> Option<(ApplyBatch, Position)> {
        // With a file of its own it is published first.
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

    /// The log, or the file where there is none, has everything up to `to`.
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
