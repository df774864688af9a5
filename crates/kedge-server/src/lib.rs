//! Front-end threads, connections, dispatch, management over HTTP.

mod acceptor;
pub mod audit;
pub mod client;
mod client_addresses;
pub mod cluster;
mod commands;
mod connection;
mod cookie;
mod dcp;
mod delayed_flush;
mod error;
mod front_end;
mod histogram;
pub mod http;
mod inbox;
pub mod limits;
mod login;
mod machine;
mod memcached_connections;
mod metrics;
mod output;
pub mod pools;
pub mod registry;
pub mod replication;
mod server;
mod session;
mod shared;
pub mod state_files;
mod tasks;
mod text_exec;
mod timestamp;
pub mod users;

pub use error::ServerError;
pub use limits::Limits;
pub use metrics::{Metrics, MetricsSnapshot};
pub use server::{MemcachedConfig, MemcachedRules, Server, ServerConfig, Services};
