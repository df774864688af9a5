//! Who replicates what from whom.

use std::collections::BTreeSet;
use std::fmt;

use kedge_node::coordination::PeerAddress;
use kedge_types::VbId;
use zeroize::Zeroizing;

/// The vBuckets that come from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationSource {
    /// The peer, which has them as active.
    pub peer: PeerAddress,
    /// The vBuckets, which this node has as replicas, or pending.
    pub vbuckets: Vec<VbId>,
    /// Those of them that this node takes over: it gets all that the peer has, which gives them up.
    pub takeovers: BTreeSet<VbId>,
}

/// The identity of this node to its peers.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name in topologies.
    pub node: String,
    /// The user whom it logs in as.
    pub user: String,
    /// That user's password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("node", &self.node)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
