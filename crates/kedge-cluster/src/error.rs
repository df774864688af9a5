//! Errors of the cluster's own data.

use crate::{CompatLevel, FailoverLosses, Feature, GroupError, Release};

/// The reason why a change of the cluster was refused, or its own data cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The new state could not be saved; nothing was changed.
    #[error("cannot save the cluster state: {0}")]
    Save(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The saved state is not in the form of this version.
    #[error("the cluster state is damaged: {0}")]
    Damaged(#[source] serde_json::Error),
    /// The state was written by another release.
    #[error("the cluster state has version {found}, and this release reads version {supported}: {}", remedy(*found, *supported))]
    Version {
        /// The version of the state.
        found: u32,
        /// The version that this release reads.
        supported: u32,
    },
    /// The compatibility level in force is none that this release supports; the text gives the remedy.
    #[error(
        "the cluster has compatibility level {in_force}, and this release, {}, supports {}: {remedy}",
        release.version, release.levels
    )]
    Level {
        /// The level in force.
        in_force: CompatLevel,
        /// This release.
        release: Release,
        /// The remedy.
        remedy: String,
    },
    /// The compatibility level in force does not have the feature yet.
    #[error(
        "{feature} needs compatibility level {}, and the cluster has level {in_force}: it is raised when all nodes have the newer \
         release, see kedge cluster status", feature.level()
    )]
    NeedsLevel {
        /// The feature.
        feature: Feature,
        /// The level in force.
        in_force: CompatLevel,
    },
    /// A file of the state is missing; the text names it and the remedy.
    #[error("{0}")]
    Missing(String),
    /// The node cannot be the member of that name; the text gives the reason and the remedy.
    #[error("{0}")]
    Membership(String),
    /// A map contradicts itself, or cannot be made.
    #[error("the cluster map: {0}")]
    Map(String),
    /// A collection manifest contradicts itself; the text says where.
    #[error("the collection manifest: {0}")]
    Manifest(String),
    /// There is no such node.
    #[error("there is no node \"{0}\" in the cluster")]
    NoNode(String),
    /// The node is already failed over.
    #[error("node \"{0}\" was failed over already")]
    Failed(String),
    /// Only a failed-over node can be recovered.
    #[error("node \"{0}\" was not failed over")]
    NotFailed(String),
    /// No node would be left.
    #[error("node \"{0}\" is the last one that was not failed over")]
    LastNode(String),
    /// The node cannot be added, removed or changed; the text gives the reason.
    #[error("{0}")]
    Node(String),
    /// The server groups cannot be changed so.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// The vBucket cannot move to that node; the text gives the reason.
    #[error("{0}")]
    Move(String),
    /// The failover would lose data, as listed; it can be forced.
    #[error("{0}; force it to accept that")]
    WouldLose(FailoverLosses),
}

/// Returns what to do with a state of another version.
fn remedy(found: u32, supported: u32) -> &'static str {
    if found > supported {
        "use the release that wrote it"
    } else {
        "back up the buckets with the release that wrote it, and restore them into a new cluster"
    }
}
