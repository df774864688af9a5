//! The common path of all writes: admission, the step of the vBucket, parking, and counting.

use super::component::{DocumentCommands, Write};
use kedge_bucket_core::{Counter, Ctx, DiskWriters as _, Outcome, sync_write_timing};
use kedge_residency::{Admission, PendingOp, WaitFor, outcome_counters};
use kedge_types::{Cas, Durability, Status};
use kedge_vbucket::{
    DocOp, ITEM_OVERHEAD_BYTES, ItemMeta, Mutated, SLOT_BYTES, StepOutcome, VBucket,
};
use std::sync::atomic::Ordering;

/// The result of a completed write.
pub(crate) trait WriteResult {
    /// Returns the part of the result that every client gets.
    fn mutated(&self) -> Mutated;
}

impl WriteResult for Mutated {
    fn mutated(&self) -> Mutated {
        *self
    }
}

impl WriteResult for (Mutated, ItemMeta) {
    fn mutated(&self) -> Mutated {
        self.0
    }
}

impl DocumentCommands {
    /// Applies backpressure: if persistence is behind, the response to a successful write waits until the write is persisted.
    #[inline]
    pub(crate) fn delay_if_disk_behind<R: WriteResult>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        result: Result<Outcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let Ok(Outcome::Done(done)) = &result else {
            return result;
        };
        if !self.core.quota.is_behind() {
            return result;
        }
        let mutated = done.mutated();
        self.core.parked.fetch_add(1, Ordering::SeqCst);
        let outcome = self.core.step(ctx.now, write.vb, |vbucket| {
            vbucket
                .at(ctx.now)
                .delay_response(write.key, mutated, write.cookie)
        });
        match outcome {
            Ok(StepOutcome::Parked) => {
                self.count(ctx, Counter::Backpressured);
                self.queues.on_waiting(write.vb);
                self.core.on_parked();
                Ok(Outcome::Parked)
            }
            // The write is persisted already, or the bucket is closing. The write succeeded in any case.
            _ => {
                self.core.parked.fetch_sub(1, Ordering::Relaxed);
                result
            }
        }
    }

    /// Runs the step of a write at its durability level, or the bucket's minimum level if that is higher, and counts the
    /// outcome.
    pub(crate) fn write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        op: &DocOp<'_>,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::StepWrite<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.core.dynamic.durability(write.durability);
        self.write_at(ctx, write, durability, op, step)
    }

    /// Runs [`Self::write`] at the given durability level.
    pub(crate) fn write_at<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        durability: Option<Durability>,
        op: &DocOp<'_>,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::StepWrite<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let inner = kedge_vbucket::StepWrite {
            key: write.key,
            cas: write.cas,
            durability,
            new_cas: write.new_cas,
            preserve_ttl: write.preserve_ttl,
            cookie: write.cookie,
            prebuilt: None,
        };
        if durability.is_some() {
            // Counted before the step, because the completion may precede the return of the step.
            self.core.parked.fetch_add(1, Ordering::SeqCst);
        }
        let uncount = || {
            if durability.is_some() {
                self.core.parked.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let result = self
            .core
            .step(ctx.now, write.vb, |vbucket| step(vbucket, &inner));
        let result = match result {
            Ok(Ok(StepOutcome::Done(done))) => Ok(Outcome::Done(done)),
            Ok(Ok(StepOutcome::Parked)) => Ok(Outcome::Parked),
            Ok(Ok(StepOutcome::Fetch)) => {
                uncount();
                let op = pending(ctx, write, durability, op.clone());
                return self.residency.park(ctx, op, WaitFor::Disk);
            }
            Err(Status::NotMyVbucket) if self.residency.pending_state().is_pending(write.vb) => {
                uncount();
                let op = pending(ctx, write, durability, op.clone());
                return self.residency.park(ctx, op, WaitFor::VbucketState);
            }
            Ok(Err(status)) | Err(status) => Err(status),
        };
        if let Some(durability) = durability {
            match &result {
                Ok(Outcome::Parked) => {
                    if durability.level.needs_persistence() {
                        self.queues.on_waiting(write.vb);
                    }
                    self.core.on_parked();
                }
                Ok(Outcome::Done(_)) => {
                    self.core.parked.fetch_sub(1, Ordering::Relaxed);
                    self.core
                        .timings
                        .record_us(ctx.thread, sync_write_timing(durability.level), 0);
                }
                Err(_) => {
                    self.core.parked.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if result.is_ok() {
                self.count(ctx, Counter::SyncWriteAccepted);
            }
        }
        self.count_outcome(ctx, op, write.cas, &result);
        result
    }

    /// Parks a write until memory is available. Its outcome is counted when it completes.
    pub(super) fn park_for_memory<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        bytes: usize,
        op: DocOp<'_>,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.core.dynamic.durability(write.durability);
        let op = pending(ctx, write, durability, op);
        self.residency.park(ctx, op, WaitFor::Memory(bytes))
    }

    /// Counts the outcome of the first run of a command.
    #[inline]
    pub(crate) fn count_outcome<T>(
        &self,
        ctx: Ctx,
        op: &DocOp<'_>,
        cas: Cas,
        result: &Result<T, Status>,
    ) {
        for counter in outcome_counters(op, cas, result.as_ref().err().copied()) {
            self.count(ctx, counter);
        }
    }

    pub(crate) fn admit(&self, ctx: Ctx, payload: usize) -> Result<Admission, Status> {
        let room = self
            .residency
            .admit(payload + ITEM_OVERHEAD_BYTES + SLOT_BYTES);
        if room.is_err() {
            self.count(ctx, Counter::TmpOomErrors);
        }
        room
    }

    pub(crate) fn refuse_on_full_disk(&self) -> Result<(), Status> {
        if self.core.quota.withholds_writes() {
            Err(Status::TemporaryFailure)
        } else {
            Ok(())
        }
    }

    pub(crate) fn count(&self, ctx: Ctx, counter: Counter) {
        self.core.counters.add(ctx.thread, counter, 1);
    }
}

pub(crate) fn pending(
    ctx: Ctx,
    write: &Write<'_>,
    durability: Option<Durability>,
    op: DocOp<'_>,
) -> PendingOp {
    PendingOp {
        vb: write.vb,
        key: *write.key,
        cookie: write.cookie,
        cas: write.cas,
        durability,
        new_cas: write.new_cas,
        preserve_ttl: write.preserve_ttl,
        op: op.into(),
        since_ns: ctx.now.mono_ns,
        memory_bytes: 0,
        attempts: 0,
    }
}
