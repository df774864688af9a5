//! The background work of the log, step by step.

use kedge_sync::{RankedMutexGuard, ranks::SegmentPreallocation};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kedge_disk::{DiskError, File};

use super::{SegmentFiles, SpareSegment};
use crate::LogError;
use crate::format::PAGE_BYTES;
use crate::segment::{FileName, Segment, allocate_file};

/// Number of bytes of a segment that a step fills with zeros and syncs. It is small, so that a concurrent commit does
/// not wait long for the sync.
const FILL_STEP_BYTES: u64 = 512 << 10;
/// Number of bytes by which a step truncates a segment that is not kept. The next commit of the file system's journal
/// does the rest of that work; for 64 MiB it takes too long, and a batch would wait for it.
const CUT_STEP_BYTES: u64 = 2 << 20;

/// The state of the background work between steps.
#[derive(Debug, Default)]
pub(super) struct BackgroundWork {
    filling: Option<SegmentFill>,
    is_stopped: bool,
}

/// A segment that is filled with zeros up to `filled`.
#[derive(Debug)]
struct SegmentFill {
    number: u64,
    file: Box<dyn File>,
    bytes: u64,
    filled: u64,
    /// The zeros of one step.
    zeros: Box<[u8]>,
}

/// The work that a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreallocationStep {
    /// There was no work.
    Nothing,
    /// Files were renamed: released segments left the sequence, or one of them became a spare.
    Renamed,
    /// This number of bytes of the next segment was filled with zeros.
    Filled(u64),
    /// A segment that is not kept was truncated.
    Cut {
        /// Number of bytes that the step freed.
        bytes: u64,
        /// Number of bytes of all such segments that are still to be freed.
        left: u64,
    },
}

/// The background worker of a log: it fills new segments with zeros, and recycles or removes released ones. Any thread
/// may drive it.
#[derive(Clone)]
pub struct SegmentPreallocator {
    shared: Arc<SegmentFiles>,
}

impl fmt::Debug for SegmentPreallocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentPreallocator")
            .field("dir", &self.shared.dir)
            .finish()
    }
}

impl SegmentPreallocator {
    pub(crate) fn new(shared: Arc<SegmentFiles>) -> Self {
        SegmentPreallocator { shared }
    }

    /// Returns `true` if [`SegmentPreallocator::step`] has work. The check is cheap.
    pub fn is_needed(&self) -> bool {
        self.shared.wants_work()
    }

    /// Stops this and every other preallocator of the log for good. A partly filled segment is removed now, or by the
    /// next open if that fails.
    pub fn stop(&self) {
        let mut work = self.work();
        work.is_stopped = true;
        self.abandon(&mut work);
    }

    /// Frees the space of all unused files, and fills no further ones until [`SegmentPreallocator::go_on`]. Returns the
    /// number of freed bytes.
    ///
    /// # Errors
    /// The errors of [`SegmentPreallocator::step`]. Files freed before the error stay freed.
    pub fn give_up_space(&self) -> Result<u64, LogError> {
        let mut work = self.work();
        self.shared.is_held.store(true, Ordering::Relaxed);
        self.abandon(&mut work);
        self.retire_all()?;
        let mut freed = 0;
        while let PreallocationStep::Cut { bytes, .. } = self.cut_step(u64::MAX)? {
            freed += bytes;
        }
        while let Some(spare) = self.shared.take_spare(0, false) {
            let name = FileName::Spare(spare.number).to_string();
            if let Err(error) = self.shared.disk.remove(&self.shared.dir.join(name)) {
                self.shared.give_back(spare);
                return Err(error.into());
            }
            freed += spare.bytes;
        }
        Ok(freed)
    }

    /// Ends the effect of [`SegmentPreallocator::give_up_space`]: preallocation continues.
    pub fn go_on(&self) {
        self.shared.is_held.store(false, Ordering::Relaxed);
    }

    /// Recycles or removes all released segments in one go, with a sync for each.
    ///
    /// # Errors
    /// The errors of [`SegmentPreallocator::step`].
    pub fn recycle(&self) -> Result<(), LogError> {
        let _work = self.work();
        self.retire_all()?;
        while self.cut_step(u64::MAX)? != PreallocationStep::Nothing {}
        Ok(())
    }

