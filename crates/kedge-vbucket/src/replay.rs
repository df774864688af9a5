//! Bringing a vBucket back from its file and the log.
//!
//! Changes come in the order in which they were queued. Each vBucket's seqnos must grow until a reset or rollback; a log
//! that says otherwise is damaged in a way that its checksums do not show, and is refused.
//!
//! What must hold:
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
use crate::failover::FailoverTable;
use crate::file_state::FileState;
use crate::item::Item;
use crate::snapshot::Snapshot;
use crate::system_event::SystemEvent;
use crate::vbucket::{VBucket, VbState};
use kedge_types::{Seqno, VbUuid};
use std::fmt;

/// The log says something that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// A seqno is not above that of the change before it.
    Order {
        /// The seqno before it.
        high: Seqno,
        /// The seqno that came.
        seqno: Seqno,
    },
    /// A commit or abort names a prepare that is not there.
    NoPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A prepare says no level, or its key has one already.
    BadPrepare {
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A change of collections is not understood.
    BadEvent {
        /// Its seqno.
        seqno: Seqno,
    },
    /// The file has to be rewound first, or was not rewound to this seqno.
    NotRewound {
        /// The last seqno that stays.
        to: Seqno,
    },
}

/// Where a file has to go back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The last seqno that stays.
    pub to: Seqno,
    /// The history that the file has to have then.
    pub failover: FailoverTable,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { high, seqno } => write!(f, "seqno {seqno} follows seqno {high}"),
            Self::NoPrepare { prepared } => {
                write!(
                    f,
                    "a commit or abort names the prepare at seqno {prepared}, which is not there"
                )
            }
            Self::BadPrepare { prepared } => {
                write!(
                    f,
                    "the prepare at seqno {prepared} has no level, or its key has one already"
                )
            }
            Self::BadEvent { seqno } => {
                write!(
                    f,
                    "the change of collections at seqno {seqno} is not understood"
                )
            }
            Self::NotRewound { to } => write!(f, "the file was not rewound to seqno {to}"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// How far the replay of a vBucket is.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// What its file holds, until the log was read.
    base: Option<Box<FileState>>,
    /// The last seqno that the log had in this history.
    last: Seqno,
    /// What does not fit and may be of a history that ends in a reset or rollback still to come.
    orphan: Option<ReplayError>,
    rewind: Option<Rewind>,
    /// There was a mark of its deletion.
    was_deleted: bool,
    /// The file ends in the middle of something of which a disk snapshot is part, which ends here.
    torn_upto: Seqno,
    /// The log has the beginning of the snapshot that is open; if not, the file is in its middle.
    snapshot_in_log: bool,
}

impl Replay {
    pub(crate) fn begin_deleted(&mut self) {
        self.was_deleted = true;
    }

    pub(crate) fn is_behind_torn_file(&self, seqno: Seqno) -> bool {
        seqno <= self.torn_upto
    }

    pub(crate) fn begin_from(&mut self, base: FileState) {
        self.torn_upto = base.torn_upto();
        self.base = Some(Box::new(base));
        self.rewind = None;
    }

    /// The log goes on behind `last`.
    fn restart(&mut self, last: Seqno) {
        self.last = last;
        self.orphan = None;
        self.torn_upto = Seqno(0);
        self.snapshot_in_log = false;
    }
}

