//! Lookups of documents.

use std::io;
use std::ops::{Bound, Range};
use std::path::Path;

use kedge_couchstore::BodyForm;
use kedge_couchstore::kv::PREPARE_PREFIX;
use kedge_disk::{DiskError, Operation, RingFile};
use kedge_types::VbId;
use kedge_vbucket::Item;

use crate::scan::decode_entry;
use crate::{FileRecordKind, Storage, StorageError};

impl Storage {
    /// Reads the committed documents and tombstones of stored keys, with their values, in the order of `keys`. The
    /// result is `None` where the file has none. All are from one commit.
    ///
    /// # Errors
    /// Damage of the file, and disk errors, of any of the documents. Callers that need the others look up each
    /// separately.
    pub fn get_many(&self, vb: VbId, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(vec![None; keys.len()]);
        };
        let documents = file.get_many_documents(keys, BodyForm::Plain)?.into_iter();
        documents
            .map(|document| document.map_or(Ok(None), |found| item_of(file.path(), found)))
            .collect()
    }

    /// Reads nodes of the file's tree of keys into memory, up to the cache limit, so that lookups need one read less.
    /// Does nothing if the limits do not allow an open file for every vBucket, or if there is no file.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn remember_keys(&self, vb: VbId) -> Result<(), StorageError> {
        if !self.open_files.keeps_all() {
            return Ok(());
        }
        if let Some(file) = self.reader(vb)? {
            file.remember_ids()?;
            // Taking a handle updates the memory figure of the file.
            self.reader(vb)?;
        }
        Ok(())
    }

    /// Returns stored keys of live committed documents in ascending order: the first `max` keys that are not less than
    /// `from`.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn keys(&self, vb: VbId, from: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StorageError> {
        let mut keys = Vec::new();
        let Some(file) = self.reader(vb)? else {
            return Ok(keys);
        };
        // Prepares and aborts lie between the keys of the default collection and those of others.
        let prepares = from.max(&[PREPARE_PREFIX]);
        let others = from.max(&[PREPARE_PREFIX + 1]);
        let before = (Bound::Included(from), Bound::Excluded(prepares));
        let behind = (Bound::Included(others), Bound::Unbounded);
        for entry in file.scan_ids(before)?.chain(file.scan_ids(behind)?) {
            if keys.len() == max {
                break;
            }
            let entry = entry?;
            if entry.is_deleted() {
                continue;
            }
            let record = decode_entry(file.path(), entry, None)?;
            keys.extend(record.map(|record| record.key().to_vec()));
        }
        Ok(keys)
    }
}

/// A document whose value the caller reads: see [`Storage::locate`].
#[derive(Debug)]
pub struct LocatedDocument(kedge_couchstore::LocatedBody);

impl Storage {
    /// Returns the location of a stored key's value in the file, if it is known without a read from disk.
    #[must_use]
    pub fn locate(&self, vb: VbId, key: &[u8]) -> Option<LocatedDocument> {
        self.reader_at_hand(vb)?.locate(key).map(LocatedDocument)
    }
}

impl LocatedDocument {
    /// Returns the file with the value.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        self.0.file()
    }

    /// Returns the byte range of the file that [`LocatedDocument::item`] needs.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.0.place()
    }

    /// Decodes the document or tombstone from the result of reading the byte range. Returns `None` if it is not a
    /// committed one.
    ///
    /// # Errors
    /// Damage of the file, and the error of the read.
    pub fn item(self, read: io::Result<Vec<u8>>) -> Result<Option<Item>, StorageError> {
        let path = self.0.snapshot().path().to_owned();
        let at = self.0.place().start;
        let failed = |source| DiskError::at(Operation::Read, &path, at, source);
        let bytes = read.map_err(failed)?;
        item_of(&path, self.0.document(bytes, BodyForm::Plain)?)
    }
}

/// Returns the committed document or tombstone of a document in a file.
fn item_of(
    path: &Path,
    document: kedge_couchstore::Document,
) -> Result<Option<Item>, StorageError> {
    let value = document.body.unwrap_or_default();
    let record = decode_entry(path, document.entry, Some(value))?;
    let committed = record.filter(|record| record.kind() == FileRecordKind::Document);
    Ok(committed.and_then(|record| record.item()))
}
