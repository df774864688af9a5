//! The flush of a bucket, which removes all documents.

use crate::bucket::Bucket;
use crate::tasks::BUCKET_FLUSH;
use kedge_bucket_core::{Counter, Ctx, RequiredRole, new_uuid, submit_change};
use kedge_types::{Status, VbId};
use kedge_vbucket::VbState;
use std::sync::Arc;

impl Bucket {
    /// Removes all documents. Every vBucket that was not deleted begins a new history. That is durable when the function
    /// returns, and the earlier log can be recycled.
    ///
    /// # Errors
    /// `NotSupported` if the bucket does not allow flushes; `NotMyVbucket` if the time of the node's lease is over;
    /// `TemporaryFailure` while loading, or if the log cannot be written.
    /// In the latter case memory is empty, and a restart would restore the documents.
    pub fn flush_all(&self, ctx: Ctx) -> Result<(), Status> {
        self.check_flush_enabled()?;
        self.flush_vbuckets(ctx)
    }

    /// Runs [`Bucket::flush_all`] in a task, which calls `done` with the result.
    ///
    /// # Errors
    /// `NotSupported`. `done` is not called then.
    pub fn begin_flush_all(
        self: &Arc<Self>,
        ctx: Ctx,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) -> Result<(), Status> {
        self.check_flush_enabled()?;
        let work = move |bucket: &Self| bucket.flush_vbuckets(ctx);
        submit_change(self, &BUCKET_FLUSH, work, done);
        Ok(())
    }

    fn check_flush_enabled(&self) -> Result<(), Status> {
        if self.core.config().flush_enabled {
            Ok(())
        } else {
            Err(Status::NotSupported)
        }
    }

    fn flush_vbuckets(&self, ctx: Ctx) -> Result<(), Status> {
        if self.persistence.count_quarantined() > 0 {
            return Err(Status::TemporaryFailure);
        }
        let in_cluster = self.core.setup.topology.is_none();
        for id in 0..self.core.vbucket_count() {
            let documents = self.core.change_vbucket(VbId(id), |vbucket| {
                // A replica is flushed by its active. Until then it must keep the changes that it has acknowledged.
                let now = self.core.setup.clock.now();
                self.core.check_served(now, vbucket, RequiredRole::Active)?;
                let is_passive = in_cluster && vbucket.state() != VbState::Active;
                let is_kept = vbucket.is_deleted() || is_passive;
                Ok((!is_kept).then(|| vbucket.flush(new_uuid())))
            })?;
            drop(documents);
        }
        self.persistence.compactions().wake_paused();
        self.core.counters.add(ctx.thread, Counter::CmdFlush, 1);
        self.persistence.sync().map_err(|error| {
            tracing::error!(bucket = self.core.name(), %error, "the flush of the bucket could not be made durable");
            Status::TemporaryFailure
        })
    }
}
