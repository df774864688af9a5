//! The slot of a vBucket's file: its revision, its current header, and its locks.
//!
//! ```text
//! FileSlot::maintenance   for whole operations that exclude each other: compaction, rollback, replacement, removal
//! FileSlot::written       to write: for a whole commit, the end of a compaction, and every change of the revision
//! FileSlot::current       short: the revision, the current header, and the handle that is kept open
//! ```
//!
//! Invariants:
//! * The revision and the current header change only through [`WriteGuard`], which holds `written` during its lifetime.
//!   A [`SlotWriter`] borrows it, so that it ends before the guard, and before the vBucket has another file. Its writes
//!   become valid through [`SlotWriter::committed`] only, which consumes it: never for another vBucket, and never
//!   twice. [`WriteGuard::install`] consumes the writer of the copy that it installs. `proofs.rs` shows that the
//!   compiler enforces it.
//! * The current header is that of the last commit that returned. A failed commit may have left a later header in the
//!   file: it is never read, and the next commit continues after the current one.
//! * A [`FileReader`] is a snapshot, which does not change when the file grows, is replaced or removed.
//! * A file is compared with its catalog entry before anything is read from it or written to it, and each commit is
//!   recorded in the catalog.
//! * A file is opened under `current`, so that it cannot be removed between the choice of its name and the open.

#![cfg_attr(
    not(feature = "proofs"),
    expect(unreachable_pub, reason = "only the proofs reach it")
)]

mod write;

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use kedge_couchstore::{Header, Snapshot, Writer};
use kedge_encryption::DataKey;
use kedge_sync::{
    RankedMutex, RankedMutexGuard,
    ranks::{SlotCurrent, SlotWritten},
};
use kedge_types::VbId;

use crate::catalog::{CatalogEntry, CatalogVerdict};
use crate::maintenance::MaintenanceLock;
use crate::names::{FileRevision, FoundFiles, file_name};
use crate::stats::StorageCounters;
use crate::vb_metadata::VbMetadata;
use crate::{Storage, StorageError};

pub(crate) use write::InstalledFile;

/// The slot of a vBucket's file.
#[derive(Debug)]
pub(crate) struct FileSlot {
    vb: VbId,
    maintenance: MaintenanceLock,
    written: RankedMutex<SlotWritten, SlotWriterState>,
    current: RankedMutex<SlotCurrent, CurrentFile>,
}

/// The state that only writers need.
#[derive(Debug, Default)]
struct SlotWriterState {
    /// The metadata at the current header; `None` until it is needed.
    metadata: Option<VbMetadata>,
    /// Older revisions that could not be removed.
    left: Vec<FileRevision>,
    /// `true` if an older revision was removed and the directory was not synced since.
    removed: bool,
    /// `true` if it is unknown which of two revisions a crash leaves, so that neither may get a commit.
    undecided: bool,
    /// The revision of a deletion marker. It has no meaning while there is a file, which has a higher revision.
    deleted: Option<FileRevision>,
}

#[derive(Debug)]
struct CurrentFile {
    /// The highest revision of the vBucket's file so far, even if there is none now.
    revision: FileRevision,
    file: SlotFile,
    /// The handle that is kept open.
    open: Option<Snapshot>,
    /// The revision of a missing file, which makes all operations on the vBucket fail.
    missing: Option<FileRevision>,
    /// Lower bound of the offset of the newest header in a file that was not opened yet.
    header_at: u64,
}

/// The state of the file.
#[derive(Debug)]
enum SlotFile {
    /// There is no file.
    Missing,
    /// There is a file that was not opened yet.
    Unread,
    /// There is a file with this current header.
    At(Box<CurrentHeader>),
}

/// The current header of a file.
#[derive(Debug, Clone)]
struct CurrentHeader {
    header: Header,
    file_bytes: u64,
    /// The name of the file's key, if it is encrypted.
    key_id: Option<Arc<str>>,
    /// `true` if the header is known to be durable. That of a file found at the start may be in the page cache only.
    durable: bool,
}

