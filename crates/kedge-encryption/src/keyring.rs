//! Keyrings: the data keys of a bucket, or of another part of a data directory, in one file.
//!
//! Invariants:
//! * The file is replaced as a whole, durably, before [`Keyring::keys`] returns the new keys. After an error both are as before,
//!   or the file has a key more, which nobody got.
//! * A keyring without keys has no file.
//! * A key set is immutable. Whoever creates something that a key will protect holds the key's `Arc` until a search for keys
//!   finds that thing. So a key that is not the active one, and that only the current set holds, protects nothing that such a
//!   search, begun afterwards, misses.

mod error;
mod file;
mod format;
mod set;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use kedge_disk::{Disk, DiskError, read_file, replace_file};
use kedge_sync::{RankedMutex, ranks::KeyringChange};

use crate::key::{DataKey, Secret, random_secret};
use crate::master::{MasterKey, MasterKeys};

pub use error::{KeyringDamage, KeyringError};
pub use file::KeyringFile;
pub use set::KeySet;

use format::Envelope;

/// Name of the file in the directory of what it protects.
pub const KEYRING_FILE: &str = "encryption.keys";
/// Largest number of keys. Each rotation adds one, and one that nothing needs is removed.
const KEYS_MAX: usize = 1_000;

/// The keyring key, which encrypts the data keys in the file, in plain and wrapped form.
struct KeyringKey {
    secret: Secret,
    wrapped: Vec<u8>,
}

/// A keyring. All methods may be called from any thread; reading the keys takes no lock.
pub struct Keyring {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    master: Arc<dyn MasterKey>,
    keys: ArcSwap<KeySet>,
    /// Locked during a change. `None` until the first key.
    change: RankedMutex<KeyringChange, Option<KeyringKey>>,
    /// `true` from a request for another keyring key until the file has it.
    is_rewrap_due: AtomicBool,
}

impl Keyring {
    /// Opens the keyring with its file at `path`, or an empty one if there is none. A file that the previous master key wraps is
    /// wrapped again by the current one.
    ///
    /// # Errors
    /// [`KeyringError`].
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        masters: &MasterKeys,
    ) -> Result<Self, KeyringError> {
        let (mut keys, mut keyring_key, mut rewrap) = (KeySet::default(), None, false);
        if disk.exists(path)? {
            let file = KeyringFile::decode(path, &read_file(&*disk, path)?)?;
            let (found, secret) = file.unlock_with_secret(masters)?;
            keys = found;
            rewrap = file.master_name() != masters.name();
            keyring_key = Some(KeyringKey {
                secret,
                wrapped: file.envelope.wrapped,
            });
        }
        let keyring = Self {
            disk,
            path: path.to_owned(),
            master: Arc::clone(&masters.current),
            keys: ArcSwap::from_pointee(keys),
            change: RankedMutex::new(keyring_key),
            is_rewrap_due: AtomicBool::new(rewrap),
        };
        keyring.retry_rewrap()?;
        Ok(keyring)
    }

    /// Returns the current keys.
    #[must_use]
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Returns the name of the master key.
    #[must_use]
    pub fn master_name(&self) -> &str {
        self.master.name()
    }

    /// Encrypts the data keys with a new keyring key, which the master key wraps as it is now: a service may have a newer version of
    /// it. After an error [`Self::retry_rewrap`] tries again.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn rewrap(&self) -> Result<(), KeyringError> {
        self.is_rewrap_due.store(true, Ordering::Relaxed);
        self.retry_rewrap()
    }

    /// Does what [`Self::rewrap`] could not do, if there is something.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn retry_rewrap(&self) -> Result<(), KeyringError> {
        if !self.is_rewrap_due.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut keyring_key = self.change.lock();
        let (keys, mut new) = (self.keys.load_full(), None);
        if !keys.is_empty() {
            self.save(&mut new, &keys)?;
        }
        *keyring_key = new;
        self.is_rewrap_due.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Gives new data an active key, unless there is one.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn enable(&self, now_unix_secs: u64) -> Result<(), KeyringError> {
        self.change(|keys| {
            if keys.active().is_none() {
                keys.add(DataKey::random(now_unix_secs));
            }
        })
    }

    /// Leaves new data without a key. The keys stay.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn disable(&self) -> Result<(), KeyringError> {
        self.change(KeySet::deactivate)
    }

    /// Gives new data a new key, if there is an active one. With `retire` the older keys are to be replaced in all data.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn rotate(&self, now_unix_secs: u64, retire: bool) -> Result<(), KeyringError> {
        self.change(|keys| {
            if keys.active().is_some() {
                keys.add(DataKey::random(now_unix_secs));
            }
            if retire {
                keys.retire(|_| true);
            }
        })
    }

    /// Has the keys, except the active one, that were created before this time replaced in all data.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn retire_before(&self, unix_secs: u64) -> Result<(), KeyringError> {
        self.change(|keys| keys.retire(|key| key.created_unix_secs() < unix_secs))
    }

    /// Returns the keys that are not active, and that no creation of a file holds. Data that they protect is found by a search
    /// that begins after this call.
    #[must_use]
    pub fn unleased(&self) -> Vec<String> {
        self.keys.load().unleased()
    }

    /// Removes keys. The caller knows from a search after [`Keyring::unleased`], which returned them, that nothing needs them.
    ///
    /// # Errors
    /// [`KeyringError`]; nothing is changed then.
    pub fn remove(&self, ids: &[String]) -> Result<(), KeyringError> {
        self.change(|keys| keys.remove(ids))
    }

    fn change(&self, change: impl FnOnce(&mut KeySet)) -> Result<(), KeyringError> {
        let mut keyring_key = self.change.lock();
        let before = self.keys.load_full();
        let mut keys = KeySet::clone(&before);
        change(&mut keys);
        if keys == *before {
            return Ok(());
        }
        if keys.len() > KEYS_MAX {
            return Err(KeyringError::TooManyKeys {
                file: self.path.clone(),
                max: KEYS_MAX,
            });
        }
        self.save(&mut keyring_key, &keys)?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    fn save(
        &self,
        keyring_key: &mut Option<KeyringKey>,
        keys: &KeySet,
    ) -> Result<(), KeyringError> {
        if keys.is_empty() {
            return Ok(self.remove_file()?);
        }
        if keyring_key.is_none() {
            let secret = random_secret();
            let wrapped = self.master.wrap(&secret)?;
            *keyring_key = Some(KeyringKey { secret, wrapped });
        }
        let key = keyring_key.as_ref().expect("it was just set");
        let bytes = Envelope::encode(self.master.name(), &key.wrapped, &key.secret, keys);
        Ok(replace_file(&*self.disk, &self.path, &bytes)?)
    }

    fn remove_file(&self) -> Result<(), DiskError> {
        match self.disk.remove(&self.path) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        match self.path.parent() {
            Some(dir) => self.disk.sync_dir(dir),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("path", &self.path)
            .field("keys", &*self.keys.load())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
