//! Applying what someone waits for: a vBucket, or all of them.

use super::{Applier, ApplyOutcome, LogApplier, QueuedApply};
use crate::truncation::has_work;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::Total;
use kedge_sync::{RankedMutexGuard, ranks::LogApplier as LogApplierRank};
use kedge_types::VbId;

impl LogApplier {
    /// Applies a vBucket now, unless that is under way; then it will come to its end.
    pub fn apply_vbucket(&self, vb: VbId) {
        if self.core.is_direct() {
            return;
        }
        // What could not be applied is said, and tried again.
        let _ = self.apply_to_end(&mut self.hold_applier(vb), vb);
    }

    /// Applies all that the log has of a vBucket.
    ///
    /// # Errors
    /// [`BucketError::NotApplied`] when it cannot be written, or the log does not have all of it.
    pub(crate) fn apply_to_end(&self, applier: &mut Applier, vb: VbId) -> Result<(), BucketError> {
        loop {
            let is_partial = |due: &QueuedApply| due.vb == vb && due.partial.is_some();
            let partial = applier.queue.iter().position(is_partial);
            if partial.is_none() && !has_work(&self.core.vbuckets[vb.index()].lock()) {
                return Ok(());
            }
            // What else is in the queue of it finds nothing to do.
            let new = || QueuedApply {
                vb,
                since_ns: self.core.setup.clock.now().mono_ns,
                partial: None,
            };
            let due = partial.and_then(|at| applier.queue.remove(at));
            match self.apply_queued(applier, due.unwrap_or_else(new), true) {
                ApplyOutcome::Applied => {}
                _ => return Err(BucketError::NotApplied(self.core.name().to_owned())),
            }
        }
    }

    /// The applier of a vBucket: while it is held, nothing of its part of the vBuckets is applied.
    pub(crate) fn hold_applier(&self, vb: VbId) -> RankedMutexGuard<'_, LogApplierRank, Applier> {
        self.hold(vb.index() % self.appliers.len())
    }

    /// Locks an applier, whose task does not rest meanwhile.
    fn hold(&self, index: usize) -> RankedMutexGuard<'_, LogApplierRank, Applier> {
        let queue = &self.shared.apply_queues.shards[index];
        queue.without_pauses(|| self.appliers[index].lock())
    }

    /// Applies everything, or as much as `enough` lets it. Whoever writes meanwhile makes it take longer.
    ///
    /// # Errors
    /// The first that comes; the other vBuckets are applied all the same.
    pub(crate) fn apply_all(&self, mut enough: impl FnMut() -> bool) -> Result<(), BucketError> {
        let failures = self.core.totals.get(Total::ApplyFailures);
        for (index, shard) in self.shared.apply_queues.shards.iter().enumerate() {
            let mut applier = self.hold(index);
            let mut failed_attempts = 0;
            loop {
                if enough() {
                    return Ok(());
                }
                match self.apply_next(shard, &mut applier, true) {
                    // A vBucket waits for what was partial of it, too, as long as that takes.
                    ApplyOutcome::Applied => failed_attempts = 0,
                    ApplyOutcome::Idle(_) => break,
                    ApplyOutcome::NotReady | ApplyOutcome::FileBusy | ApplyOutcome::Failed => {
                        failed_attempts += 1
                    }
                }
                if failed_attempts > applier.queue.len() + shard.incoming.lock().len() {
                    break;
                }
            }
        }
        if self.core.totals.get(Total::ApplyFailures) > failures {
            return Err(BucketError::NotApplied(self.core.name().to_owned()));
        }
        Ok(())
    }
}
