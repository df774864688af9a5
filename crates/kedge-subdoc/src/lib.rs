//! Sub-document operations as functions of a document and specs.
//!
//! [`lookup`] reads paths of one version of a document. [`Mutation`] makes a new version from the one that is there, and
//! is run by the vBucket under its lock, so that nothing comes in between; either all of its specs are done or none.
//! Source: Couchbase `docs/SubDocument.md` and `docs/ExtendedAttributes.md`.

mod lookup;
mod macros;
mod mutation;
mod spec;
mod status;
mod virtual_xattrs;

pub use lookup::lookup;
pub use mutation::{Mutation, Reply};
pub use spec::{OwnedSpec, check};
pub use virtual_xattrs::Surroundings;
