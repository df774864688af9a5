//! Compaction: a copy of a file without garbage and dropped entries, made while the file grows.
//!
//! ```text
//! Compaction::run       the main pass: a snapshot of the source, entry by entry, ends with a commit
//!   catch_up            the source's commits in the meantime, ends with a commit; as often as the caller likes
//!   catch_up            for the last time, while the caller keeps writers away from the source
//!   finish              the target is complete; the caller gives it its name
//! ```
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_couchstore::compact::{Compaction, CompactionSettings, FilterDecision, target_path};
//! use kedge_couchstore::{CreateOptions, Entry, Options, Writer};
//! use kedge_disk::{Disk, SimDisk};
//!
//! # fn main() -> Result<(), kedge_couchstore::Error> {
//! # let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
//! # disk.create_dir_all(dir)?;
//! # let from = Path::new("/data/0.couch.1");
//! # let mut writer = Writer::create(&*disk, from, &CreateOptions::default(), &Options::default())?;
//! # writer.commit(1)?;
//! let target = target_path(from);
//! let mut keep_live = |entry: &Entry, _: Option<&[u8]>| match entry.is_deleted() {
//!     true => FilterDecision::Purge,
//!     false => FilterDecision::Keep,
//! };
//! let settings = CompactionSettings::default();
//! let source = writer.snapshot();
//! let mut compaction = Compaction::run(&disk, &source, &target, &settings, &mut keep_live)?;
//! // Others may have written meanwhile. From here on, no writer may.
//! compaction.catch_up(&writer.snapshot(), &mut keep_live)?;
//! compaction.finish()?;
//! disk.rename(&target, Path::new("/data/0.couch.2"))?;
//! disk.sync_dir(dir)?;
//! disk.remove(from)?;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! * The source is only read.
//! * An incomplete target is removed: after an error, when the compaction is dropped, and after a crash by
//!   [`remove_leftovers`]. A target becomes valid by a rename, which is the caller's task.
//! * Every commit of the target is as complete as the snapshot that it was made from: a crash during catch-up loses the
//!   compaction, never a document.
//! * Memory has a bound that does not depend on the file, see [`CompactionSettings::memory_bytes`].
//!
//! Source: couchstore file format, section 8.

mod catch_up;
mod copy;
mod hooks;
mod leftovers;
mod local;
mod meter;
pub mod purge;
mod sort;

use std::path::Path;
use std::sync::Arc;

use kedge_disk::Disk;

use crate::format::header::Version;
use crate::{CreateOptions, Error, Header, InvalidBatch, Options, Snapshot, Writer};
use leftovers::UnfinishedFile;
use meter::ProgressMeter;

pub use catch_up::CaughtUp;
pub use hooks::{CompactionHooks, FilterDecision, KeepAll};
pub use leftovers::{remove_leftovers, target_path};
pub use local::LocalPatch;
pub use meter::{CopyPhase, CopyProgress};

/// Memory limit of the target's cached interior nodes, in bytes. Catch-up reads these.
const TARGET_CACHE_BYTES_MAX: usize = 4 << 20;

/// The settings of a compaction.
#[derive(Debug, Clone)]
pub struct CompactionSettings {
    /// The version and encryption of the target, independent of the source. By default every file becomes an
    /// unencrypted one of version 14. [`Version::V11`] is possible if the source has it.
    pub create: CreateOptions,
    /// Memory for sorting keys, and for the documents of one step of catch-up, in bytes; 1 GiB at most. In addition a
    /// compaction takes about 16 MiB, and three times the largest body.
    pub memory_bytes: usize,
    /// Number of written bytes after which the target is synced.
    pub sync_each_bytes: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        CompactionSettings {
            create: CreateOptions::default(),
            memory_bytes: 16 << 20,
            sync_each_bytes: 1 << 20,
        }
    }
}

/// A compaction after its main pass. If it is dropped before [`Compaction::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Compaction {
    writer: Writer,
    /// The state of the source that has been copied.
    source: Snapshot,
    settings: CompactionSettings,
    progress: CopyProgress,
    failed: bool,
    target: UnfinishedFile,
}

impl Compaction {
    /// Performs the main pass: copies the entries of `source` that `hooks` keep to a new file, and commits it.
    ///
    /// The target's header has the seqno and the time of the source. Its purge seqno is that of the source, or of the
    /// last entry that the hooks purged.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Stopped`] if the hooks stop it; [`InvalidBatch::Version`]; damage of the source,
    /// including disagreement of its trees; disk errors. The target does not exist then.
    pub fn run(
        disk: &Arc<dyn Disk>,
        source: &Snapshot,
        target: &Path,
        settings: &CompactionSettings,
        hooks: &mut dyn CompactionHooks,
    ) -> Result<Self, Error> {
        let version = settings.create.version;
        if version == Version::V11 && source.header().version() != Version::V11 {
            return Err(InvalidBatch::Version.into());
        }
        if disk.exists(target)? {
            return Err(Error::Exists {
                file: target.to_owned(),
            });
        }
        // From here on the name belongs to this compaction.
        let unfinished = UnfinishedFile::new(disk, target);
        let options = Options {
            cache_bytes_max: TARGET_CACHE_BYTES_MAX,
            ..Options::default()
        };
        let mut writer = Writer::create_target(&**disk, target, &settings.create, &options)?;
        writer.out.expect_copy(settings.sync_each_bytes);
        let mut progress = CopyProgress::new(source);
        let mut meter = ProgressMeter::new(hooks, &mut progress);
        copy::main_pass(disk, source, &mut writer, settings, &mut meter)?;
        writer.commit(source.header().timestamp_ns())?;
        Ok(Compaction {
            writer,
            source: source.clone(),
            settings: settings.clone(),
            progress,
            failed: false,
            target: unfinished,
        })
    }

    /// Returns the header of the source that the target corresponds to.
    #[must_use]
    pub fn source(&self) -> &Header {
        self.source.header()
    }

    /// Returns the path of the target.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.target.path()
    }

    /// Returns the progress so far.
    #[must_use]
    pub fn progress(&self) -> &CopyProgress {
        &self.progress
    }

    /// Copies the source's commits since the last step, and commits them: documents, tombstones, local documents. It
    /// does not call the filter, so nothing is dropped. If the source is unchanged, there is no commit.
    ///
    /// # Errors
    /// [`InvalidBatch::NotNewer`] if `newest` is not a later state of the same file, for example after a rollback of the
    /// source. Otherwise the errors of [`Compaction::run`]. After an error the compaction is unusable.
    pub fn catch_up(
        &mut self,
        newest: &Snapshot,
        hooks: &mut dyn CompactionHooks,
    ) -> Result<CaughtUp, Error> {
        self.check()?;
        // Until this round is complete.
        self.failed = true;
        let caught_up = self.round(newest, hooks)?;
        self.failed = false;
        Ok(caught_up)
    }

    /// Ends the compaction: the target stays under its name, as durable as its last commit.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if a catch-up round failed.
    pub fn finish(self) -> Result<CopyProgress, Error> {
        self.check()?;
        let Compaction {
            target, progress, ..
        } = self;
        target.keep();
        Ok(progress)
    }

    fn check(&self) -> Result<(), Error> {
        if self.failed {
            return Err(Error::PreviousIo {
                file: self.target.path().to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