impl VBucket {
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
                    self.unapplied.on_logged(&Change::Advance(seqno), Seqno(0));
                    self.reach(seqno);
                }
            }
            Change::State(failover, state) => self.replay_state(failover, state),
            Change::Reset(failover, state) => self.replay_reset(*failover, state)?,
            Change::Rollback { to, table } => self.replay_rollback(to, *table)?,
            Change::Delete => self.replay_delete(),
        }
        self.persisted_seqno = self.high_seqno;
        Ok(())
    }

    /// Something follows a rollback that the file does not know: the file has forgotten its branch, in a later rollback
    /// or reset.
    fn has_followed(&mut self) -> Result<(), ReplayError> {
        let Some(Rewind { to, .. }) = self.replay.rewind.take() else {
            return Ok(());
        };
        let refused = ReplayError::NotRewound { to };
        if self.begin_again_if(|_| true)? {
            Ok(())
        } else if self.replay.was_deleted {
            // Its file is gone: the deletion follows.
            self.replay.orphan.get_or_insert(refused);
            Ok(())
        } else {
            Err(refused)
        }
    }

    fn replay_item(&mut self, item: &Item) -> Result<bool, ReplayError> {
        let is_new = self.replay_seqno(item.seqno())?;
        self.clock.raise_to(item.cas());
        Ok(is_new)
    }

    /// Whether a change is to be applied: the file may have it.
    fn replay_seqno(&mut self, seqno: Seqno) -> Result<bool, ReplayError> {
        let high = self.replay.last;
        if seqno <= high {
            return Err(ReplayError::Order { high, seqno });
        }
        self.replay.last = seqno;
        if seqno <= self.applied_seqno() {
            return Ok(false);
        }
        self.high_seqno = seqno;
        Ok(true)
    }

    fn replay_document(&mut self, change: &Change, item: Item) {
        let seqno = item.seqno();
        let replaced = self.follow_document(item);
        self.unapplied.on_logged(change, replaced);
        self.reach(seqno);
    }

    fn replay_event(&mut self, item: Item) -> Result<(), ReplayError> {
        let seqno = item.seqno();
        let event = SystemEvent::of_item(&item).ok_or(ReplayError::BadEvent { seqno })?;
        if self.replay_item(&item)? {
            let replaced = self.receive_event(&event, seqno);
            self.unapplied.on_logged(&Change::System(item), replaced);
            self.reach(seqno);
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
        if self.follow_prepare(item.clone()).is_none() {
            self.replay.orphan.get_or_insert(bad);
            return Ok(());
        }
        self.unapplied.on_logged(&Change::Prepare(item), Seqno(0));
        self.reach(prepared);
        Ok(())
    }

    fn replay_commit(&mut self, item: &Item, prepared: Seqno) -> Result<(), ReplayError> {
        if !self.replay_item(item)? {
            return Ok(());
        }
        let Some(prepare) = self.follow_commit(item.key(), prepared) else {
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
        let is_needless = self.is_of_dropped(item.key());
        if self.follow_abort(item.key(), prepared).is_none() && !is_needless {
            self.replay_orphan(prepared);
            return Ok(());
        }
        let change = Change::Abort { item, prepared };
        self.unapplied.on_logged(&change, Seqno(0));
        self.reach(seqno);
        Ok(())
    }

    /// A commit or abort has no prepare: its part of the log may have been given back after a reset that is still to
    /// come. Without one, [`VBucket::finish_replay`] refuses.
    fn replay_orphan(&mut self, prepared: Seqno) {
        let missing = ReplayError::NoPrepare { prepared };
        self.replay.orphan.get_or_insert(missing);
    }

    /// One that the file has seen the end of says nothing.
    fn replay_snapshot(&mut self, snapshot: Snapshot) {
        if snapshot.end > self.applied_seqno() {
            self.replay.snapshot_in_log = true;
            self.follow_snapshot(snapshot);
            let change = Change::Snapshot(Box::new(snapshot));
            self.unapplied.on_logged(&change, Seqno(0));
        }
    }

    /// What it says may be older than the file; a record of what the file says stands in the log then, or a newer one.
    fn replay_state(&mut self, failover: Box<FailoverTable>, state: VbState) {
        if self.is_deleted {
            return;
        }
        // A file that was written since says that it is active, and knows nothing of the snapshot.
        let had_snapshot = std::mem::take(&mut self.replay.snapshot_in_log);
        if state == VbState::Active && (self.state != state || had_snapshot) {
            self.end_snapshot_here();
        }
        self.state = state;
        self.failover = (*failover).clone();
        self.unapplied
            .on_logged(&Change::State(failover, state), Seqno(0));
        let base = self.replay.base.as_ref();
        let is_in_file = base.is_some_and(|base| {
            base.state.state == self.state && base.state.failover == self.failover
        });
        let is_torn = self.unapplied.progress().open != self.unapplied.applied_progress().open;
        self.unapplied.state_changed = !is_in_file || is_torn || self.unapplied.replaces_file;
    }

    fn replay_reset(&mut self, failover: FailoverTable, state: VbState) -> Result<(), ReplayError> {
        self.replay.restart(Seqno(0));
        self.replay.rewind = None;
        if self.begin_again_if(|base| base.knows(failover.uuid()))? {
            return Ok(());
        }
        self.forget_all(failover);
        self.state = state;
        self.unapplied.replaces_file = self.replay.base.is_some();
        self.unapplied.state_changed = true;
        Ok(())
    }

    /// If the file is from after the deletion, a reset follows that it knows.
    fn replay_delete(&mut self) {
        self.replay.restart(Seqno(0));
        self.replay.rewind = None;
        self.forget_to_delete();
    }

    fn replay_rollback(&mut self, to: Seqno, failover: FailoverTable) -> Result<(), ReplayError> {
        self.replay.restart(to);
        self.replay.rewind = None;
        if !self.begin_again_if(|base| base.knows(failover.uuid()))? {
            self.forget_all(failover.clone());
            self.replay.rewind = Some(Rewind { to, failover });
        }
        Ok(())
    }

    /// Begins again with the file if it is a file that `wanted` says.
    fn begin_again_if(&mut self, wanted: impl Fn(&FileState) -> bool) -> Result<bool, ReplayError> {
        let Some(base) = self.replay.base.take_if(|base| wanted(base)) else {
            return Ok(false);
        };
        let result = self.start_from(&base);
        self.replay.torn_upto = base.torn_upto();
        self.replay.base = Some(base);
        result.map(|()| true)
    }

    /// Accepts commits and aborts whose prepares are not there, and prepares that are there twice: salvage skipped
    /// what lies between.
    pub fn forgive_orphan(&mut self) {
        self.replay.orphan = None;
    }

    /// All of the log was read. A crash came between a rollback and its file: the file has to be rewound, and the
    /// vBucket begins from it again with [`VBucket::begin_from`], before [`VBucket::finish_replay`].
    #[must_use]
    pub fn needs_rewind(&self) -> Option<&Rewind> {
        self.replay.rewind.as_ref()
    }

    /// All of the log was read. PrepareQueue that it left open stay prepared until the chains of an active allow their commit:
    /// someone may have seen it. They are on disk, so a majority of one has them. After an unclean stop of an active a new
    /// branch begins under `branch` at the last consistent point, because what was given out and not persisted is lost.
    ///
    /// # Errors
    /// [`ReplayError::NoPrepare`] when a commit or abort had none, [`ReplayError::BadPrepare`],
    /// [`ReplayError::NotRewound`].
    pub fn finish_replay(&mut self, branch: Option<VbUuid>) -> Result<(), ReplayError> {
        if let Some(orphan) = self.replay.orphan {
            return Err(orphan);
        }
        if let Some(Rewind { to, .. }) = self.replay.rewind {
            return Err(ReplayError::NotRewound { to });
        }
        self.replay = Replay::default();
        self.persisted_seqno = self.high_seqno;
        let consistent = self.consistent_seqno();
        // A replica's history is that of its active. Others may have changes of the old branch that are not here, also if
        // nothing of it is.
        if let Some(uuid) = branch.filter(|_| self.state == VbState::Active) {
            self.failover.begin(uuid, consistent);
            self.end_snapshot_here();
            self.checkpoints
                .push(Change::State(Box::new(self.failover.clone()), self.state));
        }
        let prepared = self.unapplied.progress().prepared_upto(consistent);
        self.following
            .all_persisted(consistent, prepared, &self.prepares);
        self.commit_ready();
        Ok(())
    }

    /// As [`VBucket::replay`], of a vBucket whose file cannot be read: what does not fit for want of it is left out.
    pub fn replay_without_file(&mut self, change: Change) {
        let change = match change {
            // What stays is in the file only.
            Change::Rollback { table, .. } => Change::Reset(table, self.state),
            other => other,
        };
        // It was not changed then.
        let _ = self.replay(change);
    }

    /// All of the log was read, and the file is given up: what the log had is all that there is. That is a new history,
    /// under `uuid`, as nobody may take it for the old one. PrepareQueue are committed.
    pub fn give_up_file(&mut self, uuid: VbUuid) {
        self.replay = Replay::default();
        if self.is_deleted {
            // The log has that, too.
            return;
        }
        self.persisted_seqno = self.high_seqno;
        self.failover = FailoverTable::new(uuid);
        self.checkpoints
            .push(Change::State(Box::new(self.failover.clone()), self.state));
        self.commit_ready();
    }
}
