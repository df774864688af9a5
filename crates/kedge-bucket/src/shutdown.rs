//! Shutdown and destruction of a bucket.

use crate::bucket::Bucket;
use crate::dropping::finish_drop;
use crate::tasks::BUCKET_DELETION;
use kedge_bucket_core::{BucketError, BucketPhase};
use kedge_executor::OwnerId;
use kedge_types::limits::SHUTDOWN_APPLY_MS;
use kedge_vbucket::VBucket;
use std::sync::Arc;
use std::time::Duration;

impl Bucket {
    /// Shuts the bucket down: makes all writes durable, completes parked commands, and ends the tasks. It interrupts loading.
    /// A second call has no effect. For up to [`SHUTDOWN_APPLY_MS`], the log is applied to the vBuckets' files, which makes
    /// the next start faster; this is skipped for many files and a short log.
    pub fn shutdown(&self) {
        self.shutdown_within(Duration::from_millis(SHUTDOWN_APPLY_MS));
    }

    /// As [`Bucket::shutdown`], with `apply` as the time limit for applying the log.
    pub fn shutdown_within(&self, apply: Duration) {
        self.shut_down(Some(apply));
    }

    /// Returns the reason why the shutdown was not clean; `None` if it was clean or has not happened yet.
    #[must_use]
    pub fn unclean(&self) -> Option<&str> {
        self.unclean.get().map(String::as_str)
    }

    /// Shuts the bucket down. Nothing is made durable if `apply` is `None`.
    fn shut_down(&self, apply: Option<Duration>) {
        if apply.is_some() && self.core.phase() == BucketPhase::Open {
            // The tasks of the bucket take part in this, so it precedes their end.
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
            // A bucket is closed once, so the reason is not set yet.
            let _ = self.unclean.set(error.to_string());
        }
        if before == BucketPhase::Open && apply.is_some_and(|apply| !apply.is_zero()) {
            self.residency.write_access_log();
        }
        self.residency.close();
        self.scans.close_all();
        self.complete_parked();
    }

    fn complete_parked(&self) {
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

    /// Closes the bucket and removes its directory, the drop marker last. A task of `owner` removes it, because the bucket's
    /// own tasks have ended by then. Returns after the removal.
    ///
    /// # Errors
    /// Errors of the disk. A part of the directory may have been removed then.
    pub fn destroy(&self, owner: OwnerId) -> Result<(), BucketError> {
        self.shut_down(None);
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
        // An executor that is shutting down accepts no tasks.
        let here = |_| Ok(finish_drop(&*self.core.setup.disk, &self.core.setup.dir)?);
        removed.wait().unwrap_or_else(here)
    }
}
