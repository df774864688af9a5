//! Compaction: a copy of a file without what nobody needs any more, made while the file goes on growing.
//!
//! ```text
//! Compaction::run       the main pass: a snapshot of the source, entry by entry, ends with a commit
//!   catch_up            what the source committed meanwhile, ends with a commit; as often as the caller likes
//!   catch_up            for the last time, while the caller keeps writers away from the source
//!   finish              the target is complete; the caller gives it its name
//! ```
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_couchstore::compact::{Compaction, Settings, Verdict, target_path};
//! use kedge_couchstore::{Create, Entry, Options, Writer};
//! use kedge_disk::{Disk, SimDisk};
//!
//! # fn main() -> Result<(), kedge_couchstore::Error> {
//! # let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
//! # disk.create_dir_all(dir)?;
//! # let from = Path::new("/data/0.couch.1");
//! # let mut writer = Writer::create(&*disk, from, &Create::default(), &Options::default())?;
//! # writer.commit(1)?;
//! let target = target_path(from);
//! let mut keep_live = |entry: &Entry, _: Option<&[u8]>| match entry.is_deleted() {
//!     true => Verdict::Purge,
//!     false => Verdict::Keep,
//! };
//! let settings = Settings::default();
//! let source = writer.snapshot();
//! let mut compaction = Compaction::run(&disk, &source, &target, &settings, &mut keep_live)?;
//! // Others wrote meanwhile. From here on, nobody does.
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
//! * A target is complete or it goes away: after an error, when the compaction is dropped, and after a crash, when
//!   [`remove_leftovers`] finds it. What makes a target count is the rename, which is the caller's.
//! * Every commit of the target is as complete as the snapshot that it was made from: a crash while catching up loses
//!   the compaction, never a document.
//! * Memory has a bound that does not depend on the file, see [`Settings::memory_bytes`].
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
use crate::{Create, Error, Header, Options, Refusal, Snapshot, Writer};
use leftovers::Unfinished;
use meter::Meter;

pub use catch_up::CaughtUp;
pub use hooks::{Hooks, KeepAll, Verdict};
pub use leftovers::{remove_leftovers, target_path};
pub use local::LocalPatch;
pub use meter::{Phase, Progress};

/// Interior nodes of the target that are kept in memory, in bytes: what catching up looks at.
const TARGET_CACHE_BYTES_MAX: usize = 4 << 20;

/// How a file is compacted.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The target's version and encryption, whatever the source has. By default every file becomes one of version 14,
    /// not encrypted. [`Version::V11`] is possible where the source has it, too.
    pub create: Create,
    /// Memory to sort keys in, and for the documents of one step of catching up, in bytes; 1 GiB at most. Beside it a
    /// compaction takes about 16 MiB, and three times the largest body.
    pub memory_bytes: usize,
    /// The target is synced each time that so many bytes were written.
    pub sync_each_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            create: Create::default(),
            memory_bytes: 16 << 20,
            sync_each_bytes: 1 << 20,
        }
    }
}

/// A compaction whose main pass is done. Dropped before [`Compaction::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Compaction {
    writer: Writer,
    /// The state of the source that the target has.
    source: Snapshot,
    settings: Settings,
    progress: Progress,
    failed: bool,
    target: Unfinished,
}

impl Compaction {
    /// The main pass: copies what `hooks` keep of `source` to a new file, and commits it.
    ///
    /// The target's header has the source's seqno and time; its purge seqno is the source's, or that of the last
    /// entry that the hooks purged.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Stopped`] if the hooks say so; [`Refusal::Version`]; damage of the source, also where
    /// its trees disagree; those of the disk. There is no target then.
    pub fn run(
        disk: &Arc<dyn Disk>,
        source: &Snapshot,
        target: &Path,
        settings: &Settings,
        hooks: &mut dyn Hooks,
    ) -> Result<Self, Error> {
        let version = settings.create.version;
        if version == Version::V11 && source.header().version() != Version::V11 {
            return Err(Refusal::Version.into());
        }
        if disk.exists(target)? {
            return Err(Error::Exists {
                file: target.to_owned(),
            });
        }
        // From here on the name is this compaction's.
        let unfinished = Unfinished::new(disk, target);
        let options = Options {
            cache_bytes_max: TARGET_CACHE_BYTES_MAX,
            ..Options::default()
        };
        let mut writer = Writer::create_target(&**disk, target, &settings.create, &options)?;
        writer.out.expect_copy(settings.sync_each_bytes);
        let mut progress = Progress::new(source);
        let mut meter = Meter::new(hooks, &mut progress);
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

    /// The header of the source that the target is as new as.
    #[must_use]
    pub fn source(&self) -> &Header {
        self.source.header()
    }

    /// The file that it makes.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.target.path()
    }

    /// What was done so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Copies what the source committed since, and commits it: documents, tombstones, local documents. The filter is
    /// not asked, so nothing is dropped. Without anything new there is no commit.
    ///
    /// # Errors
    /// [`Refusal::NotNewer`] if `newest` is not a later state of the same file: the source was rolled back, say. As
    /// [`Compaction::run`] apart from that. After an error the compaction is of no use any more.
    pub fn catch_up(
        &mut self,
        newest: &Snapshot,
        hooks: &mut dyn Hooks,
    ) -> Result<CaughtUp, Error> {
        self.check()?;
        // Until this round is done.
        self.failed = true;
        let caught_up = self.round(newest, hooks)?;
        self.failed = false;
        Ok(caught_up)
    }

    /// Ends the compaction: the target stays, as durable as its last commit, under the name that it has.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if catching up failed.
    pub fn finish(self) -> Result<Progress, Error> {
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
