//! Bringing a vBucket back from its file and the log.
//!
//! Changes come in the order in which they were queued. Each vBucket's seqnos must grow until a reset or rollback; a log
//! that says otherwise is damaged in a way that its checksums do not show, and is refused.
//!
//! Invariants:
//! * The file may be ahead of a record, as the log is not cut where it could be. What the file has is skipped.
//! * A reset or rollback is in the log before the file follows, and names a branch of the history that nothing before it
//!   knows. So a file that knows this branch is from after the record: what was applied before is forgotten, and replay
//!   begins again with the file. A file that does not know it is void, or has to be rewound.
//! * Nothing follows a rollback in the log before the file does, but a reset or a deletion.
//! * The state is that of the last record that says one, or of the file if no record does: the log is given back from its
//!   beginning, so it has no record of a state that is older than the file's without the one that made the file's.
//! * Until the last such record was met, records and file may be of different histories. What does not fit between them
//!   is an error only if none follows.

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
use crate::snapshot::Snapshot;
use crate::state::VbState;
use crate::system_event::SystemEvent;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

/// A vBucket that is being brought back from its file and the log. See [`VBucket::recovery`].
#[derive(Debug)]
pub struct VbRecovery<'a> {
    vb: &'a mut VBucket,
}

impl VBucket {
    /// Brings it back from its file and the log, a step at a time; also back to where its file was rewound.
    pub fn recovery(&mut self) -> VbRecovery<'_> {
        VbRecovery { vb: self }
    }

    /// All of the log was read. A crash came between a rollback and its file: the file has to be rewound, and the
    /// vBucket begins from it again with [`VbRecovery::begin_from`], before [`VbRecovery::finish`].
    #[must_use]
    pub fn needs_rewind(&self) -> Option<&Rewind> {
        self.replay.rewind.as_ref()
    }
}

