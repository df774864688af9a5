//! The server: opens the buckets, starts the front end, management and the cluster, and stops them in order.

mod error;
mod server;

pub use error::ServerError;
pub use server::{MemcachedConfig, Server, ServerConfig, Services};
