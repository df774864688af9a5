//! The replication plan: the sources of vBuckets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kedge_cluster::MoveStart;
use kedge_node::coordination::PeerAddress;
use kedge_tls::ServerTls;
use kedge_types::VbId;
use zeroize::Zeroizing;

/// The vBuckets that come from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationSource {
    /// The peer, which has them as active.
    pub peer: PeerAddress,
    /// The vBuckets, which this node has as replicas, or pending.
    pub vbuckets: Vec<VbId>,
    /// True if new copies may be filled with files of the peer: all nodes of the cluster know that.
    pub from_files: bool,
    /// The epoch of the map that this node follows. A peer that follows a map of another epoch sends nothing. `None` if the
    /// compatibility level does not have that.
    pub map_epoch: Option<i64>,
    /// The vBuckets that this node takes over: it gets all their data from the peer, which gives them up. With the starts of
    /// their moves.
    pub takeovers: BTreeMap<VbId, MoveStart>,
    /// The vBuckets that are new copies: no SyncWrite waits for this node. Their data may be throttled.
    pub copies: BTreeSet<VbId>,
}

/// The identity of this node to its peers.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The name in topologies.
    pub node: String,
    /// The user of the login.
    pub user: String,
    /// The password of the user.
    pub password: Zeroizing<String>,
    /// TLS, if this node uses it to reach its peers.
    pub tls: Option<ServerTls>,
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity")
            .field("node", &self.node)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
