//! The compaction of one file: its hooks, and the handling of its result.
//!
//! Invariants:
//! * The lock of a vBucket is never held over I/O or during a pause of a compaction.
//! * A pause ends immediately when its reason is gone, or when a thread waits for the end of the compaction. The thread
//!   that causes this calls [`Compactions::wake_paused`] afterwards.

use super::Compactions;
use super::queue::{CancelFlag, PurgeOptions};
use kedge_bucket_core::{BucketPhase, Timing, Total};
use kedge_storage::{
    CompactHooks, CompactRequest, CompactionResult, ExpiredDocument, Storage, StorageError,
};
use kedge_types::{DocKey, VbId};
use kedge_vbucket::VbState;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of expired documents that are deleted at once, under the vBucket's lock.
const EXPIRY_CHUNK: usize = 64;

/// The number of written bytes after which a throttled compaction syncs its file.
const SYNC_INTERVAL_BYTES: u64 = 128 << 10;

/// The outcome of a compaction.
#[derive(Debug)]
pub(super) enum CompactionOutcome {
    Compacted {
        done: CompactionResult,
        /// The number of expired documents that were deleted.
        expired: u64,
    },
    NoFile,
    /// The compaction was cancelled, or the bucket is closing.
    Cancelled,
    /// Another operation needs the file, or has changed it.
    Preempted,
    Failed(StorageError),
}

/// The hooks that storage calls during a compaction.
struct FileCompactionHooks<'a> {
    compactions: &'a Compactions,
    storage: &'a Storage,
    vb: VbId,
    cancel: &'a CancelFlag,
    is_throttled: bool,
    /// The history of the vBucket at the start of the compaction.
    history: u32,
    /// The stored keys of expired documents.
    expired_keys: Vec<Box<[u8]>>,
    expired: u64,
    bytes: u64,
}

impl FileCompactionHooks<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.compactions.core.phase() != BucketPhase::Open
    }

    /// Returns whether the vBucket was reset or rolled back meanwhile, so that the file is void.
    fn is_void(&self) -> bool {
        let vbucket = self.compactions.core.vbuckets[self.vb.index()].lock();
        vbucket.store().file_history() != Some(self.history)
    }

    /// Pauses as long as the throttle demands before the next `bytes` bytes.
    fn pause(&self, bytes: u64) {
        let throttle = &self.compactions.shared.compaction_throttle;
        let now_ns = || self.compactions.core.setup.clock.now().mono_ns;
        let changes = throttle.changes();
        let until_ns = now_ns().saturating_add(throttle.on_bytes(bytes, now_ns()));
        let left = || Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        let may_pause = || throttle.changes() == changes && !self.is_cancelled() && !self.is_void();
        while self.storage.pause(self.vb, left(), may_pause) {}
    }

    fn delete_expired(&mut self) {
        let expired_keys = std::mem::take(&mut self.expired_keys);
        for keys in expired_keys.chunks(EXPIRY_CHUNK) {
            if self.is_cancelled() {
                return;
            }
            self.expired += self
                .compactions
                .expire(self.storage, self.vb, self.history, keys);
        }
    }
}

impl CompactHooks for FileCompactionHooks<'_> {
    fn expired(&mut self, document: &ExpiredDocument<'_>) {
        self.expired_keys.push(document.key.into());
    }

    fn bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.compactions
            .core
            .totals
            .add(Total::CompactionBytes, bytes);
        if !self.expired_keys.is_empty() {
            self.delete_expired();
        }
        if self.is_throttled {
            self.pause(bytes);
        }
    }

    fn stop(&mut self) -> bool {
        self.is_cancelled() || self.is_void()
    }

    fn now_ns(&mut self) -> u64 {
        self.compactions.core.setup.clock.now().mono_ns
    }
}

impl Compactions {
    /// Ends the pauses of compactions, each of which then checks whether to continue.
    pub fn wake_paused(&self) {
        if let Some(storage) = self.core.storage.get() {
            storage.wake_paused();
        }
    }

    /// Compacts the file of a vBucket on this thread.
    pub(super) fn compact_file(
        &self,
        vb: VbId,
        purge: &PurgeOptions,
        cancel: &CancelFlag,
        is_throttled: bool,
    ) -> CompactionOutcome {
        if cancel.load(Ordering::Relaxed) || self.core.phase() != BucketPhase::Open {
            return CompactionOutcome::Cancelled;
        }
        let Ok(storage) = self.core.storage() else {
            return CompactionOutcome::Cancelled;
        };
        let _unthrottled =
            (!is_throttled).then(|| self.shared.compaction_throttle.begin_unthrottled());
        let before = self.core.setup.clock.now();
        let now_secs = u32::try_from(before.unix_secs()).unwrap_or(u32::MAX);
        let purge_age_limit = now_secs.saturating_sub(self.core.config().compaction.purge_age_secs);
        let request = CompactRequest {
            purge_before_unix_secs: purge_age_limit.max(purge.purge_before_secs.unwrap_or(0)),
            purge_before_seqno: purge.purge_before_seqno,
            drop_deletes: purge.drop_deletes,
            now_unix_secs: now_secs,
            sync_each_bytes: (is_throttled && self.shared.compaction_throttle.is_on())
                .then_some(SYNC_INTERVAL_BYTES),
        };
        // The file of an earlier history is about to be replaced, so its contents and its purge seqno are obsolete.
        let Some(history) = self.current_file_history(vb) else {
            return CompactionOutcome::Preempted;
        };
        let mut hooks = FileCompactionHooks {
            compactions: self,
            storage,
            vb,
            cancel,
            is_throttled,
            history,
            expired_keys: Vec::new(),
            expired: 0,
            bytes: 0,
        };
        let mut result = storage.compact(vb, &request, &mut hooks);
        if result.as_ref().is_err_and(StorageError::is_no_space) && self.free_disk_space() > 0 {
            result = storage.compact(vb, &request, &mut hooks);
        }
        // Expired documents are deleted even if the compaction fails.
        hooks.delete_expired();
        let (is_cancelled, expired) = (hooks.is_cancelled(), hooks.expired);
        self.core.totals.add(Total::ExpiredByCompaction, expired);
        match result {
            Ok(Some(done)) => {
                self.on_compacted(vb, history, &done, before.mono_ns);
                CompactionOutcome::Compacted { done, expired }
            }
            Ok(None) => CompactionOutcome::NoFile,
            Err(error) if error.is_stopped() && is_cancelled => CompactionOutcome::Cancelled,
            Err(error) if error.is_stopped() => CompactionOutcome::Preempted,
            Err(StorageError::Busy { .. }) => CompactionOutcome::Preempted,
            Err(error) => CompactionOutcome::Failed(error),
        }
    }

