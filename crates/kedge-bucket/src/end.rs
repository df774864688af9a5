//! How a bucket ends.

use crate::bucket::Bucket;
use crate::dropping::finish_drop;
use crate::tasks::BUCKET_DELETION;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::BucketPhase;
use kedge_executor::OwnerId;
use kedge_types::limits::SHUTDOWN_APPLY_MS;
use kedge_vbucket::VBucket;
use std::sync::Arc;
use std::time::Duration;

impl Bucket {
    /// Ends the bucket: what was written is made durable, who still waits is answered, its tasks end. Loading is cut
    /// short. Harmless when called twice. Takes [`SHUTDOWN_APPLY_MS`] longer at most to bring into the vBuckets' files
    /// what the log has, so that the next start need not; that is not worth it for many files and a short log.
    pub fn shutdown(&self) {
        self.shutdown_within(Duration::from_millis(SHUTDOWN_APPLY_MS));
    }

    /// As [`Bucket::shutdown`], with `apply` for what the log has.
    pub fn shutdown_within(&self, apply: Duration) {
        self.end_with(Some(apply));
    }

    /// Why the bucket could not be shut down cleanly; `None` if it was, or has not been shut down yet.
    #[must_use]
    pub fn unclean(&self) -> Option<&str> {
        self.unclean.get().map(String::as_str)
    }

    /// Ends the bucket, without making anything durable if `apply` is `None`.
    fn end_with(&self, apply: Option<Duration>) {
        if apply.is_some() && self.core.phase() == BucketPhase::Open {
            // While there are tasks to help with it.
            self.persistence.flush_before_close();
        }
        let before = self.core.close();
        if before == BucketPhase::Closed {
            return;
        }
        self.persistence.stop();
        self.dcp.end_streams();
        self.core.setup.executor.unregister(self.core.owner, true);
        self.persistence.compactions().cancel_all();
        if before == BucketPhase::Open
            && let Some(apply) = apply
            && let Err(error) = self.persistence.close(apply)
        {
            tracing::error!(bucket = self.core.name(), %error, "the bucket could not be closed cleanly");
            // A bucket ends once.
            let _ = self.unclean.set(error.to_string());
        }
        if before == BucketPhase::Open && apply.is_some_and(|apply| !apply.is_zero()) {
            self.residency.write_access_log();
        }
        self.residency.close();
        self.scans.end_scans();
        self.answer_all();
    }

    fn answer_all(&self) {
        let now = self.core.setup.clock.now();
        for vbucket in &self.core.vbuckets {
            let (_, mut done) = {
                let mut vbucket = vbucket.lock();
                self.core.account(now, &mut vbucket, VBucket::on_shutdown)
            };
            if !done.is_empty() {
                self.core.deliver(now, &mut done);
            }
        }
    }

    /// Ends the bucket and has a task remove its directory, the mark of the drop at last, which belongs to `owner`, as tasks of the bucket's own are
    /// gone by then. Returns when that is done.
    ///
    /// # Errors
    /// What the disk says; a part of the directory may be gone then.
    pub fn destroy(&self, owner: OwnerId) -> Result<(), BucketError> {
        self.end_with(None);
        let (disk, dir) = (
            Arc::clone(&self.core.setup.disk),
            self.core.setup.dir.clone(),
        );
        let remove = move || Ok(finish_drop(&*disk, &dir)?);
        let removed = self
            .core
            .setup
            .executor
            .submit_as(&BUCKET_DELETION, owner, remove);
        // While the executor ends there are no such tasks.
        let here = |_| Ok(finish_drop(&*self.core.setup.disk, &self.core.setup.dir)?);
        removed.wait().unwrap_or_else(here)
    }
}
