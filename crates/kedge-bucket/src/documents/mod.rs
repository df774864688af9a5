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

pub use component::{DocumentCommands, Write};
pub use store::StoreArgs;
pub use subdoc::LookupTarget;
pub use with_meta::{ReturnMetaOp, WriteWithMeta};
