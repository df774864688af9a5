//! The states of vBuckets: creation, state changes and deletion.
//!
//! Invariants:
//! * A state change or deletion is durable before it is reported as done: as a record of the log, or, without a log, in
//!   the file or by its absence.
//! * State changes and rollbacks of a vBucket are serialized by its lock of `changing`. A deletion and a flush do not take
//!   that lock; operations that find another history than the one they began with abort.

use crate::tasks::{VBUCKET_DELETION, VBUCKET_STATE};
use kedge_bucket_core::{BucketCore, Component, Total, new_uuid, submit_change};
use kedge_persistence::Persistence;
use kedge_types::{Status, VbId};
use kedge_vbucket::{HashTable, StateChange, Topology, VBucket, VbState};
use std::sync::Arc;

/// The requested state of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbRole {
    /// The new state.
    pub state: VbState,
    /// The replication topology of an active vBucket, whose nodes acknowledge SyncWrites. `None` keeps the current one.
    pub topology: Option<Topology>,
    /// True if the vBucket has every change of the previous active, which is dead, so that no new branch begins. True for a
    /// dead vBucket if another node takes it over.
    pub takeover: bool,
    /// True if a dead vBucket stays dead, because a takeover has completed.
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

/// The component that changes the states of a bucket's vBuckets.
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
    /// Sets the state of a vBucket. A deleted vBucket is created empty under a new UUID. The state is durable when the
    /// function returns, after a sync of the log. Streams of the vBucket end if its state has changed.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket does not exist; `TemporaryFailure` while loading, if the vBucket is quarantined, or if
    /// the state could not be made durable.
    pub fn set_vbucket(&self, vb: VbId, role: impl Into<VbRole>) -> Result<(), Status> {
        self.set_vbucket_if(vb, role, |_| true)
    }

    /// Runs [`VbStates::set_vbucket`] if `condition` accepts the vBucket; otherwise fails with `NotMyVbucket`.
    pub(crate) fn set_vbucket_if(
        &self,
        vb: VbId,
        role: impl Into<VbRole>,
        condition: impl FnOnce(&VBucket) -> bool,
    ) -> Result<(), Status> {
        let VbRole {
            state,
            topology,
            takeover,
            unless_dead,
        } = role.into();
        let _guard = self.core.hold_vbucket(vb)?;
        self.core.change_vbucket(vb, |vbucket| {
            if !condition(vbucket) {
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
            self.persistence.report_disk_error(
                vb,
                &error,
                "the new vBucket state could not be made durable",
            )
        })
    }

    /// Runs [`VbStates::set_vbucket`] in a task, which calls `done` with the result.
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

    /// Executes the consumer's first step of a takeover in a task. A replica becomes pending, and everything it has received
    /// is durable when `done` is called. The vBucket is not changed if `is_wanted` returns false, which means that the takeover
    /// has been abandoned.
    pub fn begin_takeover_step(
        self: &Arc<Self>,
        vb: VbId,
        is_wanted: impl FnOnce() -> bool + Send + 'static,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        let is_replica = |state| matches!(state, VbState::Replica | VbState::Pending);
        let condition = move |vbucket: &VBucket| is_replica(vbucket.state()) && is_wanted();
        let work = move |states: &Self| states.set_vbucket_if(vb, VbState::Pending, condition);
        submit_change(self, &VBUCKET_STATE, work, done);
    }

    /// Applies the setting for SyncWrites without enough nodes to every vBucket. It has no effect before the bucket is open.
    pub(crate) fn on_durability_config(&self) {
        let rules = self.core.config().durability_impossible_fallback.rules();
        for id in 0..self.core.vbucket_count() {
            // A quarantined vBucket executes no SyncWrites.
            let _ = self.core.change_vbucket(VbId(id), |vbucket| {
                vbucket.set_durability_rules(rules);
                Ok(())
            });
        }
    }

    /// Deletes a vBucket and its file. Commands fail with `NotMyVbucket` from then on, also after a restart, until
    /// [`VbStates::set_vbucket`] creates the vBucket again. The deletion is durable when the function returns.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket does not exist; `TemporaryFailure` as for [`VbStates::set_vbucket`]. A file that could not
    /// be removed yet is not an error.
    pub fn delete_vbucket(&self, vb: VbId) -> Result<(), Status> {
        drop(self.mark_deleted(vb)?);
        self.finish_deletion(vb)
    }

    /// Begins [`VbStates::delete_vbucket`]. Commands fail with `NotMyVbucket` when the function returns. A task completes the
    /// deletion and calls `done` with the result.
    ///
    /// # Errors
    /// As [`VbStates::delete_vbucket`], except errors of the disk, which `done` receives. `done` is not called if this
    /// function fails.
    pub fn begin_delete_vbucket(
        self: &Arc<Self>,
        vb: VbId,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) -> Result<(), Status> {
        let documents = self.mark_deleted(vb)?;
        let work = move |states: &Self| {
            drop(documents);
            states.finish_deletion(vb)
        };
        submit_change(self, &VBUCKET_DELETION, work, done);
        Ok(())
    }

    fn mark_deleted(&self, vb: VbId) -> Result<HashTable, Status> {
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
            self.persistence.report_disk_error(
                vb,
                &error,
                "the deletion of the vBucket could not be made durable",
            )
        })?;
        self.persistence.applier().apply_vbucket(vb);
        Ok(())
    }
}
