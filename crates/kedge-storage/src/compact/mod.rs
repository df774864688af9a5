//! Compaction of a vBucket's file beside everything else that happens to it.
//!
//! ```text
//! the main pass      a copy of the file as it was       commits go on
//! rounds             what was committed meanwhile       commits go on
//! the last round     the rest                           commits of this vBucket wait
//!   the copy becomes the next revision
//! the old file goes                                     commits go on, into the new file
//! ```
//!
//! Invariants:
//! * Until the copy has its name, the old file is the vBucket's, whole; from then on the copy is, with every commit that
//!   the old one had. A crash in between leaves both or one of them, and the higher revision counts.
//! * A compaction that is stopped or fails leaves neither a file nor a handle.
//! * Commits wait for one round at most: for what was committed during the round before, if that cannot be helped.
//! * It ends however fast others write: the number of rounds has a limit, and rounds that do not become shorter are not
//!   slowed down.
//!
//! Source: couchstore file format, section 8.

mod hooks;
mod progress;

use std::path::Path;
use std::time::Duration;

use kedge_couchstore::compact::purge::Policy;
use kedge_couchstore::compact::{Compaction, Settings, target_path};
use kedge_couchstore::{Error as FileError, Snapshot};
use kedge_types::{Seqno, VbId};

use crate::names::Revision;
use crate::slot::Installed;
use crate::{Storage, StorageError};

pub use hooks::{CompactHooks, Expired};
pub(crate) use progress::CompactionProgress;
pub use progress::{CompactPhase, CompactionFigures};

use hooks::{Stop, Watch};

/// Rounds of catching up before the last one, at most.
const ROUNDS_MAX: u32 = 10;
/// After a round of at most this many entries, the last one is worth its wait.
const FEW_ENTRIES: u64 = 256;

/// What a compaction is to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactRequest {
    /// Tombstones of deletes before this Unix second go.
    pub purge_before_unix_secs: u32,
    /// Only those up to this seqno; `None` sets no limit.
    pub purge_before_seqno: Option<Seqno>,
    /// All tombstones go, however old they are.
    pub drop_deletes: bool,
    /// The Unix second by which documents have expired or not.
    pub now_unix_secs: u32,
    /// The new file is synced each time that so many bytes were written: who syncs meanwhile waits for no more than these.
    /// `None`: as often as is best for who does not.
    pub sync_each_bytes: Option<u64>,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// The file that counts now.
    pub revision: Revision,
    /// The highest seqno of a tombstone that was ever purged.
    pub purge_seqno: Seqno,
    /// Bytes of the old file when it was given up.
    pub bytes_before: u64,
    /// Bytes of the new one.
    pub bytes_after: u64,
    /// Entries that were copied, in all rounds.
    pub entries: u64,
    /// Tombstones, aborts among them, that were left out.
    pub tombstones: u64,
    /// Prepares that had ended, and were left out.
    pub prepares: u64,
    /// Entries of collections that were dropped, and were left out.
    pub of_dropped_collections: u64,
    /// Documents that have expired, and are there still.
    pub expired: u64,
    /// Entries that could not be understood, and were copied.
    pub not_understood: u64,
    /// Rounds of catching up before the last one.
    pub rounds: u32,
    /// For how long commits of this vBucket had to wait, in nanoseconds.
    pub locked_ns: u64,
}

impl Storage {
    /// Copies a vBucket's file without what nobody needs any more, and puts the copy in its place; `None` if there is
    /// no file. Commits and reads of the vBucket go on meanwhile.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if there is a compaction, a rollback or the like of this vBucket already;
    /// [`StorageError::is_stopped`] if the hooks, or an operation that needs the file for itself, wanted it to end;
    /// damage; those of the disk. The file is what it was, but after an error that [`StorageError::is_fatal`]: then it
    /// may be the old or the new one.
    pub fn compact(
        &self,
        vb: VbId,
        request: &CompactRequest,
        hooks: &mut dyn CompactHooks,
    ) -> Result<Option<Compacted>, StorageError> {
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
        let policy = Policy {
            now: request.now_unix_secs,
            purge_before: request.purge_before_unix_secs,
            purge_up_to: request.purge_before_seqno,
            drops_all_tombstones: request.drop_deletes,
            keeps_undated_tombstones: true,
        };
        let mut watch = Watch::new(&source, policy, hooks, progress, self.stop_of(vb))?;
        watch.check()?;
        let target = target_path(source.path());
        self.clear(&target)?;
        let mut settings = Settings::default();
        if let Some(bytes) = request.sync_each_bytes {
            settings.sync_each_bytes = bytes;
        }
        let source = source.into_snapshot();
        let compaction = Compaction::run(&self.disk, &source, &target, &settings, &mut watch)?;
        drop(source);
        let work = Work {
            storage: self,
            vb,
            progress,
            watch,
            compaction,
        };
        work.end().map(Some)
    }

