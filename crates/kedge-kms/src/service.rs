//! The interface of a key management service.

use kedge_encryption::{MasterKeyDetail, Secret};
use zeroize::Zeroizing;

/// Largest number of bytes of a wrapped key.
pub(crate) const WRAPPED_BYTES_MAX: usize = 16 << 10;

/// A key that a service has encrypted.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// The encrypted key.
    pub(crate) bytes: Vec<u8>,
    /// The name of the master key, by which it is known to keyrings.
    pub(crate) name: String,
}

/// A key management service, and one key in it. Each call is one attempt.
pub(crate) trait KeyService: Send + Sync {
    /// Returns the place of the key, as the settings name it.
    fn place(&self) -> String;

    /// Returns the name of the master key, if it is known without a request.
    fn known_name(&self) -> Option<String>;

    /// Encrypts a key.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn wrap(&self, key: &Secret) -> Result<Wrapped, ServiceError>;

    /// Decrypts a key.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, ServiceError>;

    /// Returns the type of the key, by the original's name.
    fn kind(&self) -> &'static str;

    /// Returns the settings by the original's names.
    fn details(&self) -> Vec<(&'static str, MasterKeyDetail)>;
}

/// The reason why a request had no success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServiceError {
    /// The service did not answer, or asks to try again later.
    #[error("{0}")]
    Unavailable(String),
    /// The service refused the request, or the settings cannot work.
    #[error("{0}")]
    Refused(String),
}

impl ServiceError {
    pub(crate) fn unavailable(why: impl std::fmt::Display) -> Self {
        Self::Unavailable(why.to_string())
    }

    pub(crate) fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }
}

/// Returns a key of 32 bytes.
pub(crate) fn secret_of(bytes: &[u8]) -> Result<Secret, ServiceError> {
    let key = <[u8; kedge_encryption::KEY_BYTES]>::try_from(bytes).map(Zeroizing::new);
    key.map_err(|_| {
        ServiceError::refused(format!(
            "the service returned {} bytes, and not a key of 32 bytes",
            bytes.len()
        ))
    })
}
