//! Scans of some collections, in key order.

use std::ops::Bound;

use kedge_couchstore::kv::{DiskKey, SystemEventKind};
use kedge_couchstore::{BodyForm, IdScan, Snapshot};
use kedge_types::{CollectionId, encode_leb128};

use crate::scan::{EntryResult, EntrySource, EntryWalk};
use crate::{FileView, RecordScan, Storage, StorageError};

/// The entries of some collections: for each, its events, followed by its documents and tombstones.
#[derive(Debug)]
pub(crate) struct CollectionEntries {
    file: Snapshot,
    bodies: bool,
    /// Key ranges that are still to be read.
    ranges: std::vec::IntoIter<KeyRange>,
    reading: Option<EntryWalk<IdScan>>,
}

/// A range of keys, exclusive of its end.
#[derive(Debug)]
struct KeyRange {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl KeyRange {
    /// Creates the range of a single key.
    fn only(key: Vec<u8>) -> Self {
        let to = [&key[..], &[0]].concat();
        Self { from: key, to }
    }

    /// Creates the range of all committed keys of a collection.
    fn of_collection(id: CollectionId) -> Self {
        let (bytes, len) = encode_leb128(id.get());
        let from = bytes[..len].to_vec();
        let mut to = from.clone();
        // The last byte of a LEB128 number has no high bit, so it can be incremented, and no number is a prefix of
        // another.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Self { from, to }
    }
}

impl CollectionEntries {
    fn new(file: &Snapshot, collections: &[CollectionId], bodies: bool) -> Self {
        let mut ids = collections.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let ranges_of = |id: CollectionId| {
            let event = |kind| {
                let subject = id.get();
                KeyRange::only(DiskKey::SystemEvent { kind, subject }.encode())
            };
            [
                event(SystemEventKind::Collection),
                event(SystemEventKind::ModifyCollection),
                KeyRange::of_collection(id),
            ]
        };
        let ranges: Vec<KeyRange> = ids.into_iter().flat_map(ranges_of).collect();
        Self {
            file: file.clone(),
            bodies,
            ranges: ranges.into_iter(),
            reading: None,
        }
    }

    pub(crate) fn next(&mut self) -> Option<EntryResult> {
        loop {
            if let Some(next) = self.reading.as_mut().and_then(EntryWalk::next) {
                return Some(next);
            }
            let KeyRange { from, to } = self.ranges.next()?;
            let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            let scan = match self.file.scan_ids(range) {
                Ok(scan) => scan,
                Err(error) => return Some(Err(error)),
            };
            self.reading = Some(match self.bodies {
                true => EntryWalk::With(Box::new(scan.with_bodies(BodyForm::Plain))),
                false => EntryWalk::Without(Box::new(scan)),
            });
        }
    }
}

impl Storage {
    /// Scans some collections in the commit of `view`, with values if `bodies` is set. For each collection, in the
    /// order of ids, it returns the events, followed by documents and tombstones in key order. Prepares and aborts are
    /// omitted.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn scan_collections(
        &self,
        view: &FileView,
        collections: &[CollectionId],
        bodies: bool,
    ) -> Result<RecordScan, StorageError> {
        let file = view.file();
        let entries = CollectionEntries::new(file, collections, bodies);
        self.scan_entries(file, EntrySource::OfCollections(Box::new(entries)))
    }
}
