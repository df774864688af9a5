//! What vBuckets are to their node: made, given another state, deleted.
//!
//! Invariants:
//! * A state and a deletion are records of the log before anyone hears that they are done; without a log, the file says
//!   so, or its absence.
//! * One state is given, or one rollback made, at a time to a vBucket: who does so holds its lock of `changing`. A
//!   deletion and a flush wait for nobody: what finds another history than the one it began with gives up.

use crate::tasks::{VBUCKET_DELETION, VBUCKET_STATE};
use kedge_bucket_core::Total;
use kedge_bucket_core::new_uuid;
use kedge_bucket_core::submit_change;
use kedge_bucket_core::{BucketCore, Component};
use kedge_persistence::Persistence;
use kedge_types::{Status, VbId};
use kedge_vbucket::{HashTable, StateChange, Topology, VBucket, VbState};
use std::sync::Arc;

/// What a vBucket is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbRole {
    /// What it is to its node.
    pub state: VbState,
    /// Which nodes have to acknowledge its SyncWrites, if it is active. `None`: as before.
    pub topology: Option<Topology>,
    /// It has all that the active before it had, which has ended: no branch begins.
    pub takeover: bool,
    /// One that is dead stays so: it was handed over.
    pub unless_dead: bool,
}

impl From<VbState> for VbRole {
    fn from(state: VbState) -> Self {
        Self {
            state,
            topology: None,
            takeover: false,
            unless_dead: false,
        }
    }
}

/// The states of a bucket's vBuckets.
#[derive(Debug)]
pub struct VbStates {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) persistence: Arc<Persistence>,
}

impl Component for VbStates {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl VbStates {
    /// Gives a vBucket a state; one that was deleted begins anew under a new uuid, empty. It is durable when this returns,
    /// which takes the time of a sync. Streams of it end when it is something else then.
    ///
    /// # Errors
    /// `NotMyVbucket` when the bucket has none of this number; `TemporaryFailure` while loading, when the vBucket's file
    /// could not be read, or when it is not durable yet.
    pub fn set_vbucket(&self, vb: VbId, role: impl Into<VbRole>) -> Result<(), Status> {
        self.set_vbucket_if(vb, role, |_| true)
    }

    /// As [`VbStates::set_vbucket`], if the vBucket is still as it has to be; else `NotMyVbucket`.
    pub(crate) fn set_vbucket_if(
        &self,
        vb: VbId,
        role: impl Into<VbRole>,
        may: impl FnOnce(&VBucket) -> bool,
    ) -> Result<(), Status> {
        let VbRole {
            state,
            topology,
            takeover,
            unless_dead,
        } = role.into();
        let _alone = self.core.hold_vbucket(vb)?;
        self.core.change_vbucket(vb, |vbucket| {
            if !may(vbucket) {
                return Err(Status::NotMyVbucket);
            }
            if unless_dead && vbucket.state() == VbState::Dead {
                return Ok(());
            }
            vbucket.set_state(StateChange {
                topology,
                takeover,
                ..StateChange::to(state, new_uuid())
            });
            Ok(())
        })?;
        let synced = self.persistence.sync();
        synced.map_err(|error| {
            self.persistence
                .report_disk_error(vb, &error, "the state is not on disk yet")
        })
    }

    /// As [`VbStates::set_vbucket`], by a task; `done` hears of the end.
    pub fn begin_set_vbucket(
        self: &Arc<Self>,
        vb: VbId,
        role: impl Into<VbRole>,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        let role = role.into();
        let work = move |states: &Self| states.set_vbucket(vb, role);
        submit_change(self, &VBUCKET_STATE, work, done);
    }

    /// A step of a takeover, at the receiving end, by a task: a vBucket that follows another becomes pending if it is not,
    /// and all that it has received is on disk when `done` hears of it. Nothing happens when `still` says that nobody
    /// waits for that any more.
    pub fn begin_takeover_step(
        self: &Arc<Self>,
        vb: VbId,
        still: impl FnOnce() -> bool + Send + 'static,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        let follows = |state| matches!(state, VbState::Replica | VbState::Pending);
        let may = move |vbucket: &VBucket| follows(vbucket.state()) && still();
        let work = move |states: &Self| states.set_vbucket_if(vb, VbState::Pending, may);
        submit_change(self, &VBUCKET_STATE, work, done);
    }

    /// Every vBucket hears what becomes of SyncWrites for which there are too few nodes. Nothing happens before the bucket
    /// is open.
    pub(crate) fn on_durability_config(&self) {
        let rules = self.core.config().durability_impossible_fallback.rules();
        for id in 0..self.core.vbucket_count() {
            // One that is quarantined answers nothing.
            let _ = self.core.change_vbucket(VbId(id), |vbucket| {
                vbucket.set_durability_rules(rules);
                Ok(())
            });
        }
    }

    /// Deletes a vBucket, with its file. Commands get `NotMyVbucket` from then on, also after a restart, until
    /// [`VbStates::set_vbucket`] makes it anew. That is durable when this returns.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is none of this number; `TemporaryFailure` as [`VbStates::set_vbucket`]. That the file is not
    /// gone yet is no error.
    pub fn delete_vbucket(&self, vb: VbId) -> Result<(), Status> {
        drop(self.forget_vbucket(vb)?);
        self.finish_deletion(vb)
    }

    /// As [`VbStates::delete_vbucket`]: commands get `NotMyVbucket` when this returns, a task does the rest, and `done` hears
    /// of its end.
    ///
    /// # Errors
    /// As [`VbStates::delete_vbucket`], but for those of the disk, of which `done` hears. It hears of nothing else.
    pub fn begin_delete_vbucket(
        self: &Arc<Self>,
        vb: VbId,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) -> Result<(), Status> {
        let documents = self.forget_vbucket(vb)?;
        let work = move |states: &Self| {
            drop(documents);
            states.finish_deletion(vb)
        };
        submit_change(self, &VBUCKET_DELETION, work, done);
        Ok(())
    }

    fn forget_vbucket(&self, vb: VbId) -> Result<HashTable, Status> {
        let documents = self.core.change_vbucket(vb, |vbucket| {
            if vbucket.is_deleted() {
                return Err(Status::NotMyVbucket);
            }
            Ok(vbucket.delete_vbucket())
        })?;
        self.persistence.compactions().wake_paused();
        self.core.totals.add(Total::DeletedVbuckets, 1);
        Ok(documents)
    }

    fn finish_deletion(&self, vb: VbId) -> Result<(), Status> {
        self.persistence.sync().map_err(|error| {
            self.persistence
                .report_disk_error(vb, &error, "the deletion is not on disk yet")
        })?;
        self.persistence.applier().apply_vbucket(vb);
        Ok(())
    }
}
