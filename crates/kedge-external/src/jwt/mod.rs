//! Tokens (JWT, RFC 7519) of external users.

mod keys;
mod provider;
mod verify;

pub(crate) use keys::KeyRing;
pub use verify::{TokenProblem, UnverifiedToken, read_keys};
