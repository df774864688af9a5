//! Errors of the start and the stop of the server.

use std::net::SocketAddr;

use kedge_bucket::BucketError;
use kedge_frontend::StartError;
use kedge_node::registry::RegistryError;

/// The error of a start, or of a stop that was not clean.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The system refuses to listen on an address: in use, not of this machine, or not permitted.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Config(String),
    /// The cluster's own data cannot be used.
    #[error(transparent)]
    Cluster(#[from] kedge_cluster::ClusterError),
    /// A bucket cannot be opened or created.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A bucket could not be loaded.
    #[error("bucket {name} cannot be loaded: {source}")]
    Load {
        /// The bucket.
        name: String,
        /// The reason.
        source: BucketError,
    },
    /// The system refuses a thread, a poll or a wake-up.
    #[error("cannot start {what}: {source}")]
    Start {
        /// The part that was not started.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Threads did not end in time. No acknowledged write is lost, as buckets are synced nevertheless.
    #[error("{0} front-end threads were still at work at the deadline")]
    Deadline(usize),
    /// Some writes could not be made durable, or applied to the files. Unapplied writes are in the logs.
    #[error("not closed cleanly: {}", .0.join("; "))]
    Unclean(Vec<String>),
}

impl From<StartError> for ServerError {
    fn from(error: StartError) -> Self {
        let StartError { what, source } = error;
        Self::Start { what, source }
    }
}
