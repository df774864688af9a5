//! The open log: appends, new segments, close.
//!
//! Invariants:
//! * Everything before `next` is durable, and `next` moves only after a sync has returned. So the next append
//!   overwrites the bytes that a failed one has left after `next`.
//! * Every file before the current one is complete: the base of the next one is its end.
//! * After a failed sync, or a failed write for a reason other than a full disk, nothing is written any more.
//! * A sealer exists if and only if the current segment is encrypted.
//! * The deferred work of an open ([`DeferredRecovery`]) is done before anything else is written.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, DiskError, File};

use crate::batch::{Batch, BatchPosition};
use crate::catalog::catalog_path;
use crate::format::{
    BATCH_HEADER_BYTES, PAGE_BYTES, PROOF_BYTES, SEALED_BATCH_HEADER_BYTES, SegmentEncryption,
    SegmentHeader,
};
use crate::key_use::SegmentKeyUse;
use crate::pool::{SegmentFiles, SegmentPreallocator, SpareSegment};
use crate::recovery::{self, DeferredRecovery, RecoveryReport};
use crate::seal::{BatchSealer, SegmentSecret};
use crate::segment::{FileName, Segment, allocate_file, enter_sequence, segment_bytes_for};
use crate::{LogConfig, LogError, LogRecord, Lsn, RecoveryMode};

/// Size in bytes from which batches are dropped from the page cache once they are on disk. No one reads them before the
/// next open, and the freed memory serves the next batch.
const FORGET_BYTES: u64 = 256 << 10;

/// A commit log that is open for appends, see the documentation of the crate.
pub struct Log {
    pub(crate) shared: Arc<SegmentFiles>,
    pub(crate) owner: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) current: Segment,
    pub(crate) file: Option<Box<dyn File>>,
    /// Encrypts the batches of the current segment.
    pub(crate) sealer: Option<BatchSealer>,
    /// Unreleased segments before the current one, oldest first.
    pub(crate) sealed: VecDeque<Segment>,
    /// The position of the next batch.
    pub(crate) next: Lsn,
    /// `true` if an end marker follows the last batch, or there is no batch.
    pub(crate) has_marker: bool,
    pub(crate) has_failed: bool,
    /// The deferred work of an open that found the disk full or was refused by the system.
    pub(crate) resume: Option<DeferredRecovery>,
    pub(crate) counters: LogCounters,
}

/// A file that is about to become a segment.
struct NewSegmentFile {
    name: FileName,
    bytes: u64,
    /// `true` if it may contain batches of a plain segment.
    has_plain_text: bool,
    file: Box<dyn File>,
}

/// Counters since the log was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogCounters {
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) syncs: u64,
    pub(crate) ready_segments: u64,
    pub(crate) unready_segments: u64,
}

