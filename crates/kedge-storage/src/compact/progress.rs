//! How far a compaction is, for whoever wants to know while it runs.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use kedge_couchstore::compact::{Phase, Progress};

/// What a compaction is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactPhase {
    /// Copying documents.
    Copy,
    /// Sorting keys.
    Sort,
    /// Writing the tree by key.
    Index,
    /// Copying what was committed meanwhile.
    CatchUp,
    /// The same for the last time, while commits of the vBucket wait.
    Finish,
}

/// What a compaction has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionFigures {
    /// What it is at.
    pub phase: CompactPhase,
    /// Entries that were looked at, also while catching up.
    pub entries: u64,
    /// Entries of the file when it began.
    pub entries_total: u64,
    /// Bytes read, from the file and from temporary ones.
    pub bytes_read: u64,
    /// Bytes written, to the new file and to temporary ones.
    pub bytes_written: u64,
    /// Bytes of the file when it began.
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

/// The figures of the compaction of one vBucket, if there is one. Numbers that are read while they change may not fit
/// each other.
#[derive(Debug)]
pub(crate) struct CompactionProgress {
    phase: AtomicU8,
    entries: AtomicU64,
    entries_total: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    file_bytes: AtomicU64,
}

impl Default for CompactionProgress {
    fn default() -> Self {
        CompactionProgress {
            phase: AtomicU8::new(IDLE),
            entries: AtomicU64::new(0),
            entries_total: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
        }
    }
}

/// A compaction is under way as long as this lives.
pub(super) struct Running<'a>(&'a CompactionProgress);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.phase.store(IDLE, Relaxed);
    }
}

impl CompactionProgress {
    /// A compaction begins, of a file with so many entries and bytes.
    pub(super) fn begin(&self, entries_total: u64, file_bytes: u64) -> Running<'_> {
        for counter in [&self.entries, &self.bytes_read, &self.bytes_written] {
            counter.store(0, Relaxed);
        }
        self.entries_total.store(entries_total, Relaxed);
        self.file_bytes.store(file_bytes, Relaxed);
        self.enter(CompactPhase::Copy);
        Running(self)
    }

    pub(super) fn enter(&self, phase: CompactPhase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(super) fn set(&self, progress: &Progress) {
        self.entries.store(progress.entries, Relaxed);
        self.bytes_read.store(progress.bytes_read, Relaxed);
        self.bytes_written.store(progress.bytes_written, Relaxed);
        match progress.phase {
            Phase::Sort => self.enter(CompactPhase::Sort),
            Phase::Index => self.enter(CompactPhase::Index),
            // Entered by who knows which of both kinds it is; and it begins with the first.
            _ => {}
        }
    }

    /// `None` without a compaction.
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
