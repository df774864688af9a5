//! Segment files outside of the sequence: prepared ahead of need, and recycled.
//!
//! Invariants:
//! * A file in `spares` durably has the name of a spare, so that its use cannot bring back the segment that it may have
//!   been.
//! * In an encrypted log no file with plain text is kept for reuse.
//! * Segments leave the sequence oldest first, each durably before the next, so that the remaining numbers have no gap
//!   after a crash. Segments that are not kept for reuse are renamed, too, and then truncated step by step.

mod preallocator;

use kedge_sync::{
    RankedMutex, RankedMutexGuard,
    ranks::{SegmentPool, SegmentPreallocation},
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kedge_disk::Disk;

use crate::LogConfig;
use crate::catalog::SegmentCatalog;
use crate::format::{PAGE_BYTES, SEGMENT_HEADER_BYTES};
use crate::key_use::SegmentKeyUse;
use crate::segment::Segment;

use preallocator::BackgroundWork;
pub use preallocator::{PreallocationStep, SegmentPreallocator};

/// A file that is ready to become a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpareSegment {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// `true` if it may contain batches of a plain segment. It does not become an encrypted one: behind its new batches
    /// the plain text would remain.
    pub(crate) has_plain_text: bool,
}

/// The state that the log and its preallocators share.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) catalog: SegmentCatalog,
    pool: RankedMutex<SegmentPool, SpareFiles>,
    /// Locked for a whole step of background work, so that two preallocators never do the same step.
    work: RankedMutex<SegmentPreallocation, BackgroundWork>,
    /// Number of used bytes of the current segment, and its length.
    used: AtomicU64,
    current_bytes: AtomicU64,
    prepared: AtomicU64,
    /// `true` while the disk has no space for segments that are not needed yet.
    is_held: AtomicBool,
    /// `true` while the current segment is encrypted.
    is_encrypted: AtomicBool,
}

#[derive(Debug, Default)]
struct SpareFiles {
    spares: Vec<SpareSegment>,
    /// Segments that the log has released but that still have segment names, oldest first.
    released: VecDeque<Segment>,
    /// The remains of files that have left the sequence, under names of unfinished files.
    going: VecDeque<SpareSegment>,
    /// Length of the segment that is being filled, or 0.
    filling_bytes: u64,
    next_number: u64,
}

impl SegmentFiles {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: LogConfig,
        catalog: SegmentCatalog,
        spares: Vec<SpareSegment>,
    ) -> Self {
        let next_number = spares
            .iter()
            .map(|spare| spare.number.saturating_add(1))
            .max();
        let pool = SpareFiles {
            spares,
            released: VecDeque::new(),
            going: VecDeque::new(),
            filling_bytes: 0,
            next_number: next_number.unwrap_or(1),
        };
        SegmentFiles {
            disk,
            dir,
            config,
            catalog,
            pool: RankedMutex::new(pool),
            work: RankedMutex::default(),
            used: AtomicU64::new(0),
            current_bytes: AtomicU64::new(0),
            prepared: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_encrypted: AtomicBool::new(false),
        }
    }

    /// Returns the length of the segment after the current one.
    pub(crate) fn next_segment_bytes(&self) -> u64 {
        match self.current_bytes.load(Ordering::Relaxed) {
            0 => self.config.first_segment_bytes,
            current => current
                .saturating_mul(4)
                .clamp(self.config.first_segment_bytes, self.config.segment_bytes),
        }
    }

    /// Publishes the fill level of the current segment, as a hint for the preallocators.
    pub(crate) fn note_use(&self, used: u64, segment_bytes: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.current_bytes.store(segment_bytes, Ordering::Relaxed);
    }

    /// Publishes that the current segment is encrypted, or plain, to the preallocators.
    pub(crate) fn note_encryption(&self, is_encrypted: bool) {
        self.is_encrypted.store(is_encrypted, Ordering::Relaxed);
    }

    /// Returns `true` if files with plain text may become segments.
    fn keeps_plain_text(&self) -> bool {
        !self.is_encrypted.load(Ordering::Relaxed)
    }

    /// Takes the smallest spare with room for `bytes`, for a segment that is encrypted or not.
    pub(crate) fn take_spare(&self, bytes: u64, is_encrypted: bool) -> Option<SpareSegment> {
        let mut pool = self.pool();
        let fitting =
            pool.spares.iter().enumerate().filter(|(_, spare)| {
                spare.bytes >= bytes && !(is_encrypted && spare.has_plain_text)
            });
        let (at, _) = fitting.min_by_key(|(_, spare)| spare.bytes)?;
        Some(pool.spares.remove(at))
    }

    pub(crate) fn give_back(&self, spare: SpareSegment) {
        self.pool().spares.push(spare);
    }

    pub(crate) fn release(&self, segment: Segment) {
        self.pool().released.push_back(segment);
    }

    /// Returns the keys of the segments that were released and that an open would still read.
    pub(crate) fn released_key_use(&self) -> SegmentKeyUse {
        let mut keys = SegmentKeyUse::default();
        for segment in &self.pool().released {
            keys.note(segment.key_id());
        }
        keys
    }

    /// Takes a spare with plain text that an encrypted log must not reuse.
    fn take_plain_spare(&self) -> Option<SpareSegment> {
        if self.keeps_plain_text() {
            return None;
        }
        let mut pool = self.pool();
        let at = pool.spares.iter().position(|spare| spare.has_plain_text)?;
        Some(pool.spares.remove(at))
    }

    /// Returns a number for a new file outside of the sequence.
    pub(crate) fn new_number(&self) -> u64 {
        let mut pool = self.pool();
        pool.next_number += 1;
        pool.next_number - 1
    }

    /// Returns number and size in bytes of the files outside of the sequence.
    pub(crate) fn spare_files(&self) -> (usize, u64) {
        let pool = self.pool();
        let spares = pool.spares.iter().map(|spare| spare.bytes);
        let released = pool.released.iter().map(|segment| segment.bytes);
        let going = pool.going.iter().map(|file| file.bytes);
        let bytes: u64 = spares.chain(released).chain(going).sum();
        (pool.spares.len(), bytes + pool.filling_bytes)
    }

    pub(crate) fn prepared(&self) -> u64 {
        self.prepared.load(Ordering::Relaxed)
    }

    /// Returns `true` if a preallocator has work.
    pub(crate) fn wants_work(&self) -> bool {
        let pool = self.pool();
        let has_files = !pool.released.is_empty() || !pool.going.is_empty();
        let has_plain_text = pool.spares.iter().any(|spare| spare.has_plain_text);
        has_files
            || pool.filling_bytes > 0
            || (has_plain_text && !self.keeps_plain_text())
            || self.wants_spare(&pool)
    }

    fn wants_spare(&self, pool: &SpareFiles) -> bool {
        if self.is_held.load(Ordering::Relaxed) {
            return false;
        }
        let current = self.current_bytes.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let wanted = self.next_segment_bytes();
        // An idle bucket stays small: its first, small segments get a successor only as they fill.
        let is_busy = current >= self.config.segment_bytes || used >= current / 4;
        let keeps_plain_text = self.keeps_plain_text();
        let fits = |spare: &SpareSegment| {
            spare.bytes >= wanted && (keeps_plain_text || !spare.has_plain_text)
        };
        is_busy && !pool.spares.iter().any(fits)
    }

    fn pool(&self) -> RankedMutexGuard<'_, SegmentPool, SpareFiles> {
        self.pool.lock()
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES == PAGE_BYTES);
