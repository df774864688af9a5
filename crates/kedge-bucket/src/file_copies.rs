//! Copies of vBuckets' files between nodes.
//!
//! The active's node opens the vBucket's file at a consistent point and sends it in parts. The node of the new copy writes
//! them to a file, which it installs as that of its vBucket. DCP continues from the seqno of the file.
//!
//! Invariants:
//! * An open file is a snapshot, which a compaction does not change. It is closed when no part was read for
//!   [`IDLE_NS_MAX`], so that a node that is gone does not keep the space of a replaced file.
//! * Parts are read and written at the throttles of compactions of both nodes, as new copies by DCP are. The source tells
//!   the reader how long to wait, so that no thread of a pool does.

use crate::file_readers::FileReaders;
use crate::tasks::{FILE_COPY, FILE_COPY_END};
use kedge_bucket_core::{
    BucketCore, BucketError, Component, TaskBody, Total, add_task, random_u64, submit_change,
};
use kedge_executor::Next;
use kedge_persistence::Persistence;
use kedge_residency::Residency;
use kedge_storage::{FileCopy, FileView};
use kedge_sync::{RankedMutex, ranks::FilesSent};
use kedge_types::limits::{FILE_COPIES_SENT_MAX, FILE_COPY_IDLE_SECS, FILE_PART_BYTES_MAX};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::VbState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a file that nobody reads is closed.
const IDLE_NS_MAX: u64 = FILE_COPY_IDLE_SECS * 1_000_000_000;
/// The interval of checks for that.
const IDLE_CHECK: Duration = Duration::from_secs(10);

/// A file that is ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedFile {
    /// The number under which its parts are read.
    pub id: u64,
    /// Its length.
    pub bytes: u64,
    /// Its highest seqno.
    pub high_seqno: Seqno,
    /// The number of its documents and prepares.
    pub documents: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The CRC-32C of the bytes.
    pub checksum: u32,
    /// The time that the reader waits before it reads the next part.
    pub pause: Duration,
}

/// A file that is being sent.
#[derive(Debug)]
struct OpenFile {
    vb: VbId,
    view: Arc<FileView>,
    used_ns: u64,
}

/// The copies of a bucket's files between nodes.
pub struct FileCopies {
    core: Arc<BucketCore>,
    persistence: Arc<Persistence>,
    residency: Arc<Residency>,
    files: Arc<FileReaders>,
    open: RankedMutex<FilesSent, BTreeMap<u64, OpenFile>>,
}

impl std::fmt::Debug for FileCopies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCopies")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

impl Component for FileCopies {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl FileCopies {
    pub(crate) fn new(files: &Arc<FileReaders>, residency: &Arc<Residency>) -> Self {
        Self {
            core: Arc::clone(&files.core),
            persistence: Arc::clone(&files.persistence),
            residency: Arc::clone(residency),
            files: Arc::clone(files),
            open: RankedMutex::default(),
        }
    }

    /// Opens the file of an active vBucket for another node, in a task, which calls `done` with the result:
    /// `NotMyVbucket` if the vBucket is not active; `EncryptionKeyNotAvailable` if its file is encrypted;
    /// `TemporaryFailure` if its file is not at a consistent point, or too many files are being sent.
    pub fn prepare(
        self: &Arc<Self>,
        vb: VbId,
        done: impl FnOnce(Result<PreparedFile, Status>) + Send + 'static,
    ) {
        let copies = Arc::clone(self);
        let work = move |_: &Self| copies.open_file(vb);
        submit_change(self, &FILE_COPY, work, done);
    }

    fn open_file(self: &Arc<Self>, vb: VbId) -> Result<PreparedFile, Status> {
        let history = self.core.change_vbucket(vb, |vbucket| {
            if vbucket.is_deleted() || vbucket.state() != VbState::Active {
                return Err(Status::NotMyVbucket);
            }
            Ok(vbucket.history_id())
        })?;
        let view = self.files.view_at(vb, history, Seqno(0));
        let view = view.map_err(|error| self.report(vb, &error))?;
        let view = view.ok_or(Status::TemporaryFailure)?;
        if view.is_encrypted() {
            return Err(Status::EncryptionKeyNotAvailable);
        }
        let prepared = PreparedFile {
            id: random_u64(),
            bytes: view.copy_bytes(),
            high_seqno: view.high_seqno(),
            documents: view.live_count(),
        };
        let used_ns = self.core.setup.clock.now().mono_ns;
        {
            let mut open = self.open.lock();
            if open.len() >= FILE_COPIES_SENT_MAX {
                return Err(Status::TemporaryFailure);
            }
            open.insert(prepared.id, OpenFile { vb, view, used_ns });
        }
        let body = CloseIdle { id: prepared.id };
        let does = "closes a file that another node does not read any more";
        let Ok(task) = add_task(self, &FILE_COPY_END, does, body) else {
            self.open.lock().remove(&prepared.id);
            return Err(Status::TemporaryFailure);
        };
        self.core.setup.executor.wake(task);
        Ok(prepared)
    }

