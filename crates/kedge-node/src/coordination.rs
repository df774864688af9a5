//! The interface between the cluster's machinery and those who show or direct it: management and statistics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::{
    ClusterError, ClusterMap, FailoverLosses, ManifestEdit, ManifestError, NodePositions, Revision,
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
    #[error("the cluster has not begun yet: not all of its nodes have been seen")]
    NotBegun,
    /// The node to be failed over lives.
    #[error("node \"{0}\" answers; force it to fail a node over that is alive")]
    Alive(String),
    /// It has to be done by all nodes.
    #[error(
        "node \"{0}\" does not answer, and all nodes that were not failed over have to do this"
    )]
    Down(String),
    /// Another node made a newer map meanwhile.
    #[error("another change was made at the same time by another node; try again")]
    Raced,
    /// The bucket is not there.
    #[error("there is no bucket of that name")]
    NoBucket,
    /// Its scopes and collections do not allow it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bucket is there already.
    #[error("there is a bucket of that name")]
    Exists,
    /// A setting makes no sense, or cannot change.
    #[error("{0}")]
    Refused(String),
}

/// A change of the cluster that was made.
#[derive(Debug)]
pub struct AppliedChange {
    /// The map with it.
    pub revision: Revision,
    /// Nodes that are not what it says yet, and why.
    pub missing: Vec<(String, String)>,
    /// vBuckets that another node became the active of.
    pub promoted: usize,
    /// vBuckets that have moved to another node by that.
    pub moved: usize,
    /// vBuckets that are still to move.
    pub moving: usize,
    /// The writes that were lost, when that was accepted.
    pub losses: FailoverLosses,
    /// Its duration.
    pub took: Duration,
}

impl AppliedChange {
    /// The result of a change without effect: everything is as it is to be by the map there is.
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

/// The state of a node as it reports it to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// The map that it follows.
    pub revision: Option<Revision>,
    /// The map that its vBuckets have adopted.
    pub applied: Option<Revision>,
}

/// This node as one of a cluster. Calls may wait for other nodes and for the disk, unless they say otherwise.
pub trait ClusterControl: Send + Sync {
    /// The map that is followed; `None` until there was a first one. Never waits.
    fn map(&self) -> Option<Arc<ClusterMap>>;
    /// The revision of the map that this node's vBuckets have adopted, as it changes. Never waits.
    fn applied(&self) -> watch::Receiver<Option<Revision>>;
    /// The state of this node. Never waits.
    fn report(&self) -> NodeReport;
    /// The replicas that a bucket has unless it is made with another number. Never waits.
    fn replicas(&self) -> u8;
    /// The names of the other nodes, and whether each can be reached. Never waits.
    fn others(&self) -> Vec<(String, bool)>;
    /// Returns whether a node can be reached; this one always. Never waits.
    fn is_reached(&self, node: u16) -> bool;
    /// The same of the node with this uuid; true when the map does not know it. Never waits.
    fn is_uuid_reached(&self, uuid: &str) -> bool;
    /// Figures of this node, for the status of the cluster.
    fn figures(&self) -> Value;
    /// The status of the whole cluster, as this node sees it; `None` without a map.
    fn status(&self) -> Option<Value>;
    /// A document of management of another node, by the node's uuid.
    ///
    /// # Errors
    /// The reason why there is none.
    fn ask(&self, uuid: &str, path: &str) -> Result<Value, String>;

    /// Follows a map that is newer than the one followed. False when it is not newer.
    ///
    /// # Errors
    /// `Map` and `File` when it is no map of this cluster; `Save`, and it is not followed.
    fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError>;
    /// The positions of the copies of this node.
    ///
    /// # Errors
    /// The bucket that is still loading.
    fn positions(&self) -> Result<NodePositions, String>;
    /// Ends all streams from a node, and begins none for a while. When it returns nothing is acknowledged to it.
    ///
    /// # Errors
    /// When streams do not end.
    fn fence(&self, node: u16) -> Result<(), String>;
    /// Follows a fenced node again.
    fn lift_fence(&self);

