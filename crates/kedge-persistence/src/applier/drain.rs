//! Synchronous application of the log for one vBucket, or for all.

use super::{Applier, ApplyOutcome, LogApplier, QueuedApply};
use crate::truncation::has_work;
use kedge_bucket_core::{BucketError, Total};
use kedge_sync::{RankedMutexGuard, ranks::LogApplier as LogApplierRank};
use kedge_types::VbId;

impl LogApplier {
    /// Applies a vBucket now. If its applier is busy, waits for it first.
    pub fn apply_vbucket(&self, vb: VbId) {
        if self.core.is_direct() {
            return;
        }
        // A failure is logged and retried by the task.
        let _ = self.apply_to_end(&mut self.hold_applier(vb), vb);
    }

    /// Applies all changes of a vBucket.
    ///
    /// # Errors
    /// [`BucketError::NotApplied`] if they cannot be written, or the log does not have all of them.
    pub(crate) fn apply_to_end(&self, applier: &mut Applier, vb: VbId) -> Result<(), BucketError> {
        loop {
            let is_partial = |due: &QueuedApply| due.vb == vb && due.partial.is_some();
            let partial = applier.queue.iter().position(is_partial);
            if partial.is_none() && !has_work(&self.core.vbuckets[vb.index()].lock()) {
                return Ok(());
            }
            // Another entry of the vBucket in the queue will find no changes.
            let new = || QueuedApply {
                vb,
                since_ns: self.core.setup.clock.now().mono_ns,
                partial: None,
            };
            let due = partial.and_then(|at| applier.queue.remove(at));
            match self.apply_queued(applier, due.unwrap_or_else(new), true) {
                ApplyOutcome::Applied => {}
                ApplyOutcome::Failed => return Err(self.not_applied(applier.last_error.take())),
                _ => return Err(self.not_applied(None)),
            }
        }
    }

    /// Locks the applier of a vBucket. While the lock is held, no vBucket of the same shard is applied.
    pub(crate) fn hold_applier(&self, vb: VbId) -> RankedMutexGuard<'_, LogApplierRank, Applier> {
        self.hold(vb.index() % self.appliers.len())
    }

    /// Locks an applier, whose task makes no pauses meanwhile.
    fn hold(&self, index: usize) -> RankedMutexGuard<'_, LogApplierRank, Applier> {
        let queue = &self.shared.apply_queues.shards[index];
        queue.without_pauses(|| self.appliers[index].lock())
    }

    /// Applies all changes, or stops when `should_stop` returns true. Concurrent writes prolong it.
    ///
    /// # Errors
    /// [`BucketError::NotApplied`] if a vBucket could not be applied. The others are applied.
    pub(crate) fn apply_all(
        &self,
        mut should_stop: impl FnMut() -> bool,
    ) -> Result<(), BucketError> {
        let failures = self.core.totals.get(Total::ApplyFailures);
        let mut first_error = None;
        for (index, shard) in self.shared.apply_queues.shards.iter().enumerate() {
            let mut applier = self.hold(index);
            let mut failed_attempts = 0;
            loop {
                if should_stop() {
                    return Ok(());
                }
                match self.apply_next(shard, &mut applier, true) {
                    // A vBucket with a partially written batch is waited for, however long that takes.
                    ApplyOutcome::Applied => failed_attempts = 0,
                    ApplyOutcome::Idle(_) => break,
                    ApplyOutcome::Failed => {
                        failed_attempts += 1;
                        first_error = first_error.or_else(|| applier.last_error.take());
                    }
                    ApplyOutcome::NotReady | ApplyOutcome::FileBusy => failed_attempts += 1,
                }
                if failed_attempts > applier.queue.len() + shard.incoming.lock().len() {
                    break;
                }
            }
        }
        if self.core.totals.get(Total::ApplyFailures) > failures {
            return Err(self.not_applied(first_error));
        }
        Ok(())
    }

    fn not_applied(&self, why: Option<String>) -> BucketError {
        BucketError::NotApplied {
            bucket: self.core.name().to_owned(),
            why,
        }
    }
}
