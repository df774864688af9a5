//! Commands that read documents, and commands that lock and unlock them.

use super::ahead::copied_ahead;
use super::component::DocumentCommands;
use kedge_bucket_core::{Counter, Ctx, Outcome, Read, RequiredRole};
use kedge_residency::role_of;
use kedge_types::{Cas, Status};
use kedge_vbucket::{
    DocOp, DocumentRef, Executed, Meta, PrebuiltItem, Step, StepOutcome, StepWrite,
};

impl DocumentCommands {
    /// Passes a document to `read`, which runs under the lock of the vBucket. It should copy a small value, and clone the item
    /// of a large one. If the command is parked, the completion contains the document.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.count(ctx, Counter::CmdGet);
        let result = self.read(ctx, wanted, &DocOp::Get, read);
        self.count_read(ctx, &DocOp::Get, &result);
        result
    }

    /// Passes the document of a replica to `read`, see [`DocumentCommands::get`]. It may be older than that of the active.
    ///
    /// # Errors
    /// `KeyNotFound`; `NotMyVbucket` if the vBucket is not a replica; `TemporaryFailure` while loading.
    pub fn get_replica<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.read(ctx, wanted, &DocOp::GetReplica, read)
    }

    /// Returns the metadata of a document or tombstone.
    ///
    /// # Errors
    /// As [`DocumentCommands::get`].
    pub fn get_meta(&self, ctx: Ctx, wanted: &Read<'_>) -> Result<Outcome<Meta>, Status> {
        let outcome = self.run(ctx, wanted, &DocOp::GetMeta, None, |_| ())?;
        pick(outcome, Executed::into_meta)
    }

    /// Locks a document for `secs` seconds (0: the default), and passes it to `read` with the CAS that unlocks it.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get_and_lock<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        secs: u32,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.count(ctx, Counter::CmdLock);
        let existing = self.peek_long(wanted.vb, wanted.key);
        let ahead = copied_ahead(existing.as_ref());
        let op = DocOp::GetAndLock { secs };
        let result = self.run(ctx, wanted, &op, ahead.as_ref(), read);
        self.count_read(ctx, &op, &result);
        pick(result?, Executed::into_read)
    }

    /// Unlocks a document. A locked document is never evicted, so a document that is only on disk is not locked; the file
    /// tells whether it exists. If the command is parked, [`kedge_vbucket::Completion::Persisted`] contains the result.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `Locked` if the CAS differs, `SyncWriteInProgress`.
    pub fn unlock(&self, ctx: Ctx, wanted: &Read<'_>, cas: Cas) -> Result<Outcome<()>, Status> {
        let op = DocOp::Unlock(cas);
        let result = self.run(ctx, wanted, &op, None, |_| ());
        self.count_read(ctx, &op, &result);
        pick(result?, Executed::into_unlocked)
    }

    /// Runs a command that reads a document, see [`Self::run_step`].
    pub(super) fn read<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: &DocOp<'static>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.run_step(ctx, wanted, op, |step| step.read(wanted.key, op, read))
    }

    /// Runs any command that writes nothing, see [`Self::run_step`].
    pub(super) fn run<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: &DocOp<'static>,
        ahead: Option<&PrebuiltItem<'_>>,
        read: impl FnOnce(DocumentRef<'_>) -> R,
    ) -> Result<Outcome<Executed<R>>, Status> {
        let arguments = StepWrite::of_read(wanted.key, ahead);
        self.run_step(ctx, wanted, op, |step| step.execute(&arguments, op, read))
    }

    /// Runs the step of a command that writes nothing. The command is parked if it needs the disk, or if it needs an active
    /// vBucket and the vBucket is pending.
    fn run_step<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: &DocOp<'static>,
        step: impl FnOnce(&mut Step<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let role = role_of(op);
        let result = self.core.step_as(ctx.now, wanted.vb, role, |vbucket| {
            step(&mut vbucket.at(ctx.now))
        });
        match result {
            Ok(result) => match result? {
                StepOutcome::Done(done) => Ok(Outcome::Done(done)),
                StepOutcome::Parked => Ok(Outcome::Parked),
                StepOutcome::Fetch => self.residency.fetch(ctx, wanted, op.clone()),
            },
            Err(status) if role == RequiredRole::Active => {
                self.residency
                    .park_if_pending(ctx, wanted, op.clone(), status)
            }
            Err(status) => Err(status),
        }
    }

    /// Counts the outcome of a command, unless it was parked.
    fn count_read<T>(&self, ctx: Ctx, op: &DocOp<'_>, result: &Result<Outcome<T>, Status>) {
        if !matches!(result, Ok(Outcome::Parked)) {
            self.count_outcome(ctx, op, Cas(0), result);
        }
    }
}

/// Extracts the result of a completed command with `take`.
pub(super) fn pick<R, T>(
    outcome: Outcome<Executed<R>>,
    take: impl FnOnce(Executed<R>) -> Option<T>,
) -> Result<Outcome<T>, Status> {
    match outcome {
        Outcome::Done(done) => take(done).map(Outcome::Done).ok_or(Status::Internal),
        Outcome::Parked => Ok(Outcome::Parked),
    }
}
