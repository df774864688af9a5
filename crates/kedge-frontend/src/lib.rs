//! Client connections: sockets, front-end threads, sessions, and the execution of the binary and text protocols.
//!
//! [`FrontendSetup`] makes the inboxes of the front-end threads, so that buckets can be opened that complete parked commands
//! through them. [`Frontend::new`] then has everything that the threads share, and [`Frontend::start`] begins them and
//! accepts connections.
//!
//! # Example
//!
//! The limits of connections, which operators set:
//!
//! ```
//! use kedge_frontend::FrontendLimits;
//!
//! let limits = FrontendLimits { connections_max: 1_000, connections_for_nodes: 100, ..FrontendLimits::default() };
//! assert_eq!(limits.clients_max(), 900);
//! assert_eq!(limits.memcached_share(), 500);
//! ```
//!
//! `kedge-server` has an example of a whole server.

mod acceptor;
mod certificate_login;
mod client_addresses;
mod commands;
mod connection;
mod conversation;
mod cookie;
mod dcp;
mod delayed_flush;
mod front_end;
mod frontend;
mod histogram;
mod inbox;
pub mod limits;
mod login;
mod memcached_connections;
mod memcached_rules;
mod memory_return;
mod metrics;
mod next_documents;
mod open_handshakes;
mod processor_waits;
mod request_memory;
mod server_context;
mod session;
mod stat_generator;
mod stat_timings;
mod tasks;
mod text_exec;
mod text_status;
mod unauthenticated;

pub use acceptor::MemcachedGate;
pub use frontend::{
    Frontend, FrontendConfig, FrontendParts, FrontendSetup, FrontendStatistics, Listeners,
    MemcachedService, StartError,
};
pub use limits::FrontendLimits;
pub use memcached_rules::MemcachedRules;
pub use metrics::{Metrics, MetricsSnapshot};
