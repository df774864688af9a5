//! The cluster map: the nodes and vBuckets as clients see them.
//!
//! [`ClusterView`] is one node's view of the cluster for its clients. It knows the existing buckets and their ports,
//! and composes the *config* documents by which clients route. A config is composed once per revision, bucket and host,
//! and returned as bytes: clients ask for it every few seconds.
//!
//! A standalone node makes the revisions itself. A cluster has a [`ClusterMap`] with the addresses of the nodes, which
//! assigns the vBuckets to nodes. The coordination store has the valid map, and each node adopts it. The result of a
//! failover is a pure function of the map and of the [`CopyPosition`]s of the copies.
//!
//! [`AutoFailover`] decides when nodes are failed over, and [`NodeHealth`] is a node's part in that.
//!
//! Invariants:
//! * All configs, of the cluster and of every bucket, share one revision: a client may compare revisions of different
//!   configs.
//! * A revision is saved before anyone can see it, so that it never returns with another content after a restart.
//! * Reading never waits for a writer.
//!
//! # Example
//!
//! ```
//! use kedge_cluster::place;
//!
//! // 1,024 vBuckets on three nodes, with one replica each.
//! let chains = place(&[0, 1, 2], 1, 1024);
//! assert_eq!(chains.len(), 1024);
//! for chain in &chains {
//!     let replicas: Vec<u16> = chain.replicas().collect();
//!     assert_eq!(replicas.len(), 1);
//!     assert_ne!(chain.active(), Some(replicas[0]), "a replica is on another node");
//! }
//! assert_eq!(chains, place(&[0, 1, 2], 1, 1024), "the placement is a function of its arguments");
//! ```

mod auto_failover;
mod config;
mod document;
mod error;
mod failover;
mod fences;
mod groups;
mod joining;
mod level;
mod lineage;
mod manifest;
mod map;
mod members;
mod moves;
mod nodes;
mod placement;
mod position;
mod rebalance;
mod records;
mod recovery;
mod replicas;
mod state;
mod view;

pub use auto_failover::{
    AUTO_FAILOVER_TIMEOUT_SECS_MAX, AutoFailover, AutoFailoverChange, AutoFailoverEdit,
    AutoFailoverSettings, ClusterObservation, Decision, DiskHealth, DiskJudge, DiskOption,
    DiskOptionChange, DiskSample, DiskTrouble, DownCause, DownNode, FieldError, LeaseSeen,
    MemberObservation, NodeHealth, Refusal,
};
pub use config::{
    BUCKET_CAPABILITIES, ConfigDocument, NODE_SERVICES, ServerMap, host_text, socket_text,
};
pub use error::ClusterError;
pub use failover::{
    FailoverLosses, FailoverPlan, NodePositions, lacks_durability_majority,
    plan_automatic_failover, plan_failover,
};
pub use fences::{FailoverAttempt, Fences};
pub use groups::{GroupChange, GroupError, plan_group_change};
pub use joining::Shortfall;
pub use level::{CompatLevel, Feature, LevelRange, Release, plan_hold, plan_next_level};
pub use lineage::{Lineage, MapAction, act_on};
pub use manifest::{
    DEFAULT_NAME, FIRST_ID, ManifestEdit, ManifestError, ManifestKeeper, ManifestNameProblem,
    WantedCollection, WantedManifest, WantedScope, check_manifest_name, manifest_json,
    manifest_rest_json, parse_manifest, parse_wanted_scopes,
};
pub use map::{Chain, ClusterMap, MapBucket, REPLICAS_MAX, VbucketRole, plan_threads};
pub use members::{
    External, MapNode, TlsPorts, check_node_name, joined_rev, plan_add_node, plan_node_change,
    plan_remove_node,
};
pub use moves::{MoveStart, PendingMove, TakenVbucket, plan_balance, plan_move};
pub use nodes::{NodeList, NodeView};
pub use placement::place;
pub use position::{CopyPosition, CopyRank, newest_branch};
pub use rebalance::{
    CatchUp, DrainRequest, MoveLimits, MovePace, NextChain, PlacementNode, RebalanceKind,
    RebalanceLeft, RebalanceProgress, RebalanceRecord, RebalanceRequest, RebalanceState,
    begin_drain, begin_rebalance, even_actives, plan_moves_per_node, plan_round, plan_steps,
    rebalance_left, stop_rebalance, target_chains,
};
pub use records::{CLUSTER_USER, ClusterSecret, NodeRecord, uuid_text};
pub use recovery::{
    RecoveryType, plan_discarded, plan_full_recovery, plan_recovery, plan_recovery_type,
};
pub use state::ClusterState;
pub use view::{
    BucketEntry, ChangeKind, ClusterChange, ClusterSnapshot, ClusterView, Ports, SaveState,
};

use serde::{Deserialize, Serialize};

/// The Couchbase Server version that Kedge reports wherever a client can ask: clients choose features by it.
///
/// From 8.0.0 on, clients expect `clusterName`, `clusterUUID` and `nodeUUID` in configs, and no memcached buckets.
pub const CLAIMED_VERSION: &str = "8.0.0-0000-enterprise";

/// [`CLAIMED_VERSION`] as the `clusterCompatibility` number of the REST interface: major * 65536 + minor.
pub const CLAIMED_COMPATIBILITY: u32 = 8 << 16;

/// The server group of a standalone node, and of a node that was given none.
pub const SERVER_GROUP: &str = "Group 1";

/// The version of a config. A newer one is greater: epochs are compared first, then revisions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision {
    /// `revEpoch` in a config; it grows when the revisions had to restart.
    pub epoch: i64,
    /// `rev` in a config.
    pub rev: i64,
}
