//! Segment files that are not in the sequence: made ready ahead of need, and taken back.
//!
//! Invariants:
//! * A file in `spares` has a spare's name durably, so that using it cannot bring back the segment
//!   it may have been.
//! * Segments leave the sequence from its old end, each durably before the next: after a crash the
//!   numbers that are left have no gap.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use kedge_disk::{Disk, File};

use crate::format::{PAGE_BYTES, SEGMENT_HEADER_BYTES};
use crate::segment::{FileName, Segment, allocate_file};
use crate::{LogConfig, LogError};

/// How much is written before a sync while a segment is filled with zeros: small, so that a commit
/// that syncs meanwhile does not wait for the whole of it.
const FILL_SYNC_BYTES: u64 = 512 << 10;
const FILL_WRITE_BYTES: u64 = 512 << 10;

/// A file ready to become a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// What the log and its preparers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pool: Mutex<Pool>,
    /// Held for a whole run of background work, so that two preparers do not do it twice.
    working: Mutex<()>,
    /// Bytes of the current segment that are in use, and its length.
    used: AtomicU64,
    current_bytes: AtomicU64,
    prepared: AtomicU64,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Pool {
    spares: Vec<Spare>,
    /// Given back by the log, still named as segments; oldest first.
    released: VecDeque<Segment>,
    next_number: u64,
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        config: LogConfig,
        spares: Vec<Spare>,
    ) -> Self {
        let next_number = spares
            .iter()
            .map(|spare| spare.number.saturating_add(1))
            .max();
        let pool = Pool {
            spares,
            released: VecDeque::new(),
            next_number: next_number.unwrap_or(1),
        };
        Shared {
            disk,
            dir,
            config,
            pool: Mutex::new(pool),
            working: Mutex::new(()),
            used: AtomicU64::new(0),
            current_bytes: AtomicU64::new(0),
            prepared: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
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

    /// Notes how full the current segment is. Only a hint for the preparers.
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
        (pool.spares.len(), spares.chain(released).sum())
    }

    pub(crate) fn prepared(&self) -> u64 {
        self.prepared.load(Ordering::Relaxed)
    }

    /// Whether a preparer has something to do.
    pub(crate) fn wants_work(&self) -> bool {
        let pool = self.pool();
        !pool.released.is_empty() || self.wants_spare(&pool)
    }

    fn wants_spare(&self, pool: &Pool) -> bool {
        let current = self.current_bytes.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let wanted = self.next_segment_bytes();
        // An idle bucket stays small: its first, small segments get a successor once they fill.
        let is_busy = current >= self.config.segment_bytes || used >= current / 4;
        is_busy && !pool.spares.iter().any(|spare| spare.bytes >= wanted)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool
            .lock()
            .expect("nothing panics with the pool's lock held")
    }
}

/// Does the log's slow work in the background: fills new segments with zeros, and recycles or
/// removes the released ones. Any thread may drive it.
#[derive(Clone)]
pub struct SegmentPreparer {
    shared: Arc<Shared>,
}

impl fmt::Debug for SegmentPreparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentPreparer")
            .field("dir", &self.shared.dir)
            .finish()
    }
}

impl SegmentPreparer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        SegmentPreparer { shared }
    }

    /// Whether [`SegmentPreparer::prepare_if_needed`] would do anything. Cheap.
    pub fn is_needed(&self) -> bool {
        self.shared.wants_work()
    }

    /// Bytes of the segments that are ready, or wait to be recycled or removed.
    pub fn ready_bytes(&self) -> u64 {
        self.shared.spare_files().1
    }

    /// Segments that were filled with zeros so far.
    pub fn filled(&self) -> u64 {
        self.shared.prepared()
    }

    /// Makes this and every other preparer of the log stop soon, for good: a process that ends does not wait for a
    /// whole segment to be filled.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    /// Recycles or removes what was released; `true` if there was something. Takes a sync for each.
    ///
    /// # Errors
    /// As [`SegmentPreparer::prepare_if_needed`].
    pub fn recycle(&self) -> Result<bool, LogError> {
        let _working = self.shared.working.lock().expect("no preparer panics");
        self.retire_all()
    }

    /// Recycles what was released and makes the next segment ready. `true` if there was something
    /// to do. Takes as long as writing a segment takes.
    ///
    /// # Errors
    /// [`LogError::NoSpace`]: try again later, the log manages without. Others mean that the disk
    /// is failing; nothing that was acknowledged is concerned, and the log itself stays usable.
    pub fn prepare_if_needed(&self) -> Result<bool, LogError> {
        let _working = self.shared.working.lock().expect("no preparer panics");
        let mut did_something = self.retire_all()?;
        let wanted = {
            let pool = self.shared.pool();
            self.shared
                .wants_spare(&pool)
                .then(|| self.shared.next_segment_bytes())
        };
        if let Some(bytes) = wanted {
            self.prepare(bytes)?;
            did_something = true;
        }
        Ok(did_something)
    }

    fn retire_all(&self) -> Result<bool, LogError> {
        let mut did_something = false;
        loop {
            let oldest = self.shared.pool().released.front().copied();
            let Some(segment) = oldest else {
                return Ok(did_something);
            };
            self.retire(segment)?;
            did_something = true;
        }
    }

    /// Takes the oldest segment out of the sequence.
    fn retire(&self, segment: Segment) -> Result<(), LogError> {
        let Shared {
            disk, dir, config, ..
        } = &*self.shared;
        let path = dir.join(FileName::Segment(segment.number).to_string());
        let is_kept = segment.bytes == config.segment_bytes
            && self.shared.pool().spares.len() < config.max_spares;
        if is_kept {
            let number = self.shared.new_number();
            disk.rename(&path, &dir.join(FileName::Spare(number).to_string()))?;
            disk.sync_dir(dir)?;
            let mut pool = self.shared.pool();
            pool.released.pop_front();
            pool.spares.push(Spare {
                number,
                bytes: segment.bytes,
            });
        } else {
            disk.remove(&path)?;
            // One by one: two removals under one sync could survive a crash in the wrong order.
            disk.sync_dir(dir)?;
            self.shared.pool().released.pop_front();
        }
        Ok(())
    }

    /// Makes a new spare whose blocks are all written.
    fn prepare(&self, bytes: u64) -> Result<(), LogError> {
        let Shared { disk, dir, .. } = &*self.shared;
        let number = self.shared.new_number();
        let unfinished = dir.join(FileName::Unfinished(number).to_string());
        let file = allocate_file(&**disk, &unfinished, bytes)?;
        match self.fill(&*file, bytes) {
            Ok(true) => {}
            unfilled => {
                drop(disk.remove(&unfinished));
                return unfilled.map(|_| ());
            }
        }
        disk.rename(&unfinished, &dir.join(FileName::Spare(number).to_string()))?;
        disk.sync_dir(dir)?;
        self.shared.give_back(Spare { number, bytes });
        self.shared.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes zeros and syncs them; `false` when it was told to stop before the end.
    fn fill(&self, file: &dyn File, bytes: u64) -> Result<bool, LogError> {
        let zeros = vec![0; FILL_WRITE_BYTES.min(bytes) as usize];
        let mut at = 0;
        while at < bytes {
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let len = FILL_WRITE_BYTES.min(bytes - at);
            file.write_at(&zeros[..len as usize], at)?;
            at += len;
            if at.is_multiple_of(FILL_SYNC_BYTES) {
                file.sync_data()?;
            }
        }
        file.sync_all()?;
        Ok(true)
    }
}

const _: () = assert!(FILL_WRITE_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(SEGMENT_HEADER_BYTES == PAGE_BYTES);