    /// Reads a part of a file, in a task, which calls `done` with the result: `KeyNotFound` if no such file is open; `Invalid`
    /// for a part outside the file, or one of more than [`FILE_PART_BYTES_MAX`].
    pub fn read_part(
        self: &Arc<Self>,
        vb: VbId,
        id: u64,
        offset: u64,
        length: u64,
        done: impl FnOnce(Result<FilePart, Status>) + Send + 'static,
    ) {
        let work = move |copies: &Self| copies.read(vb, id, offset, length);
        submit_change(self, &FILE_COPY, work, done);
    }

    fn read(&self, vb: VbId, id: u64, offset: u64, length: u64) -> Result<FilePart, Status> {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let view = {
            let mut open = self.open.lock();
            let file = open.get_mut(&id).filter(|file| file.vb == vb);
            let file = file.ok_or(Status::KeyNotFound)?;
            file.used_ns = now_ns;
            Arc::clone(&file.view)
        };
        let end = offset.checked_add(length);
        let is_inside = end.is_some_and(|end| end <= view.copy_bytes());
        if !is_inside || length > FILE_PART_BYTES_MAX {
            return Err(Status::Invalid);
        }
        let mut bytes = vec![0; length as usize];
        let read = view.read_copy(&mut bytes, offset);
        read.map_err(|error| self.report(vb, &error.into()))?;
        let pause_ns = self.persistence.compactions().copy_pause(length, now_ns);
        let totals = &self.core.totals;
        totals.add(Total::CopiesPausedUs, pause_ns / 1_000);
        totals.add(Total::FileCopySentBytes, length);
        Ok(FilePart {
            checksum: crc32c::crc32c(&bytes),
            bytes,
            pause: Duration::from_nanos(pause_ns),
        })
    }

    /// Closes a file that was sent.
    ///
    /// # Errors
    /// `KeyNotFound` if no such file is open.
    pub fn release(&self, vb: VbId, id: u64) -> Result<(), Status> {
        let mut open = self.open.lock();
        match open.get(&id) {
            Some(file) if file.vb == vb => {
                let file = open.remove(&id);
                // The descriptor is closed without the lock.
                drop(open);
                drop(file);
                Ok(())
            }
            _ => Err(Status::KeyNotFound),
        }
    }

    /// Returns the number of files that are open for other nodes.
    #[must_use]
    pub fn sending(&self) -> usize {
        self.open.lock().len()
    }

    /// Returns the size from which on a vBucket of this bucket is copied as a file, or `None` if none is.
    #[must_use]
    pub fn min_bytes(&self) -> Option<u64> {
        let min_bytes = self.core.config().file_copy_min_bytes;
        let is_possible = self.persistence.installs().is_available()
            // The file of another node has a key of that node, or is in plain text.
            && !self.persistence.encryption().is_enabled();
        (min_bytes > 0 && is_possible).then_some(min_bytes)
    }

    /// Begins a copy of another node's file.
    ///
    /// # Errors
    /// `TemporaryFailure` if the disk fails.
    pub fn begin(&self, vb: VbId) -> Result<FileCopy, Status> {
        let begun = self.persistence.installs().begin_copy(vb);
        begun.map_err(|error| self.report(vb, &error))
    }

    /// Returns the time that the throttle of this node wants to pass after such a part was written.
    #[must_use]
    pub fn receive_pause(&self, bytes: u64) -> Duration {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let pause_ns = self.persistence.compactions().copy_pause(bytes, now_ns);
        Duration::from_nanos(pause_ns)
    }

    /// Installs a copy in a task, which calls `done` with the high seqno of the file. See
    /// [`kedge_persistence::FileInstalls::install`].
    pub fn install(
        self: &Arc<Self>,
        vb: VbId,
        copy: FileCopy,
        is_wanted: impl Fn() -> bool + Send + 'static,
        done: impl FnOnce(Result<Seqno, Status>) + Send + 'static,
    ) {
        let copies = Arc::clone(self);
        let done = move |installed: Result<Seqno, Status>| {
            match installed {
                Ok(_) => copies.residency.warmup().load_installed(vb),
                Err(_) => copies.failed(),
            }
            done(installed);
        };
        let installs = self.persistence.installs();
        installs.submit(vb, copy, is_wanted, done);
    }

    /// Counts a copy that failed.
    pub fn failed(&self) {
        self.core.totals.add(Total::FileCopyFailures, 1);
    }

    fn report(&self, vb: VbId, error: &BucketError) -> Status {
        let what = "a file cannot be copied between nodes: DCP sends its changes";
        self.persistence.report_disk_error(vb, error, what)
    }
}

/// The task that closes a file when nobody reads it any more.
#[derive(Debug)]
struct CloseIdle {
    id: u64,
}

impl TaskBody<FileCopies> for CloseIdle {
    fn run(&mut self, copies: &FileCopies, _: Duration) -> Next {
        let now_ns = copies.core.setup.clock.now().mono_ns;
        let mut open = copies.open.lock();
        let Some(file) = open.get(&self.id) else {
            return Next::Done;
        };
        if now_ns.saturating_sub(file.used_ns) < IDLE_NS_MAX {
            return Next::Snooze(IDLE_CHECK);
        }
        let file = open.remove(&self.id);
        drop(open);
        drop(file);
        Next::Done
    }
}