    /// Does one step of work: removes released segments from the sequence, or takes the next segment from those that
    /// are not kept, or fills a part of it with zeros, or truncates one that is not kept. The caller determines the
    /// pace.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Refused`]: try again later; the log works without prepared segments. Other
    /// errors mean that the disk fails. They affect no acknowledged data, and the log stays usable.
    pub fn step(&self) -> Result<PreallocationStep, LogError> {
        let mut work = self.work();
        if self.retire_all()? || self.discard_plain_text()? {
            return Ok(PreallocationStep::Renamed);
        }
        let is_wanted = !work.is_stopped && self.shared.wants_spare(&self.shared.pool());
        if is_wanted && self.rescue()? {
            return Ok(PreallocationStep::Renamed);
        }
        // A segment whose filling has begun is completed, so that the next one is ready sooner and no partial file
        // remains.
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
            let oldest = self.shared.pool().released.front().cloned();
            let Some(segment) = oldest else {
                return Ok(did_something);
            };
            self.retire(&segment)?;
            did_something = true;
        }
    }

    /// Removes the oldest segment from the sequence.
    fn retire(&self, segment: &Segment) -> Result<(), LogError> {
        let SegmentFiles {
            disk, dir, config, ..
        } = &*self.shared;
        let has_plain_text = segment.secret.is_none();
        let is_kept = segment.bytes == config.segment_bytes
            && (!has_plain_text || self.shared.keeps_plain_text())
            && !self.shared.is_held.load(Ordering::Relaxed)
            && self.shared.pool().spares.len() < config.max_spares;
        let number = self.shared.new_number();
        let name = if is_kept {
            FileName::Spare(number)
        } else {
            FileName::Unfinished(number)
        };
        let path = dir.join(FileName::Segment(segment.number).to_string());
        // Before the segment goes, so that its absence is not reported.
        self.shared.catalog.note_first(segment.number + 1)?;
        disk.rename(&path, &dir.join(name.to_string()))?;
        // One by one, because two removals under one sync could survive a crash in the wrong order.
        disk.sync_dir(dir)?;
        let mut pool = self.shared.pool();
        pool.released.pop_front();
        let file = SpareSegment {
            number,
            bytes: segment.bytes,
            has_plain_text,
        };
        if is_kept {
            pool.spares.push(file);
        } else {
            pool.going.push_back(file);
        }
        Ok(())
    }

    /// Turns a spare with plain text that the log must not reuse into a file that is truncated and removed.
    fn discard_plain_text(&self) -> Result<bool, LogError> {
        let Some(spare) = self.shared.take_plain_spare() else {
            return Ok(false);
        };
        let SegmentFiles { disk, dir, .. } = &*self.shared;
        let name = FileName::Spare(spare.number).to_string();
        let renamed = disk.rename(&dir.join(name), &self.unfinished(spare.number));
        renamed.inspect_err(|error| {
            if !error.is_not_found() {
                self.shared.give_back(spare);
            }
        })?;
        self.shared.pool().going.push_back(spare);
        Ok(true)
    }

    /// Turns a segment that is about to be removed into a spare, so that none has to be filled. Returns `false` if no
    /// complete one is left.
    fn rescue(&self) -> Result<bool, LogError> {
        let SegmentFiles {
            disk, dir, config, ..
        } = &*self.shared;
        let newest = self.shared.pool().going.pop_back_if(|file| {
            let is_reusable = !file.has_plain_text || self.shared.keeps_plain_text();
            file.bytes == config.segment_bytes && is_reusable
        });
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

    /// Truncates a segment that is not kept by `bytes`, or removes the rest of it.
    fn cut_step(&self, bytes: u64) -> Result<PreallocationStep, LogError> {
        let oldest = self.shared.pool().going.pop_front();
        let Some(file) = oldest else {
            return Ok(PreallocationStep::Nothing);
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
            pool.going.push_front(SpareSegment { bytes, ..file });
        }
        Ok(PreallocationStep::Cut {
            bytes: file.bytes - kept,
            left: pool.going.iter().map(|file| file.bytes).sum(),
        })
    }

    /// Keeps a file whose removal failed for the next attempt, unless it is gone.
    fn put_back(&self, file: SpareSegment, error: &DiskError) {
        if !error.is_not_found() {
            self.shared.pool().going.push_back(file);
        }
    }

    /// Fills the next part of a segment. With its last part the segment becomes a spare.
    fn fill_step(&self, work: &mut BackgroundWork) -> Result<PreallocationStep, LogError> {
        let filling = match &mut work.filling {
            Some(filling) => filling,
            none => none.insert(self.begin_filling()?),
        };
        let len = FILL_STEP_BYTES.min(filling.bytes - filling.filled);
        let zeros = &filling.zeros[..len as usize];
        filling.file.write_at(zeros, filling.filled)?;
        filling.filled += len;
        if filling.filled < filling.bytes {
            filling.file.sync_data()?;
            return Ok(PreallocationStep::Filled(len));
        }
        filling.file.sync_all()?;
        let SegmentFiles { disk, dir, .. } = &*self.shared;
        let SegmentFill { number, bytes, .. } = *filling;
        disk.rename(
            &self.unfinished(number),
            &dir.join(FileName::Spare(number).to_string()),
        )?;
        disk.sync_dir(dir)?;
        work.filling = None;
        self.shared.pool().filling_bytes = 0;
        self.shared.give_back(SpareSegment {
            number,
            bytes,
            has_plain_text: false,
        });
        self.shared.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(PreallocationStep::Filled(len))
    }

    fn begin_filling(&self) -> Result<SegmentFill, LogError> {
        let number = self.shared.new_number();
        let bytes = self.shared.next_segment_bytes();
        let file = allocate_file(&*self.shared.disk, &self.unfinished(number), bytes)?;
        self.shared.pool().filling_bytes = bytes;
        Ok(SegmentFill {
            number,
            file,
            bytes,
            filled: 0,
            zeros: vec![0; FILL_STEP_BYTES as usize].into(),
        })
    }

    fn abandon(&self, work: &mut BackgroundWork) {
        if let Some(filling) = work.filling.take() {
            self.shared.pool().filling_bytes = 0;
            // If it cannot be removed now, the next open removes it.
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
