//! The progress of a compaction, for observers.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use kedge_couchstore::compact::{CopyPhase, CopyProgress};

/// The phase of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactPhase {
    /// Copying documents.
    Copy,
    /// Sorting keys.
    Sort,
    /// Writing the tree by key.
    Index,
    /// Copying the commits in the meantime.
    CatchUp,
    /// The last round of that, while commits of the vBucket wait.
    Finish,
}

/// The progress figures of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionFigures {
    /// The current phase.
    pub phase: CompactPhase,
    /// Number of entries read, those of catch-up rounds included.
    pub entries: u64,
    /// Number of entries of the file at the start.
    pub entries_total: u64,
    /// Number of bytes read from the file and from temporary files.
    pub bytes_read: u64,
    /// Number of bytes written to the new file and to temporary files.
    pub bytes_written: u64,
    /// Length of the file at the start, in bytes.
    pub file_bytes: u64,
}

const IDLE: u8 = u8::MAX;
const PHASES: [CompactPhase; 5] = [
    CompactPhase::Copy,
    CompactPhase::Sort,
    CompactPhase::Index,
    CompactPhase::CatchUp,
    CompactPhase::Finish,
];

/// The progress of the compaction of one vBucket, if one is running. Figures that are read during a change may be
/// inconsistent with each other.
#[derive(Debug)]
pub(crate) struct SharedProgress {
    phase: AtomicU8,
    entries: AtomicU64,
    entries_total: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    file_bytes: AtomicU64,
}

impl Default for SharedProgress {
    fn default() -> Self {
        SharedProgress {
            phase: AtomicU8::new(IDLE),
            entries: AtomicU64::new(0),
            entries_total: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
        }
    }
}

/// Ends the report of a compaction when it is dropped.
pub(super) struct ProgressGuard<'a>(&'a SharedProgress);

impl Drop for ProgressGuard<'_> {
    fn drop(&mut self) {
        self.0.phase.store(IDLE, Relaxed);
    }
}

impl SharedProgress {
    /// Starts the report of a compaction of a file with these numbers of entries and bytes.
    pub(super) fn begin(&self, entries_total: u64, file_bytes: u64) -> ProgressGuard<'_> {
        for counter in [&self.entries, &self.bytes_read, &self.bytes_written] {
            counter.store(0, Relaxed);
        }
        self.entries_total.store(entries_total, Relaxed);
        self.file_bytes.store(file_bytes, Relaxed);
        self.enter(CompactPhase::Copy);
        ProgressGuard(self)
    }

    pub(super) fn enter(&self, phase: CompactPhase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn set(&self, progress: &CopyProgress) {
        self.entries.store(progress.entries, Relaxed);
        self.bytes_read.store(progress.bytes_read, Relaxed);
        self.bytes_written.store(progress.bytes_written, Relaxed);
        match progress.phase {
            CopyPhase::Sort => self.enter(CompactPhase::Sort),
            CopyPhase::Index => self.enter(CompactPhase::Index),
            // The caller sets the two kinds of catch-up phases itself, and the copy phase is the first.
            _ => {}
        }
    }

    /// Returns the figures, or `None` without a compaction.
    pub(super) fn figures(&self) -> Option<CompactionFigures> {
        let phase = *PHASES.get(usize::from(self.phase.load(Relaxed)))?;
        Some(CompactionFigures {
            phase,
            entries: self.entries.load(Relaxed),
            entries_total: self.entries_total.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            file_bytes: self.file_bytes.load(Relaxed),
        })
    }
}
