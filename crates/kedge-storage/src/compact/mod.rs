//! Compaction of a vBucket's file during other operations on it.
//!
//! ```text
//! the main pass      a copy of the file as it was       commits continue
//! rounds             commits in the meantime            commits continue
//! the last round     the rest                           commits of this vBucket wait
//!   the copy becomes the next revision
//! the old file goes                                     commits continue, into the new file
//! ```
//!
//! Invariants:
//! * Until the copy has its name, the old file is the vBucket's, complete; from then on the copy is, with every commit
//!   of the old one. A crash in between leaves one or both of them, and the higher revision is valid.
//! * A compaction that is cancelled or fails leaves neither a file nor a handle.
//! * Commits wait for one round at most, which copies the commits during the round before.
//! * It ends however fast other threads write: the number of rounds is limited, and rounds that do not become shorter
//!   are not throttled.
//!
//! Source: couchstore file format, section 8.

mod hooks;
mod progress;

use std::path::Path;
use std::time::Duration;

use kedge_couchstore::compact::purge::PurgePolicy;
use kedge_couchstore::compact::{Compaction, CompactionSettings, target_path};
use kedge_couchstore::{Error as FileError, Snapshot};
use kedge_types::{Seqno, VbId};

use crate::keys::NewFile;
use crate::names::FileRevision;
use crate::slot::InstalledFile;
use crate::{Storage, StorageError};

pub use hooks::{CompactHooks, ExpiredDocument};
pub(crate) use progress::SharedProgress;
pub use progress::{CompactPhase, CompactionFigures};

use hooks::{CancelSources, CancellablePurge};

/// Largest number of catch-up rounds before the last one.
const ROUNDS_MAX: u32 = 10;
/// Number of entries of a round up to which the last round follows.
const FEW_ENTRIES: u64 = 256;

/// The parameters of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactRequest {
    /// Tombstones of deletions before this Unix second are purged.
    pub purge_before_unix_secs: u32,
    /// Only tombstones up to this seqno are purged; `None` sets no limit.
    pub purge_before_seqno: Option<Seqno>,
    /// All tombstones are purged, whatever their age.
    pub drop_deletes: bool,
    /// The Unix second at which expiry times are evaluated.
    pub now_unix_secs: u32,
    /// The new file is synced each time that this number of bytes was written, so that concurrent syncs wait for no
    /// more. `None` syncs as rarely as is best for the compaction.
    pub sync_each_bytes: Option<u64>,
}

/// The result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionResult {
    /// The new file's revision.
    pub revision: FileRevision,
    /// The highest seqno of a tombstone that was ever purged.
    pub purge_seqno: Seqno,
    /// Length of the old file at the end, in bytes.
    pub bytes_before: u64,
    /// Length of the new file, in bytes.
    pub bytes_after: u64,
    /// Number of copied entries, in all rounds.
    pub entries: u64,
    /// Number of purged tombstones, aborts included.
    pub tombstones: u64,
    /// Number of removed prepares that were complete.
    pub prepares: u64,
    /// Number of removed entries of dropped collections.
    pub of_dropped_collections: u64,
    /// Number of expired documents, which stay in the file.
    pub expired: u64,
    /// Number of entries that could not be decoded, and were copied.
    pub not_understood: u64,
    /// Number of catch-up rounds before the last one.
    pub rounds: u32,
    /// Time that commits of this vBucket had to wait, in nanoseconds.
    pub locked_ns: u64,
}

impl Storage {
    /// Copies a vBucket's file without garbage and purged entries, and replaces the file with the copy. Returns `None`
    /// if there is no file. Commits and reads of the vBucket continue.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if another exclusive operation on the file is running; [`StorageError::is_stopped`] if
    /// the callbacks or an exclusive operation cancelled it; damage of the file; disk errors. The file is unchanged,
    /// unless the error [`StorageError::is_fatal`]: then it may be the old or the new one.
    pub fn compact(
        &self,
        vb: VbId,
        request: &CompactRequest,
        hooks: &mut dyn CompactHooks,
    ) -> Result<Option<CompactionResult>, StorageError> {
        let maintenance = self.slot(vb).maintenance();
        let Some(_alone) = maintenance.begin() else {
            return Err(StorageError::Busy { vb });
        };
        let Some(source) = self.reader(vb)? else {
            return Ok(None);
        };
        let header = source.header();
        let entries_total = header.live_count() + header.deleted_count();
        let progress = maintenance.progress();
        let _running = progress.begin(entries_total, source.file_bytes()?);
        let policy = PurgePolicy {
            now: request.now_unix_secs,
            purge_before: request.purge_before_unix_secs,
            purge_up_to: request.purge_before_seqno,
            drops_all_tombstones: request.drop_deletes,
            keeps_undated_tombstones: true,
        };
        let mut watch = CancellablePurge::new(&source, policy, hooks, progress, self.stop_of(vb))?;
        watch.check()?;
        let target = target_path(source.path());
        self.clear(&target)?;
        let NewFile { create, lease } = self.options.new_file();
        let mut settings = CompactionSettings {
            create,
            ..CompactionSettings::default()
        };
        if let Some(bytes) = request.sync_each_bytes {
            settings.sync_each_bytes = bytes;
        }
        let source = source.into_snapshot();
        let compaction = Compaction::run(&self.disk, &source, &target, &settings, &mut watch)?;
        drop(source);
        let work = CatchUpRun {
            storage: self,
            vb,
            progress,
            watch,
            compaction,
        };
        let done = work.end();
        drop(lease);
        done.map(Some)
    }

