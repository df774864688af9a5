//! What can go wrong with the cluster's own data.

use crate::Losses;

/// Why a change of the cluster was refused, or its own data cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The new state could not be saved; nothing was changed.
    #[error("cannot save the cluster state: {0}")]
    Save(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The saved state is not what this version writes.
    #[error("the cluster state is damaged: {0}")]
    Damaged(#[source] serde_json::Error),
    /// The saved state was written by a newer version.
    #[error("the cluster state has version {found}, newer than the {supported} known here")]
    Version {
        /// The version that was found.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// A file of the state was there and is missing; the sentence says which, and what to do.
    #[error("{0}")]
    Missing(String),
    /// The cluster file makes no sense; the sentence says where.
    #[error("the cluster file: {0}")]
    File(String),
    /// A map contradicts itself, or cannot be made.
    #[error("the cluster map: {0}")]
    Map(String),
    /// A collection manifest contradicts itself; the sentence says where.
    #[error("the collection manifest: {0}")]
    Manifest(String),
    /// There is no such node.
    #[error("there is no node \"{0}\" in the cluster")]
    NoNode(String),
    /// It was failed over already.
    #[error("node \"{0}\" was failed over already")]
    Failed(String),
    /// Only what was failed over can be recovered.
    #[error("node \"{0}\" was not failed over")]
    NotFailed(String),
    /// Nothing would be left.
    #[error("node \"{0}\" is the last one that was not failed over")]
    LastNode(String),
    /// The vBucket cannot move there; the sentence says why.
    #[error("{0}")]
    Move(String),
    /// What the failover would lose; it can be forced.
    #[error("{0}; force it to accept that")]
    WouldLose(Losses),
}
