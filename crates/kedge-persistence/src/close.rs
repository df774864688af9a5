//! The end of persistence: everything is made durable, and marked so.

use crate::commit::Committer;
use crate::persistence::Persistence;
use crate::shutdown_marker::ShutdownMarker;
use crate::truncation::has_work;
use kedge_bucket_core::BucketError;
use kedge_sync::{RankedMutex, ranks::Vbucket};
use kedge_types::limits::SHUTDOWN_APPLY_VBUCKETS;
use kedge_vbucket::VBucket;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Segments that are shorter together are read within a few milliseconds. A start reads them whole, whatever they hold, to
/// tell the end of the log from damage.
const LONG_LOG_BYTES: u64 = 4 << 20;

impl Persistence {
    /// Flushes what waits by now, while there are tasks to help: the first step of an end.
    pub fn flush_before_close(&self) {
        self.writers.flusher.flush_with_tasks();
    }

    /// Stops the work on segments and files that is under way.
    pub fn stop(&self) {
        if let Some(preallocator) = self.shared.log_space.preallocator.get() {
            preallocator.stop();
        }
        if let Some(storage) = self.core.storage.get() {
            storage.stop();
        }
    }

    /// Makes everything durable, and says that the end was clean: unless a vBucket was quarantined, to which what the start
    /// found has not been done yet.
    ///
    /// # Errors
    /// Those of log and files, and [`BucketError::NotApplied`].
    pub fn close(&self, apply: Duration) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.writers.flusher.flush_all()?;
            self.core.storage()?.sync_catalog()?;
            if self.shared.count_quarantined() > 0 {
                return Ok(());
            }
            if self.shared.marker_is_due.load(Ordering::Acquire) {
                // Nothing was written since the start, and the mark is what that found.
                return Ok(());
            }
            return Ok(ShutdownMarker::Clean.write(&*self.core.setup.disk, &self.core.setup.dir)?);
        }
        let Some(committer) = self.writers.log.committer.get() else {
            return Ok(());
        };
        self.writers.log.commit_all(&mut committer.lock())?;
        let now_ns = || self.core.setup.clock.now().mono_ns;
        let deadline_ns = now_ns() + apply.as_nanos() as u64;
        let is_long = committer.lock().log.stats().size_bytes >= LONG_LOG_BYTES;
        let applied = if is_long || self.count_unapplied() <= SHUTDOWN_APPLY_VBUCKETS {
            self.applier.apply_all(|| now_ns() >= deadline_ns)
        } else if self.shared.stuck.count() > 0 {
            Err(BucketError::NotApplied(self.core.name().to_owned()))
        } else {
            Ok(())
        };
        self.core.storage()?.sync_catalog()?;
        if self.shared.count_quarantined() > 0 {
            return applied;
        }
        self.truncate_applied_log(&mut committer.lock())?;
        committer.lock().close()?;
        if let Some(preallocator) = self.shared.log_space.preallocator.get() {
            // So that the next start does not read it.
            preallocator.recycle()?;
        }
        // What stays in the log is as safe there.
        applied
    }

    /// vBuckets of which the log has what their files do not.
    fn count_unapplied(&self) -> usize {
        let is_left = |vbucket: &&RankedMutex<Vbucket, VBucket>| has_work(&vbucket.lock());
        self.core.vbuckets.iter().filter(is_left).count()
    }

    /// If the files have everything, the next start need not read what the log has.
    fn truncate_applied_log(&self, committer: &mut Committer) -> Result<(), BucketError> {
        if committer.log.stats().size_bytes < LONG_LOG_BYTES
            || self.shared.truncation.is_log_needed()
        {
            return Ok(());
        }
        match committer.log.end_segment() {
            // Then it reads it.
            Err(error) if error.is_no_space() => return Ok(()),
            result => result?,
        }
        self.writers.log.truncate_with(committer);
        Ok(())
    }
}
