//! Recovery of a vBucket from its file and the log.
//!
//! Records arrive in the order in which the changes were queued. The seqnos of a vBucket must ascend until a reset or
//! rollback. A log that violates this is damaged beyond what its checksums detect, and is refused.
//!
//! Invariants:
//! * The file may be ahead of a record, because the log is not always truncated where it could be. Changes that the
//!   file has are skipped.
//! * A reset or rollback is in the log before the file follows, and it names a branch that no earlier state knows. A
//!   file that knows the branch was therefore written after the record: earlier replayed changes are discarded, and
//!   replay restarts from the file. A file that does not know the branch is void or has to be rewound.
//! * A file that was copied from another node names the reset that made place for it, whose branch its failover table
//!   does not have. The log has no records of its documents, and everything else holds for it as well.
//! * After a rollback, only a reset or a deletion may be logged before the file has followed.
//! * The state is that of the last record with a state, or that of the file without such a record. The log is truncated
//!   from its start, so a state record older than the file is always followed by the record of the file's state.
//! * Until the last such record was replayed, records and file may belong to different histories. A mismatch is an
//!   error only if no such record follows.

use crate::catch_up::NewBranch;
use crate::checkpoint::Change;
use crate::collections::OpenCollections;
use crate::durability::Prepare;
use crate::failover::FailoverTable;
use crate::file_state::FileState;
use crate::item::Item;
use crate::manifest::receive_event;
use crate::receive::{follow_abort, follow_commit, follow_document, follow_prepare, reach};
use crate::replay::{Replay, ReplayError, Rewind};
use crate::residency::DocumentResidency;
use crate::snapshot::DcpSnapshot;
use crate::state::VbState;
use crate::system_event::SystemEvent;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

/// A vBucket that is being recovered from its file and the log. See [`VBucket::recovery`].
#[derive(Debug)]
pub struct VbRecovery<'a> {
    pub(crate) vb: &'a mut VBucket,
}

impl VBucket {
    /// Starts or continues recovery from the file and the log. Also used to return to a rewound file.
    pub fn recovery(&mut self) -> VbRecovery<'_> {
        VbRecovery { vb: self }
    }

    /// Returns the rewind that the file needs after the whole log was replayed, if a crash separated a rollback from
    /// its file. The caller rewinds the file and calls [`VbRecovery::begin_from`] before [`VbRecovery::finish`].
    #[must_use]
    pub fn needs_rewind(&self) -> Option<&Rewind> {
        self.replay.rewind.as_ref()
    }
}