/// Figures of an open log, for metrics. The figures of appends count from the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LogStats {
    /// Size of the files with data, in bytes: the segments in the sequence.
    pub size_bytes: u64,
    /// Size of the batches in them, in bytes.
    pub data_bytes: u64,
    /// Size of the other files, in bytes: ready for use, being filled, or waiting to be recycled or removed.
    pub spare_bytes: u64,
    /// Number of segments in the sequence.
    pub segments: u64,
    /// Number of segments in the sequence that are not encrypted.
    pub plain_segments: u64,
    /// Number of files that are ready to become segments.
    pub spares: u64,
    /// Number of appended bytes, including headers and padding to 8, but not the padding to pages.
    pub appended_bytes: u64,
    /// Number of appended batches, without end markers.
    pub appended_batches: u64,
    /// Number of appended records.
    pub appended_records: u64,
    /// Number of syncs of segments that a caller waited for.
    pub syncs: u64,
    /// Number of segments filled with zeros in the background.
    pub prepared_segments: u64,
    /// Number of times that the next segment was ready when it was needed.
    pub ready_segments: u64,
    /// Number of times that the next segment was not ready, so that a new file with slower appends was used.
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
    /// Opens the log in `dir` and passes every retained record to `replay`, in order of the appends. It creates the log
    /// if none exists or existed. The caller ensures that no other process uses the directory ([`Disk::lock_dir`]).
    /// `owner` is written to every segment, and segments of another owner are rejected.
    ///
    /// On return, all replayed records are durable, unless [`Log::is_waiting`]. If it fails, the records replayed so
    /// far are void; a further call replays the same ones.
    ///
    /// # Errors
    /// An error of `replay` ends the call. [`LogError::Corrupt`], [`LogError::WrongOwner`], [`LogError::MissingKey`],
    /// [`LogError::WrongKey`] and [`LogError::UnsupportedVersion`] name the file. Disk errors are passed on. A full disk is no error: the log is
    /// readable, and writes start when there is space.
    pub fn open<E: From<LogError>>(
        disk: Arc<dyn Disk>,
        dir: &Path,
        owner: [u8; 16],
        config: LogConfig,
        mode: RecoveryMode,
        replay: &mut dyn FnMut(LogRecord<'_>) -> Result<(), E>,
    ) -> Result<(Log, RecoveryReport), E> {
        recovery::open(disk, dir, owner, config, mode, replay)
    }

    /// Returns `true` if `dir` has a log, or had one whose files are missing.
    ///
    /// # Errors
    /// The error of the disk if it cannot determine that.
    pub fn is_there(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
        Ok(disk.exists(dir)? || disk.exists(&catalog_path(dir))?)
    }

    /// Removes the log in `dir`, if there is one, durably. A crash may leave a part of it, which cannot be opened.
    ///
    /// # Errors
    /// The error of the disk.
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

    /// Makes the batch durable with one write and one sync. Returns the position after it and empties the batch. An
    /// empty batch costs nothing.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Refused`]: the batch is unchanged and can be appended again, also with
    /// further records. A crash before that may still leave its records in the log. After any other error, the state of
    /// the batch is unknown, the log rejects all further operations with [`LogError::PreviousIo`], and the process
    /// should end.
    pub fn append(&mut self, batch: &mut Batch) -> Result<Lsn, LogError> {
        self.check_usable()?;
        if batch.is_empty() {
            return Ok(self.next);
        }
        self.commit(batch)?;
        self.counters.batches += 1;
        self.counters.records += u64::from(batch.records());
        self.has_marker = false;
        batch.clear();
        Ok(self.next)
    }

    /// Writes an end marker after the last batch, unless it has one. Recovery can then distinguish damage to
    /// that batch from an unfinished append. Callers write it when the log is idle.
    ///
    /// # Errors
    /// The errors of [`Log::append`].
    pub fn write_marker(&mut self) -> Result<(), LogError> {
        self.check_usable()?;
        if !self.has_marker {
            self.commit(&mut Batch::new())?;
            self.has_marker = true;
        }
        Ok(())
    }

    /// Closes the log with an end marker, as [`Log::write_marker`] does. A log that is dropped instead loses no data
    /// either.
    ///
    /// # Errors
    /// The errors of [`Log::append`]. All acknowledged data is durable in any case.
    pub fn close(mut self) -> Result<(), LogError> {
        self.write_marker()
    }

    /// Releases all segments whose batches end at or before `lsn` and returns their number. It does no I/O: the next
    /// [`SegmentPreallocator::step`] recycles or removes the files, and until then an open replays them. The current
    /// segment is always retained.
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

    /// Ends the current segment, unless it is empty. The next append starts a new segment with the size of a first
    /// segment, and [`Log::release_before`] can release everything before it, so that the next open has little to read.
    ///
    /// # Errors
    /// The errors of [`Log::append`]. With [`LogError::NoSpace`] and [`LogError::Refused`], the log continues as before
    /// the call.
    pub fn end_segment(&mut self) -> Result<(), LogError> {
        self.check_usable()?;
        let resumed = self.finish_open();
        self.note_failure(resumed)?;
        if self.current.base == self.next {
            return Ok(());
        }
        let bytes = self.shared.config.first_segment_bytes;
        let secret = self.new_secret();
        let result = self
            .new_file(bytes)
            .and_then(|found| self.enter_segment(found, secret, Lsn(0)));
        self.note_failure(result)
    }

    /// Begins a new segment if the active key of [`LogConfig::keys`] is not that of the current one. Callers use it after
    /// a change of the active key; without it, the change takes effect with the next segment that the log needs. Returns
    /// `true` if there is a new segment.
    ///
    /// # Errors
    /// The errors of [`Log::append`]. With [`LogError::NoSpace`] and [`LogError::Refused`], the log continues with the
    /// former key.
    pub fn use_active_key(&mut self) -> Result<bool, LogError> {
        self.check_usable()?;
        let before = self.current.number;
        // The deferred work of an open changes the key, too.
        let result = self.finish_open().and_then(|()| {
            if self.file.is_some() && self.has_active_key() {
                return Ok(());
            }
            self.change_segment(0, Lsn(0))
        });
        self.note_failure(result)?;
        Ok(self.current.number != before)
    }

    /// Returns `true` if the current segment is encrypted with the active key, or plain if there is none.
    pub(crate) fn has_active_key(&self) -> bool {
        let active = self.shared.config.keys.active();
        self.current.key_id() == active.as_ref().map(|key| key.id())
    }

    /// Returns the ids of the keys that an open of the log would need now.
    pub fn key_use(&self) -> SegmentKeyUse {
        let mut keys = self.shared.released_key_use();
        for segment in self.sealed.iter().chain([&self.current]) {
            keys.note(segment.key_id());
        }
        keys
    }

    /// Returns the ids of the keys that an open of the log in `dir` needs, from the headers of its segments. Segments
    /// without a sound header count as plain ones.
    ///
    /// # Errors
    /// [`LogError::UnsupportedVersion`], and the error of the disk.
    pub fn key_use_in(disk: &dyn Disk, dir: &Path) -> Result<SegmentKeyUse, LogError> {
        SegmentKeyUse::read(disk, dir)
    }

    /// Returns `true` if the open has deferred work for lack of space or files. The next append does it.
    pub fn is_waiting(&self) -> bool {
        self.resume.is_some() || self.file.is_none()
    }

    /// Does the deferred work of the open.
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

    /// Returns a handle with which a background thread prepares the next segments.
    pub fn preallocator(&self) -> SegmentPreallocator {
        SegmentPreallocator::new(Arc::clone(&self.shared))
    }

    /// Returns the position of the next batch. Everything before it is durable.
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// Returns the oldest retained position.
    pub fn first_lsn(&self) -> Lsn {
        self.sealed.front().unwrap_or(&self.current).base
    }

    /// Returns the end of the oldest segment that [`Log::release_before`] could release, or `None` if only the current
    /// one exists.
    pub fn oldest_end(&self) -> Option<Lsn> {
        self.sealed.front()?;
        Some(self.sealed.get(1).unwrap_or(&self.current).base)
    }

    /// Returns figures for metrics.
    pub fn stats(&self) -> LogStats {
        let (spares, spare_bytes) = self.shared.spare_files();
        let sealed_bytes: u64 = self.sealed.iter().map(|segment| segment.bytes).sum();
        let segments = self.sealed.iter().chain([&self.current]);
        let plain_segments = segments.filter(|segment| segment.secret.is_none()).count();
        LogStats {
            size_bytes: sealed_bytes + self.current.bytes,
            data_bytes: self.next.0 - self.first_lsn().0,
            spare_bytes,
            segments: self.sealed.len() as u64 + 1,
            plain_segments: plain_segments as u64,
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

    /// Records a failure after which nothing may be written.
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
        let body_bytes = batch.body_bytes();
        let needed = body_bytes + self.current.batch_header_bytes();
        if self.file.is_none() || self.current.capacity_end().0 - self.next.0 < needed {
            self.change_segment(body_bytes, Lsn(0))?;
        }
        let bytes = body_bytes + self.current.batch_header_bytes();
        let Some(file) = &self.file else {
            return Err(LogError::PreviousIo);
        };
        let offset = self.current.offset(self.next);
        // Zeros up to the end of the page: a page that is written as a whole need not be read first, and the sync
        // writes all of it anyway.
        let padded = ((offset + bytes).next_multiple_of(PAGE_BYTES) - offset) as usize;
        let place = BatchPosition {
            lsn: self.next,
            durable: self.next,
            epoch: self.epoch,
            salt: self.current.salt,
        };
        let sealer = self.sealer.as_mut();
        let write = |bytes: &[u8]| file.write_at(bytes, offset);
        let written = batch.with_bytes(&place, sealer, padded, write);
        written.map_err(|error| self.with_current_path(error))?;
        self.counters.syncs += 1;
        file.sync_data()
            .map_err(|error| self.with_current_path(error))?;
        if bytes >= FORGET_BYTES {
            file.forget(offset, bytes);
        }
        self.next = Lsn(self.next.0 + bytes);
        self.counters.bytes += bytes;
        self.note_use();
        Ok(())
    }

    /// Corrects the path of an error of the current segment. The open file still has the name from before it became a
    /// segment.
    fn with_current_path(&self, mut error: DiskError) -> DiskError {
        error.path = self.current_path();
        error
    }

    pub(crate) fn current_path(&self) -> PathBuf {
        let name = FileName::Segment(self.current.number).to_string();
        self.shared.dir.join(name)
    }

    /// Publishes the fill level of the current segment to the preallocators.
    pub(crate) fn note_use(&self) {
        self.shared
            .note_use(self.current.offset(self.next), self.current.bytes);
    }

    /// Starts a new segment with room for a batch whose records have `body_bytes`. Its header makes later opens accept
    /// damage before `forgiven`.
    pub(crate) fn change_segment(
        &mut self,
        body_bytes: u64,
        forgiven: Lsn,
    ) -> Result<(), LogError> {
        let secret = self.new_secret();
        let batch_bytes = match (body_bytes, &secret) {
            // There is no batch yet.
            (0, _) => 0,
            (_, Some(_)) => body_bytes + SEALED_BATCH_HEADER_BYTES as u64,
            (_, None) => body_bytes + BATCH_HEADER_BYTES as u64,
        };
        let wanted = self.shared.next_segment_bytes();
        let found = self.find_file(batch_bytes, wanted, secret.is_some())?;
        self.enter_segment(found, secret, forgiven)
    }

    /// Returns the secret of the next segment, if there is an active key.
    fn new_secret(&self) -> Option<Arc<SegmentSecret>> {
        let active = self.shared.config.keys.active();
        active.map(|key| Arc::new(SegmentSecret::random(&key)))
    }

    fn enter_segment(
        &mut self,
        found: NewSegmentFile,
        secret: Option<Arc<SegmentSecret>>,
        forgiven: Lsn,
    ) -> Result<(), LogError> {
        let next = Segment {
            // The numbers of missing segments are not reused.
            number: self.current.number.max(self.shared.catalog.last()) + 1,
            base: self.next,
            bytes: found.bytes,
            salt: self.shared.config.salt,
            secret,
        };
        let header = self.header_of(&next, forgiven);
        let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
        let entered = enter_sequence(disk, dir, found.name, &*found.file, &header);
        self.counters.syncs += 2;
        if let Err(error) = entered {
            if error.is_passing() {
                self.give_back(&found);
            }
            return Err(error);
        }
        match found.name {
            FileName::Spare(_) => self.counters.ready_segments += 1,
            _ => self.counters.unready_segments += 1,
        }
        self.shared.catalog.note_last(next.number);
        let last = std::mem::replace(&mut self.current, next);
        if last.number > 0 {
            self.sealed.push_back(last);
        }
        self.file = Some(found.file);
        self.note_current_key();
        self.note_use();
        Ok(())
    }

    /// Makes a sealer for the current segment, and tells the preallocators about its key.
    pub(crate) fn note_current_key(&mut self) {
        let secret = self.current.secret.as_deref();
        self.sealer = secret.map(BatchSealer::new);
        self.shared.note_encryption(secret.is_some());
    }

    /// Returns the header of a segment of this log.
    pub(crate) fn header_of(&self, segment: &Segment, forgiven: Lsn) -> SegmentHeader {
        let mut header = SegmentHeader {
            number: segment.number,
            base: segment.base,
            owner: self.owner,
            epoch: self.epoch,
            salt: segment.salt,
            forgiven,
            bytes: segment.bytes,
            encryption: None,
        };
        if let Some(secret) = &segment.secret {
            header.encryption = Some(SegmentEncryption {
                key_id: secret.key_id().to_owned(),
                salt: secret.salt(),
                proof: [0; PROOF_BYTES],
            });
            let proof = secret.proof(&header);
            if let Some(encryption) = &mut header.encryption {
                encryption.proof = proof;
            }
        }
        header
    }

    /// Takes a spare file, or creates one: of the wanted size, or the smallest sufficient size on a nearly full disk.
    fn find_file(
        &self,
        batch_bytes: u64,
        wanted: u64,
        is_encrypted: bool,
    ) -> Result<NewSegmentFile, LogError> {
        let SegmentFiles {
            disk, dir, config, ..
        } = &*self.shared;
        let needed = segment_bytes_for(batch_bytes, config.first_segment_bytes);
        let spare_bytes = segment_bytes_for(batch_bytes, 0);
        if let Some(spare) = self.shared.take_spare(spare_bytes, is_encrypted) {
            let name = FileName::Spare(spare.number);
            let opened = disk.open(&dir.join(name.to_string()));
            return Ok(NewSegmentFile {
                name,
                bytes: spare.bytes,
                has_plain_text: spare.has_plain_text,
                file: opened.inspect_err(|_| self.shared.give_back(spare))?,
            });
        }
        let bytes = segment_bytes_for(batch_bytes, wanted);
        match self.new_file(bytes) {
            Err(error) if error.is_no_space() && needed < bytes => self.new_file(needed),
            result => result,
        }
    }

    fn new_file(&self, bytes: u64) -> Result<NewSegmentFile, LogError> {
        let SegmentFiles { disk, dir, .. } = &*self.shared;
        let name = FileName::Unfinished(self.shared.new_number());
        Ok(NewSegmentFile {
            name,
            bytes,
            has_plain_text: false,
            file: allocate_file(&**disk, &dir.join(name.to_string()), bytes)?,
        })
    }

    /// Keeps a file that could not become a segment for the next attempt.
    fn give_back(&self, file: &NewSegmentFile) {
        match file.name {
            FileName::Spare(number) => self.shared.give_back(SpareSegment {
                number,
                bytes: file.bytes,
                has_plain_text: file.has_plain_text,
            }),
            // Frees the space. If that fails, too, the next open frees it.
            other => drop(
                self.shared
                    .disk
                    .remove(&self.shared.dir.join(other.to_string())),
            ),
        }
    }
}
