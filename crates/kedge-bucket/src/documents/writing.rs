//! What all writes do, whatever they write.

use crate::bucket::{Bucket, Write};
use kedge_bucket_core::Counter;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::{Ctx, sync_write_timing};
use kedge_residency::Admission;
use kedge_residency::{Op, PendingOp};
use kedge_types::{Durability, Status};
use kedge_vbucket::{
    ITEM_OVERHEAD_BYTES, ItemMeta, Mutated, Outcome as StepOutcome, SLOT_BYTES, VBucket,
};
use std::sync::atomic::Ordering;

/// What is counted when a write finds its document, and when it does not.
pub(super) type Hits = (Counter, Counter);

/// What is told of a write that was done.
pub(crate) trait Told {
    /// What every client is told.
    fn mutated(&self) -> Mutated;
}

impl Told for Mutated {
    fn mutated(&self) -> Mutated {
        *self
    }
}

impl Told for (Mutated, ItemMeta) {
    fn mutated(&self) -> Mutated {
        self.0
    }
}

impl Bucket {
    /// A write that succeeded is answered when it is on disk, if the disk is behind: so clients go no faster than it.
    pub(crate) fn hold_back_if_behind<R: Told>(
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
                .hold_back(write.key, mutated, write.cookie)
        });
        match outcome {
            Ok(StepOutcome::Parked) => {
                self.count(ctx, Counter::Backpressured);
                self.signals.queues.on_waiting(write.vb);
                self.core.on_parked();
                Ok(Outcome::Parked)
            }
            // It is on disk already, or the bucket ends: the write was done in any case.
            _ => {
                self.core.parked.fetch_sub(1, Ordering::Relaxed);
                result
            }
        }
    }

    /// What all writes do: raise the level to the bucket's minimum, run the step, count.
    pub(crate) fn write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        hits: Option<Hits>,
        op: impl FnOnce() -> Op,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::Write<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.core.dynamic.durability(write.durability);
        self.write_at(ctx, write, durability, hits, op, step)
    }

    /// [`Self::write`] at the level given.
    pub(crate) fn write_at<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        durability: Option<Durability>,
        hits: Option<Hits>,
        op: impl FnOnce() -> Op,
        step: impl FnOnce(&mut VBucket, &kedge_vbucket::Write<'_>) -> Result<StepOutcome<R>, Status>,
    ) -> Result<Outcome<R>, Status> {
        let inner = kedge_vbucket::Write {
            key: write.key,
            cas: write.cas,
            durability,
            new_cas: write.new_cas,
            preserve_ttl: write.preserve_ttl,
            cookie: write.cookie,
            ahead: None,
        };
        if durability.is_some() {
            // Counted before the step: the completion may come before this thread goes on.
            self.core.parked.fetch_add(1, Ordering::SeqCst);
        }
        let not_now = || {
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
                not_now();
                return self.fetch_for_write(ctx, write, durability, op());
            }
            Err(Status::NotMyVbucket) if self.is_pending(write.vb) => {
                not_now();
                return self.await_active(write.vb, pending(ctx, write, durability, op()));
            }
            Ok(Err(status)) | Err(status) => Err(status),
        };
        if let Some(durability) = durability {
            match &result {
                Ok(Outcome::Parked) => {
                    if durability.level.needs_persistence() {
                        self.signals.queues.on_waiting(write.vb);
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
        self.count_hit(ctx, &result, hits);
        self.count_error(ctx, result.as_ref().err());
        if !write.cas.is_none() {
            match &result {
                Ok(_) => self.count(ctx, Counter::CasHits),
                Err(Status::KeyNotFound) => self.count(ctx, Counter::CasMisses),
                Err(Status::KeyExists) => self.count(ctx, Counter::CasBadval),
                Err(_) => {}
            }
        }
        result
    }

    /// A write whose step says that the disk is needed: it is parked. What becomes of it is counted then.
    fn fetch_for_write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        durability: Option<Durability>,
        op: Op,
    ) -> Result<Outcome<R>, Status> {
        self.residency
            .park_for_fetch(write.vb, pending(ctx, write, durability, op))
    }

    /// A write for which memory has no room: it is parked. What becomes of it is counted when it is done.
    pub(super) fn hold_write<R>(
        &self,
        ctx: Ctx,
        write: &Write<'_>,
        bytes: usize,
        op: Op,
    ) -> Result<Outcome<R>, Status> {
        let durability = self.core.dynamic.durability(write.durability);
        self.residency
            .hold(ctx, write.vb, bytes, pending(ctx, write, durability, op))
    }

    pub(crate) fn admit(&self, ctx: Ctx, payload: usize) -> Result<Admission, Status> {
        let room = self
            .residency
            .room_for(payload + ITEM_OVERHEAD_BYTES + SLOT_BYTES);
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

    fn count_hit<T>(&self, ctx: Ctx, result: &Result<T, Status>, hits: Option<Hits>) {
        let Some((hit, miss)) = hits else {
            return;
        };
        match result {
            Ok(_) => self.count(ctx, hit),
            Err(Status::KeyNotFound) => self.count(ctx, miss),
            Err(_) => {}
        }
    }

    pub(super) fn count_error(&self, ctx: Ctx, error: Option<&Status>) {
        if error == Some(&Status::Locked) {
            self.count(ctx, Counter::LockErrors);
        }
    }
}

pub(crate) fn pending(
    ctx: Ctx,
    write: &Write<'_>,
    durability: Option<Durability>,
    op: Op,
) -> PendingOp {
    PendingOp {
        key: *write.key,
        cookie: write.cookie,
        cas: write.cas,
        durability,
        new_cas: write.new_cas,
        preserve_ttl: write.preserve_ttl,
        op,
        since_ns: ctx.now.mono_ns,
        attempts: 0,
    }
}
