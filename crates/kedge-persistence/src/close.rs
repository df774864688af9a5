//! Shutdown of persistence: the final flush, and the clean-shutdown marker.

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

/// The log size below which a start reads the whole log within a few milliseconds. A start reads retained segments
/// completely, even if all their records are applied, to tell the end of the log from damage.
const LONG_LOG_BYTES: u64 = 4 << 20;

impl Persistence {
    /// Flushes the queued changes while the writer tasks can still help. This is the first step of a shutdown.
    pub fn flush_before_close(&self) {
        self.writers.flusher.flush_with_tasks();
    }

    /// Stops the work on log segments and files that is in progress.
    pub fn stop(&self) {
        if let Some(preallocator) = self.shared.log_space.preallocator.get() {
            preallocator.stop();
        }
        if let Some(storage) = self.core.storage.get() {
            storage.stop();
        }
    }

    /// Makes all changes durable and writes the clean-shutdown marker. The marker is omitted while a vBucket is
    /// quarantined, because recovery of that vBucket is not complete.
    ///
    /// The log is applied to the files for at most `apply`.
    ///
    /// # Errors
    /// Errors of the log and of the files, and [`BucketError::NotApplied`].
    pub fn close(&self, apply: Duration) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.writers.flusher.flush_all()?;
            self.core.storage()?.sync_catalog()?;
            if self.shared.count_quarantined() > 0 {
                return Ok(());
            }
            if self.shared.marker_is_due.load(Ordering::Acquire) {
                // Nothing was written since the start, so the marker that the start found is still correct.
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
            Err(BucketError::NotApplied {
                bucket: self.core.name().to_owned(),
                why: None,
            })
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
            // A recycled segment is not read at the next start.
            preallocator.recycle()?;
        }
        // Unapplied records are durable in the log.
        applied
    }

    /// Returns the number of vBuckets with changes that are in the log and not in their files.
    fn count_unapplied(&self) -> usize {
        let is_left = |vbucket: &&RankedMutex<Vbucket, VBucket>| has_work(&vbucket.lock());
        self.core.vbuckets.iter().filter(is_left).count()
    }

    /// Truncates a long log of which every record is applied, so that the next start does not read it.
    fn truncate_applied_log(&self, committer: &mut Committer) -> Result<(), BucketError> {
        if committer.log.stats().size_bytes < LONG_LOG_BYTES
            || self.shared.truncation.is_log_needed()
        {
            return Ok(());
        }
        match committer.log.end_segment() {
            // The next start reads the segment.
            Err(error) if error.is_no_space() => return Ok(()),
            result => result?,
        }
        self.writers.log.truncate_with(committer);
        Ok(())
    }
}