impl VbRecovery<'_> {
    /// Starts with the marker of a deleted vBucket. Replay of the log follows.
    pub fn begin_deleted(&mut self) {
        self.vb.store.state = VbState::Dead;
        self.vb.is_deleted = true;
        self.vb.replay.begin_deleted();
    }

    /// Applies a change. A commit needs no value, because its prepare has it.
    ///
    /// # Errors
    /// [`ReplayError`] if the change contradicts earlier ones. The vBucket is unchanged then.
    pub fn replay(&mut self, change: Change) -> Result<(), ReplayError> {
        if !change.begins_history() {
            self.has_followed()?;
        }
        match change {
            Change::Document(item) => {
                if self.replay_item(&item)? {
                    self.replay_document(&Change::Document(item.clone()), item);
                }
            }
            Change::Prepare(item) => self.replay_prepare(item)?,
            Change::System(item) => self.replay_event(item)?,
            Change::Commit { item, prepared } => self.replay_commit(&item, prepared)?,
            Change::Abort { item, prepared } => self.replay_abort(item, prepared)?,
            Change::Snapshot(snapshot) => self.replay_snapshot(*snapshot),
            Change::Advance(seqno) => {
                if self.replay_seqno(seqno)? {
                    self.note_logged(&Change::Advance(seqno), Seqno(0));
                    reach(self.vb, seqno);
                }
            }
            Change::State(failover, state) => self.replay_state(failover, state),
            Change::Reset(branch, state) => self.replay_reset(*branch, state)?,
            Change::Rollback { to, branch } => self.replay_rollback(to, *branch)?,
            Change::Delete => self.replay_delete(),
        }
        self.vb.store.history.persisted_seqno = self.vb.store.history.high_seqno;
        Ok(())
    }

    /// Handles a change after a rollback whose branch the file does not know: a later rollback or reset removed the
    /// branch from the file.
    fn has_followed(&mut self) -> Result<(), ReplayError> {
        let Some(Rewind { to, .. }) = self.vb.replay.rewind.take() else {
            return Ok(());
        };
        let refused = ReplayError::NotRewound { to };
        if self.begin_again_if(|_| true)? {
            Ok(())
        } else if self.vb.replay.was_deleted {
            // The file is gone, and the deletion follows in the log.
            self.vb.replay.orphan.get_or_insert(refused);
            Ok(())
        } else {
            Err(refused)
        }
    }

    fn replay_item(&mut self, item: &Item) -> Result<bool, ReplayError> {
        let is_new = self.replay_seqno(item.seqno())?;
        self.vb.store.history.clock.raise_to(item.cas());
        Ok(is_new)
    }

    /// Checks the order of a seqno. Returns whether the change is to be applied, or is in the file already.
    fn replay_seqno(&mut self, seqno: Seqno) -> Result<bool, ReplayError> {
        let high = self.vb.replay.last;
        if seqno <= high {
            return Err(ReplayError::Order { high, seqno });
        }
        self.vb.replay.last = seqno;
        if seqno <= self.vb.store.unapplied.applied() {
            return Ok(false);
        }
        self.vb.store.history.high_seqno = seqno;
        Ok(true)
    }

    /// Records that the log has `change`, which replaced the document or tombstone at `replaced`.
    fn note_logged(&mut self, change: &Change, replaced: Seqno) {
        self.vb.store.unapplied.on_logged(change, replaced);
    }

    fn replay_document(&mut self, change: &Change, item: Item) {
        let seqno = item.seqno();
        let replaced = follow_document(self.vb, item);
        self.note_logged(change, replaced);
        reach(self.vb, seqno);
    }

    fn replay_event(&mut self, item: Item) -> Result<(), ReplayError> {
        let seqno = item.seqno();
        let event = SystemEvent::of_item(&item).ok_or(ReplayError::BadEvent { seqno })?;
        if self.replay_item(&item)? {
            let replaced = receive_event(self.vb, &event, seqno);
            self.note_logged(&Change::System(item), replaced);
            reach(self.vb, seqno);
        }
        Ok(())
    }

    fn replay_prepare(&mut self, item: Item) -> Result<(), ReplayError> {
        let prepared = item.seqno();
        let bad = ReplayError::BadPrepare { prepared };
        if item.level().is_none() {
            return Err(bad);
        }
        if !self.replay_item(&item)? {
            return Ok(());
        }
        if follow_prepare(self.vb, item.clone()).is_none() {
            self.vb.replay.orphan.get_or_insert(bad);
            return Ok(());
        }
        self.note_logged(&Change::Prepare(item), Seqno(0));
        reach(self.vb, prepared);
        Ok(())
    }

    fn replay_commit(&mut self, item: &Item, prepared: Seqno) -> Result<(), ReplayError> {
        if !self.replay_item(item)? {
            return Ok(());
        }
        let Some(prepare) = follow_commit(self.vb, item.key(), prepared) else {
            self.replay_orphan(prepared);
            return Ok(());
        };
        let item = prepare.item.with_seqno(item.seqno());
        let change = Change::Commit {
            item: item.clone(),
            prepared,
        };
        self.replay_document(&change, item);
        Ok(())
    }

    fn replay_abort(&mut self, item: Item, prepared: Seqno) -> Result<(), ReplayError> {
        let seqno = item.seqno();
        if !self.replay_item(&item)? {
            return Ok(());
        }
        // A compaction may have removed the prepare with its collection.
        let is_needless = self.vb.store.collections.is_of_dropped(item.key());
        if follow_abort(self.vb, item.key(), prepared).is_none() && !is_needless {
            self.replay_orphan(prepared);
            return Ok(());
        }
        let change = Change::Abort { item, prepared };
        self.note_logged(&change, Seqno(0));
        reach(self.vb, seqno);
        Ok(())
    }

    /// Records a commit or abort without a prepare. The log may have been truncated after the prepare if a reset
    /// follows. Otherwise [`VbRecovery::finish`] fails.
    fn replay_orphan(&mut self, prepared: Seqno) {
        let missing = ReplayError::NoPrepare { prepared };
        self.vb.replay.orphan.get_or_insert(missing);
    }

    /// Starts a snapshot, unless the file is at or after its end.
    fn replay_snapshot(&mut self, snapshot: DcpSnapshot) {
        if snapshot.end > self.vb.store.unapplied.applied() {
            self.vb.replay.snapshot_in_log = true;
            self.vb.store.history.begin_snapshot(snapshot);
            let change = Change::Snapshot(Box::new(snapshot));
            self.note_logged(&change, Seqno(0));
        }
    }

    /// Applies a state record. It may be older than the state of the file; then the log also has the file's state or a
    /// newer one.
    fn replay_state(&mut self, failover: Box<FailoverTable>, state: VbState) {
        if self.vb.is_deleted {
            return;
        }
        // A file that was written after the promotion is active and knows nothing of the snapshot.
        let had_snapshot = std::mem::take(&mut self.vb.replay.snapshot_in_log);
        if state == VbState::Active && (self.vb.store.state != state || had_snapshot) {
            self.vb.store.history.end_snapshot_here();
        }
        self.vb.store.state = state;
        if state == VbState::Active {
            self.vb.store.history.catch_up = None;
        }
        self.vb.store.history.follow((*failover).clone());
        self.note_logged(&Change::State(failover, state), Seqno(0));
        let base = self.vb.replay.base.as_ref();
        let is_in_file = base.is_some_and(|base| {
            base.state.state == self.vb.store.state
                && base.state.failover == self.vb.store.history.failover
        });
        let unapplied = &mut self.vb.store.unapplied;
        let is_torn = unapplied.progress().open != unapplied.applied_progress().open;
        unapplied.state_changed = !is_in_file || is_torn || unapplied.replaces_file;
    }

    fn replay_reset(&mut self, branch: NewBranch, state: VbState) -> Result<(), ReplayError> {
        self.vb.replay.restart(Seqno(0));
        self.vb.replay.rewind = None;
        if self.begin_again_if(|base| base.knows(branch.failover.uuid()))? {
            return Ok(());
        }
        self.vb.forget_all(branch.failover);
        self.vb.store.history.catch_up = branch.catch_up.map(Box::new);
        self.vb.store.state = state;
        self.vb.store.unapplied.replaces_file = self.vb.replay.base.is_some();
        self.vb.store.unapplied.state_changed = true;
        Ok(())
    }

    /// Applies a deletion. If the file is newer than the deletion, a reset follows that the file knows.
    fn replay_delete(&mut self) {
        self.vb.replay.restart(Seqno(0));
        self.vb.replay.rewind = None;
        self.vb.forget_to_delete();
    }

    fn replay_rollback(&mut self, to: Seqno, branch: NewBranch) -> Result<(), ReplayError> {
        self.vb.replay.restart(to);
        self.vb.replay.rewind = None;
        if !self.begin_again_if(|base| base.knows(branch.failover.uuid()))? {
            self.vb.forget_all(branch.failover.clone());
            self.vb.replay.rewind = Some(Rewind { to, branch });
        }
        Ok(())
    }

    /// Restarts from the file if it satisfies `wanted`. Returns whether it did.
    fn begin_again_if(&mut self, wanted: impl Fn(&FileState) -> bool) -> Result<bool, ReplayError> {
        let Some(base) = self.vb.replay.base.take_if(|base| wanted(base)) else {
            return Ok(false);
        };
        let result = self.start_from(&base);
        self.vb.replay.torn_upto = base.torn_upto();
        self.vb.replay.base = Some(base);
        result.map(|()| true)
    }

    /// Accepts commits and aborts without prepares, and duplicate prepares. In salvage mode, records between them may
    /// have been skipped.
    pub fn forgive_orphan(&mut self) {
        self.vb.replay.orphan = None;
    }

    /// Ends the replay of the log. Open prepares stay until the chains of an active vBucket allow their commit, because
    /// a client may have seen it. They are on disk, so a majority of one has them. After an unclean shutdown of an
    /// active vBucket, a new branch with UUID `branch` starts at the last consistent point, because assigned seqnos
    /// that were not persisted are lost.
    ///
    /// # Errors
    /// [`ReplayError::NoPrepare`] if a commit or abort had no prepare, [`ReplayError::BadPrepare`],
    /// [`ReplayError::NotRewound`].
    pub fn finish(&mut self, branch: Option<VbUuid>) -> Result<(), ReplayError> {
        if let Some(orphan) = self.vb.replay.orphan {
            return Err(orphan);
        }
        if let Some(Rewind { to, .. }) = self.vb.replay.rewind {
            return Err(ReplayError::NotRewound { to });
        }
        self.vb.replay = Replay::default();
        self.vb.store.history.persisted_seqno = self.vb.store.history.high_seqno;
        let consistent = self.vb.store.history.consistent_seqno();
        // A replica keeps the history of its active node. The branch also starts if the vBucket is empty, because other
        // nodes may have changes of the old branch.
        if let Some(uuid) = branch.filter(|_| self.vb.store.is_active()) {
            self.vb.store.history.failover.begin(uuid, consistent);
            self.vb.store.history.end_snapshot_here();
            self.vb.store.push_state();
        }
        self.begin_persisted(consistent);
        Ok(())
    }

    /// Begins the durability of a vBucket that has the state of its file, up to a seqno at which that is consistent.
    fn begin_persisted(&mut self, consistent: Seqno) {
        let VBucket {
            store, durability, ..
        } = &mut *self.vb;
        durability.begin_persisted(consistent, store);
    }

    /// Applies a change of a vBucket whose file cannot be read; see [`VbRecovery::replay`]. Changes that depend on the
    /// file are skipped.
    pub fn replay_without_file(&mut self, change: Change) {
        let change = match change {
            // The changes that the rollback keeps are only in the file.
            Change::Rollback { branch, .. } => Change::Reset(branch, self.vb.store.state),
            other => other,
        };
        // A failed replay leaves the vBucket unchanged.
        let _ = self.replay(change);
    }

    /// Ends the replay without the file, so only the logged changes are left. They form a new history under `uuid`,
    /// because no node may mistake it for the old one. Prepares are committed.
    pub fn give_up_file(&mut self, uuid: VbUuid) {
        self.vb.replay = Replay::default();
        if self.vb.is_deleted {
            // The deletion is in the log too.
            return;
        }
        self.vb.store.history.persisted_seqno = self.vb.store.history.high_seqno;
        self.vb.store.history.failover = FailoverTable::new(uuid);
        self.vb.store.push_state();
        self.vb.durability.commit_ready(&mut self.vb.store);
    }

    /// Starts from the state of the vBucket's file and discards everything else. Replay of the log follows or
    /// continues.
    ///
    /// # Errors
    /// [`ReplayError::BadPrepare`] if the prepares are inconsistent. The vBucket is unusable then.
    pub fn begin_from(&mut self, base: FileState) -> Result<(), ReplayError> {
        self.start_from(&base)?;
        self.vb.replay.begin_from(base);
        Ok(())
    }

    pub(crate) fn start_from(&mut self, base: &FileState) -> Result<(), ReplayError> {
        self.vb.forget_all(base.state.failover.clone());
        self.vb.store.state = base.state.state;
        let history = &mut self.vb.store.history;
        history.high_seqno = base.high_seqno;
        history.persisted_seqno = base.high_seqno;
        history.purge_seqno = base.state.purge;
        history.catch_up = base.state.catch_up.clone().map(Box::new);
        let documents = &mut self.vb.store.documents;
        documents.purged_rev = base.state.max_deleted_rev;
        documents.may_have_xattrs = base.state.may_have_xattrs;
        documents.residency = DocumentResidency::cold(base.documents());
        self.take_over(base)
    }

    /// Takes the progress and the prepares from the file.
    pub(crate) fn take_over(&mut self, base: &FileState) -> Result<(), ReplayError> {
        let progress = base.progress();
        let VBucket {
            store, durability, ..
        } = &mut *self.vb;
        store.history.visible_seqno = progress.visible;
        store.history.open = progress.open;
        store.history.clock.raise_to(base.state.max_cas);
        store.collections = OpenCollections::from_file(&base.collections);
        store
            .unapplied
            .begin(base.high_seqno, progress, base.state.max_deleted_rev);
        let mut prepares = base.prepares.clone();
        prepares.sort_unstable_by_key(Item::seqno);
        for item in prepares {
            let hash = store.documents.hash(item.key());
            let free = !durability.prepares.holds(hash, item.key());
            let fits = free && !durability.prepares.has_reached(item.seqno());
            let level = item.level().filter(|_| fits);
            let level = level.ok_or(ReplayError::BadPrepare {
                prepared: item.seqno(),
            })?;
            durability
                .prepares
                .add(Prepare::inherited(hash, item, level));
        }
        durability.prepares.record_completed(progress.completed);
        Ok(())
    }

    /// Takes over a copy of another node's file, which was installed after [`VbRecovery::reset_for_file`].
    ///
    /// # Errors
    /// [`ReplayError::BadPrepare`] if the prepares of the file are inconsistent.
    pub fn install(&mut self, base: &FileState) -> Result<(), ReplayError> {
        self.start_from(base)?;
        // A stream that began meanwhile is one of the empty vBucket.
        self.vb.store.changes.wake_streams();
        self.begin_persisted(self.vb.store.history.consistent_seqno());
        Ok(())
    }

    /// Ends a rollback after the file was rewound. Open prepares of the file are committed as after a restart, because
    /// a client may have seen their commits.
    ///
    /// # Errors
    /// [`ReplayError::NotRewound`] if the file is not at the rollback seqno; [`ReplayError::BadPrepare`].
    pub fn rewound(&mut self, base: &FileState) -> Result<(), ReplayError> {
        if base.high_seqno != self.vb.store.history.high_seqno {
            return Err(ReplayError::NotRewound {
                to: self.vb.store.history.high_seqno,
            });
        }
        let is_open = |id| self.vb.store.collections.is_open(id);
        let reopens = base.collections.open.iter().any(|open| !is_open(open.id));
        self.take_over(base)?;
        if reopens {
            // Documents of the collection may have been removed from memory after its drop.
            self.vb.store.documents.residency.on_reopened();
        }
        let documents = &mut self.vb.store.documents;
        documents.purged_rev = documents.purged_rev.max(base.state.max_deleted_rev);
        let there = documents.table.documents();
        documents.residency.on_rewound(base.documents(), there);
        self.vb.store.unapplied.rewinding = false;
        self.begin_persisted(self.vb.store.history.consistent_seqno());
        Ok(())
    }
}
