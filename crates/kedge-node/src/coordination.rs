//! The interface between the cluster's machinery and its users: management and statistics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::{
    AutoFailoverEdit, AutoFailoverSettings, ClusterError, ClusterMap, Decision, FailoverAttempt,
    FailoverLosses, FieldError, GroupChange, LevelRange, ManifestEdit, ManifestError,
    NodePositions, NodeRecord, RecoveryType, Refusal, Revision,
};
use kedge_types::{ManifestUid, Seqno, VbId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

/// The reason why a change of the cluster was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The map does not allow it, or cannot be saved.
    #[error(transparent)]
    Map(#[from] ClusterError),
    /// There is no map yet.
    #[error("the node has no map: it was not made a member of the cluster yet")]
    NotBegun,
    /// The node is no member of the cluster.
    #[error("node \"{0}\" is no member of the cluster")]
    NoMember(String),
    /// The coordination store did not answer, or its content cannot be used.
    #[error("{0}")]
    Store(String),
    /// The coordination store was to make the change and did not answer: it has made it, may still make it, or never will.
    #[error("the coordination store may have made the change, or may still make it: {0}")]
    OutcomeUnknown(String),
    /// A node follows a newer map, or newer users, than the coordination store has.
    #[error(
        "the coordination store went backwards: node \"{0}\" follows a newer map or newer users, and puts them there again; try again"
    )]
    WentBackwards(String),
    /// The node to fail over is alive.
    #[error("node \"{0}\" answers; force it to fail a node over that is alive")]
    Alive(String),
    /// All nodes have to make the change, and one does not respond.
    #[error(
        "node \"{0}\" does not answer, and all nodes that were not failed over have to do this"
    )]
    Down(String),
    /// Other changes came first, again and again.
    #[error("other changes were made at the same time; try again")]
    Raced,
    /// The bucket does not exist.
    #[error("there is no bucket of that name")]
    NoBucket,
    /// Its scopes and collections do not allow it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bucket already exists.
    #[error("there is a bucket of that name")]
    Exists,
    /// A setting is invalid, or cannot change.
    #[error("{0}")]
    Refused(String),
    /// Fields of the change are missing or wrong.
    #[error("{}", .0.iter().map(|it| format!("{} {}", it.field, it.text)).collect::<Vec<_>>().join("; "))]
    Fields(Vec<FieldError>),
}

/// A change of the cluster that was made.
#[derive(Debug)]
pub struct AppliedChange {
    /// The revision of the map with the change.
    pub revision: Revision,
    /// Nodes that have not applied the map yet, with the reasons.
    pub missing: Vec<(String, String)>,
    /// The number of vBuckets that another node became the active of.
    pub promoted: usize,
    /// The number of vBuckets that have moved to another node.
    pub moved: usize,
    /// The number of vBuckets that are still moving.
    pub moving: usize,
    /// The lost writes, if losses were accepted.
    pub losses: FailoverLosses,
    /// The duration.
    pub took: Duration,
}

impl AppliedChange {
    /// Returns the result of a change without effect: the map already has it.
    #[must_use]
    pub fn nothing(revision: Revision) -> Self {
        Self {
            revision,
            missing: Vec::new(),
            promoted: 0,
            moved: 0,
            moving: 0,
            losses: FailoverLosses::default(),
            took: Duration::ZERO,
        }
    }
}

/// The consequences of a failover that its user accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailoverConsent {
    /// True if a node that responds may be failed over.
    pub alive: bool,
    /// True if acknowledged writes may be lost.
    pub losses: bool,
}

/// The state of a node as it reports it to others, which may have another release: unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The name.
    pub node: String,
    /// The revision of the map that it follows.
    pub revision: Option<Revision>,
    /// The revision of the map that its vBuckets have applied.
    pub applied: Option<Revision>,
    /// The revision of the cluster's users that it follows; 0 if there is none.
    #[serde(default)]
    pub users: u64,
    /// The encryption of its connections to other nodes; empty if its release does not say.
    #[serde(default)]
    pub encryption: String,
    /// The release of the process.
    #[serde(default)]
    pub release: String,
    /// The time since the restart of the node, in milliseconds; `None` if it was new when its process started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_ms: Option<u64>,
    /// The compatibility levels that the process supports.
    #[serde(flatten)]
    pub levels: LevelRange,
}

