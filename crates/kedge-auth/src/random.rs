//! Randomness from the operating system.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::AuthError;
use crate::limits::NONCE_BYTES;

/// Returns `N` random bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], AuthError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| AuthError::NoRandomness)?;
    Ok(bytes)
}

/// Returns a fresh nonce for one login: 24 random bytes as 32 characters of base64, so without `,`.
///
/// This is the nonce source of [`ServerSession::start`](crate::ServerSession::start) and
/// [`ClientSession::start`](crate::ClientSession::start) outside of tests.
///
/// # Errors
/// [`AuthError::NoRandomness`] if the operating system returns none.
pub fn random_nonce() -> Result<String, AuthError> {
    Ok(STANDARD.encode(random_bytes::<NONCE_BYTES>()?))
}
