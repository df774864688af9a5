//! The revision of the users that the nodes of a cluster share.

use serde::{Deserialize, Serialize};

/// The cluster that shares users, and the number of changes of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsersRevision {
    /// The uuid of the cluster.
    pub cluster: String,
    /// The first part of the names of the documents of users and groups.
    pub generation: String,
    /// The number of changes.
    pub revision: u64,
}
