//! The resumption of parked operations: their steps run again.

use super::{Op, PendingOp};
use kedge_bucket_core::{BucketCore, BucketPhase, Counter, DiskWriters, sync_write_timing};
use kedge_types::{Now, Status, VbId};
use kedge_vbucket::{CompletedCommand, Completion, Cookie, StepOutcome, VBucket};
use std::sync::atomic::Ordering;

/// The results of operations that were resumed.
#[derive(Debug, Default)]
pub(crate) struct Resumption {
    completions: Vec<(Cookie, Completion)>,
    /// SyncWrites of the vBucket are parked now.
    parked: bool,
    /// One of these waits for the disk.
    needs_disk: bool,
}

/// Checks that an operation may be resumed at `now` in a vBucket, which the caller has locked.
///
/// # Errors
/// `NotMyVbucket`; `TemporaryFailure` unless the bucket is open, or while the vBucket is rolled back.
pub(crate) fn may_resume(
    core: &BucketCore,
    now: Now,
    vbucket: &VBucket,
    op: &Op,
) -> Result<(), Status> {
    if core.phase() != BucketPhase::Open || vbucket.store().is_rewinding() {
        return Err(Status::TemporaryFailure);
    }
    if !op.role().is_of(vbucket) {
        return Err(Status::NotMyVbucket);
    }
    core.check_served(now, vbucket, op.role())
}

impl Resumption {
    /// Runs the step of an operation, which may be resumed. Returns whether that was its end, or it is parked in its
    /// vBucket; otherwise it needs its document.
    pub(crate) fn run(
        &mut self,
        core: &BucketCore,
        vbucket: &mut VBucket,
        now: Now,
        op: &PendingOp,
    ) -> bool {
        match run_step(core, vbucket, now, op) {
            StepOutcome::Done(completion) => self.complete(core, op, completion),
            StepOutcome::Parked => {
                self.parked = true;
                self.needs_disk |= op.needs_disk();
            }
            StepOutcome::Fetch => return false,
        }
        true
    }

    /// Adds the completion of an operation, and counts its outcome.
    pub(crate) fn complete(&mut self, core: &BucketCore, op: &PendingOp, completion: Completion) {
        op.count_outcome(core, &completion);
        self.add(op.cookie, completion);
    }

    /// Adds a completion that no counter counts.
    pub(crate) fn add(&mut self, cookie: Cookie, completion: Completion) {
        self.completions.push((cookie, completion));
    }

    /// Adds the completion of an operation that failed.
    pub(crate) fn fail(&mut self, core: &BucketCore, op: &PendingOp, status: Status) {
        self.complete(core, op, op.op.failed(status));
    }

    /// Sees to the SyncWrites that steps of a vBucket parked or completed. The vBucket is not locked any more.
    pub(crate) fn after_steps(
        &mut self,
        core: &BucketCore,
        writers: &dyn DiskWriters,
        vb: VbId,
        now: Now,
        mut done: Vec<CompletedCommand>,
    ) {
        core.after_step();
        if std::mem::take(&mut self.parked) {
            if std::mem::take(&mut self.needs_disk) {
                writers.on_waiting(vb);
            }
            core.on_parked();
            writers.request_flush(core);
        }
        if !done.is_empty() {
            core.deliver(now, &mut done);
        }
    }

    /// Hands the completions over.
    pub(crate) fn hand_over(mut self, core: &BucketCore) {
        if !self.completions.is_empty() {
            core.setup.completions.complete(&mut self.completions);
        }
    }
}

fn run_step(
    core: &BucketCore,
    vbucket: &mut VBucket,
    now: Now,
    op: &PendingOp,
) -> StepOutcome<Completion> {
    let Some(durability) = op.durability else {
        return op.run(vbucket, now);
    };
    // Counted before the step, as for any SyncWrite.
    core.parked.fetch_add(1, Ordering::SeqCst);
    let outcome = op.run(vbucket, now);
    if !matches!(outcome, StepOutcome::Parked) {
        core.parked.fetch_sub(1, Ordering::Relaxed);
    }
    let accepted = match &outcome {
        StepOutcome::Parked => true,
        StepOutcome::Done(Completion::SyncWrite { result, .. }) => result.is_ok(),
        StepOutcome::Done(Completion::Counter { result }) => result.is_ok(),
        _ => false,
    };
    if accepted {
        core.counters.add_shared(Counter::SyncWriteAccepted, 1);
        if matches!(outcome, StepOutcome::Done(_)) {
            let timing = sync_write_timing(durability.level);
            core.timings.record_us(u16::MAX, timing, 0);
        }
    }
    outcome
}
