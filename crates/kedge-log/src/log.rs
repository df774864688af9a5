//! The open log: appending, changing segments, closing.
//!
//! Invariants:
//! * All before `next` is durable; `next` moves only after a sync returned. So whatever a failed
//!   append left behind `next` is overwritten by the next one.
//! * Every file before the current one is complete: the next one's base says where it ends.
//! * Once a sync failed, or a write for another reason than a full disk, nothing is written any more.
//! * What an open has left to do ([`Resume`]) is done before anything is written.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, DiskError, File};

use crate::batch::{Batch, BatchPlace};
use crate::catalog::catalog_path;
use crate::format::{PAGE_BYTES, SegmentHeader};
use crate::pool::{SegmentPreallocator, Shared, Spare};
use crate::recovery::{self, RecoveryReport, Resume};
use crate::segment::{FileName, Segment, allocate_file, enter_sequence, segment_bytes_for};
use crate::{LogConfig, LogError, Lsn, Record, RecoveryMode};

/// Batches of at least this size are not kept in the system's cache once they are on disk: nobody reads them before
/// the next open, and the memory that they were written through serves the next batch, instead of fresh memory that
/// has to be found for each.
const FORGET_BYTES: u64 = 256 << 10;

/// A commit log that is open for appending. See the crate's documentation.
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) current: Segment,
    pub(crate) file: Option<Box<dyn File>>,
    /// Segments before the current one that are not released, oldest first.
    pub(crate) sealed: VecDeque<Segment>,
    /// Where the next batch goes.
    pub(crate) next: Lsn,
    /// Whether the last batch is covered by a mark behind it, or there is none.
    pub(crate) is_marked: bool,
    pub(crate) has_failed: bool,
    /// What the open could not do, as the disk was full or the system refused.
    pub(crate) resume: Option<Resume>,
    pub(crate) counters: Counters,
}

/// What the open log did so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) syncs: u64,
    pub(crate) ready_segments: u64,
    pub(crate) unready_segments: u64,
}

