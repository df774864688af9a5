//! Scans of all changes in seqno order, and of collections.

use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::path::Path;

use kedge_couchstore::kv::{
    DROPPED_COLLECTIONS_NAME, DroppedCollection, DroppedCollections, split_prepare,
};
use kedge_couchstore::{BodyForm, DocumentScan, Entry, Error as FileError, SeqnoScan, Snapshot};
use kedge_types::{CollectionId, Seqno, VbId, decode_leb128};
use kedge_vbucket::{PersistedState, is_system_key};

use crate::codec::has_xattrs;
use crate::collection_scan::CollectionEntries;
use crate::stats::ActiveScan;
use crate::vb_metadata::VbMetadata;
use crate::{FileRecord, Storage, StorageError};

/// The documents, tombstones, prepares, aborts and system events of one commit, in the order of seqnos, or of keys with
/// [`Storage::scan_collections`]. Documents of dropped collections are omitted. The iteration ends after an error.
///
/// It has a file handle of its own, and continues even if the file grows, is replaced or removed.
#[derive(Debug)]
pub struct RecordScan {
    entries: EntrySource,
    file: Snapshot,
    dropped: DroppedRanges,
    /// `true` if bodies with extended attributes are read in any case.
    xattrs: bool,
    high_seqno: Seqno,
    purge_seqno: Seqno,
    done: bool,
    _counted: ActiveScan,
}

/// The source of entries.
#[derive(Debug)]
pub(crate) enum EntrySource {
    BySeqno(EntryWalk<SeqnoScan>),
    OfCollections(Box<CollectionEntries>),
}

/// A walk over entries, with or without their bodies.
#[derive(Debug)]
pub(crate) enum EntryWalk<S> {
    Without(Box<S>),
    With(Box<DocumentScan<S>>),
}

/// An entry, and its body if it is read.
pub(crate) type EntryResult = Result<(Entry, Option<Vec<u8>>), FileError>;

impl<S: Iterator<Item = Result<Entry, FileError>>> EntryWalk<S> {
    pub(crate) fn next(&mut self) -> Option<EntryResult> {
        match self {
            EntryWalk::Without(scan) => Some(scan.next()?.map(|entry| (entry, None))),
            EntryWalk::With(scan) => Some(scan.next()?.map(|document| {
                let value = document.body.unwrap_or_default();
                (document.entry, Some(value))
            })),
        }
    }
}

impl EntrySource {
    fn next(&mut self) -> Option<EntryResult> {
        match self {
            EntrySource::BySeqno(reading) => reading.next(),
            EntrySource::OfCollections(entries) => entries.next(),
        }
    }
}

impl RecordScan {
    /// Returns the highest seqno of the commit.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// Returns the highest seqno of a tombstone that was purged before the commit.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// Makes the scan read the bodies of documents with extended attributes in any case.
    #[must_use]
    pub fn with_xattrs(mut self) -> Self {
        self.xattrs = true;
        self
    }

    /// Decodes an entry. Bodies of events are always read, because an event cannot be decoded without it.
    fn record(
        &self,
        entry: Entry,
        value: Option<Vec<u8>>,
    ) -> Result<Option<FileRecord>, StorageError> {
        let value = match value {
            None if is_system_key(entry.key()) || (self.xattrs && has_xattrs(&entry)) => {
                Some(self.file.body(&entry, BodyForm::Plain)?.unwrap_or_default())
            }
            value => value,
        };
        decode_entry(self.file.path(), entry, value)
    }
}

/// The dropped collections whose documents no compaction has removed yet, with their highest seqnos.
#[derive(Debug)]
pub(crate) struct DroppedRanges(Vec<DroppedCollection>);

impl DroppedRanges {
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

    /// Returns `true` if an entry belongs to one of them.
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

impl Iterator for RecordScan {
    type Item = Result<FileRecord, StorageError>;

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

impl FusedIterator for RecordScan {}

/// A vBucket's file at one commit, and the state of the vBucket in it. It stays readable even if the file grows, is
/// replaced or removed.
#[derive(Debug)]
pub struct FileView {
    file: Snapshot,
    state: PersistedState,
}

impl FileView {
    pub(crate) fn file(&self) -> &Snapshot {
        &self.file
    }

    /// Returns the state of the vBucket at the commit.
    #[must_use]
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// Returns the highest seqno of the commit.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.file.header().update_seqno()
    }

    /// Returns `true` if the commit is a consistent state of the vBucket. A commit between two parts of a batch, or in
    /// the middle of a snapshot, lacks versions that a later one writes.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.state.snap_end <= self.high_seqno()
    }
}

impl Storage {
    /// Returns the vBucket's file at its last commit, or `None` if it has none.
    ///
    /// # Errors
    /// Damage of the file, [`StorageError::State`], and disk errors.
    pub fn view(&self, vb: VbId) -> Result<Option<FileView>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(None);
        };
        let file = file.into_snapshot();
        let state = VbMetadata::read(&file)?.state(&file)?;
        Ok(Some(FileView { file, state }))
    }

    /// Scans the mutations whose seqnos are in this range, with values if `bodies` is set. Returns `None` if the
    /// vBucket has no file.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn scan(
        &self,
        vb: VbId,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<Option<RecordScan>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(None);
        };
        self.scan_file(&file.into_snapshot(), range, bodies)
            .map(Some)
    }

    /// Scans like [`Storage::scan`], in the commit of `view`.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn scan_view(
        &self,
        view: &FileView,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<RecordScan, StorageError> {
        self.scan_file(&view.file, range, bodies)
    }

    fn scan_file(
        &self,
        file: &Snapshot,
        range: impl RangeBounds<Seqno>,
        bodies: bool,
    ) -> Result<RecordScan, StorageError> {
        let scan = file.scan_seqnos(range)?;
        let reading = match bodies {
            true => EntryWalk::With(Box::new(scan.with_bodies(BodyForm::Plain))),
            false => EntryWalk::Without(Box::new(scan)),
        };
        self.scan_entries(file, EntrySource::BySeqno(reading))
    }

    pub(crate) fn scan_entries(
        &self,
        file: &Snapshot,
        entries: EntrySource,
    ) -> Result<RecordScan, StorageError> {
        Ok(RecordScan {
            entries,
            file: file.clone(),
            dropped: DroppedRanges::read(file)?,
            xattrs: false,
            high_seqno: file.header().update_seqno(),
            purge_seqno: file.header().purge_seqno(),
            done: false,
            _counted: ActiveScan::new(&self.counters),
        })
    }
}

/// Decodes an entry of a file. Returns `None` for kinds of entries that are no mutations.
pub(crate) fn decode_entry(
    file: &Path,
    entry: Entry,
    value: Option<Vec<u8>>,
) -> Result<Option<FileRecord>, StorageError> {
    let (seqno, offset) = (entry.seqno(), entry.body_offset());
    FileRecord::decode(entry, value).map_err(|reason| StorageError::Entry {
        file: file.to_owned(),
        seqno,
        offset: offset.map_or(0, |offset| offset.0),
        reason,
    })
}
