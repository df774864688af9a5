//! What vBuckets are to their node: made, given another state, deleted.
//!
//! Invariants:
//! * A state and a deletion are records of the log before anyone hears that they are done; without a log, the file says
//!   so, or its absence.
//! * One state is given, or one rollback made, at a time to a vBucket: who does so holds its lock of `changing`. A
//!   deletion and a flush wait for nobody: what finds another history than the one it began with gives up.

use crate::bucket::{Bucket, Phase, new_uuid};
use crate::counters::Total;
use crate::error::BucketError;
use crate::tasks::{VBUCKET_DELETION, VBUCKET_STATE};
use kedge_executor::Kind;
use kedge_types::{Status, VbId};
use kedge_vbucket::{HashTable, StateChange, Topology, VBucket, VbState};
use parking_lot::{Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

type Listener<T> = Box<dyn FnOnce(Result<T, Status>) + Send>;

/// Who is told of the end of something, once.
struct Told<T>(Option<Listener<T>>);

impl<T> Told<T> {
    fn tell(mut self, result: Result<T, Status>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        // It did not begin, as the bucket ends, or panicked.
        if let Some(done) = self.0.take() {
            done(Err(Status::TemporaryFailure));
        }
    }
}

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

impl Bucket {
    /// Gives a vBucket a state; one that was deleted begins anew under a new uuid, empty. It is durable when this returns,
    /// which takes the time of a sync. Streams of it end when it is something else then.
    ///
    /// # Errors
    /// `NotMyVbucket` when the bucket has none of this number; `TemporaryFailure` while loading, when the vBucket's file
    /// could not be read, or when it is not durable yet.
    pub fn set_vbucket(&self, vb: VbId, role: impl Into<VbRole>) -> Result<(), Status> {
        self.set_vbucket_if(vb, role, |_| true)
    }

    /// As [`Bucket::set_vbucket`], if the vBucket is still as it has to be; else `NotMyVbucket`.
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
        let _alone = self.hold_vbucket(vb)?;
        self.change_vbucket(vb, |vbucket| {
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
        let synced = self.sync();
        synced.map_err(|error| self.refuse(vb, &error, "the state is not on disk yet"))
    }

    /// As [`Bucket::set_vbucket`], by a task; `done` hears of the end.
    pub fn begin_set_vbucket(
        self: &Arc<Self>,
        vb: VbId,
        role: impl Into<VbRole>,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) {
        let role = role.into();
        let work = move |bucket: &Self| bucket.set_vbucket(vb, role);
        self.begin_change(&VBUCKET_STATE, work, done);
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
        let work = move |bucket: &Self| bucket.set_vbucket_if(vb, VbState::Pending, may);
        self.begin_change(&VBUCKET_STATE, work, done);
    }

    /// Every vBucket hears what becomes of SyncWrites for which there are too few nodes. Nothing happens before the bucket
    /// is open.
    pub(crate) fn on_durability_config(&self) {
        let rules = self.config().durability_impossible_fallback.rules();
        for id in 0..self.vbuckets() {
            // One that is quarantined answers nothing.
            let _ = self.change_vbucket(VbId(id), |vbucket| {
                vbucket.set_durability_rules(rules);
                Ok(())
            });
        }
    }

    /// Deletes a vBucket, with its file. Commands get `NotMyVbucket` from then on, also after a restart, until
    /// [`Bucket::set_vbucket`] makes it anew. That is durable when this returns.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is none of this number; `TemporaryFailure` as [`Bucket::set_vbucket`]. That the file is not
    /// gone yet is no error.
    pub fn delete_vbucket(&self, vb: VbId) -> Result<(), Status> {
        drop(self.forget_vbucket(vb)?);
        self.finish_deletion(vb)
    }

    /// As [`Bucket::delete_vbucket`]: commands get `NotMyVbucket` when this returns, a task does the rest, and `done` hears
    /// of its end.
    ///
    /// # Errors
    /// As [`Bucket::delete_vbucket`], but for those of the disk, of which `done` hears. It hears of nothing else.
    pub fn begin_delete_vbucket(
        self: &Arc<Self>,
        vb: VbId,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) -> Result<(), Status> {
        let documents = self.forget_vbucket(vb)?;
        let work = move |bucket: &Self| {
            drop(documents);
            bucket.finish_deletion(vb)
        };
        self.begin_change(&VBUCKET_DELETION, work, done);
        Ok(())
    }

    fn forget_vbucket(&self, vb: VbId) -> Result<HashTable, Status> {
        let documents = self.change_vbucket(vb, |vbucket| {
            if vbucket.is_deleted() {
                return Err(Status::NotMyVbucket);
            }
            Ok(vbucket.delete_vbucket())
        })?;
        self.wake_compactions();
        self.totals.add(Total::DeletedVbuckets, 1);
        Ok(documents)
    }

    fn finish_deletion(&self, vb: VbId) -> Result<(), Status> {
        self.sync()
            .map_err(|error| self.refuse(vb, &error, "the deletion is not on disk yet"))?;
        self.apply_vbucket(vb);
        Ok(())
    }

    /// Runs a step of a vBucket in whatever state it is.
    pub(crate) fn change_vbucket<R>(
        &self,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let vbucket = self.vbuckets.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        if self.phase() != Phase::Open {
            return Err(Status::TemporaryFailure);
        }
        let now = self.setup.clock.now();
        let mut vbucket = vbucket.lock();
        if vbucket.is_quarantined() {
            return Err(Status::TemporaryFailure);
        }
        let (result, mut done) = self.account(now, &mut vbucket, |vbucket| {
            let result = step(vbucket);
            // One that has become active may be behind.
            if vbucket.state() == VbState::Active {
                vbucket.follow_manifest(now, &self.manifest());
            }
            result
        });
        drop(vbucket);
        self.tell_streams();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
        self.on_vbucket_state(vb);
        // Readers of an earlier history wait in vain.
        self.offer_file(vb);
        result
    }

    /// The right to give a vBucket a state, or to roll it back.
    pub(crate) fn hold_vbucket(&self, vb: VbId) -> Result<MutexGuard<'_, ()>, Status> {
        let changing = self.changing.get(vb.index()).ok_or(Status::NotMyVbucket)?;
        Ok(Mutex::lock(changing))
    }

    /// What a client hears of an error of the disk; one that does not pass ends the bucket.
    pub(crate) fn refuse(&self, vb: VbId, error: &BucketError, what: &str) -> Status {
        if error.is_passing() {
            tracing::error!(bucket = self.name(), vbucket = %vb, %error, "{what}");
        } else {
            self.fail(&error.to_string());
        }
        Status::TemporaryFailure
    }

    /// Runs `work` once, as a task.
    pub(crate) fn begin_change<T: Send + 'static>(
        self: &Arc<Self>,
        kind: &'static Kind,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
        done: impl FnOnce(Result<T, Status>) + Send + 'static,
    ) {
        let bucket = Arc::clone(self);
        let told = Told(Some(Box::new(done)));
        let run = move || match catch_unwind(AssertUnwindSafe(|| work(&bucket))) {
            Ok(result) => told.tell(result),
            Err(panic) => {
                bucket.fail(&format!("the task {} panicked", kind.name()));
                resume_unwind(panic)
            }
        };
        // One that is refused, as the bucket ends, is told so.
        drop(self.setup.executor.submit_as(kind, self.owner, run));
    }
}