/// The state of the coordination store, as of the last call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// The reason why the store is not reachable, or its map is not followed; `None` if all is well.
    pub trouble: Option<String>,
    /// True if the store went backwards since the start of this process.
    pub went_backwards: bool,
    /// The lease of this node.
    pub lease: LeaseStatus,
}

/// The reason why a node serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ServesBy {
    /// It does not.
    #[default]
    None,
    /// Its lease is valid.
    Lease,
    /// The coordination store is unreachable, and all other members have promised not to fail it over.
    Promises,
}

impl ServesBy {
    /// Returns the name in metrics and in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lease => "lease",
            Self::Promises => "promises",
        }
    }
}

/// The lease of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    /// True if the node serves its active vBuckets.
    pub serves: bool,
    /// The reason why it does.
    pub serves_by: ServesBy,
    /// The time in milliseconds for which it serves without another renewal, as of the last look.
    pub left_ms: u64,
    /// The lease time in milliseconds.
    pub time_ms: u64,
    /// The number of renewals that succeeded.
    pub renewals: u64,
    /// The number of renewals that failed.
    pub failures: u64,
    /// The number of times that the node stopped serving because its lease was over.
    pub lapses: u64,
    /// The number of times that all other members have promised not to fail the node over.
    pub promised: u64,
    /// The number of nodes that have such a promise of this node.
    pub promises: usize,
    /// The reason why the last renewal failed; `None` if it did not.
    pub trouble: Option<String>,
}

/// The state of automatic failover on a node, as of its last decision. Only that of the orchestrator has effects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoFailoverStatus {
    /// True if the node is the orchestrator.
    pub is_orchestrator: bool,
    /// True if it is enabled.
    pub enabled: bool,
    /// The number of nodes that were failed over since the count was reset.
    pub count: u32,
    /// The nodes that are down, or late with their leases.
    pub nodes: Vec<String>,
    /// The name of the reason why they are not failed over; empty if there is none.
    pub refused: &'static str,
    /// The reason.
    pub reason: String,
    /// The number of nodes that this process has failed over automatically.
    #[serde(skip)]
    pub failovers: u64,
}

impl AutoFailoverStatus {
    /// Returns the status after a decision.
    #[must_use]
    pub fn after(
        &self,
        is_orchestrator: bool,
        settings: &AutoFailoverSettings,
        decision: &Decision,
    ) -> Self {
        let reason = match decision {
            Decision::Refused { reason, .. } => Some(reason),
            _ => None,
        };
        Self {
            is_orchestrator,
            enabled: settings.enabled,
            count: settings.count,
            nodes: decision.nodes(),
            refused: reason.map_or("", Refusal::name),
            reason: reason.map(ToString::to_string).unwrap_or_default(),
            failovers: self.failovers,
        }
    }
}

/// The cluster control of a node. Calls may wait for other nodes and for the disk, unless they say otherwise.
pub trait ClusterControl: Send + Sync {
    /// Returns the map; `None` until there was a first one. Never waits.
    fn map(&self) -> Option<Arc<ClusterMap>>;
    /// Returns the revision of the map that this node's vBuckets have applied, and its changes. Never waits.
    fn applied(&self) -> watch::Receiver<Option<Revision>>;
    /// Returns the state of this node. Never waits.
    fn report(&self) -> NodeReport;
    /// Returns the default number of replicas of a bucket. Never waits.
    fn replicas(&self) -> u8;
    /// Returns the names of the other nodes, and true for each that is reachable. Never waits.
    fn others(&self) -> Vec<(String, bool)>;
    /// Returns whether a node is reachable; this one always is. Never waits.
    fn is_reached(&self, node: u16) -> bool;
    /// Returns whether the node with this uuid is reachable; true if the map does not have it. Never waits.
    fn is_uuid_reached(&self, uuid: &str) -> bool;
    /// Returns figures of this node, for the status of the cluster.
    fn figures(&self) -> Value;
    /// Returns the status of the whole cluster, as this node sees it; `None` without a map.
    fn status(&self) -> Option<Value>;
    /// Returns a management document of another node, by the node's uuid.
    ///
    /// # Errors
    /// The reason why there is none.
    fn ask(&self, uuid: &str, path: &str) -> Result<Value, String>;

