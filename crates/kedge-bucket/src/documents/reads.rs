//! Commands that read, and locks.

use super::ahead::copied_ahead;
use super::component::Documents;
use kedge_bucket_core::Counter;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Read;
use kedge_bucket_core::{Ctx, Role};
use kedge_residency::Op;
use kedge_types::{Cas, Status};
use kedge_vbucket::{DocOp, Document, Meta, StepOutcome};

impl Documents {
    /// Shows a document to `read`, which runs under the vBucket's lock: copy a small value there, clone the item of a
    /// large one. When it was parked, the completion has the document.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        let result = self.core.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.at(ctx.now).get(wanted.key, read)
        });
        let result = match result {
            Ok(result) => result,
            Err(status) => {
                return self
                    .residency
                    .park_if_pending(ctx, wanted, DocOp::Get, status);
            }
        };
        self.count(ctx, Counter::CmdGet);
        match result {
            Ok(StepOutcome::Fetch) => return self.residency.fetch(ctx, wanted, DocOp::Get),
            Ok(_) => self.count(ctx, Counter::GetHits),
            Err(_) => self.count(ctx, Counter::GetMisses),
        }
        self.or_fetch(ctx, wanted, DocOp::Get, result?)
    }

    /// Shows a replica's document to `read`, which may be behind that of the active; see [`Documents::get`].
    ///
    /// # Errors
    /// `KeyNotFound`; `NotMyVbucket` unless the vBucket is a replica; `TemporaryFailure` while loading.
    pub fn get_replica<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        let outcome = self
            .core
            .step_as(ctx.now, wanted.vb, Role::Replica, |vbucket| {
                vbucket.at(ctx.now).get_replica(wanted.key, read)
            })??;
        self.or_fetch(ctx, wanted, DocOp::GetReplica, outcome)
    }

    /// What a step came to that only reads; its command waits if it needs the disk.
    pub(crate) fn or_fetch<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: impl Into<Op>,
        outcome: StepOutcome<R>,
    ) -> Result<Outcome<R>, Status> {
        match outcome {
            StepOutcome::Done(done) => Ok(Outcome::Done(done)),
            StepOutcome::Parked => Ok(Outcome::Parked),
            StepOutcome::Fetch => self.residency.fetch(ctx, wanted, op),
        }
    }

    /// The metadata of a document or tombstone.
    ///
    /// # Errors
    /// As [`Documents::get`].
    pub fn get_meta(&self, ctx: Ctx, wanted: &Read<'_>) -> Result<Outcome<Meta>, Status> {
        let outcome = self.core.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.at(ctx.now).get_meta(wanted.key)
        });
        match outcome {
            Ok(outcome) => self.or_fetch(ctx, wanted, DocOp::GetMeta, outcome?),
            Err(status) => self
                .residency
                .park_if_pending(ctx, wanted, DocOp::GetMeta, status),
        }
    }

    /// Locks a document for `secs` seconds (0: the default) and shows it to `read`, with the CAS that opens the lock.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`, `NotMyVbucket`, `TemporaryFailure` while loading.
    pub fn get_and_lock<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        secs: u32,
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Result<Outcome<R>, Status> {
        self.count(ctx, Counter::CmdLock);
        let there = self.peek_long(wanted.vb, wanted.key);
        let ahead = copied_ahead(there.as_ref());
        let result = self.core.step(ctx.now, wanted.vb, |vbucket| {
            vbucket
                .at(ctx.now)
                .get_and_lock(wanted.key, secs, ahead.as_ref(), read)
        });
        let op = DocOp::GetAndLock { secs };
        let result = match result {
            Ok(result) => result,
            Err(status) => return self.residency.park_if_pending(ctx, wanted, op, status),
        };
        self.count_outcome(ctx, &op, Cas(0), &result);
        self.or_fetch(ctx, wanted, op, result?)
    }

    /// Opens a lock. What is locked does not leave memory: of a document that is on disk only the disk is asked whether
    /// it exists, as it is not locked. When it was parked, [`kedge_vbucket::Completion::Persisted`] says how it went.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `Locked` with another CAS, `SyncWriteInProgress`.
    pub fn unlock(&self, ctx: Ctx, wanted: &Read<'_>, cas: Cas) -> Result<Outcome<()>, Status> {
        let result = self.core.step(ctx.now, wanted.vb, |vbucket| {
            vbucket.at(ctx.now).unlock(wanted.key, cas)
        });
        let result = match result {
            Ok(result) => result,
            Err(status) => {
                return self
                    .residency
                    .park_if_pending(ctx, wanted, DocOp::Unlock(cas), status);
            }
        };
        self.count_outcome(ctx, &DocOp::Unlock(cas), Cas(0), &result);
        self.or_fetch(ctx, wanted, DocOp::Unlock(cas), result?)
    }
}
