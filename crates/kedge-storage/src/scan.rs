//! Reading all that changed, in the order in which it did; or what some collections have.

use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::path::Path;

use kedge_couchstore::kv::{
    DROPPED_COLLECTIONS_NAME, DroppedCollection, DroppedCollections, split_prepare,
};
use kedge_couchstore::{Documents, Entry, Error as FileError, Form, SeqnoScan, Snapshot};
use kedge_types::{CollectionId, Seqno, VbId, decode_leb128};
use kedge_vbucket::{PersistedState, is_system_key};

use crate::codec::has_xattrs;
use crate::collection_scan::CollectionEntries;
use crate::stats::CountedScan;
use crate::vb_metadata::VbMetadata;
use crate::{Record, Storage, StorageError};

/// Documents, tombstones, prepares, aborts and system events of one commit in the order of seqnos, or of keys as
/// [`Storage::scan_collections`] says; those of collections that were dropped apart. Ends after an error.
///
/// It has a handle of its own: it goes on also when the file grows, is replaced or removed meanwhile.
#[derive(Debug)]
pub struct Scan {
    entries: Entries,
    file: Snapshot,
    dropped: Dropped,
    /// Bodies with extended attributes are read, whatever else is.
    xattrs: bool,
    high_seqno: Seqno,
    purge_seqno: Seqno,
    done: bool,
    _counted: CountedScan,
}

/// Where entries come from.
#[derive(Debug)]
pub(crate) enum Entries {
    BySeqno(Reading<SeqnoScan>),
    OfCollections(Box<CollectionEntries>),
}

/// A walk over entries, with their bodies or without.
#[derive(Debug)]
pub(crate) enum Reading<S> {
    Without(Box<S>),
    With(Box<Documents<S>>),
}

/// An entry, and its body if it is read.
pub(crate) type EntryResult = Result<(Entry, Option<Vec<u8>>), FileError>;

impl<S: Iterator<Item = Result<Entry, FileError>>> Reading<S> {
    pub(crate) fn next(&mut self) -> Option<EntryResult> {
        match self {
            Reading::Without(scan) => Some(scan.next()?.map(|entry| (entry, None))),
            Reading::With(scan) => Some(scan.next()?.map(|document| {
                let value = document.body.unwrap_or_default();
                (document.entry, Some(value))
            })),
        }
    }
}

impl Entries {
    fn next(&mut self) -> Option<EntryResult> {
        match self {
            Entries::BySeqno(reading) => reading.next(),
            Entries::OfCollections(entries) => entries.next(),
        }
    }
}

impl Scan {
    /// The highest seqno of the commit.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// The highest seqno of a tombstone that was purged before the commit.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// The same scan, which reads the bodies of documents with extended attributes at least.
    #[must_use]
    pub fn with_xattrs(mut self) -> Self {
        self.xattrs = true;
        self
    }

    /// What an entry is. The bodies of events are read in any case: without them, there is nothing to say of one.
    fn record(&self, entry: Entry, value: Option<Vec<u8>>) -> Result<Option<Record>, StorageError> {
        let value = match value {
            None if is_system_key(entry.key()) || (self.xattrs && has_xattrs(&entry)) => {
                Some(self.file.body(&entry, Form::Plain)?.unwrap_or_default())
            }
            value => value,
        };
        understand(self.file.path(), entry, value)
    }
}

/// The collections that were dropped and whose documents a compaction has not left out yet, each up to where.
#[derive(Debug)]
pub(crate) struct Dropped(Vec<DroppedCollection>);

impl Dropped {
    pub(crate) fn read(file: &Snapshot) -> Result<Self, StorageError> {
        let Some(value) = file.local(DROPPED_COLLECTIONS_NAME)? else {
            return Ok(Self(Vec::new()));
        };
        let list = DroppedCollections::decode(&value).map_err(|reason| FileError::Local {
            file: file.path().to_owned(),
            name: DROPPED_COLLECTIONS_NAME.escape_ascii().to_string(),
            reason,
        })?;
        Ok(Self(list.entries))
    }