    /// Takes a node out: replicas take over the vBuckets that it was the active of.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn fail_over(&self, name: &str, force: bool) -> Result<AppliedChange, ChangeError>;
    /// Has a node that was failed over catch up, to be put back as a replica.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn recover(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Moves a vBucket to a node that has a replica of it.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn move_vbucket(&self, bucket: &str, vb: u16, to: &str) -> Result<AppliedChange, ChangeError>;
    /// Gives all nodes the vBuckets back that they would have as the active in a new bucket.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn balance(&self) -> Result<AppliedChange, ChangeError>;
    /// Makes a bucket on all nodes.
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
    /// Changes scopes and collections of a bucket on all nodes; the uid is that of the manifest then.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn edit_manifest(
        &self,
        name: &str,
        edit: &ManifestEdit,
    ) -> Result<(AppliedChange, ManifestUid), ChangeError>;
    /// Gives the map to all other nodes that were not failed over, and returns those that have not adopted it.
    ///
    /// # Errors
    /// `NotBegun`.
    fn give_to_all(&self) -> Result<Vec<String>, ChangeError>;
    /// Renames the cluster.
    ///
    /// # Errors
    /// [`ChangeError`].
    fn rename(&self, name: &str) -> Result<AppliedChange, ChangeError>;
    /// Sends a request of management to all other nodes.
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
    /// Refuses unless all nodes that were not failed over answer.
    ///
    /// # Errors
    /// `Down`.
    fn require_all(&self, map: &ClusterMap) -> Result<(), ChangeError>;
}

/// A node that vBuckets are replicated from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    /// Its name in the cluster map and in topologies.
    pub name: String,
    /// Its host: a name or an address, an IPv6 address without brackets.
    pub host: String,
    /// Its KV port.
    pub port: u16,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.host, self.port)
    }
}

/// The phase of a vBucket that is to be replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamPhase {
    /// It waits for the connection, or for another try.
    #[default]
    Waiting,
    /// The peer was asked for it.
    Asked,
    /// It follows the peer.
    Streaming,
    /// It goes back to what it shares with the peer.
    RollingBack,
    /// It has all that the peer had and is to be active.
    TakenOver,
}

impl StreamPhase {
    /// Its name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Asked => "asked",
            Self::Streaming => "streaming",
            Self::RollingBack => "rolling_back",
            Self::TakenOver => "taken_over",
        }
    }
}

/// The state of a vBucket that is replicated to here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// Its phase.
    pub phase: StreamPhase,
    /// The last seqno that came.
    pub received: Seqno,
    /// End of the last snapshot that began: the peer has at least this seqno.
    pub announced: Seqno,
    /// The last prepare that was acknowledged.
    pub acknowledged: Seqno,
    /// Times that it went back.
    pub rollbacks: u64,
    /// The reason why it was last refused or ended.
    pub last_error: Option<String>,
}

impl StreamStatus {
    /// Seqnos of the snapshot under way that have not come.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.announced.get().saturating_sub(self.received.get())
    }
}

/// The state of a connection to a peer for a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The bucket.
    pub bucket: String,
    /// The peer.
    pub peer: PeerAddress,
    /// True if there is a connection.
    pub connected: bool,
    /// Connections there were.
    pub connects: u64,
    /// The reason why there was none, or why the last one ended.
    pub last_error: Option<String>,
    /// Changes that came.
    pub items: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Its vBuckets.
    pub vbuckets: BTreeMap<VbId, StreamStatus>,
}

/// The connections by which this node's replicas follow others.
pub trait ReplicationLinks: Send + Sync {
    /// The state of every connection and its vBuckets, as of a moment ago.
    fn links(&self) -> Vec<LinkStatus>;
    /// Calls `each` with the name and value of every figure of all connections together.
    fn stats(&self, each: &mut dyn FnMut(&str, &str));
}