    /// Removes what a copy that failed left under the name of the next, as it could not be removed then.
    pub(crate) fn clear(&self, target: &Path) -> Result<(), StorageError> {
        if self.disk.exists(target)? {
            self.disk.remove(target)?;
        }
        Ok(())
    }

    /// How far the compaction of a vBucket is; `None` if there is none.
    #[must_use]
    pub fn compaction(&self, vb: VbId) -> Option<CompactionFigures> {
        self.slot(vb).maintenance().progress().figures()
    }

    /// A pause in [`CompactHooks::bytes`], unless the vBucket's compaction has to end, or `may_pause`, which is asked under
    /// no lock, says no. It ends when its time is over, or when anything happens that ends any pause: something needs a
    /// file for itself, the bucket is closed, [`Storage::wake_paused`] is called. True in the latter cases: who is to rest
    /// on asks again.
    pub fn pause(&self, vb: VbId, time: Duration, may_pause: impl FnOnce() -> bool) -> bool {
        let stop = self.stop_of(vb);
        self.pauses.pause(time, || !stop.is_set() && may_pause())
    }

    /// Reports that `may_pause` of [`Storage::pause`] may have another answer than before.
    pub fn wake_paused(&self) {
        self.pauses.wake();
    }

    fn stop_of(&self, vb: VbId) -> Stop<'_> {
        Stop {
            maintenance: self.slot(vb).maintenance(),
            stopping: &self.stopping,
        }
    }
}

/// A compaction whose main pass is done.
struct Work<'a> {
    storage: &'a Storage,
    vb: VbId,
    progress: &'a CompactionProgress,
    watch: Watch<'a>,
    compaction: Compaction,
}

impl Work<'_> {
    fn end(mut self) -> Result<Compacted, StorageError> {
        self.progress.enter(CompactPhase::CatchUp);
        let rounds = self.rounds()?;
        self.finish(rounds)
    }

    /// Catches up until little is left, or for long enough; how many rounds it took.
    fn rounds(&mut self) -> Result<u32, StorageError> {
        let mut entries_before = u64::MAX;
        for round in 1..=ROUNDS_MAX {
            let newest = self.newest()?;
            let caught_up = self.compaction.catch_up(&newest, &mut self.watch)?;
            self.watch.check()?;
            if caught_up.entries <= FEW_ENTRIES {
                return Ok(round);
            }
            // Whoever commits as fast as it is copied here would never be caught up with.
            let is_shorter = caught_up.entries <= entries_before / 2;
            self.watch.relay().is_paced &= is_shorter;
            entries_before = caught_up.entries;
        }
        Ok(ROUNDS_MAX)
    }

    fn newest(&self) -> Result<Snapshot, StorageError> {
        let newest = self.storage.reader(self.vb)?;
        // Nobody else may have removed it meanwhile.
        Ok(newest.ok_or(FileError::Stopped)?.into_snapshot())
    }

    /// The last round, and the change of files.
    fn finish(mut self, rounds: u32) -> Result<Compacted, StorageError> {
        let mut guard = self.storage.writer(self.vb);
        self.progress.enter(CompactPhase::Finish);
        self.watch.relay().is_paced = false;
        let locked_at_ns = self.watch.relay().hooks.now_ns();
        self.watch.check()?;
        let newest = self.newest()?;
        self.compaction.catch_up(&newest, &mut self.watch)?;
        let bytes_before = newest.file_bytes()?;
        drop(newest);
        let Installed {
            header,
            file_bytes: bytes_after,
            progress,
        } = guard.install(self.compaction)?;
        let revision = guard.revision();
        let now_ns = self.watch.relay().hooks.now_ns();
        // A large file takes its time, in which nobody has to wait.
        guard.remove_left();
        let report = self.watch.report();
        Ok(Compacted {
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
