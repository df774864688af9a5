//! What can go wrong with the cluster's own data.

/// Why a change of the cluster was refused.
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
}
