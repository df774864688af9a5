//! Synchronous flush of one vBucket, or of all.

use super::FileFlusher;
use super::lists::{Flusher, FlusherShard, Flushers};
use kedge_bucket_core::BucketError;
use kedge_types::VbId;
use std::sync::atomic::Ordering;

impl FileFlusher {
    /// Flushes the changes that are queued now, on this thread and on the writer tasks. Has no effect in a bucket with
    /// a log.
    pub(crate) fn flush_with_tasks(&self) {
        let Some(flushers) = &self.shared.queues.flushers else {
            return;
        };
        flushers.is_closing.store(true, Ordering::SeqCst);
        for lane in 0..flushers.shards.len() {
            self.shared.queues.on_urgent(&self.core, lane);
        }
        for (lane, shard) in flushers.shards.iter().enumerate() {
            let waiting = {
                let mut flusher = shard.flusher.lock();
                flushers.take_requests(shard, &mut flusher);
                flusher.urgent.len() + flusher.queued.len() + flusher.deferred.len()
            };
            // Later changes, and changes that cannot be written, are not waited for.
            for _ in 0..waiting {
                if !self.flush_next(lane).is_ok_and(|wrote| wrote.more) {
                    break;
                }
            }
        }
    }

    /// Flushes all changes of a vBucket, and calls `then` before its flusher continues.
    pub(crate) fn with_flushed<T, E: From<BucketError>>(
        &self,
        vb: VbId,
        then: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(flushers) = &self.shared.queues.flushers else {
            return then();
        };
        let mut flusher = flushers.shards[flushers.shard_of(vb)].flusher.lock();
        flusher.is_draining = true;
        let flushed = loop {
            if self.core.vbuckets[vb.index()].lock().changes().queued() == 0 {
                break Ok(0);
            }
            let result = self.flush_vbucket(flushers, &mut flusher, vb);
            if result.is_err() {
                break result;
            }
        };
        flusher.is_draining = false;
        flushed?;
        then()
    }

    /// Flushes until no changes are left.
    pub(crate) fn flush_all(&self) -> Result<(), BucketError> {
        let Some(flushers) = &self.shared.queues.flushers else {
            return Ok(());
        };
        for shard in &flushers.shards {
            let mut flusher = shard.flusher.lock();
            flusher.is_draining = true;
            let flushed = self.flush_shard(flushers, shard, &mut flusher);
            flusher.is_draining = false;
            flushed?;
        }
        Ok(())
    }

    fn flush_shard(
        &self,
        flushers: &Flushers,
        shard: &FlusherShard,
        flusher: &mut Flusher,
    ) -> Result<(), BucketError> {
        loop {
            flushers.take_requests(shard, flusher);
            for (due_ns, ..) in &mut flusher.deferred {
                *due_ns = 0;
            }
            self.queue_due(flushers, flusher);
            flusher.due = flusher.queued.len();
            let result = if flusher.urgent.is_empty() && flusher.due == 0 {
                return Ok(());
            } else if flusher.due > 0 {
                self.flush_queued(flushers, flusher)
            } else {
                self.flush_urgent(flushers, flusher)
            };
            self.shared.on_commit_result(&result);
            result?;
        }
    }
}
