//! Looking documents up.

use std::io;
use std::ops::{Bound, Range};
use std::path::Path;

use kedge_couchstore::Form;
use kedge_couchstore::kv::PREPARE_PREFIX;
use kedge_disk::{DiskError, Operation, RingFile};
use kedge_types::VbId;
use kedge_vbucket::Item;

use crate::scan::understand;
use crate::{RecordKind, Storage, StorageError};

impl Storage {
    /// The committed documents and tombstones of stored keys, with their values, in the order of `keys`; `None` where
    /// the file has none. All are of one commit.
    ///
    /// # Errors
    /// Damage, or those of the disk: of any of the documents, so that whoever wants the others asks for each alone.
    pub fn get_many(&self, vb: VbId, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, StorageError> {
        let Some(file) = self.reader(vb)? else {
            return Ok(vec![None; keys.len()]);
        };
        let documents = file.get_many_documents(keys, Form::Plain)?.into_iter();
        documents
            .map(|document| document.map_or(Ok(None), |found| item_of(file.path(), found)))
            .collect()
    }

    /// Reads nodes of the file's tree of keys into memory, as many as may be there, so that looking a document up takes one
    /// read less. Does nothing where the files of all vBuckets may not stay open, or there is no file.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn remember_keys(&self, vb: VbId) -> Result<(), StorageError> {
        if !self.open_files.keeps_all() {
            return Ok(());
        }
        if let Some(file) = self.reader(vb)? {
            file.remember_ids()?;
            // Whoever takes a handle says what memory the file takes.
            self.reader(vb)?;
        }
        Ok(())
    }

    /// Stored keys of live committed documents in ascending order: the first `max` of those that are not below `from`.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn keys(&self, vb: VbId, from: &[u8], max: usize) -> Result<Vec<Vec<u8>>, StorageError> {
        let mut keys = Vec::new();
        let Some(file) = self.reader(vb)? else {
            return Ok(keys);
        };
        // Prepares and aborts lie together, between the keys of the default collection and those of others.
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
            let record = understand(file.path(), entry, None)?;
            keys.extend(record.map(|record| record.key().to_vec()));
        }
        Ok(keys)
    }
}

/// A document whose value is still to be read, by somebody else: see [`Storage::locate`].
#[derive(Debug)]
pub struct Located(kedge_couchstore::Located);

impl Storage {
    /// Where the file has the value of a stored key's document, if that is known without the disk.
    #[must_use]
    pub fn locate(&self, vb: VbId, key: &[u8]) -> Option<Located> {
        self.reader_at_hand(vb)?.locate(key).map(Located)
    }
}

impl Located {
    /// The file that has the value.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        self.0.file()
    }

    /// Which bytes of the file [`Located::item`] wants.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.0.place()
    }

    /// The document or tombstone, from what reading the bytes at its place gave; `None` if it is not a committed one.
    ///
    /// # Errors
    /// Damage; that of the read.
    pub fn item(self, read: io::Result<Vec<u8>>) -> Result<Option<Item>, StorageError> {
        let path = self.0.snapshot().path().to_owned();
        let at = self.0.place().start;
        let failed = |source| DiskError::at(Operation::Read, &path, at, source);
        let bytes = read.map_err(failed)?;
        item_of(&path, self.0.document(bytes, Form::Plain)?)
    }
}

/// The committed document or tombstone that a document of a file is.
fn item_of(
    path: &Path,
    document: kedge_couchstore::Document,
) -> Result<Option<Item>, StorageError> {
    let value = document.body.unwrap_or_default();
    let record = understand(path, document.entry, Some(value))?;
    let committed = record.filter(|record| record.kind() == RecordKind::Document);
    Ok(committed.and_then(|record| record.item()))
}
