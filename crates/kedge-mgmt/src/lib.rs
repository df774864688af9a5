//! Management over HTTP, for SDKs and operators.
//!
//! Paths, forms and documents are those of Couchbase Server's REST interface as far as SDKs use them, so that they
//! connect unchanged; Kedge's own paths are under `/kedge/` and `/metrics`. A handler parses the request, calls
//! [`Buckets`], the [`kedge_cluster::ClusterView`] or the [`kedge_node::users::Users`], and composes a document; it
//! holds no state of its own.
//!
//! Everything runs on one thread, "kedge-http"; work that may wait for a disk or hashes a password runs on blocking
//! threads that end when they are idle.
//!
//! # Example
//!
//! Every statistic of the node that is a metric, for a test that each of them exists:
//!
//! ```
//! use std::collections::BTreeSet;
//!
//! let names: BTreeSet<&str> = kedge_mgmt::server_statistics().collect();
//! assert!(names.contains("curr_connections"));
//! assert_eq!(names.len(), kedge_mgmt::server_statistics().count(), "no statistic is two metrics");
//! ```
//!
//! `kedge-server` has an example of a whole server.

mod adapter;
mod audit;
mod audited;
mod auth;
mod auto_failover;
mod backend;
mod bucket_form;
mod buckets;
mod certificates;
mod cluster;
mod collections;
mod compaction;
mod custom_roles;
mod documents;
mod encryption;
mod encryption_settings;
mod form;
mod groups;
mod hosts;
mod jwt;
mod kedge;
mod ldap;
mod membership;
mod metrics;
mod node_names;
mod nodes;
mod password_policy;
mod permissions;
mod pools;
mod proofs;
mod ready;
mod rebalance;
mod reply;
mod request_context;
mod router;
mod security;
mod security_headers;
mod serve;
mod server_groups;
mod session_login;
mod sessions;
mod slots;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod threads;
mod tls;
mod users;

pub use backend::{BucketFacts, Buckets, BucketsError, StartingBuckets};
pub use hosts::AllowedHosts;
pub use proofs::ProofChecks;
pub use serve::{HttpHandle, HttpListeners, start};
pub use state::{
    BODY_BYTES_MAX, BODY_TIMEOUT, HEADER_BYTES_MAX, HEADER_TIMEOUT, HttpParts, HttpState,
    STOP_TIMEOUT, ServerStats, UNAUTHENTICATED_TIMEOUT,
};

/// Returns the names of the server's statistics that are metrics.
pub fn server_statistics() -> impl Iterator<Item = &'static str> {
    metrics::SERVER.iter().map(|(statistic, ..)| *statistic)
}
