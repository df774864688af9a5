//! Reading live documents in the order of their keys.

use std::ops::Bound;

use kedge_couchstore::{Form, IdScan, Snapshot};
use kedge_vbucket::Item;

use crate::scan::{Dropped, understand};
use crate::stats::CountedScan;
use crate::{FileView, Record, RecordKind, Storage, StorageError};

/// Live documents of one commit in the order of keys, without their values. Ends after an error.
///
/// It has a handle of its own, as [`crate::Scan`] has.
#[derive(Debug)]
pub struct KeyScan {
    entries: IdScan,
    file: Snapshot,
    dropped: Dropped,
    done: bool,
    _counted: CountedScan,
}

impl KeyScan {
    /// A record of this scan as an item with its value.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn item(&self, record: &Record) -> Result<Item, StorageError> {
        let value = self.file.body(record.entry(), Form::Plain)?;
        Ok(record.with_value(&value.unwrap_or_default()))
    }
}

impl Iterator for KeyScan {
    type Item = Result<Record, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let record = match self.entries.next() {
                None => Ok(None),
                Some(Ok(entry)) if entry.is_deleted() || self.dropped.has(&entry) => continue,
                Some(Ok(entry)) => match understand(self.file.path(), entry, None) {
                    Ok(Some(record)) if record.kind() == RecordKind::Document => Ok(Some(record)),
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
    /// Reads live documents of the commit that `view` shows whose stored keys are in this range.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn scan_keys(
        &self,
        view: &FileView,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<KeyScan, StorageError> {
        let file = view.file();
        Ok(KeyScan {
            entries: file.scan_ids(range)?,
            file: file.clone(),
            dropped: Dropped::read(file)?,
            done: false,
            _counted: CountedScan::new(&self.counters),
        })
    }
}
