//! The log's slow work, done in the background step by step.

use kedge_sync::{RankedMutexGuard, ranks::SegmentPreallocation};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kedge_disk::{DiskError, File};

use super::{Shared, Spare};
use crate::LogError;
use crate::format::PAGE_BYTES;
use crate::segment::{FileName, Segment, allocate_file};

/// How much of a segment is filled with zeros and synced in one step: little, so that a commit that
/// syncs meanwhile does not wait long for it.
const FILL_STEP_BYTES: u64 = 512 << 10;
/// How much of a segment that is not kept is given back to the file system in one step. The next commit of its journal
/// does what is left of that, and of 64 MiB it had to do too much while a batch waits for it.
const CUT_STEP_BYTES: u64 = 2 << 20;

/// What lasts from one step of background work to the next.
#[derive(Debug, Default)]
pub(super) struct BackgroundWork {
    filling: Option<Filling>,
    is_stopped: bool,
}

/// A segment that is filled with zeros up to `filled`.
#[derive(Debug)]
struct Filling {
    number: u64,
    file: Box<dyn File>,
    bytes: u64,
    filled: u64,
}

/// What a step of background work was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do.
    Nothing,
    /// Files got other names: released segments left the sequence, or one of them is a spare after all.
    Renamed,
    /// So many bytes of the next segment were filled with zeros.
    Filled(u64),
    /// So many bytes of a segment that is not kept were given back to the file system, and so many
    /// are left of such segments.
    Cut {
        /// Given back by this step.
        bytes: u64,
        /// Not given back yet, of all of them.
        left: u64,
    },
}

/// Does the log's slow work in the background: fills new segments with zeros, and recycles or
/// removes the released ones. Any thread may drive it.
#[derive(Clone)]
pub struct SegmentPreallocator {
    shared: Arc<Shared>,
}

impl fmt::Debug for SegmentPreallocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentPreallocator")
            .field("dir", &self.shared.dir)
            .finish()
    }
}

