//! Commands on a pending vBucket: they wait until it is active, and then go on, or is something else.
//!
//! Such a command has changed nothing. It is kept as a [`Pending`], as a command is that waits for the disk, and its step
//! runs when the vBucket answers: the client's command is not executed anew.
//!
//! Invariants:
//! * Commands wait for a vBucket only while it is pending: that is looked at, and they are put there, under the vBucket's
//!   lock; whoever changes its state takes them afterwards.
//! * Each ends once, in the order in which they came. Once closed, nothing waits any more.

use crate::bucket::Bucket;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Read;
use kedge_bucket_core::{Ctx, Phase};
use kedge_residency::{AdmissionLimiter, Op, PendingOp};
use kedge_sync::{RankedMutex, ranks::PendingState};
use kedge_types::{Status, VbId};
use kedge_vbucket::VbState;
use std::collections::HashMap;

/// The commands that wait for a vBucket to become active.
#[derive(Debug, Default)]
pub(crate) struct PendingStateQueue {
    queue: RankedMutex<PendingState, Queue>,
    limiter: AdmissionLimiter,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: HashMap<VbId, Vec<PendingOp>>,
    closed: bool,
}

impl Bucket {
    /// Whether a vBucket is about to become active.
    pub(crate) fn is_pending(&self, vb: VbId) -> bool {
        let vbucket = self.core.vbuckets.get(vb.index());
        vbucket.is_some_and(|vbucket| vbucket.lock().state() == VbState::Pending)
    }

    /// Commands that wait for a vBucket to become active.
    pub(crate) fn waiting_for_active(&self) -> usize {
        self.signals.pending_state.limiter.waiting()
    }

    /// A command that needs an active vBucket was refused with `status`: it waits if that is only for now.
    pub(crate) fn or_await<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: impl Into<Op>,
        status: Status,
    ) -> Result<Outcome<R>, Status> {
        if status != Status::NotMyVbucket || !self.is_pending(wanted.vb) {
            return Err(status);
        }
        let pending = PendingOp::read(ctx, wanted, op);
        self.await_active(wanted.vb, pending)
    }

    /// A command waits for its vBucket to become active.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, the bucket ends, or the vBucket is not pending any more.
    pub(crate) fn await_active<R>(
        &self,
        vb: VbId,
        pending: PendingOp,
    ) -> Result<Outcome<R>, Status> {
        let limiter = &self.signals.pending_state.limiter;
        limiter.admit(&pending, self.core.quota.limit())?;
        let vbucket = self.core.vbuckets[vb.index()].lock();
        let mut queue = self.signals.pending_state.queue.lock();
        if queue.closed || vbucket.state() != VbState::Pending || self.core.phase() != Phase::Open {
            limiter.end(&pending);
            return Err(Status::TemporaryFailure);
        }
        queue.waiting.entry(vb).or_default().push(pending);
        Ok(Outcome::Parked)
    }

    /// A vBucket may have another state: whoever waited for it goes on, or is told that it has moved.
    pub(crate) fn on_vbucket_state(&self, vb: VbId) {
        if self.signals.pending_state.limiter.waiting() == 0 {
            return;
        }
        let vbucket = self.core.vbuckets[vb.index()].lock();
        let state = vbucket.state();
        if state == VbState::Pending {
            return;
        }
        let waiting = self.signals.pending_state.queue.lock().waiting.remove(&vb);
        drop(vbucket);
        let mut refused = Vec::new();
        for pending in waiting.into_iter().flatten() {
            self.signals.pending_state.limiter.end(&pending);
            let failed = |status| (pending.cookie, pending.op.failed(status));
            if state != VbState::Active {
                refused.push(failed(Status::NotMyVbucket));
                continue;
            }
            let too_many = failed(Status::TemporaryFailure);
            // The step runs where it does for those that wait for the disk.
            if self.residency.park_for_fetch::<()>(vb, pending).is_err() {
                refused.push(too_many);
            }
        }
        if !refused.is_empty() {
            self.core.setup.completions.complete(&mut refused);
        }
    }

    /// The bucket ends: who still waits is told.
    pub(crate) fn end_all_pending_state(&self) {
        let mut queue = self.signals.pending_state.queue.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        let mut completions = Vec::new();
        for pending in waiting.into_values().flatten() {
            self.signals.pending_state.limiter.end(&pending);
            completions.push((pending.cookie, pending.op.failed(Status::TemporaryFailure)));
        }
        if !completions.is_empty() {
            self.core.setup.completions.complete(&mut completions);
        }
    }
}