    /// Returns the state of the coordination store. Never waits.
    fn coordinator(&self) -> StoreStatus;
    /// Adopts a map of the coordination store that is newer than the current one. False if it is not newer.
    ///
    /// # Errors
    /// `Map` when it is no map of this cluster; `Save`, and it is not followed.
    fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError>;
    /// Returns the positions of this node's copies.
    ///
    /// # Errors
    /// The bucket that is still loading.
    fn positions(&self) -> Result<NodePositions, String>;
    /// Ends all streams from a node, and starts none for a while, for an attempt of its failover. When it returns, nothing is
    /// acknowledged to that node.
    ///
    /// # Errors
    /// When streams do not end in time.
    fn fence(&self, node: u16, attempt: FailoverAttempt) -> Result<(), String>;
    /// Promises a node that does not reach the coordination store not to fail it over for a time. `known` is the last revision
    /// of its lease that the node knows. Never waits.
    ///
    /// # Errors
    /// `Refused` with the reason.
    fn promise(&self, node: &str, time: Duration, known: u64) -> Result<(), ChangeError>;
    /// Ends the lease of a member whose process serves no more, so that another process of its name can begin one. Waits for the
    /// end of the lease, and of this node's promise.
    ///
    /// # Errors
    /// `Alive` when the process renews its lease, `Refused` when it may serve by promises, `Store`.
    fn release_lease(&self, node: &str) -> Result<(), ChangeError>;
    /// Follows the nodes again that an attempt has fenced, unless another one has, too.
    fn lift_fences(&self, attempt: FailoverAttempt);

    /// Fails a node over: replicas take over its active vBuckets.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn fail_over(&self, name: &str, accepts: FailoverConsent)
    -> Result<AppliedChange, ChangeError>;
    /// Recovers a failed-over node: it catches up and becomes a replica. With full recovery it discards its data first.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn recover(&self, name: &str, recovery: RecoveryType) -> Result<AppliedChange, ChangeError>;
    /// Chooses the recovery of a failed-over node by the next rebalance; with `None`, the rebalance removes the node.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn set_recovery_type(
        &self,
        name: &str,
        recovery: Option<RecoveryType>,
    ) -> Result<AppliedChange, ChangeError>;
    /// Returns the records of the nodes that wait to be added, by name.
    ///
    /// # Errors
    /// `NotBegun`, `Store`.
    fn waiting_nodes(&self) -> Result<BTreeMap<String, NodeRecord>, ChangeError>;
    /// Makes a node a member that waits under this name.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn add_node(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Keeps the compatibility level as it is although all nodes may support the next one; or no longer.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn hold_level(&self, is_held: bool) -> Result<AppliedChange, ChangeError>;
    /// Removes a node that has no vBuckets, or forgets one that waits.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn remove_node(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Moves a vBucket to a node that has a replica of it.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn move_vbucket(&self, bucket: &str, vb: u16, to: &str) -> Result<AppliedChange, ChangeError>;
    /// Moves actives back to the nodes that they would have in a new bucket.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn balance(&self) -> Result<AppliedChange, ChangeError>;
    /// Begins a rebalance of all buckets over all nodes. Those of these names are removed at its end.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn start_rebalance(&self, remove: &[String]) -> Result<AppliedChange, ChangeError>;
    /// Begins to move the actives of nodes to their replicas. With `fails_over`, the nodes are failed over at the end.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn drain(&self, names: &[String], fails_over: bool) -> Result<AppliedChange, ChangeError>;
    /// Stops the running rebalance, drain or graceful failover, if there is one.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn stop_rebalance(&self) -> Result<AppliedChange, ChangeError>;

    /// Limits the vBuckets that a node sends, and receives, at the same time.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn limit_moves(&self, per_node: u8) -> Result<AppliedChange, ChangeError>;

    /// Sets numbers of threads of the task pools of all nodes, by the names of the settings.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn set_threads(&self, changes: &BTreeMap<String, String>)
    -> Result<AppliedChange, ChangeError>;

    /// Changes the server groups.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn change_groups(&self, change: &GroupChange) -> Result<AppliedChange, ChangeError>;
    /// Creates a bucket on all nodes.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn create_bucket(&self, config: &BucketConfig) -> Result<AppliedChange, ChangeError>;
    /// Changes settings of a bucket on all nodes.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn update_bucket(
        &self,
        name: &str,
        change: &BucketChange,
    ) -> Result<AppliedChange, ChangeError>;
    /// Drops a bucket on all nodes.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn drop_bucket(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Changes scopes and collections of a bucket on all nodes. Returns the uid of the manifest after the change.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn edit_manifest(
        &self,
        name: &str,
        edit: &ManifestEdit,
    ) -> Result<(AppliedChange, ManifestUid), ChangeError>;
    /// Sends the map to all other nodes that are not failed over, and returns those that have not applied it.
    ///
    /// # Errors
    /// `NotBegun`.
    fn give_to_all(&self) -> Result<Vec<String>, ChangeError>;
    /// Renames the cluster.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn rename(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Returns the settings of automatic failover.
    ///
    /// # Errors
    /// `Store`.
    fn auto_failover(&self) -> Result<AutoFailoverSettings, ChangeError>;
    /// Returns the last decision about automatic failovers. Never waits.
    fn auto_failover_status(&self) -> AutoFailoverStatus;
    /// Changes the settings of automatic failover, and returns the new ones.
    ///
    /// # Errors
    /// `Fields`, `Raced`, `Store`.
    fn edit_auto_failover(
        &self,
        edit: &AutoFailoverEdit,
    ) -> Result<AutoFailoverSettings, ChangeError>;
    /// Repeats a management request on all other nodes.
    ///
    /// # Errors
    /// `Refused` with the answers of those that did not do it.
    fn repeat(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), ChangeError>;
    /// Returns an error unless all nodes that are not failed over respond.
    ///
    /// # Errors
    /// `Down`.
    fn require_all(&self, map: &ClusterMap) -> Result<(), ChangeError>;
}

