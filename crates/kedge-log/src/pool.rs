//! Segment files that are not in the sequence: made ready ahead of need, and taken back.
//!
//! Invariants:
//! * A file in `spares` has a spare's name durably, so that using it cannot bring back the segment
//!   it may have been.
//! * Segments leave the sequence from its old end, each durably before the next: after a crash the
//!   numbers that are left have no gap. Those that are not kept leave it by their name, too, and
//!   are then cut shorter step by step.

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
use crate::catalog::Catalog;
use crate::format::{PAGE_BYTES, SEGMENT_HEADER_BYTES};
use crate::segment::Segment;

use preallocator::BackgroundWork;
pub use preallocator::{SegmentPreallocator, Step};

/// A file ready to become a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// The state that the log and its preallocators share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) catalog: Catalog,
    pool: RankedMutex<SegmentPool, Pool>,
    /// Held for a whole step of background work, so that two preallocators do not do it twice.
    work: RankedMutex<SegmentPreallocation, BackgroundWork>,
    /// Bytes of the current segment that are in use, and its length.
    used: AtomicU64,
    current_bytes: AtomicU64,
    prepared: AtomicU64,
    /// True if the disk has no room for segments that are not needed yet.
    is_held: AtomicBool,
}

#[derive(Debug, Default)]
struct Pool {
    spares: Vec<Spare>,
    /// Given back by the log, still named as segments; oldest first.
    released: VecDeque<Segment>,
    /// Out of the sequence, with the name of an unfinished one, and what is left of them.
    going: VecDeque<Spare>,
    /// Length of the segment that is being filled, or 0.
    filling_bytes: u64,
    next_number: u64,
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: LogConfig,
        catalog: Catalog,
        spares: Vec<Spare>,
    ) -> Self {
        let next_number = spares
            .iter()
            .map(|spare| spare.number.saturating_add(1))
            .max();
        let pool = Pool {
            spares,
            released: VecDeque::new(),
            going: VecDeque::new(),
            filling_bytes: 0,
            next_number: next_number.unwrap_or(1),
        };
        Shared {
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
        }
    }

    /// Length that the segment after the current one should have.
    pub(crate) fn next_segment_bytes(&self) -> u64 {
        match self.current_bytes.load(Ordering::Relaxed) {
            0 => self.config.first_segment_bytes,
            current => current
                .saturating_mul(4)
                .clamp(self.config.first_segment_bytes, self.config.segment_bytes),
        }
    }

    /// Notes how full the current segment is. Only a hint for the preallocators.
    pub(crate) fn note_use(&self, used: u64, segment_bytes: u64) {
        self.used.store(used, Ordering::Relaxed);
        self.current_bytes.store(segment_bytes, Ordering::Relaxed);
    }

    /// Takes a spare with room for `bytes`, the smallest there is.
    pub(crate) fn take_spare(&self, bytes: u64) -> Option<Spare> {
        let mut pool = self.pool();
        let fitting = pool
            .spares
            .iter()
            .enumerate()
            .filter(|(_, spare)| spare.bytes >= bytes);
        let (at, _) = fitting.min_by_key(|(_, spare)| spare.bytes)?;
        Some(pool.spares.remove(at))
    }

    pub(crate) fn give_back(&self, spare: Spare) {
        self.pool().spares.push(spare);
    }

    pub(crate) fn release(&self, segment: Segment) {
        self.pool().released.push_back(segment);
    }

    /// A number for a new file that is not in the sequence.
    pub(crate) fn new_number(&self) -> u64 {
        let mut pool = self.pool();
        pool.next_number += 1;
        pool.next_number - 1
    }

    /// Number and bytes of the files that are not in the sequence.
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

    /// Returns whether a preallocator has something to do.
    pub(crate) fn wants_work(&self) -> bool {
        let pool = self.pool();
        let has_files = !pool.released.is_empty() || !pool.going.is_empty();
        has_files || pool.filling_bytes > 0 || self.wants_spare(&pool)
    }

    fn wants_spare(&self, pool: &Pool) -> bool {
        if self.is_held.load(Ordering::Relaxed) {
            return false;
        }
        let current = self.current_bytes.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let wanted = self.next_segment_bytes();
        // An idle bucket stays small: its first, small segments get a successor once they fill.
        let is_busy = current >= self.config.segment_bytes || used >= current / 4;
        is_busy && !pool.spares.iter().any(|spare| spare.bytes >= wanted)
    }

    fn pool(&self) -> RankedMutexGuard<'_, SegmentPool, Pool> {
        self.pool.lock()
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES == PAGE_BYTES);
