//! Commands on documents.

mod ahead;
mod checks;
mod component;
mod expiry;
mod keys;
mod reads;
mod store;
mod subdoc;
mod with_meta;
mod writing;

pub use component::{Documents, Write};
pub use store::Storing;
pub use subdoc::LookIn;
pub use with_meta::{Returning, WithMeta};
