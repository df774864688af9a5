//! Settling what someone waits for: a vBucket, or all of them.

use super::{Due, Settler, Turn};
use crate::bucket::{Bucket, Phase};
use crate::counters::Total;
use crate::error::BucketError;
use crate::floor::has_work;
use crate::tasks::MAKE_DURABLE;
use kedge_types::VbId;
use parking_lot::MutexGuard;
use std::sync::Arc;

impl Bucket {
    /// Makes durable what the files were found with, so that the log need not be kept for it.
    pub(crate) fn make_durable_behind(self: &Arc<Self>) {
        if !self.floor.is_held() {
            return;
        }
        let bucket = Arc::clone(self);
        let work = move || {
            let storage = bucket.storage()?;
            for index in 0..bucket.vbuckets() {
                if bucket.phase() == Phase::Closed {
                    return Ok(());
                }
                if !bucket.is_set_aside(VbId(index)) {
                    storage.make_durable(VbId(index))?;
                }
            }
            bucket.floor.let_go();
            bucket.release_log();
            Ok::<(), BucketError>(())
        };
        let bucket = Arc::clone(self);
        let noting = move || match work() {
            Ok(()) => {}
            Err(error) if error.is_passing() => {
                tracing::error!(bucket = bucket.name(), %error, "the log is kept, as a file cannot be made durable");
            }
            Err(error) => bucket.fail(&error.to_string()),
        };
        // Refused when the bucket ends; the next start does it.
        drop(
            self.setup
                .executor
                .submit_as(&MAKE_DURABLE, self.owner, noting),
        );
    }

    /// Settles a vBucket now, unless that is under way; then it will come to its end.
    pub(crate) fn settle_vbucket(&self, vb: VbId) {
        if self.is_direct() {
            return;
        }
        // What could not be settled is said, and tried again.
        let _ = self.settle_to_end(&mut self.hold_settler(vb), vb);
    }

    /// Settles all that the log has of a vBucket.
    ///
    /// # Errors
    /// [`BucketError::NotSettled`] when it cannot be written, or the log does not have all of it.
    pub(crate) fn settle_to_end(&self, settler: &mut Settler, vb: VbId) -> Result<(), BucketError> {
        loop {
            let is_begun = |due: &Due| due.vb == vb && due.begun.is_some();
            let begun = settler.queue.iter().position(is_begun);
            if begun.is_none() && !has_work(&self.vbuckets[vb.index()].lock()) {
                return Ok(());
            }
            // What else is in the queue of it finds nothing to do.
            let new = || Due {
                vb,
                since_ns: self.setup.clock.now().mono_ns,
                begun: None,
            };
            let due = begun.and_then(|at| settler.queue.remove(at));
            match self.settle_due(settler, due.unwrap_or_else(new), true) {
                Turn::Settled => {}
                _ => return Err(BucketError::NotSettled(self.name().to_owned())),
            }
        }
    }

    /// The settler of a vBucket: while it is held, nothing of its part of the vBuckets is settled.
    pub(crate) fn hold_settler(&self, vb: VbId) -> MutexGuard<'_, Settler> {
        self.settler_of(vb).hold()
    }

    /// Settles everything, or as much as `enough` lets it. Whoever writes meanwhile makes it take longer.
    ///
    /// # Errors
    /// The first that comes; the other vBuckets are settled all the same.
    pub(crate) fn settle_all(&self, mut enough: impl FnMut() -> bool) -> Result<(), BucketError> {
        let failures = self.totals.get(Total::SettleFailures);
        for shard in &self.settlers {
            let mut settler = shard.hold();
            let mut in_vain = 0;
            loop {
                if enough() {
                    return Ok(());
                }
                match self.settle_next(shard, &mut settler, true) {
                    // A vBucket waits for what was begun of it, too, as long as that takes.
                    Turn::Settled => in_vain = 0,
                    Turn::Nothing(_) => break,
                    Turn::Waits | Turn::InTheWay | Turn::Failed => in_vain += 1,
                }
                if in_vain > settler.queue.len() + shard.new.lock().len() {
                    break;
                }
            }
        }
        if self.totals.get(Total::SettleFailures) > failures {
            return Err(BucketError::NotSettled(self.name().to_owned()));
        }
        Ok(())
    }
}