/// The address of a node from which vBuckets are replicated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    /// The name in the cluster map and in topologies.
    pub name: String,
    /// The host: a name or an address, an IPv6 address without brackets.
    pub host: String,
    /// The KV port.
    pub port: u16,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.host, self.port)
    }
}

/// The phase of a vBucket in replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamPhase {
    /// It waits for the connection, or for a retry.
    #[default]
    Waiting,
    /// The file of the peer is being copied.
    Copying,
    /// The stream was requested.
    Asked,
    /// The stream is open.
    Streaming,
    /// It rolls back to the history that it shares with the peer.
    RollingBack,
    /// It has everything of the peer, and is to become active.
    TakenOver,
}

impl StreamPhase {
    /// Returns the name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Copying => "copying",
            Self::Asked => "asked",
            Self::Streaming => "streaming",
            Self::RollingBack => "rolling_back",
            Self::TakenOver => "taken_over",
        }
    }
}

/// The status of a replicated vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// The phase.
    pub phase: StreamPhase,
    /// The last received seqno.
    pub received: Seqno,
    /// The end of the last snapshot: the peer has at least this seqno.
    pub announced: Seqno,
    /// The last acknowledged prepare.
    pub acknowledged: Seqno,
    /// The number of rollbacks.
    pub rollbacks: u64,
    /// The reason of the last refusal or end.
    pub last_error: Option<String>,
}

impl StreamStatus {
    /// Returns the number of seqnos of the current snapshot that were not received yet.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.announced.get().saturating_sub(self.received.get())
    }
}

/// The status of a connection to a peer for a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The bucket.
    pub bucket: String,
    /// The peer.
    pub peer: PeerAddress,
    /// True if there is a connection.
    pub connected: bool,
    /// The number of connections so far.
    pub connects: u64,
    /// The reason of the last failure or end.
    pub last_error: Option<String>,
    /// The number of received changes.
    pub items: u64,
    /// The number of received bytes.
    pub bytes: u64,
    /// The rate to which the peer limits new copies, in bytes per second; 0 is no limit.
    pub copy_bytes_per_sec: u64,
    /// The vBuckets.
    pub vbuckets: BTreeMap<VbId, StreamStatus>,
}

/// The connections over which this node's replicas follow others.
pub trait ReplicationLinks: Send + Sync {
    /// Returns the recent status of every connection and its vBuckets.
    fn links(&self) -> Vec<LinkStatus>;
    /// Calls `each` with the name and value of every figure of all connections together.
    fn stats(&self, each: &mut dyn FnMut(&str, &str));
}
