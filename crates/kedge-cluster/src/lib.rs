//! The cluster map: what clients are told about nodes and vBuckets.
//!
//! [`ClusterView`] is what one node tells its clients. It knows the buckets that exist and the ports they are
//! reached at, and composes the *config* documents that clients route by. A config is composed once per revision,
//! bucket and host, and handed out as bytes: clients ask for it every few seconds.
//!
//! A node that runs alone makes the revisions itself. A cluster of a fixed topology has a [`ClusterFile`], which says
//! where the nodes are, and a [`ClusterMap`], which says who has which vBucket; the newest map counts, and each node
//! adopts it. What a failover makes of a map is a pure function of it and of the [`Position`]s of the copies.
//!
//! Invariants:
//! * There is one revision for all configs, of the cluster and of every bucket: a client may compare the revision it
//!   knows of one with that of another.
//! * A revision is saved before anyone can see it, so that it never comes back with another content after a restart.
//! * Reading never waits for a writer.
//!
//! # Example
//!
//! ```
//! use kedge_cluster::place;
//!
//! // 1,024 vBuckets on three nodes, with one replica each.
//! let chains = place(3, 1, 1024);
//! assert_eq!(chains.len(), 1024);
//! for chain in &chains {
//!     let replicas: Vec<u16> = chain.replicas().collect();
//!     assert_eq!(replicas.len(), 1);
//!     assert_ne!(chain.active(), Some(replicas[0]), "a replica is on another node");
//! }
//! assert_eq!(chains, place(3, 1, 1024), "the placement is a function of its arguments");
//! ```

mod config;
mod document;
mod error;
mod failover;
mod file;
mod joining;
mod manifest;
mod map;
mod moves;
mod nodes;
mod placement;
mod position;
mod replicas;
mod state;
mod view;

pub use config::{BUCKET_CAPABILITIES, Config, NODE_SERVICES, ServerMap, host_text, socket_text};
pub use error::ClusterError;
pub use failover::{FailoverPlan, Losses, NodePositions, plan_failover, plan_recovery};
pub use file::{CLUSTER_USER, ClusterFile, External, NodeEntry, REPLICAS_MAX, SECRET_BYTES_MIN};
pub use joining::Shortfall;
pub use manifest::{
    DEFAULT_NAME, FIRST_ID, Maker, ManifestEdit, ManifestError, ManifestKeeper, NameProblem,
    WantedCollection, WantedManifest, WantedScope, check_manifest_name, manifest_json,
    manifest_rest_json, parse_manifest, parse_wanted_scopes,
};
pub use map::{Chain, ClusterMap, MapBucket, MapNode, Role};
pub use moves::{plan_balance, plan_move};
pub use nodes::{NodeView, Nodes};
pub use placement::place;
pub use position::{Position, Standing, newest_branch};
pub use replicas::{CatchUp, NextChains, plan_replicas};
pub use state::ClusterState;
pub use view::{BucketEntry, Change, ChangeKind, ClusterView, Ports, SaveState, Snapshot};

use serde::{Deserialize, Serialize};

/// The Couchbase Server version that Kedge claims to be, everywhere a client can ask: clients choose features by it.
///
/// From 8.0.0 on, clients expect `clusterName`, `clusterUUID` and `nodeUUID` in configs, and no memcached buckets.
pub const CLAIMED_VERSION: &str = "8.0.0-0000-enterprise";

/// [`CLAIMED_VERSION`] as the `clusterCompatibility` number of the REST interface: major * 65536 + minor.
pub const CLAIMED_COMPATIBILITY: u32 = 8 << 16;

/// The server group that every node is in.
pub const SERVER_GROUP: &str = "Group 1";

/// The version of a config. Newer is greater: epochs are compared first, then revisions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision {
    /// `revEpoch` in a config; grows when revisions had to start again.
    pub epoch: i64,
    /// `rev` in a config.
    pub rev: i64,
}
