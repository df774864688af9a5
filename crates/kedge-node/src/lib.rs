//! The parts of a node that clients, management and the cluster share.
//!
//! [`registry`] holds the buckets, [`users`] who may log in, [`audit`] the audit log, [`pools`] the threads of the tasks.
//! [`password_checks`] verifies passwords beside the event loops. [`inbox`] and [`output`] are the two ends of an event loop:
//! the messages it receives, and the bytes that it still has to send. [`http_client`] asks other nodes.
//!
//! Nothing here knows a protocol, a session or a path of HTTP.

pub mod audit;
mod client_source;
pub mod coordination;

pub mod http_client;
pub mod inbox;
pub mod machine;
pub mod output;
mod panics;
pub mod password_checks;
pub mod pools;
pub mod registry;
pub mod state_files;
mod tasks;
mod timestamp;
pub mod users;

pub use client_source::client_source;
pub use panics::abort_on_panic;
pub use timestamp::iso_8601;