/// Figures of an open log, for metrics. Those of appends count from the open on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Bytes of the files that hold data: the segments in the sequence.
    pub size_bytes: u64,
    /// Bytes of batches in them.
    pub data_bytes: u64,
    /// Bytes of the files that are ready to be used, or are made ready, or wait to be recycled or removed.
    pub spare_bytes: u64,
    /// Number of segments in the sequence.
    pub segments: u64,
    /// Number of files that are ready to become segments.
    pub spares: u64,
    /// Bytes appended, with headers and padding to 8 but not that to pages.
    pub appended_bytes: u64,
    /// Batches appended, marks not counted.
    pub appended_batches: u64,
    /// Records appended.
    pub appended_records: u64,
    /// Syncs of segments that a caller waited for.
    pub syncs: u64,
    /// Segments filled with zeros in the background.
    pub prepared_segments: u64,
    /// Times that the next segment was ready when it was needed.
    pub ready_segments: u64,
    /// Times that it was not and a fresh one had to do, whose appends are slower.
    pub unready_segments: u64,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("dir", &self.shared.dir)
            .field("segment", &self.current.number)
            .field("next", &self.next)
            .field("epoch", &self.epoch)
            .field("has_failed", &self.has_failed)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log in `dir`, making it if there is none and was none, and gives every record that is kept to
    /// `replay`, in the order of their appends. The caller sees to it that no other process has
    /// the directory ([`Disk::lock_dir`]). `owner` is written to every segment, and a segment of
    /// another owner is refused.
    ///
    /// When it returns, what was replayed is durable, unless [`Log::is_waiting`]. When it fails, what was replayed
    /// before means nothing; it can be called again and replays the same.
    ///
    /// # Errors
    /// What `replay` gives ends it. [`LogError::Corrupt`], [`LogError::WrongOwner`] and
    /// [`LogError::UnsupportedVersion`] name the file; what the disk gives. A full disk is no error: the log can be read
    /// then, and is written to when there is room.
    pub fn open<E: From<LogError>>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        owner: [u8; 16],
        config: LogConfig,
        mode: RecoveryMode,
        replay: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(Log, RecoveryReport), E> {
        recovery::open(disk, dir, owner, config, mode, replay)
    }

    /// Returns whether there is a log in `dir`, or was one whose files are missing.
    ///
    /// # Errors
    /// What the disk says, when it cannot tell.
    pub fn is_there(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
        Ok(disk.exists(dir)? || disk.exists(&catalog_path(dir))?)
    }

    /// Removes the log in `dir`, if there is one, durably. A crash may leave a part of it, which does not open.
    ///
    /// # Errors
    /// What the disk says.
    pub fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        if !Self::is_there(disk, dir)? {
            return Ok(());
        }
        disk.remove_dir_all(dir)?;
        let catalog = catalog_path(dir);
        if disk.exists(&catalog)? {
            disk.remove(&catalog)?;
        }
        disk.sync_dir(dir.parent().unwrap_or(Path::new(".")))
    }

    /// Makes the batch durable: one write, one sync. Returns the position right behind it and
    /// empties the batch; an empty batch costs nothing.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Refused`]: the batch is untouched and can be appended again, alone or with more
    /// pushed to it. What it contains may still be found after a crash before that.
    /// After any other error nothing is known about the batch, the log refuses everything with
    /// [`LogError::PreviousIo`], and the process should end.
    pub fn append(&mut self, batch: &mut Batch) -> Result<Lsn, LogError> {
        self.check_usable()?;
        if batch.is_empty() {
            return Ok(self.next);
        }
        self.commit(batch)?;
        self.counters.batches += 1;
        self.counters.records += u64::from(batch.records());
        self.is_marked = false;
        batch.clear();
        Ok(self.next)
    }

    /// Writes a mark behind the last batch, if there is none: recovery can then tell damage to
    /// that batch from an append that never finished. For idle moments.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.check_usable()?;
        if !self.is_marked {
            self.commit(&mut Batch::new())?;
            self.is_marked = true;
        }
        Ok(())
    }

    /// Ends the use of the log, with a mark behind the last batch as [`Log::mark`] writes it.
    /// A log that is dropped instead has lost nothing either.
    ///
    /// # Errors
    /// As [`Log::append`]; everything that was acknowledged is durable all the same.
    pub fn close(mut self) -> Result<(), LogError> {
        self.mark()
    }

    /// Lets go of all segments whose batches end at or before `lsn`, and returns how many. No I/O:
    /// the next [`SegmentPreallocator::step`] recycles or removes the files; until then
    /// an open finds and replays them. The segment that is being written is always kept.
    pub fn release_before(&mut self, lsn: Lsn) -> usize {
        let mut released = 0;
        while self.oldest_end().is_some_and(|end| end <= lsn)
            && let Some(oldest) = self.sealed.pop_front()
        {
            self.shared.release(oldest);
            released += 1;
        }
        released
    }

    /// Ends the segment that is being written, unless it is empty: what comes next goes to a new one, of the first
    /// segment's length, and [`Log::release_before`] can let go of all that was written. An open has little to read then.
    ///
    /// # Errors
    /// As [`Log::append`]; with [`LogError::NoSpace`] and [`LogError::Refused`] the log goes on as if this had not been
    /// called.
    pub fn end_segment(&mut self) -> Result<(), LogError> {
        self.check_usable()?;
        let resumed = self.finish_open();
        self.note_failure(resumed)?;
        if self.current.base == self.next {
            return Ok(());
        }
        let bytes = self.shared.config.first_segment_bytes;
        let result = self
            .new_file(bytes)
            .and_then(|found| self.enter_segment(found, Lsn(0)));
        self.note_failure(result)
    }

    /// Returns whether the open has something left to do, for want of space or of files. The next append does it.
    pub fn is_waiting(&self) -> bool {
        self.resume.is_some() || self.file.is_none()
    }

    /// Does what the open could not do.
    pub(crate) fn finish_open(&mut self) -> Result<(), LogError> {
        let Some(resume) = self.resume.take() else {
            return Ok(());
        };
        let result = recovery::finish(self, &resume);
        if result.is_err() {
            self.resume = Some(resume);
        }
        result
    }

    /// A handle for a background thread, which makes the next segments ready.
    pub fn preallocator(&self) -> SegmentPreallocator {
        SegmentPreallocator::new(Arc::clone(&self.shared))
    }

    /// Where the next batch goes; everything before is durable.
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// The oldest position that is kept.
    pub fn first_lsn(&self) -> Lsn {
        self.sealed.front().unwrap_or(&self.current).base
    }

    /// Where the oldest segment ends that [`Log::release_before`] would let go of; `None` when there is only the one
    /// that is being written.
    pub fn oldest_end(&self) -> Option<Lsn> {
        self.sealed.front()?;
        Some(self.sealed.get(1).unwrap_or(&self.current).base)
    }

    /// Figures for metrics.
    pub fn stats(&self) -> LogStats {
        let (spares, spare_bytes) = self.shared.spare_files();
        let sealed_bytes: u64 = self.sealed.iter().map(|segment| segment.bytes).sum();
        LogStats {
            size_bytes: sealed_bytes + self.current.bytes,
            data_bytes: self.next.0 - self.first_lsn().0,
            spare_bytes,
            segments: self.sealed.len() as u64 + 1,
            spares: spares as u64,
            appended_bytes: self.counters.bytes,
            appended_batches: self.counters.batches,
            appended_records: self.counters.records,
            syncs: self.counters.syncs,
            prepared_segments: self.shared.prepared(),
            ready_segments: self.counters.ready_segments,
            unready_segments: self.counters.unready_segments,
        }
    }

    fn check_usable(&self) -> Result<(), LogError> {
        if self.has_failed {
            Err(LogError::PreviousIo)
        } else {
            Ok(())
        }
    }

    /// Notes a failure after which nothing may be written.
    fn note_failure<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result
            && !error.is_passing()
        {
            self.has_failed = true;
        }
        result
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let result = self.finish_open().and_then(|()| self.write_and_sync(batch));
        self.note_failure(result)
    }

    fn write_and_sync(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let bytes = batch.len_bytes();
        if self.file.is_none() || self.current.capacity_end().0 - self.next.0 < bytes {
            self.change_segment(bytes, Lsn(0))?;
        }
        let Some(file) = &self.file else {
            return Err(LogError::PreviousIo);
        };
        let offset = self.current.offset(self.next);
        // Zeros up to the end of the page: a page that is written whole need not be read first,
        // and the sync writes all of it anyway.
        let padded = ((offset + bytes).next_multiple_of(PAGE_BYTES) - offset) as usize;
        let place = BatchPlace {
            lsn: self.next,
            durable: self.next,
            epoch: self.epoch,
            salt: self.current.salt,
        };
        batch.with_bytes(&place, padded, |bytes| file.write_at(bytes, offset))?;
        self.counters.syncs += 1;
        file.sync_data()?;
        if bytes >= FORGET_BYTES {
            file.forget(offset, bytes);
        }
        self.next = Lsn(self.next.0 + bytes);
        self.counters.bytes += bytes;
        self.note_use();
        Ok(())
    }

    /// Tells the preallocators how full the current segment is.
    pub(crate) fn note_use(&self) {
        self.shared
            .note_use(self.current.offset(self.next), self.current.bytes);
    }

    /// Starts a new segment with room for a batch of `batch_bytes`. Its header tells later opens
    /// to accept damage below `forgiven`.
    pub(crate) fn change_segment(
        &mut self,
        batch_bytes: u64,
        forgiven: Lsn,
    ) -> Result<(), LogError> {
        let wanted = self.shared.next_segment_bytes();
        let found = self.find_file(batch_bytes, wanted)?;
        self.enter_segment(found, forgiven)
    }

    fn enter_segment(
        &mut self,
        (from, bytes, file): (FileName, u64, Box<dyn File>),
        forgiven: Lsn,
    ) -> Result<(), LogError> {
        let next = Segment {
            // Segments that are missing keep their numbers.
            number: self.current.number.max(self.shared.catalog.last()) + 1,
            base: self.next,
            bytes,
            salt: self.shared.config.salt,
        };
        let header = SegmentHeader {
            number: next.number,
            base: next.base,
            owner: self.owner,
            epoch: self.epoch,
            salt: next.salt,
            forgiven,
            bytes,
        };
        let entered = enter_sequence(&*self.shared.disk, &self.shared.dir, from, &*file, &header);
        self.counters.syncs += 2;
        if let Err(error) = entered {
            if error.is_passing() {
                self.give_back(from, bytes);
            }
            return Err(error);
        }
        match from {
            FileName::Spare(_) => self.counters.ready_segments += 1,
            _ => self.counters.unready_segments += 1,
        }
        if self.current.number > 0 {
            self.sealed.push_back(self.current);
        }
        self.current = next;
        self.file = Some(file);
        self.shared.catalog.note_last(next.number);
        self.note_use();
        Ok(())
    }

    /// A spare, or else a new file: of the size that is wanted, or on a nearly full disk the
    /// smallest that does.
    fn find_file(
        &self,
        batch_bytes: u64,
        wanted: u64,
    ) -> Result<(FileName, u64, Box<dyn File>), LogError> {
        let Shared {
            disk, dir, config, ..
        } = &*self.shared;
        let needed = segment_bytes_for(batch_bytes, config.first_segment_bytes);
        if let Some(spare) = self.shared.take_spare(segment_bytes_for(batch_bytes, 0)) {
            let name = FileName::Spare(spare.number);
            let opened = disk.open(&dir.join(name.to_string()));
            let file = opened.inspect_err(|_| self.shared.give_back(spare))?;
            return Ok((name, spare.bytes, file));
        }
        let bytes = segment_bytes_for(batch_bytes, wanted);
        match self.new_file(bytes) {
            Err(error) if error.is_no_space() && needed < bytes => self.new_file(needed),
            result => result,
        }
    }

    fn new_file(&self, bytes: u64) -> Result<(FileName, u64, Box<dyn File>), LogError> {
        let Shared { disk, dir, .. } = &*self.shared;
        let name = FileName::Unfinished(self.shared.new_number());
        let file = allocate_file(&**disk, &dir.join(name.to_string()), bytes)?;
        Ok((name, bytes, file))
    }

    /// Keeps a file for the next attempt after it could not become a segment.
    fn give_back(&self, from: FileName, bytes: u64) {
        match from {
            FileName::Spare(number) => self.shared.give_back(Spare { number, bytes }),
            // Frees the space; if that fails too, the next open does it.
            other => drop(
                self.shared
                    .disk
                    .remove(&self.shared.dir.join(other.to_string())),
            ),
        }
    }
}
