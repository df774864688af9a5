//! Keys of encrypted files: those of the command line, and those in the keyring of the file's directory, which the master key opens.
//!
//! Invariants:
//! * Nothing is written, and no write permission is needed: the server may run.
//! * The master key is asked for only if a file needs it.

use std::io;
use std::path::{Path, PathBuf};

use kedge_couchstore::{EncryptionKey, Error, OnDamage, Options, Snapshot};
use kedge_disk::{DiskError, Operation};
use kedge_encryption::{KEYRING_FILE, KeySet, KeyringFile, MasterKeys};

use super::{CACHE_BYTES_MAX, FileError, open};
use crate::tools::master_key::MasterKeyArgs;

/// The keys of a command.
pub(crate) struct FileKeys {
    given: Vec<EncryptionKey>,
    args: MasterKeyArgs,
    /// The keyring of all files, instead of that of their directory.
    keyring: Option<PathBuf>,
    /// The master keys once they were asked for, or why they cannot be had: a command may take long to fail.
    masters: Option<Result<Option<MasterKeys>, String>>,
    /// The last keyring that was read, and its keys.
    last: Option<(PathBuf, Vec<EncryptionKey>)>,
}

impl FileKeys {
    pub(super) fn new(
        given: Vec<EncryptionKey>,
        args: MasterKeyArgs,
        keyring: Option<PathBuf>,
    ) -> Self {
        Self {
            given,
            args,
            keyring,
            masters: None,
            last: None,
        }
    }

    /// Opens a file without write permission.
    pub(super) fn open(&mut self, path: &Path, on_damage: OnDamage) -> Result<Snapshot, FileError> {
        let keyring = self.keyring_of(path);
        match open(path, &self.options(&keyring, on_damage)) {
            Err(FileError::Store(Error::KeyNeeded { file, key_id })) => {
                self.find(&keyring, &file, &key_id)?;
                open(path, &self.options(&keyring, on_damage))
            }
            opened => opened,
        }
    }

    /// Returns the master keys; `None` if none is given.
    pub(super) fn masters(&mut self) -> Result<Option<&MasterKeys>, FileError> {
        let args = &self.args;
        let load = || args.load().map_err(|error| error.to_string());
        match self.masters.get_or_insert_with(load) {
            Ok(masters) => Ok(masters.as_ref()),
            Err(why) => Err(FileError::MasterKey(why.clone())),
        }
    }

    fn keyring_of(&self, path: &Path) -> PathBuf {
        match &self.keyring {
            Some(keyring) => keyring.clone(),
            None => path.with_file_name(KEYRING_FILE),
        }
    }

    fn options(&self, keyring: &Path, on_damage: OnDamage) -> Options {
        let of_keyring = self.last.iter().filter(|(path, _)| path == keyring);
        let of_keyring = of_keyring.flat_map(|(_, keys)| keys);
        Options {
            on_damage,
            keys: self.given.iter().chain(of_keyring).cloned().collect(),
            cache_bytes_max: CACHE_BYTES_MAX,
            cache_leaves: false,
        }
    }

    /// Reads the keyring, which has the key of the file. If it was read before, a running server has added the key since.
    fn find(&mut self, keyring: &Path, file: &Path, key_id: &str) -> Result<(), FileError> {
        let needed = |remedy: String| FileError::KeyNeeded {
            file: file.to_owned(),
            key_id: key_id.to_owned(),
            remedy,
        };
        let Some(read) = read(keyring)? else {
            return Err(needed(match &self.keyring {
                None => format!("give it with --encryption-key {key_id}=KEY"),
                Some(keyring) => format!("there is no keyring {}", keyring.display()),
            }));
        };
        let Some(masters) = self.masters()? else {
            return Err(needed(format!(
                "give the master key {}, which wraps {}, with --encryption-master-key",
                read.master_name(),
                keyring.display()
            )));
        };
        let keys = read.unlock(masters)?;
        if keys.find(key_id).is_none() {
            return Err(needed(format!(
                "{} does not have it: put the keyring back from a backup of the same bucket, or give the key with --encryption-key",
                keyring.display()
            )));
        }
        self.last = Some((keyring.to_owned(), file_keys(&keys)));
        Ok(())
    }
}

/// Reads a keyring; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<KeyringFile>, FileError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(KeyringFile::decode(path, &bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::from(DiskError::new(Operation::Read, path, source)).into()),
    }
}

fn file_keys(keys: &KeySet) -> Vec<EncryptionKey> {
    keys.iter()
        .map(|key| EncryptionKey::new(key.id(), **key.secret()))
        .collect()
}
