//! Emptying the bucket.

use crate::bucket::{Bucket, Ctx, new_uuid};
use crate::counters::Counter;
use crate::tasks::BUCKET_FLUSH;
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
        self.begin_change(&BUCKET_FLUSH, work, done);
        Ok(())
    }

    fn may_flush(&self) -> Result<(), Status> {
        if self.config().flush_enabled {
            Ok(())
        } else {
            Err(Status::NotSupported)
        }
    }

    fn empty(&self, ctx: Ctx) -> Result<(), Status> {
        if self.count_quarantined() > 0 {
            return Err(Status::TemporaryFailure);
        }
        let in_cluster = self.setup.topology.is_none();
        for id in 0..self.vbuckets() {
            let documents = self.change_vbucket(VbId(id), |vbucket| {
                // A replica goes with its active: what it acknowledged of another node it must keep.
                let follows = in_cluster && vbucket.state() != VbState::Active;
                let stays = vbucket.is_deleted() || follows;
                Ok((!stays).then(|| vbucket.flush(new_uuid())))
            })?;
            drop(documents);
        }
        self.wake_compactions();
        self.counters.add(ctx.thread, Counter::CmdFlush, 1);
        self.sync().map_err(|error| {
            tracing::error!(bucket = self.name(), %error, "the flush is not on disk yet");
            Status::TemporaryFailure
        })
    }
}
