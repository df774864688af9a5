//! How a bucket ends.

use crate::bucket::{Bucket, Phase};
use crate::commit::Committer;
use crate::dropping::finish_drop;
use crate::error::BucketError;
use crate::shutdown_marker::ShutdownMarker;
use crate::tasks::BUCKET_DELETION;
use crate::truncation::has_work;
use kedge_executor::OwnerId;
use kedge_types::limits::{SHUTDOWN_APPLY_MS, SHUTDOWN_APPLY_VBUCKETS};
use kedge_vbucket::VBucket;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Segments that are shorter together are read within a few milliseconds. A start reads them whole, whatever they hold, to
/// tell the end of the log from damage.
const LONG_LOG_BYTES: u64 = 4 << 20;

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
        if apply.is_some() && self.phase() == Phase::Open {
            // While there are tasks to help with it.
            self.flush_most();
        }
        let before = self.phase.swap(Phase::Closed as u8, Ordering::AcqRel);
        if before == Phase::Closed as u8 {
            return;
        }
        if let Some(preallocator) = self.preallocator.get() {
            preallocator.stop();
        }
        if let Some(storage) = self.storage.get() {
            storage.stop();
        }
        self.end_streams();
        self.setup.executor.unregister(self.owner, true);
        self.end_compactions();
        if before == Phase::Open as u8
            && let Some(apply) = apply
            && let Err(error) = self.close(apply)
        {
            tracing::error!(bucket = self.name(), %error, "the bucket could not be closed cleanly");
            // A bucket ends once.
            let _ = self.unclean.set(error.to_string());
        }
        if before == Phase::Open as u8 && apply.is_some_and(|apply| !apply.is_zero()) {
            self.write_access_log_at_end();
        }
        self.end_all_pending_state();
        self.end_all_queued_writes();
        self.end_fetches();
        self.end_scans();
        self.answer_all();
    }

    /// Makes everything durable, and says that the end was clean: unless a vBucket was quarantined, to which what the start
    /// found has not been done yet.
    fn close(&self, apply: Duration) -> Result<(), BucketError> {
        if self.is_direct() {
            self.flush_everything()?;
            self.storage()?.sync_catalog()?;
            if self.count_quarantined() > 0 {
                return Ok(());
            }
            if self.marker_is_due.load(Ordering::Acquire) {
                // Nothing was written since the start, and the mark is what that found.
                return Ok(());
            }
            return Ok(ShutdownMarker::Clean.write(&*self.setup.disk, &self.setup.dir)?);
        }
        let Some(committer) = self.committer.get() else {
            return Ok(());
        };
        self.commit_all(&mut committer.lock())?;
        let now_ns = || self.setup.clock.now().mono_ns;
        let deadline_ns = now_ns() + apply.as_nanos() as u64;
        let is_long = committer.lock().log.stats().size_bytes >= LONG_LOG_BYTES;
        let applied = if is_long || self.count_unapplied() <= SHUTDOWN_APPLY_VBUCKETS {
            self.apply_all(|| now_ns() >= deadline_ns)
        } else if self.stuck.count() > 0 {
            Err(BucketError::NotApplied(self.name().to_owned()))
        } else {
            Ok(())
        };
        self.storage()?.sync_catalog()?;
        if self.count_quarantined() > 0 {
            return applied;
        }
        self.release_whole_log(&mut committer.lock())?;
        committer.lock().close()?;
        if let Some(preallocator) = self.preallocator.get() {
            // So that the next start does not read it.
            preallocator.recycle()?;
        }
        // What stays in the log is as safe there.
        applied
    }

    /// vBuckets of which the log has what their files do not.
    fn count_unapplied(&self) -> usize {
        let is_left = |vbucket: &&Mutex<VBucket>| has_work(&vbucket.lock());
        self.vbuckets.iter().filter(is_left).count()
    }

    /// If the files have everything, the next start need not read what the log has.
    fn release_whole_log(&self, committer: &mut Committer) -> Result<(), BucketError> {
        if committer.log.stats().size_bytes < LONG_LOG_BYTES || self.is_log_needed() {
            return Ok(());
        }
        match committer.log.end_segment() {
            // Then it reads it.
            Err(error) if error.is_no_space() => return Ok(()),
            result => result?,
        }
        self.release_log_with(committer);
        Ok(())
    }

    fn answer_all(&self) {
        let now = self.setup.clock.now();
        for vbucket in &self.vbuckets {
            let (_, mut done) = {
                let mut vbucket = vbucket.lock();
                self.account(now, &mut vbucket, VBucket::on_shutdown)
            };
            if !done.is_empty() {
                self.deliver(now, &mut done);
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
        let (disk, dir) = (Arc::clone(&self.setup.disk), self.setup.dir.clone());
        let remove = move || Ok(finish_drop(&*disk, &dir)?);
        let removed = self
            .setup
            .executor
            .submit_as(&BUCKET_DELETION, owner, remove);
        // While the executor ends there are no such tasks.
        let here = |_| Ok(finish_drop(&*self.setup.disk, &self.setup.dir)?);
        removed.wait().unwrap_or_else(here)
    }
}
