//! The file of a keyring, as it is read.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::KeyringError;
use super::format::Envelope;
use super::set::KeySet;
use crate::key::Secret;
use crate::master::{MasterKey, MasterKeys};

/// The file of a keyring, whose keys are still encrypted. Unlike [`super::Keyring::open`] it changes nothing, so that tools may
/// read the keyring of a running server.
pub struct KeyringFile {
    path: PathBuf,
    pub(super) envelope: Envelope,
}

impl KeyringFile {
    /// Reads the bytes of the file at `path`.
    ///
    /// # Errors
    /// [`KeyringError::Damaged`], [`KeyringError::Newer`].
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self, KeyringError> {
        let envelope = Envelope::decode(bytes).map_err(|error| error.of_file(path))?;
        Ok(Self {
            path: path.to_owned(),
            envelope,
        })
    }

    /// Returns the name of the master key that wraps it.
    #[must_use]
    pub fn master_name(&self) -> &str {
        &self.envelope.master
    }

    /// Decrypts the keys with the master key, or the one before.
    ///
    /// # Errors
    /// [`KeyringError::OtherMasterKey`], [`KeyringError::Master`], [`KeyringError::Damaged`].
    pub fn unlock(&self, masters: &MasterKeys) -> Result<KeySet, KeyringError> {
        Ok(self.unlock_with_secret(masters)?.0)
    }

    /// Decrypts the keys, and the keyring key.
    pub(super) fn unlock_with_secret(
        &self,
        masters: &MasterKeys,
    ) -> Result<(KeySet, Secret), KeyringError> {
        let secret = self.wrapping_key(masters)?.unwrap(&self.envelope.wrapped)?;
        let keys = self
            .envelope
            .open(&secret)
            .map_err(|problem| KeyringError::Damaged {
                file: self.path.clone(),
                problem,
            })?;
        Ok((keys, secret))
    }

    /// Returns the master key that wraps the keyring.
    fn wrapping_key<'a>(&self, masters: &'a MasterKeys) -> Result<&'a dyn MasterKey, KeyringError> {
        let given = std::iter::once(&masters.current).chain(&masters.previous);
        let found = given
            .into_iter()
            .find(|master| master.name() == self.master_name());
        let found = found.ok_or_else(|| KeyringError::OtherMasterKey {
            file: self.path.clone(),
            wrapped_by: self.master_name().to_owned(),
            given: masters.name().to_owned(),
        })?;
        Ok(&**found)
    }
}

impl fmt::Debug for KeyringFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyringFile")
            .field("path", &self.path)
            .field("master", &self.envelope.master)
            .finish_non_exhaustive()
    }
}