impl FileSlot {
    /// Creates the slot of a vBucket from the files found and their comparison with the catalog.
    pub(crate) fn new(vb: VbId, found: FoundFiles, judged: CatalogVerdict) -> Self {
        let FoundFiles {
            revision,
            is_deleted,
            quarantine,
        } = found;
        FileSlot {
            vb,
            maintenance: MaintenanceLock::default(),
            written: RankedMutex::new(SlotWriterState {
                deleted: is_deleted.then_some(revision),
                ..SlotWriterState::default()
            }),
            current: RankedMutex::new(CurrentFile {
                // The name of a quarantined file does not explain the absence of a later one.
                revision: if found.has_file() {
                    revision
                } else {
                    revision.max(quarantine)
                },
                file: if found.has_file() {
                    SlotFile::Unread
                } else {
                    SlotFile::Missing
                },
                open: None,
                missing: judged.missing,
                header_at: judged.header_at,
            }),
        }
    }

    pub(crate) fn maintenance(&self) -> &MaintenanceLock {
        &self.maintenance
    }

    /// Returns the name of the file's key, `Some(None)` if it is not encrypted, and `None` if there is no file or it was not
    /// opened yet.
    pub(crate) fn key_id(&self) -> Option<Option<Arc<str>>> {
        match &self.current.lock().file {
            SlotFile::At(at) => Some(at.key_id.clone()),
            SlotFile::Missing | SlotFile::Unread => None,
        }
    }
}

impl CurrentFile {
    /// Returns an error if the catalog lists a file of the vBucket that is missing.
    fn check_is_there(&self, storage: &Storage, vb: VbId) -> Result<(), StorageError> {
        match self.missing {
            Some(revision) => Err(StorageError::Missing {
                file: storage.dir.join(file_name(vb, revision)),
            }),
            None => Ok(()),
        }
    }

    /// Returns an error if a file that is opened for the first time ends before a commit in the catalog.
    fn check_is_newest(&self, found: &Snapshot) -> Result<(), StorageError> {
        let found_at = found.header().offset().0;
        if found_at < self.header_at {
            return Err(StorageError::Behind {
                file: found.path().to_owned(),
                found_at,
                committed_at: self.header_at,
            });
        }
        Ok(())
    }
}

/// A read handle: the file at its last commit.
#[derive(Debug)]
pub(crate) struct FileReader<'a> {
    snapshot: Snapshot,
    slot: PhantomData<&'a FileSlot>,
}

impl FileReader<'_> {
    /// Returns the snapshot for long reads. The file stays readable even if it is replaced or removed.
    pub(crate) fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }
}

impl Deref for FileReader<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The write lock of a vBucket's file, which also allows replacing the file.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    storage: &'a Storage,
    slot: &'a FileSlot,
    written: RankedMutexGuard<'a, SlotWritten, SlotWriterState>,
}

/// The write handle of a vBucket's file, or of the one that is to replace it. It borrows the guard mutably.
#[derive(Debug)]
pub struct SlotWriter<'g, 'a> {
    guard: &'g mut WriteGuard<'a>,
    writer: Writer,
    /// The next revision that it writes; `None` if it appends to the file.
    new: Option<NewRevision>,
}

/// The next revision of a file, which a writer creates.
#[derive(Debug)]
struct NewRevision {
    /// Its key, which is held until the file is the vBucket's.
    lease: Option<Arc<DataKey>>,
}

