//! Emptying the bucket.

use crate::bucket::Bucket;
use crate::tasks::BUCKET_FLUSH;
use kedge_bucket_core::Counter;
use kedge_bucket_core::submit_change;
use kedge_bucket_core::{Ctx, new_uuid};
use kedge_types::{Status, VbId};
use kedge_vbucket::VbState;
use std::sync::Arc;

impl Bucket {
    /// Throws all documents away. Every vBucket that was not deleted begins a new history, which is on disk when this returns, and the log
    /// before it is given back.
    ///
    /// # Errors
    /// `NotSupported` unless the bucket allows it; `TemporaryFailure` while loading, or when the log cannot be
    /// written now (memory is empty then, and a restart would bring the documents back).
    pub fn flush_all(&self, ctx: Ctx) -> Result<(), Status> {
        self.may_flush()?;
        self.empty(ctx)
    }

    /// As [`Bucket::flush_all`], by a task; `done` hears of the end.
    ///
    /// # Errors
    /// `NotSupported`, and then `done` hears of nothing.
    pub fn begin_flush_all(
        self: &Arc<Self>,
        ctx: Ctx,
        done: impl FnOnce(Result<(), Status>) + Send + 'static,
    ) -> Result<(), Status> {
        self.may_flush()?;
        let work = move |bucket: &Self| bucket.empty(ctx);
        submit_change(self, &BUCKET_FLUSH, work, done);
        Ok(())
    }

    fn may_flush(&self) -> Result<(), Status> {
        if self.core.config().flush_enabled {
            Ok(())
        } else {
            Err(Status::NotSupported)
        }
    }

    fn empty(&self, ctx: Ctx) -> Result<(), Status> {
        if self.persistence.count_quarantined() > 0 {
            return Err(Status::TemporaryFailure);
        }
        let in_cluster = self.core.setup.topology.is_none();
        for id in 0..self.core.vbucket_count() {
            let documents = self.core.change_vbucket(VbId(id), |vbucket| {
                // A replica goes with its active: what it acknowledged of another node it must keep.
                let follows = in_cluster && vbucket.state() != VbState::Active;
                let stays = vbucket.is_deleted() || follows;
                Ok((!stays).then(|| vbucket.flush(new_uuid())))
            })?;
            drop(documents);
        }
        self.persistence.compactions().wake_paused();
        self.core.counters.add(ctx.thread, Counter::CmdFlush, 1);
        self.persistence.sync().map_err(|error| {
            tracing::error!(bucket = self.core.name(), %error, "the flush is not on disk yet");
            Status::TemporaryFailure
        })
    }
}