impl SegmentPreallocator {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        SegmentPreallocator { shared }
    }

    /// Returns whether [`SegmentPreallocator::step`] would do anything. Cheap.
    pub fn is_needed(&self) -> bool {
        self.shared.wants_work()
    }

    /// Makes this and every other preallocator of the log stop for good. A segment that is not yet full
    /// of zeros is removed, by the next open if it cannot be now.
    pub fn stop(&self) {
        let mut work = self.work();
        work.is_stopped = true;
        self.abandon(&mut work);
    }

    /// Gives the disk back all files that are not in use, and fills no others until [`SegmentPreallocator::go_on`]. Returns how
    /// many bytes that were.
    ///
    /// # Errors
    /// As [`SegmentPreallocator::step`]; what was given back stays so.
    pub fn give_up_space(&self) -> Result<u64, LogError> {
        let mut work = self.work();
        self.shared.is_held.store(true, Ordering::Relaxed);
        self.abandon(&mut work);
        self.retire_all()?;
        let mut freed = 0;
        while let Step::Cut { bytes, .. } = self.cut_step(u64::MAX)? {
            freed += bytes;
        }
        while let Some(spare) = self.shared.take_spare(0) {
            let name = FileName::Spare(spare.number).to_string();
            if let Err(error) = self.shared.disk.remove(&self.shared.dir.join(name)) {
                self.shared.give_back(spare);
                return Err(error.into());
            }
            freed += spare.bytes;
        }
        Ok(freed)
    }

    /// Ends what [`SegmentPreallocator::give_up_space`] began: the next segments are made ready again.
    pub fn go_on(&self) {
        self.shared.is_held.store(false, Ordering::Relaxed);
    }

    /// Recycles or removes all that was released, in one go. Takes a sync for each.
    ///
    /// # Errors
    /// As [`SegmentPreallocator::step`].
    pub fn recycle(&self) -> Result<(), LogError> {
        let _work = self.work();
        self.retire_all()?;
        while self.cut_step(u64::MAX)? != Step::Nothing {}
        Ok(())
    }

    /// Does the next of these: takes what was released out of the sequence, finds the next segment
    /// among those that are not kept or fills a part of it with zeros, removes a part of one that is
    /// not kept. The pace is the caller's.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Refused`]: try again later, the log manages without. Others mean that the disk
    /// is failing; nothing that was acknowledged is concerned, and the log itself stays usable.
    pub fn step(&self) -> Result<Step, LogError> {
        let mut work = self.work();
        if self.retire_all()? {
            return Ok(Step::Renamed);
        }
        let is_wanted = !work.is_stopped && self.shared.wants_spare(&self.shared.pool());
        if is_wanted && self.rescue()? {
            return Ok(Step::Renamed);
        }
        // What was begun is ended: the next segment after that is ready sooner, and no half of one lies about.
        if !is_wanted && work.filling.is_none() {
            return self.cut_step(CUT_STEP_BYTES);
        }
        let step = self.fill_step(&mut work);
        if step.is_err() {
            self.abandon(&mut work);
        }
        step
    }

    fn work(&self) -> RankedMutexGuard<'_, SegmentPreallocation, BackgroundWork> {
        self.shared.work.lock()
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
        let is_kept = segment.bytes == config.segment_bytes
            && !self.shared.is_held.load(Ordering::Relaxed)
            && self.shared.pool().spares.len() < config.max_spares;
        let number = self.shared.new_number();
        let name = if is_kept {
            FileName::Spare(number)
        } else {
            FileName::Unfinished(number)
        };
        let path = dir.join(FileName::Segment(segment.number).to_string());
        // Before the segment goes: nobody may miss it.
        self.shared.catalog.note_first(segment.number + 1)?;
        disk.rename(&path, &dir.join(name.to_string()))?;
        // One by one: two that go under one sync could survive a crash in the wrong order.
        disk.sync_dir(dir)?;
        let mut pool = self.shared.pool();
        pool.released.pop_front();
        let file = Spare {
            number,
            bytes: segment.bytes,
        };
        if is_kept {
            pool.spares.push(file);
        } else {
            pool.going.push_back(file);
        }
        Ok(())
    }

    /// Makes a segment that is about to be removed a spare, so that none has to be filled; `false` if there is no whole one.
    fn rescue(&self) -> Result<bool, LogError> {
        let Shared {
            disk, dir, config, ..
        } = &*self.shared;
        let newest = self
            .shared
            .pool()
            .going
            .pop_back_if(|file| file.bytes == config.segment_bytes);
        let Some(file) = newest else {
            return Ok(false);
        };
        let name = FileName::Spare(file.number).to_string();
        let renamed = disk.rename(&self.unfinished(file.number), &dir.join(name));
        renamed.inspect_err(|error| self.put_back(file, error))?;
        disk.sync_dir(dir)?;
        self.shared.give_back(file);
        Ok(true)
    }

    /// Gives back the last `bytes` of a segment that is not kept, or all that is left of it.
    fn cut_step(&self, bytes: u64) -> Result<Step, LogError> {
        let oldest = self.shared.pool().going.pop_front();
        let Some(file) = oldest else {
            return Ok(Step::Nothing);
        };
        let path = self.unfinished(file.number);
        let kept = file.bytes.saturating_sub(bytes);
        let disk = &self.shared.disk;
        let cut = if kept == 0 {
            disk.remove(&path)
        } else {
            disk.open(&path).and_then(|file| file.set_len(kept))
        };
        cut.inspect_err(|error| self.put_back(file, error))?;
        let mut pool = self.shared.pool();
        if kept > 0 {
            let bytes = kept;
            pool.going.push_front(Spare { bytes, ..file });
        }
        Ok(Step::Cut {
            bytes: file.bytes - kept,
            left: pool.going.iter().map(|file| file.bytes).sum(),
        })
    }

    /// Keeps a file that is to go for the next attempt, unless it is gone already.
    fn put_back(&self, file: Spare, error: &DiskError) {
        if !error.is_not_found() {
            self.shared.pool().going.push_back(file);
        }
    }

    /// Fills the next part of the segment that is being filled, which becomes a spare with its last one.
    fn fill_step(&self, work: &mut BackgroundWork) -> Result<Step, LogError> {
        let filling = match &mut work.filling {
            Some(filling) => filling,
            none => none.insert(self.begin_filling()?),
        };
        let len = FILL_STEP_BYTES.min(filling.bytes - filling.filled);
        filling
            .file
            .write_at(&vec![0; len as usize], filling.filled)?;
        filling.filled += len;
        if filling.filled < filling.bytes {
            filling.file.sync_data()?;
            return Ok(Step::Filled(len));
        }
        filling.file.sync_all()?;
        let Shared { disk, dir, .. } = &*self.shared;
        let Filling { number, bytes, .. } = *filling;
        disk.rename(
            &self.unfinished(number),
            &dir.join(FileName::Spare(number).to_string()),
        )?;
        disk.sync_dir(dir)?;
        work.filling = None;
        self.shared.pool().filling_bytes = 0;
        self.shared.give_back(Spare { number, bytes });
        self.shared.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(Step::Filled(len))
    }

    fn begin_filling(&self) -> Result<Filling, LogError> {
        let number = self.shared.new_number();
        let bytes = self.shared.next_segment_bytes();
        let file = allocate_file(&*self.shared.disk, &self.unfinished(number), bytes)?;
        self.shared.pool().filling_bytes = bytes;
        Ok(Filling {
            number,
            file,
            bytes,
            filled: 0,
        })
    }

    fn abandon(&self, work: &mut BackgroundWork) {
        if let Some(filling) = work.filling.take() {
            self.shared.pool().filling_bytes = 0;
            // If it cannot be removed now, the next open does.
            drop(self.shared.disk.remove(&self.unfinished(filling.number)));
        }
    }

    fn unfinished(&self, number: u64) -> PathBuf {
        self.shared
            .dir
            .join(FileName::Unfinished(number).to_string())
    }
}

const _: () = assert!(FILL_STEP_BYTES.is_multiple_of(PAGE_BYTES));
