//! The meta commands (memcached doc/protocol.txt, "Meta Commands" to "Meta No-Op").
//!
//! A request's flags change what it does, and some ask for something in the reply, where it stands in the order of the
//! request. So each request carries a [`MetaReturns`], which is handed back to compose its reply.

mod arithmetic;
mod debug;
mod delete;
mod flags;
mod get;
mod key;
mod reply;
mod set;

pub use arithmetic::MetaArithmetic;
pub use debug::{MetaDebug, MetaDebugItem, write_meta_debug};
pub use delete::MetaDelete;
pub use get::MetaGet;
pub use key::MetaKey;
pub use reply::{MetaItem, MetaReturns, MetaStatus, MetaTtl, write_meta, write_meta_value};
pub use set::MetaSet;

pub(super) use arithmetic::parse as parse_arithmetic;
pub(super) use debug::parse as parse_debug;
pub(super) use delete::parse as parse_delete;
pub(super) use get::parse as parse_get;
pub(super) use set::parse as parse_set;
