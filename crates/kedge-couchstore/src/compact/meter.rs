//! What a compaction has done so far, and the hook that is told before more is done.

use super::Hooks;
use crate::{Error, Snapshot};

/// The hook is called before each so many bytes.
const PACE_BYTES: u64 = 256 << 10;

/// What a compaction is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Copying entries and bodies in the order of seqnos.
    Copy,
    /// Sorting keys, where there are too many for the memory.
    Sort,
    /// Writing the tree by key.
    Index,
    /// Copying what is new.
    CatchUp,
}

/// What a compaction has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// Entries of the source when the main pass began.
    pub entries_total: u64,
    /// Entries that were looked at, also while catching up.
    pub entries: u64,
    /// Entries that were copied.
    pub kept: u64,
    /// Entries that were dropped, with those that were purged.
    pub dropped: u64,
    /// Entries that were purged.
    pub purged: u64,
    /// Bytes read from the source and from temporary files, as far as they were wanted.
    pub bytes_read: u64,
    /// Bytes written to the target and to temporary files.
    pub bytes_written: u64,
}

impl Progress {
    pub(super) fn new(source: &Snapshot) -> Self {
        let header = source.header();
        Progress {
            phase: Phase::Copy,
            entries_total: header.live_count() + header.deleted_count(),
            entries: 0,
            kept: 0,
            dropped: 0,
            purged: 0,
            bytes_read: 0,
            bytes_written: 0,
        }
    }
}

/// Counts, and calls the hook in time.
pub(super) struct Meter<'h> {
    pub(super) hooks: &'h mut dyn Hooks,
    pub(super) progress: &'h mut Progress,
    /// Bytes that the hook was told of and that did not come yet.
    left: u64,
}

impl<'h> Meter<'h> {
    pub(super) fn new(hooks: &'h mut dyn Hooks, progress: &'h mut Progress) -> Self {
        Meter {
            hooks,
            progress,
            left: 0,
        }
    }

    /// So many bytes are about to be read and written.
    #[inline]
    pub(super) fn moves(&mut self, read: u64, written: u64) -> Result<(), Error> {
        let bytes = read + written;
        if bytes > self.left {
            self.pace(bytes)?;
        }
        self.left -= bytes;
        self.progress.bytes_read += read;
        self.progress.bytes_written += written;
        Ok(())
    }

    #[cold]
    fn pace(&mut self, bytes: u64) -> Result<(), Error> {
        let more = PACE_BYTES.max(bytes - self.left);
        if self.hooks.pace(more, self.progress).is_break() {
            return Err(Error::Stopped);
        }
        self.left += more;
        Ok(())
    }
}
