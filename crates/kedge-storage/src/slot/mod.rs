//! The place of one vBucket's file: which revision it is, at which header, and who may use it.
//!
//! ```text
//! Slot::maintenance   for whole operations that exclude each other: compaction, rollback, replacing, removing
//! Slot::written       to write: for a whole commit, for the end of a compaction, for whatever changes the revision
//! Slot::current       short: which revision and header count, and the handle that is kept open
//! ```
//!
//! Invariants:
//! * The revision, and the header that counts, change only through [`WriteGuard`], which has `written` for as long as it
//!   lives. A [`SlotWriter`] borrows it, so that it is gone before the guard is, and before the vBucket has another file.
//!   What it wrote counts through [`SlotWriter::committed`] only, which takes it: no other vBucket's, and none twice. A
//!   copy that [`WriteGuard::install`] makes the vBucket's file takes its writer with it. `proofs.rs` shows that the
//!   compiler sees to it.
//! * The header that counts is that of the last commit that returned. A commit that failed may have left a later one in
//!   the file: it is never read, and the next commit goes on behind the one that counts.
//! * A [`Reader`] is a snapshot. It stays what it was when its file grows, is replaced or removed.
//! * What the catalog has of a file is compared with it before anything is read of it or written to it, and is noted there
//!   after each commit.
//! * A file is opened under `current`, so that it cannot be removed between choosing its name and opening it.

#![cfg_attr(
    not(feature = "proofs"),
    expect(unreachable_pub, reason = "only the proofs reach it")
)]

mod write;

use std::marker::PhantomData;
use std::ops::Deref;

use kedge_couchstore::{Header, Snapshot, Writer};
use kedge_sync::{
    RankedMutex, RankedMutexGuard,
    ranks::{SlotCurrent, SlotWritten},
};
use kedge_types::VbId;

use crate::catalog::{Entry, Judged};
use crate::maintenance::Maintenance;
use crate::names::{Revision, Stock, file_name};
use crate::stats::Counters;
use crate::vb_metadata::VbMetadata;
use crate::{Storage, StorageError};

pub(crate) use write::Installed;

/// One vBucket's place.
#[derive(Debug)]
pub(crate) struct Slot {
    vb: VbId,
    maintenance: Maintenance,
    written: RankedMutex<SlotWritten, Written>,
    current: RankedMutex<SlotCurrent, Current>,
}

/// What only those need who write.
#[derive(Debug, Default)]
struct Written {
    /// What the file says at the header that counts; `None` until it is needed.
    metadata: Option<VbMetadata>,
    /// Older revisions that could not be removed.
    left: Vec<Revision>,
    /// Whether an older revision was removed without a sync of the directory since.
    removed: bool,
    /// Whether nobody knows which of two revisions a crash leaves, so that none of them may get a commit.
    undecided: bool,
    /// The mark that the vBucket was deleted. It says nothing while there is a file: that has a higher revision.
    deleted: Option<Revision>,
}

#[derive(Debug)]
struct Current {
    /// The highest revision that the vBucket's file had, also when there is none now.
    revision: Revision,
    file: Place,
    /// The handle that is kept open.
    open: Option<Snapshot>,
    /// The revision that has to be there and is not: nothing is done for the vBucket then.
    missing: Option<Revision>,
    /// A file that was not looked at yet has a header here or behind this.
    header_at: u64,
}

/// What is known of the file.
#[derive(Debug)]
enum Place {
    /// There is none.
    Missing,
    /// There is one that was not looked at yet.
    Unread,
    /// There is one, and this counts.
    At(Box<At>),
}

/// What counts of a file.
#[derive(Debug, Clone)]
struct At {
    header: Header,
    file_bytes: u64,
    /// Whether the header is known to be durable: that of a file that was found may be in the kernel's memory only.
    durable: bool,
}

impl Slot {
    /// The place of a vBucket of which this was found, and judged by the catalog.
    pub(crate) fn new(vb: VbId, found: Stock, judged: Judged) -> Self {
        let Stock {
            revision,
            is_deleted,
            put_away,
        } = found;
        Slot {
            vb,
            maintenance: Maintenance::default(),
            written: RankedMutex::new(Written {
                deleted: is_deleted.then_some(revision),
                ..Written::default()
            }),
            current: RankedMutex::new(Current {
                // The name of a file that was put away explains nothing about a later one.
                revision: if found.has_file() {
                    revision
                } else {
                    revision.max(put_away)
                },
                file: if found.has_file() {
                    Place::Unread
                } else {
                    Place::Missing
                },
                open: None,
                missing: judged.missing,
                header_at: judged.header_at,
            }),
        }
    }

    pub(crate) fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }
}

impl Current {
    /// An error if the catalog has a file of the vBucket that is not there.
    fn check_is_there(&self, storage: &Storage, vb: VbId) -> Result<(), StorageError> {
        match self.missing {
            Some(revision) => Err(StorageError::Missing {
                file: storage.dir.join(file_name(vb, revision)),
            }),
            None => Ok(()),
        }
    }

    /// An error if a file that is opened for the first time ends before a commit that the catalog has.
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

/// A handle for reading: the file as its last commit left it.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    snapshot: Snapshot,
    slot: PhantomData<&'a Slot>,
}