    /// Removes a copy of an earlier failed compaction that could not be removed then.
    pub(crate) fn clear(&self, target: &Path) -> Result<(), StorageError> {
        if self.disk.exists(target)? {
            self.disk.remove(target)?;
        }
        Ok(())
    }

    /// Returns the progress of the vBucket's compaction; `None` if there is none.
    #[must_use]
    pub fn compaction(&self, vb: VbId) -> Option<CompactionFigures> {
        self.slot(vb).maintenance().progress().figures()
    }

    /// Pauses in [`CompactHooks::bytes`], unless the vBucket's compaction has to end or `may_pause`, which runs without
    /// a lock, returns `false`. The pause ends after `time`, or at any event that may end a pause: an exclusive
    /// operation waits, the bucket is closed, or [`Storage::wake_paused`] is called. Returns `true` in the latter
    /// cases, in which the caller checks whether to pause again.
    pub fn pause(&self, vb: VbId, time: Duration, may_pause: impl FnOnce() -> bool) -> bool {
        let stop = self.stop_of(vb);
        self.pauses.pause(time, || !stop.is_set() && may_pause())
    }

    /// Reports that the result of `may_pause` in [`Storage::pause`] may have changed.
    pub fn wake_paused(&self) {
        self.pauses.wake();
    }

    fn stop_of(&self, vb: VbId) -> CancelSources<'_> {
        CancelSources {
            maintenance: self.slot(vb).maintenance(),
            stopping: &self.stopping,
        }
    }
}

/// A compaction after its main pass.
struct CatchUpRun<'a> {
    storage: &'a Storage,
    vb: VbId,
    progress: &'a SharedProgress,
    watch: CancellablePurge<'a>,
    compaction: Compaction,
}

impl CatchUpRun<'_> {
    fn end(mut self) -> Result<CompactionResult, StorageError> {
        self.progress.enter(CompactPhase::CatchUp);
        let rounds = self.rounds()?;
        self.finish(rounds)
    }

    /// Catches up until little is left, or for the largest number of rounds. Returns the number of rounds.
    fn rounds(&mut self) -> Result<u32, StorageError> {
        let mut entries_before = u64::MAX;
        for round in 1..=ROUNDS_MAX {
            let newest = self.newest()?;
            let caught_up = self.compaction.catch_up(&newest, &mut self.watch)?;
            self.watch.check()?;
            if caught_up.entries <= FEW_ENTRIES {
                return Ok(round);
            }
            // If other threads commit as fast as it copies, it would never catch up.
            let is_shorter = caught_up.entries <= entries_before / 2;
            self.watch.relay().is_paced &= is_shorter;
            entries_before = caught_up.entries;
        }
        Ok(ROUNDS_MAX)
    }

    fn newest(&self) -> Result<Snapshot, StorageError> {
        let newest = self.storage.reader(self.vb)?;
        // The exclusive operations that remove the file are locked out.
        Ok(newest.ok_or(FileError::Stopped)?.into_snapshot())
    }

    /// Does the last round and replaces the file.
    fn finish(mut self, rounds: u32) -> Result<CompactionResult, StorageError> {
        let mut guard = self.storage.writer(self.vb);
        self.progress.enter(CompactPhase::Finish);
        self.watch.relay().is_paced = false;
        let locked_at_ns = self.watch.relay().hooks.now_ns();
        self.watch.check()?;
        let newest = self.newest()?;
        self.compaction.catch_up(&newest, &mut self.watch)?;
        let bytes_before = newest.file_bytes()?;
        drop(newest);
        let InstalledFile {
            header,
            file_bytes: bytes_after,
            progress,
        } = guard.install(self.compaction)?;
        let revision = guard.revision();
        let now_ns = self.watch.relay().hooks.now_ns();
        // The removal of a large file takes long, and no thread has to wait for it.
        guard.remove_left();
        let report = self.watch.report();
        Ok(CompactionResult {
            revision,
            purge_seqno: header.purge_seqno(),
            bytes_before,
            bytes_after,
            entries: progress.kept,
            tombstones: report.tombstones,
            prepares: report.prepares,
            of_dropped_collections: report.of_dropped_collections,
            expired: report.expired,
            not_understood: report.not_understood,
            rounds,
            locked_ns: now_ns.saturating_sub(locked_at_ns),
        })
    }
}
