#![doc = include_str!("../README.md")]
//!
//! ## Invariants
//!
//! * An empty password is never sent: a directory takes it for an unauthenticated bind, which succeeds (RFC 4513 section 5.1.2).
//! * The logins of one user are checked one after the other, so that each sees what the one before has shown: a delay after wrong
//!   passwords, or a verified password.
//! * The thread starts with the first check: a server without external users has none.

mod admission;
mod authority;
mod directory;
mod figures;
pub mod jwt;
mod runtime;
mod slots;

pub use authority::Authority;