    /// Whether an entry is of one of them.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (_, key) = split_prepare(entry.key());
        let collection = decode_leb128(key).map(|(id, _)| CollectionId(id));
        let is_it = |dropped: &DroppedCollection| {
            Some(dropped.collection) == collection && entry.seqno() <= dropped.end
        };
        self.0.iter().any(is_it)
    }
}

impl Iterator for Scan {
    type Item = Result<Record, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let record = match self.entries.next() {
                None => Ok(None),
                Some(Ok((entry, _))) if self.dropped.has(&entry) => continue,
                Some(Ok((entry, value))) => match self.record(entry, value) {
                    Ok(None) => continue,
                    record => record,
                },
                Some(Err(error)) => Err(error.into()),
            };
            self.done = !matches!(record, Ok(Some(_)));
            return record.transpose();
        }
        None
    }
}

impl FusedIterator for Scan {}

/// A vBucket's file as one commit left it, with what it says of the vBucket. It stays readable, also when the file grows,
/// is replaced or removed.
#[derive(Debug)]
pub struct FileView {
    file: Snapshot,
    state: PersistedState,
}

impl FileView {
    pub(crate) fn file(&self) -> &Snapshot {
        &self.file
    }

    /// What the commit says of the vBucket.
    #[must_use]
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// The highest seqno of the commit.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.file.header().update_seqno()
    }

    /// Whether the vBucket was like this at some moment: a commit between two parts of a batch, or in the middle of a
    /// snapshot, lacks versions that a later one was to write.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.state.snap_end <= self.high_seqno()
    }
}

impl Storage {
    /// The vBucket's file as its last commit left it; `None` if it has none.
    ///
    /// # Errors
    /// Damage, [`StorageError::State`], or those of the disk.
    pub fn view(&self, vb: VbId) -> Result<Option<FileView>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(None);
        };
        let file = file.into_snapshot();
        let state = VbMetadata::read(&file)?.state(&file)?;
        Ok(Some(FileView { file, state }))
    }

    /// Reads what has a seqno in this range, with values if `bodies` says so; `None` if the vBucket has no file.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn scan(
        &self,
        vb: VbId,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<Option<Scan>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(None);
        };
        self.scan_file(&file.into_snapshot(), range, bodies)
            .map(Some)
    }

    /// As [`Storage::scan`], of the commit that `view` shows.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn scan_view(
        &self,
        view: &FileView,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<Scan, StorageError> {
        self.scan_file(&view.file, range, bodies)
    }

    fn scan_file(
        &self,
        file: &Snapshot,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<Scan, StorageError> {
        let scan = file.scan_seqnos(range)?;
        let reading = match bodies {
            true => Reading::With(Box::new(scan.with_bodies(Form::Plain))),
            false => Reading::Without(Box::new(scan)),
        };
        self.scan_entries(file, Entries::BySeqno(reading))
    }

    pub(crate) fn scan_entries(
        &self,
        file: &Snapshot,
        entries: Entries,
    ) -> Result<Scan, StorageError> {
        Ok(Scan {
            entries,
            file: file.clone(),
            dropped: Dropped::read(file)?,
            xattrs: false,
            high_seqno: file.header().update_seqno(),
            purge_seqno: file.header().purge_seqno(),
            done: false,
            _counted: CountedScan::new(&self.counters),
        })
    }
}

/// What an entry of a file is; `None` if it is nothing that a client ever wrote.
pub(crate) fn understand(
    file: &Path,
    entry: Entry,
    value: Option<Vec<u8>>,
) -> Result<Option<Record>, StorageError> {
    let (seqno, offset) = (entry.seqno(), entry.body_offset());
    Record::decode(entry, value).map_err(|reason| StorageError::Entry {
        file: file.to_owned(),
        seqno,
        offset: offset.map_or(0, |offset| offset.0),
        reason,
    })
}
