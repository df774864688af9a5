//! Why the server does not start, or not stop cleanly.

use std::net::SocketAddr;

use kedge_bucket::BucketError;
use kedge_frontend::StartError;
use kedge_node::registry::RegistryError;

/// Why the server does not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened on: taken, not of this machine, or not allowed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Config(String),
    /// The cluster's own data cannot be used.
    #[error(transparent)]
    Cluster(#[from] kedge_cluster::ClusterError),
    /// A bucket cannot be opened or made.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A bucket could not be loaded.
    #[error("bucket {name} cannot be loaded: {source}")]
    Load {
        /// The bucket.
        name: String,
        /// Why.
        source: BucketError,
    },
    /// The system refuses a thread, a poll or a wake-up.
    #[error("cannot start {what}: {source}")]
    Start {
        /// The part that was to be started.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Threads did not end in time. Nothing that was acknowledged is lost: buckets are synced all the same.
    #[error("{0} front-end threads were still at work at the deadline")]
    Deadline(usize),
    /// Not all could be made durable, or brought into the files. What is not in the files is in the logs.
    #[error("not closed cleanly: {}", .0.join("; "))]
    Unclean(Vec<String>),
}

impl From<StartError> for ServerError {
    fn from(error: StartError) -> Self {
        let StartError { what, source } = error;
        Self::Start { what, source }
    }
}