impl VbRecovery<'_> {
    /// There is a mark on the disk that it was deleted. Replay of the log follows.
    pub fn begin_deleted(&mut self) {
        self.vb.store.state = VbState::Dead;
        self.vb.is_deleted = true;
        self.vb.replay.begin_deleted();
    }

    /// Applies one change. A commit needs no value: that of its prepare is taken.
    ///
    /// # Errors
    /// [`ReplayError`] when it does not fit what came before; nothing was changed then.
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
            Change::Reset(failover, state) => self.replay_reset(*failover, state)?,
            Change::Rollback { to, table } => self.replay_rollback(to, *table)?,
            Change::Delete => self.replay_delete(),
        }
        self.vb.store.history.persisted_seqno = self.vb.store.history.high_seqno;
        Ok(())
    }

    /// Something follows a rollback that the file does not know: the file has forgotten its branch, in a later rollback
    /// or reset.
    fn has_followed(&mut self) -> Result<(), ReplayError> {
        let Some(Rewind { to, .. }) = self.vb.replay.rewind.take() else {
            return Ok(());
        };
        let refused = ReplayError::NotRewound { to };
        if self.begin_again_if(|_| true)? {
            Ok(())
        } else if self.vb.replay.was_deleted {
            // Its file is gone: the deletion follows.
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

    /// Returns whether a change is to be applied: the file may have it.
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

    /// The log has `change`, which replaced the document or tombstone at `replaced`.
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
        // A compaction may have taken the prepare with the rest of its collection.
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

    /// A commit or abort has no prepare: its part of the log may have been given back after a reset that is still to
    /// come. Without one, [`VbRecovery::finish`] refuses.
    fn replay_orphan(&mut self, prepared: Seqno) {
        let missing = ReplayError::NoPrepare { prepared };
        self.vb.replay.orphan.get_or_insert(missing);
    }

    /// One that the file has seen the end of says nothing.
    fn replay_snapshot(&mut self, snapshot: Snapshot) {
        if snapshot.end > self.vb.store.unapplied.applied() {
            self.vb.replay.snapshot_in_log = true;
            self.vb.store.history.begin_snapshot(snapshot);
            let change = Change::Snapshot(Box::new(snapshot));
            self.note_logged(&change, Seqno(0));
        }
    }

    /// Its state may be older than that of the file; the log then has a record of the file's state, or a newer one.
    fn replay_state(&mut self, failover: Box<FailoverTable>, state: VbState) {
        if self.vb.is_deleted {
            return;
        }
        // A file that was written since says that it is active, and knows nothing of the snapshot.
        let had_snapshot = std::mem::take(&mut self.vb.replay.snapshot_in_log);
        if state == VbState::Active && (self.vb.store.state != state || had_snapshot) {
            self.vb.store.history.end_snapshot_here();
        }
        self.vb.store.state = state;
        self.vb.store.history.failover = (*failover).clone();
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

    fn replay_reset(&mut self, failover: FailoverTable, state: VbState) -> Result<(), ReplayError> {
        self.vb.replay.restart(Seqno(0));
        self.vb.replay.rewind = None;
        if self.begin_again_if(|base| base.knows(failover.uuid()))? {
            return Ok(());
        }
        self.vb.forget_all(failover);
        self.vb.store.state = state;
        self.vb.store.unapplied.replaces_file = self.vb.replay.base.is_some();
        self.vb.store.unapplied.state_changed = true;
        Ok(())
    }

    /// If the file is from after the deletion, a reset follows that it knows.
    fn replay_delete(&mut self) {
        self.vb.replay.restart(Seqno(0));
        self.vb.replay.rewind = None;
        self.vb.forget_to_delete();
    }

    fn replay_rollback(&mut self, to: Seqno, failover: FailoverTable) -> Result<(), ReplayError> {
        self.vb.replay.restart(to);
        self.vb.replay.rewind = None;
        if !self.begin_again_if(|base| base.knows(failover.uuid()))? {
            self.vb.forget_all(failover.clone());
            self.vb.replay.rewind = Some(Rewind { to, failover });
        }
        Ok(())
    }

    /// Begins again with the file if it is a file that `wanted` says.
    fn begin_again_if(&mut self, wanted: impl Fn(&FileState) -> bool) -> Result<bool, ReplayError> {
        let Some(base) = self.vb.replay.base.take_if(|base| wanted(base)) else {
            return Ok(false);
        };
        let result = self.start_from(&base);
        self.vb.replay.torn_upto = base.torn_upto();
        self.vb.replay.base = Some(base);
        result.map(|()| true)
    }

    /// Accepts commits and aborts whose prepares are not there, and prepares that are there twice: salvage skipped
    /// what lies between.
    pub fn forgive_orphan(&mut self) {
        self.vb.replay.orphan = None;
    }

    /// All of the log was read. Prepares that it left open stay prepared until the chains of an active allow their
    /// commit: someone may have seen it. They are on disk, so a majority of one has them. After an unclean stop of an
    /// active a new branch begins under `branch` at the last consistent point, because what was given out and not
    /// persisted is lost.
    ///
    /// # Errors
    /// [`ReplayError::NoPrepare`] when a commit or abort had none, [`ReplayError::BadPrepare`],
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
        // A replica's history is that of its active. Others may have changes of the old branch that are not here, also if
        // nothing of it is.
        if let Some(uuid) = branch.filter(|_| self.vb.store.is_active()) {
            self.vb.store.history.failover.begin(uuid, consistent);
            self.vb.store.history.end_snapshot_here();
            self.vb.store.push_state();
        }
        let VBucket {
            store, durability, ..
        } = &mut *self.vb;
        durability.begin_persisted(consistent, store);
        Ok(())
    }

    /// As [`VbRecovery::replay`], of a vBucket whose file cannot be read: what does not fit for want of it is left out.
    pub fn replay_without_file(&mut self, change: Change) {
        let change = match change {
            // What stays is in the file only.
            Change::Rollback { table, .. } => Change::Reset(table, self.vb.store.state),
            other => other,
        };
        // It was not changed then.
        let _ = self.replay(change);
    }

    /// All of the log was read, and the file is given up: what the log had is all that there is. That is a new history,
    /// under `uuid`, as nobody may take it for the old one. Prepares are committed.
    pub fn give_up_file(&mut self, uuid: VbUuid) {
        self.vb.replay = Replay::default();
        if self.vb.is_deleted {
            // The log has that, too.
            return;
        }
        self.vb.store.history.persisted_seqno = self.vb.store.history.high_seqno;
        self.vb.store.history.failover = FailoverTable::new(uuid);
        self.vb.store.push_state();
        self.vb.durability.commit_ready(&mut self.vb.store);
    }

    /// Begins with what the vBucket's file holds, and forgets what was there; replay of the log follows or goes on.
    ///
    /// # Errors
    /// [`ReplayError::BadPrepare`] when the prepares do not hang together; the vBucket is of no use then.
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
        let documents = &mut self.vb.store.documents;
        documents.purged_rev = base.state.max_deleted_rev;
        documents.may_have_xattrs = base.state.may_have_xattrs;
        documents.residency = DocumentResidency::cold(base.documents());
        self.take_over(base)
    }

    /// Takes progress and prepares from the file, to which memory is to go back.
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
            durability.prepares.add(Prepare::found(hash, item, level));
        }
        durability.prepares.note_completed(progress.completed);
        Ok(())
    }

    /// The file was rewound too. Its prepares that have not ended are committed, as in a restart: someone may have
    /// seen their commits.
    ///
    /// # Errors
    /// [`ReplayError::NotRewound`] when the file is not where the vBucket went back to, [`ReplayError::BadPrepare`].
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
            // Its documents may have left memory when it was dropped.
            self.vb.store.documents.residency.on_reopened();
        }
        let documents = &mut self.vb.store.documents;
        documents.purged_rev = documents.purged_rev.max(base.state.max_deleted_rev);
        let there = documents.table.documents();
        documents.residency.on_rewound(base.documents(), there);
        self.vb.store.unapplied.rewinding = false;
        let consistent = self.vb.store.history.consistent_seqno();
        let VBucket {
            store, durability, ..
        } = &mut *self.vb;
        durability.begin_persisted(consistent, store);
        Ok(())
    }
}
