//! Encryption of the files.
//!
//! New files, copies of compactions and sorted runs are encrypted with the active key of the bucket's keyring. A file keeps its key until
//! a compaction replaces it.
//!
//! Invariant: whoever creates a file holds its key until the file is the vBucket's. So [`FileEncryption::unused_keys`] misses no key of a
//! file that is created at the same time: see [`kedge_encryption::Keyring::unleased`].

use std::collections::BTreeSet;
use std::sync::Arc;

use kedge_couchstore::{CreateOptions, EncryptionKey, Error as FileError, Options, Snapshot};
use kedge_encryption::{DataKey, Keyring};
use kedge_types::VbId;

use crate::slot::FileSlot;
use crate::{Storage, StorageError};

/// The properties of a new file.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) create: CreateOptions,
    /// Held until the file is the vBucket's.
    pub(crate) lease: Option<Arc<DataKey>>,
}

/// The numbers of vBuckets' files by their encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncryptedFiles {
    /// The number of encrypted files.
    pub encrypted: u64,
    /// The number of files in plain text.
    pub plain: u64,
    /// The number of files of both kinds that are to be written again.
    pub replaced: u64,
}

/// The options of opening files, and the keys.
#[derive(Debug)]
pub(crate) struct FileOptions {
    /// Without keys.
    pub(crate) plain: Options,
    pub(crate) keyring: Option<Arc<Keyring>>,
}

impl FileOptions {
    /// Returns the options of opening a file, with all keys.
    pub(crate) fn to_open(&self) -> Options {
        let mut options = self.plain.clone();
        if let Some(keyring) = &self.keyring {
            options.keys = keyring.keys().iter().map(file_key).collect();
        }
        options
    }

    /// Returns the properties of a file that is created now.
    pub(crate) fn new_file(&self) -> NewFile {
        let keys = self.keyring.as_ref().map(|keyring| keyring.keys());
        let lease = keys.and_then(|keys| keys.active().cloned());
        NewFile {
            create: CreateOptions {
                encryption: lease.as_ref().map(file_key),
                ..CreateOptions::default()
            },
            lease,
        }
    }
}

/// The encryption of a bucket's files.
#[derive(Clone, Copy, Debug)]
pub struct FileEncryption<'a>(&'a Storage);

impl<'a> FileEncryption<'a> {
    /// Returns that of these files.
    #[must_use]
    pub fn of(storage: &'a Storage) -> Self {
        Self(storage)
    }

    /// Returns `true` if the vBucket's file is to be written again: with the active key, or in plain text if there is none. It is
    /// `false` for a file that was not opened yet.
    #[must_use]
    pub fn is_of_another_key(self, vb: VbId) -> bool {
        let Some(keyring) = &self.0.options.keyring else {
            return false;
        };
        let key_id = self.0.slot(vb).key_id();
        key_id.is_some_and(|id| keyring.keys().replaces(id.as_deref()))
    }

    /// Counts the vBuckets' files by their encryption. Files that were not opened yet are left out.
    #[must_use]
    pub fn counts(self) -> EncryptedFiles {
        let keys = self
            .0
            .options
            .keyring
            .as_ref()
            .map(|keyring| keyring.keys());
        let mut files = EncryptedFiles::default();
        for id in self.slot_keys() {
            let replaces = keys
                .as_ref()
                .is_some_and(|keys| keys.replaces(id.as_deref()));
            files.replaced += u64::from(replaces);
            match id {
                Some(_) => files.encrypted += 1,
                None => files.plain += 1,
            }
        }
        files
    }

    /// Returns the names of the keys of the vBuckets' files; `None` stands for files in plain text. Files that were not opened yet
    /// are left out.
    #[must_use]
    pub fn vbucket_keys(self) -> BTreeSet<Option<String>> {
        let name = |id: Option<Arc<str>>| id.as_deref().map(str::to_owned);
        self.slot_keys().map(name).collect()
    }

    /// Returns those of the keys that no file in the bucket's directory needs, whatever its state: quarantined, replaced, incomplete.
    ///
    /// # Errors
    /// Damage of a file, and disk errors. Every key may be needed then.
    pub fn unused_keys(self, mut keys: Vec<String>) -> Result<Vec<String>, StorageError> {
        // First, as a file that is renamed meanwhile may be in no list of the directory.
        let of_vbuckets = self.vbucket_keys();
        keys.retain(|id| !of_vbuckets.contains(&Some(id.clone())));
        if keys.is_empty() {
            return Ok(keys);
        }
        for name in self.0.disk.list(&self.0.dir)? {
            if !name.contains(".couch.") {
                continue;
            }
            match Snapshot::needed_key(&*self.0.disk, &self.0.dir.join(name)) {
                Ok(needed) => keys.retain(|id| needed.as_ref() != Some(id)),
                // It was removed or renamed meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(keys)
    }

    fn slot_keys(self) -> impl Iterator<Item = Option<Arc<str>>> {
        let vbuckets = (0..self.0.vbuckets()).map(VbId);
        vbuckets.filter_map(move |vb| self.0.slot(vb).key_id())
    }
}

impl FileSlot {
    /// Returns the error of a file that cannot be opened.
    pub(crate) fn open_error(error: FileError) -> StorageError {
        match error {
            FileError::KeyNeeded { file, key_id } => StorageError::KeyMissing { file, key_id },
            error => error.into(),
        }
    }
}

fn file_key(key: &Arc<DataKey>) -> EncryptionKey {
    EncryptionKey::new(key.id(), **key.secret())
}
