//! The meta commands (memcached doc/protocol.txt, "Meta Commands" to "Meta No-Op").
//!
//! The flags of a request change its effect, and some ask for a field of the reply, in the order of the request. So
//! each request carries a [`MetaReturns`], from which its reply is composed.

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