impl Storage {
    /// Returns a read handle; `None` if the vBucket has no file.
    pub(crate) fn reader(&self, vb: VbId) -> Result<Option<FileReader<'_>>, StorageError> {
        let snapshot = self.snapshot(self.slot(vb))?;
        self.close_excess();
        Ok(snapshot.map(|snapshot| FileReader {
            snapshot,
            slot: PhantomData,
        }))
    }

    /// Returns a read handle if one is open. It opens no file and waits for no lock.
    pub(crate) fn reader_at_hand(&self, vb: VbId) -> Option<FileReader<'_>> {
        let slot = self.slot(vb);
        let current = slot.current.try_lock()?;
        let snapshot = current.open.clone()?;
        StorageCounters::count(&self.counters.hits);
        self.open_files.used(vb, snapshot.memory_bytes() as u64);
        Some(FileReader {
            snapshot,
            slot: PhantomData,
        })
    }

    /// Acquires the write lock of the vBucket's file.
    pub(crate) fn writer(&self, vb: VbId) -> WriteGuard<'_> {
        let slot = self.slot(vb);
        WriteGuard {
            storage: self,
            slot,
            written: slot.written.lock(),
        }
    }

    /// Acquires the write lock of the vBucket's file, unless another thread has it.
    pub(crate) fn try_writer(&self, vb: VbId) -> Option<WriteGuard<'_>> {
        let slot = self.slot(vb);
        let written = slot.written.try_lock()?;
        Some(WriteGuard {
            storage: self,
            slot,
            written,
        })
    }

    /// Records a durable commit of the vBucket's file in the catalog.
    fn note_commit(&self, vb: VbId, revision: FileRevision, header: &Header) {
        let header_at = header.offset().0;
        self.catalog.note(
            vb,
            CatalogEntry {
                revision,
                header_at,
            },
        );
    }

    fn snapshot(&self, slot: &FileSlot) -> Result<Option<Snapshot>, StorageError> {
        let mut current = slot.current.lock();
        current.check_is_there(self, slot.vb)?;
        let snapshot = match (&current.open, &current.file) {
            (_, SlotFile::Missing) => return Ok(None),
            (Some(open), _) => {
                StorageCounters::count(&self.counters.hits);
                open.clone()
            }
            (None, file) => {
                let path = self.dir.join(file_name(slot.vb, current.revision));
                let (disk, options) = (&*self.disk, self.options.to_open());
                let opened = match file {
                    SlotFile::At(at) => Snapshot::open_at(disk, &path, &options, &at.header),
                    _ => Snapshot::open(disk, &path, &options),
                };
                let opened = opened.map_err(FileSlot::open_error)?;
                StorageCounters::count(&self.counters.misses);
                opened
            }
        };
        if let SlotFile::Unread = current.file {
            current.check_is_newest(&snapshot)?;
            current.file = SlotFile::At(Box::new(CurrentHeader {
                header: snapshot.header().clone(),
                file_bytes: snapshot.file_bytes()?,
                key_id: snapshot.key_id().map(Arc::from),
                durable: false,
            }));
        }
        self.keep(slot, &mut current, &snapshot);
        Ok(Some(snapshot))
    }

    /// Keeps a handle open, if the limits allow it.
    fn keep(&self, slot: &FileSlot, current: &mut CurrentFile, snapshot: &Snapshot) {
        if self.open_files.keeps() {
            current.open = Some(snapshot.clone());
            self.open_files
                .used(slot.vb, snapshot.memory_bytes() as u64);
        } else {
            self.close(slot, current);
        }
    }

    fn close(&self, slot: &FileSlot, current: &mut CurrentFile) {
        current.open = None;
        self.open_files.closed(slot.vb);
    }

    /// Closes surplus files. The caller holds no lock of a slot's current file.
    pub(crate) fn close_excess(&self) {
        while let Some(vb) = self.open_files.excess() {
            let slot = self.slot(vb);
            let mut current = slot.current.lock();
            // It may have been used or closed since.
            if self.open_files.excess() == Some(vb) {
                StorageCounters::count(&self.counters.evictions);
                self.close(slot, &mut current);
            }
        }
    }

    /// Returns the revision, the current header and the length of the vBucket's file; `None` if it has no file. Opens
    /// it only if it was not opened yet.
    pub(crate) fn current_header(
        &self,
        vb: VbId,
    ) -> Result<Option<(FileRevision, Header, u64)>, StorageError> {
        let slot = self.slot(vb);
        let unread = matches!(slot.current.lock().file, SlotFile::Unread);
        if unread {
            self.reader(vb)?;
        }
        let current = slot.current.lock();
        Ok(match &current.file {
            SlotFile::At(at) => Some((current.revision, at.header.clone(), at.file_bytes)),
            _ => None,
        })
    }
}
