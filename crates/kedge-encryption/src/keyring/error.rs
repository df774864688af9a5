//! Errors of keyrings.

use std::path::{Path, PathBuf};

use kedge_disk::DiskError;

use super::format::VERSION;
use crate::MasterKeyError;

/// The reason why a keyring cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is damaged.
    #[error(
        "the keyring {} is damaged: {problem}. Put it back from a backup while the server is stopped",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The kind of damage.
        problem: KeyringDamage,
    },
    /// A newer release wrote the file.
    #[error(
        "the keyring {} has format version {version}, and this release reads version {VERSION}: use the release that wrote it",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The version in it.
        version: u32,
    },
    /// Another master key wraps the file.
    #[error(
        "the keyring {} is wrapped by the master key {wrapped_by}, and the given one is {given}: give that one as \
         encryption_master_key or as encryption_previous_master_key",
        file.display()
    )]
    OtherMasterKey {
        /// The file.
        file: PathBuf,
        /// The name of the key that wraps it.
        wrapped_by: String,
        /// The name of the given key.
        given: String,
    },
    /// The master key cannot be used.
    #[error(transparent)]
    Master(#[from] MasterKeyError),
    /// The keyring is full.
    #[error(
        "the keyring {} has {max} keys, as many as it may have: older ones are removed when no file uses them",
        file.display()
    )]
    TooManyKeys {
        /// The file.
        file: PathBuf,
        /// The number.
        max: usize,
    },
}

/// The kind of damage of a keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringDamage {
    /// It does not begin like a keyring.
    #[error("it is not a keyring")]
    Magic,
    /// A field ends outside of it, or bytes are left over.
    #[error("a length in it is wrong")]
    Length,
    /// The checksum is another.
    #[error("its checksum is wrong")]
    Checksum,
    /// The keys do not decrypt.
    #[error("its keys do not decrypt")]
    Sealed,
    /// The decrypted keys are not keys.
    #[error("its keys are malformed")]
    Keys,
}

/// The reason why bytes are not read as a keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    Damaged(KeyringDamage),
    Newer(u32),
}

impl Unreadable {
    pub(super) fn of_file(self, path: &Path) -> KeyringError {
        let file = path.to_owned();
        match self {
            Self::Damaged(problem) => KeyringError::Damaged { file, problem },
            Self::Newer(version) => KeyringError::Newer { file, version },
        }
    }
}

impl From<KeyringDamage> for Unreadable {
    fn from(problem: KeyringDamage) -> Self {
        Self::Damaged(problem)
    }
}
