//! Front-end threads, connections, dispatch, management over HTTP.

mod acceptor;
mod client_addresses;
mod commands;
mod connection;
mod cookie;
mod dcp;
mod delayed_flush;
mod error;
mod front_end;
mod histogram;
mod inbox;
pub mod limits;
mod login;
mod memcached_connections;
mod metrics;
mod newcomers;
mod request_memory;
mod server;
mod session;
mod shared;
mod tasks;
mod text_exec;

pub use error::ServerError;
pub use limits::Limits;
pub use metrics::{Metrics, MetricsSnapshot};
pub use server::{MemcachedConfig, MemcachedRules, Server, ServerConfig, Services};