impl Reader<'_> {
    /// For what reads on for long: the file stays readable, also when it is replaced or removed meanwhile.
    pub(crate) fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }
}

impl Deref for Reader<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The right to write to a vBucket's file, and to give it another.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    storage: &'a Storage,
    slot: &'a Slot,
    written: RankedMutexGuard<'a, SlotWritten, Written>,
}

/// The handle for writing to a vBucket's file, or to the one that is to take its place. The guard lends it, and can do
/// nothing else meanwhile.
#[derive(Debug)]
pub struct SlotWriter<'g, 'a> {
    guard: &'g mut WriteGuard<'a>,
    writer: Writer,
    /// Whether it makes the next revision.
    is_new: bool,
}

impl Storage {
    /// A handle for reading; `None` if the vBucket has no file.
    pub(crate) fn reader(&self, vb: VbId) -> Result<Option<Reader<'_>>, StorageError> {
        let snapshot = self.snapshot(self.slot(vb))?;
        self.close_excess();
        Ok(snapshot.map(|snapshot| Reader {
            snapshot,
            slot: PhantomData,
        }))
    }

    /// A handle for reading if one is at hand: opens nothing, and waits for nobody.
    pub(crate) fn reader_at_hand(&self, vb: VbId) -> Option<Reader<'_>> {
        let slot = self.slot(vb);
        let current = slot.current.try_lock()?;
        let snapshot = current.open.clone()?;
        Counters::count(&self.counters.hits);
        self.open_files.used(vb, snapshot.memory_bytes() as u64);
        Some(Reader {
            snapshot,
            slot: PhantomData,
        })
    }

    /// The right to write to the vBucket's file. Waits for whoever has it.
    pub(crate) fn writer(&self, vb: VbId) -> WriteGuard<'_> {
        let slot = self.slot(vb);
        WriteGuard {
            storage: self,
            slot,
            written: slot.written.lock(),
        }
    }

    /// The right to write to the vBucket's file, unless somebody has it.
    pub(crate) fn try_writer(&self, vb: VbId) -> Option<WriteGuard<'_>> {
        let slot = self.slot(vb);
        let written = slot.written.try_lock()?;
        Some(WriteGuard {
            storage: self,
            slot,
            written,
        })
    }

    /// Notes in the catalog that a commit of the vBucket's file is durable.
    fn note_commit(&self, vb: VbId, revision: Revision, header: &Header) {
        let header_at = header.offset().0;
        self.catalog.note(
            vb,
            Entry {
                revision,
                header_at,
            },
        );
    }

    fn snapshot(&self, slot: &Slot) -> Result<Option<Snapshot>, StorageError> {
        let mut current = slot.current.lock();
        current.check_is_there(self, slot.vb)?;
        let snapshot = match (&current.open, &current.file) {
            (_, Place::Missing) => return Ok(None),
            (Some(open), _) => {
                Counters::count(&self.counters.hits);
                open.clone()
            }
            (None, file) => {
                let path = self.dir.join(file_name(slot.vb, current.revision));
                let disk = &*self.disk;
                let opened = match file {
                    Place::At(at) => Snapshot::open_at(disk, &path, &self.options, &at.header)?,
                    _ => Snapshot::open(disk, &path, &self.options)?,
                };
                Counters::count(&self.counters.misses);
                opened
            }
        };
        if let Place::Unread = current.file {
            current.check_is_newest(&snapshot)?;
            current.file = Place::At(Box::new(At {
                header: snapshot.header().clone(),
                file_bytes: snapshot.file_bytes()?,
                durable: false,
            }));
        }
        self.keep(slot, &mut current, &snapshot);
        Ok(Some(snapshot))
    }

    /// Keeps a handle open, if any is to be.
    fn keep(&self, slot: &Slot, current: &mut Current, snapshot: &Snapshot) {
        if self.open_files.keeps() {
            current.open = Some(snapshot.clone());
            self.open_files
                .used(slot.vb, snapshot.memory_bytes() as u64);
        } else {
            self.close(slot, current);
        }
    }

    fn close(&self, slot: &Slot, current: &mut Current) {
        current.open = None;
        self.open_files.closed(slot.vb);
    }

    /// Closes what may not stay open. No lock of a slot's current file is held here.
    pub(crate) fn close_excess(&self) {
        while let Some(vb) = self.open_files.excess() {
            let slot = self.slot(vb);
            let mut current = slot.current.lock();
            // It may have been used, or closed, since.
            if self.open_files.excess() == Some(vb) {
                Counters::count(&self.counters.evictions);
                self.close(slot, &mut current);
            }
        }
    }

    /// Which revision the vBucket's file has, what counts of it, and how long it is; `None` if it has no file. Opens
    /// it only if it was not looked at yet.
    pub(crate) fn what_counts(
        &self,
        vb: VbId,
    ) -> Result<Option<(Revision, Header, u64)>, StorageError> {
        let slot = self.slot(vb);
        let unread = matches!(slot.current.lock().file, Place::Unread);
        if unread {
            self.reader(vb)?;
        }
        let current = slot.current.lock();
        Ok(match &current.file {
            Place::At(at) => Some((current.revision, at.header.clone(), at.file_bytes)),
            _ => None,
        })
    }
}
