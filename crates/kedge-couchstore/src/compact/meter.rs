//! The progress of a compaction, and the pacing hook.

use super::hooks::CompactionHooks;
use crate::{Error, Snapshot};

/// Number of bytes between two calls of the hook.
const PACE_BYTES: u64 = 256 << 10;

/// The phase of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyPhase {
    /// Copying entries and bodies in the order of seqnos.
    Copy,
    /// Sorting keys, if they do not fit into memory.
    Sort,
    /// Writing the tree by key.
    Index,
    /// Copying the commits since the main pass.
    CatchUp,
}

/// The progress of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// The current phase.
    pub phase: CopyPhase,
    /// Number of entries of the source at the start of the main pass.
    pub entries_total: u64,
    /// Number of entries read, those of catch-up rounds included.
    pub entries: u64,
    /// Number of copied entries.
    pub kept: u64,
    /// Number of dropped entries, purged ones included.
    pub dropped: u64,
    /// Number of purged entries.
    pub purged: u64,
    /// Number of bytes read from the source and from temporary files, without unused read-ahead.
    pub bytes_read: u64,
    /// Number of bytes written to the target and to temporary files.
    pub bytes_written: u64,
}

impl CopyProgress {
    pub(super) fn new(source: &Snapshot) -> Self {
        let header = source.header();
        CopyProgress {
            phase: CopyPhase::Copy,
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

/// Counts bytes, and calls the hook at its interval.
pub(super) struct ProgressMeter<'h> {
    pub(super) hooks: &'h mut dyn CompactionHooks,
    pub(super) progress: &'h mut CopyProgress,
    /// Number of bytes that the hook was called for and that are still to come.
    left: u64,
}

impl<'h> ProgressMeter<'h> {
    pub(super) fn new(hooks: &'h mut dyn CompactionHooks, progress: &'h mut CopyProgress) -> Self {
        ProgressMeter {
            hooks,
            progress,
            left: 0,
        }
    }

    /// Records that `read` and `written` bytes are about to be transferred.
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
