//! Scans of live documents in key order.

use std::ops::Bound;

use kedge_couchstore::{BodyForm, IdScan, Snapshot};
use kedge_vbucket::Item;

use crate::scan::{DroppedRanges, decode_entry};
use crate::stats::ActiveScan;
use crate::{FileRecord, FileRecordKind, FileView, Storage, StorageError};

/// The live documents of one commit in key order, without their values. The iteration ends after an error.
///
/// It has a file handle of its own, like [`crate::RecordScan`].
#[derive(Debug)]
pub struct KeyScan {
    entries: IdScan,
    file: Snapshot,
    dropped: DroppedRanges,
    done: bool,
    _counted: ActiveScan,
}

impl KeyScan {
    /// Reads the value of a record of this scan and returns the item.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn item(&self, record: &FileRecord) -> Result<Item, StorageError> {
        let value = self.file.body(record.entry(), BodyForm::Plain)?;
        Ok(record.with_value(&value.unwrap_or_default()))
    }
}

impl Iterator for KeyScan {
    type Item = Result<FileRecord, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let record = match self.entries.next() {
                None => Ok(None),
                Some(Ok(entry)) if entry.is_deleted() || self.dropped.has(&entry) => continue,
                Some(Ok(entry)) => match decode_entry(self.file.path(), entry, None) {
                    Ok(Some(record)) if record.kind() == FileRecordKind::Document => {
                        Ok(Some(record))
                    }
                    Ok(_) => continue,
                    Err(error) => Err(error),
                },
                Some(Err(error)) => Err(error.into()),
            };
            self.done = !matches!(record, Ok(Some(_)));
            return record.transpose();
        }
        None
    }
}

impl Storage {
    /// Scans the live documents in the commit of `view` whose stored keys are in this range.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn scan_keys(
        &self,
        view: &FileView,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<KeyScan, StorageError> {
        let file = view.file();
        Ok(KeyScan {
            entries: file.scan_ids(range)?,
            file: file.clone(),
            dropped: DroppedRanges::read(file)?,
            done: false,
            _counted: ActiveScan::new(&self.counters),
        })
    }
}
