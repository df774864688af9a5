//! Reading some collections, in the order of their keys.

use std::ops::Bound;

use kedge_couchstore::kv::{DiskKey, SystemEventKind};
use kedge_couchstore::{Form, IdScan, Snapshot};
use kedge_types::{CollectionId, encode_leb128};

use crate::scan::{Entries, EntryResult, Reading};
use crate::{FileView, Scan, Storage, StorageError};

/// The entries of some collections: of each its events, then its documents and tombstones.
#[derive(Debug)]
pub(crate) struct CollectionEntries {
    file: Snapshot,
    bodies: bool,
    /// What is still to be read.
    ranges: std::vec::IntoIter<KeyRange>,
    reading: Option<Reading<IdScan>>,
}

/// Keys from one up to the other, which is not one of them.
#[derive(Debug)]
struct KeyRange {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl KeyRange {
    /// One key.
    fn only(key: Vec<u8>) -> Self {
        let to = [&key[..], &[0]].concat();
        Self { from: key, to }
    }

    /// All committed keys of a collection.
    fn of_collection(id: CollectionId) -> Self {
        let (bytes, len) = encode_leb128(id.get());
        let from = bytes[..len].to_vec();
        let mut to = from.clone();
        // The last byte of a number has no high bit, so there is one behind it; and no number is the beginning of another.
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
            if let Some(next) = self.reading.as_mut().and_then(Reading::next) {
                return Some(next);
            }
            let KeyRange { from, to } = self.ranges.next()?;
            let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            let scan = match self.file.scan_ids(range) {
                Ok(scan) => scan,
                Err(error) => return Some(Err(error)),
            };
            self.reading = Some(match self.bodies {
                true => Reading::With(Box::new(scan.with_bodies(Form::Plain))),
                false => Reading::Without(Box::new(scan)),
            });
        }
    }
}

impl Storage {
    /// Reads what the commit that `view` shows has of some collections, with values if `bodies` says so: of each, in the
    /// order of ids, its events, then documents and tombstones in the order of keys. Prepares and aborts are not among it.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn scan_collections(
        &self,
        view: &FileView,
        collections: &[CollectionId],
        bodies: bool,
    ) -> Result<Scan, StorageError> {
        let file = view.file();
        let entries = CollectionEntries::new(file, collections, bodies);
        self.scan_entries(file, Entries::OfCollections(Box::new(entries)))
    }
}
