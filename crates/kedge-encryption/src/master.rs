//! Master keys, which wrap the keys of keyrings.

mod form;
mod info;
mod local;
mod source;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::key::{Secret, random_secret};

pub use form::SecretFormError;
pub use info::{MasterKeyDetail, MasterKeyInfo};
pub use local::LocalMasterKey;
pub use source::MasterKeySource;

/// A key that encrypts other keys. It may be in this process or elsewhere.
pub trait MasterKey: Send + Sync {
    /// Returns a name that tells this key from others, and not the key. Keyrings state it in plain text.
    fn name(&self) -> &str;

    /// Encrypts a key.
    ///
    /// # Errors
    /// [`MasterKeyError`], if the key is elsewhere and cannot be used.
    fn wrap(&self, key: &Secret) -> Result<Vec<u8>, MasterKeyError>;

    /// Decrypts a key that was encrypted with this one.
    ///
    /// # Errors
    /// [`MasterKeyError::Unwrap`] if it was not, or is damaged; other errors if the key is elsewhere and cannot be used.
    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, MasterKeyError>;

    /// Returns the place of the key, and the requests that were sent there.
    fn info(&self) -> MasterKeyInfo;
}

/// The reason why a master key cannot be had or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MasterKeyError {
    /// The file cannot be read.
    #[error("the file {} with the master key cannot be read: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The environment variable is missing.
    #[error("the environment variable {0} with the master key is not set")]
    Variable(String),
    /// The command could not be run, failed, or took too long.
    #[error("the command {command:?} for the master key {why}")]
    Command {
        /// The command.
        command: String,
        /// The fault of it.
        why: String,
    },
    /// The text or the bytes are no key.
    #[error("the master key from {from}: {source}")]
    Form {
        /// The source.
        from: String,
        /// The fault of it.
        source: SecretFormError,
    },
    /// A key management service did not answer. The same request may succeed later.
    #[error("{service} is unavailable: {why}")]
    Unavailable {
        /// The service and its key.
        service: String,
        /// The reason.
        why: String,
    },
    /// A key management service refused a request, or its settings cannot work.
    #[error("{service} cannot be used: {why}")]
    Refused {
        /// The service and its key.
        service: String,
        /// The reason.
        why: String,
    },
    /// A wrapped key does not decrypt.
    #[error("the wrapped key does not decrypt with this master key: it is damaged")]
    Unwrap,
}

/// The master key, and the one before, from which keyrings are moved to it.
#[derive(Clone)]
pub struct MasterKeys {
    pub(crate) current: Arc<dyn MasterKey>,
    pub(crate) previous: Option<Arc<dyn MasterKey>>,
}

impl MasterKeys {
    /// Creates the set of one key.
    #[must_use]
    pub fn new(current: Arc<dyn MasterKey>) -> Self {
        Self {
            current,
            previous: None,
        }
    }

    /// Adds the key that keyrings may still be wrapped by.
    #[must_use]
    pub fn with_previous(mut self, previous: Arc<dyn MasterKey>) -> Self {
        self.previous = Some(previous);
        self
    }

    /// Returns the name of the current key.
    #[must_use]
    pub fn name(&self) -> &str {
        self.current.name()
    }

    /// Encrypts and decrypts a random key with the current one.
    ///
    /// # Errors
    /// [`MasterKeyError`].
    pub fn test(&self) -> Result<(), MasterKeyError> {
        let secret = random_secret();
        let wrapped = self.current.wrap(&secret)?;
        match self.current.unwrap(&wrapped)? == secret {
            true => Ok(()),
            false => Err(MasterKeyError::Unwrap),
        }
    }

    /// Returns the place of the current key, and the requests that were sent there.
    #[must_use]
    pub fn info(&self) -> MasterKeyInfo {
        self.current.info()
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKeys({})", self.name())
    }
}