    /// Returns the history of the vBucket's file. A file that a flush of the bucket has made void is replaced first, if
    /// possible.
    fn current_file_history(&self, vb: VbId) -> Option<u32> {
        let is_void = self.core.vbuckets[vb.index()].lock().store().is_file_void();
        if is_void {
            self.applier.apply_vbucket(vb);
        }
        self.core.vbuckets[vb.index()].lock().store().file_history()
    }

    /// Frees disk space for a compaction that found the disk full: spare log segments first, then the compaction
    /// reserve. Returns the number of freed bytes.
    fn free_disk_space(&self) -> u64 {
        let freed = match self.shared.log_space.free_spare_segments() {
            0 => self.reserve.free(&self.core),
            bytes => bytes,
        };
        if !self.core.quota.disk_full() {
            // Free space is polled only while the disk is marked as full.
            self.shared.log_space.on_disk_space_available();
        }
        freed
    }

    fn on_compacted(&self, vb: VbId, history: u32, done: &CompactionResult, began_ns: u64) {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        self.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().on_purged(history, done.purge_seqno);
        });
        drop(vbucket);
        self.shared.stuck.remove(vb);
        self.shared.encryption.on_file_replaced(&self.core);
        let took_ns = self.core.setup.clock.now().mono_ns.saturating_sub(began_ns);
        let timings = &self.core.timings;
        timings.record_us(u16::MAX, Timing::Compaction, took_ns / 1_000);
        timings.record_us(u16::MAX, Timing::CompactionLock, done.locked_ns / 1_000);
        self.core.totals.add(Total::Compactions, 1);
        self.core
            .totals
            .add(Total::PurgedTombstones, done.tombstones);
        let freed = done.bytes_before.saturating_sub(done.bytes_after);
        self.core.totals.add(Total::CompactionFreedBytes, freed);
        tracing::debug!(
            bucket = self.core.name(),
            vbucket = %vb,
            before = done.bytes_before,
            after = done.bytes_after,
            tombstones = done.tombstones,
            ms = took_ns / 1_000_000,
            "a vBucket's file was compacted"
        );
    }

    /// Deletes the documents that are still expired. Returns their number.
    fn expire(&self, storage: &Storage, vb: VbId, history: u32, keys: &[Box<[u8]>]) -> u64 {
        let mut keys: Vec<DocKey> = keys
            .iter()
            .filter_map(|key| DocKey::from_prefixed(key).ok())
            .collect();
        let now = self.core.setup.clock.now();
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        if vbucket.state() != VbState::Active || vbucket.history_id() != history {
            return 0;
        }
        let before = vbucket.documents().expired();
        // Reading the metadata of an expired document deletes it. The remaining documents are only on disk.
        self.core.account(now, &mut vbucket, |vbucket| {
            keys.retain(|key| {
                vbucket.at(now).get_meta(key) == Ok(kedge_vbucket::StepOutcome::Fetch)
            });
        });
        let mut expired = vbucket.documents().expired() - before;
        let ticket = vbucket.store().fetch_ticket();
        drop(vbucket);
        self.core.after_step();
        if keys.is_empty() {
            return expired;
        }
        let stored: Vec<&[u8]> = keys.iter().map(DocKey::as_bytes).collect();
        let found = match storage.get_many(vb, &stored) {
            Ok(found) => found,
            // The next compaction finds them again.
            Err(error) => {
                tracing::warn!(
                    bucket = self.core.name(),
                    vbucket = %vb,
                    %error,
                    "expired documents could not be read: the next compaction deletes them"
                );
                return expired;
            }
        };
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let before = vbucket.documents().expired();
        self.core.account(now, &mut vbucket, |vbucket| {
            for (key, item) in keys.iter().zip(found) {
                let _ = vbucket.store_mut().fetched(ticket, key.as_bytes(), item);
                let _ = vbucket.at(now).get_meta(key);
            }
        });
        // A reset of the vBucket resets the counter.
        expired += vbucket.documents().expired().saturating_sub(before);
        drop(vbucket);
        self.core.after_step();
        expired
    }
}
