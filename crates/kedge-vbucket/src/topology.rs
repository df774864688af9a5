//! Replication topology: the nodes that have to acknowledge SyncWrites.

use kedge_types::Status;
use kedge_types::limits::{
    CHAIN_NODES_MAX, NODE_NAME_BYTES_MAX, SYNC_WRITE_NODES_MAX, TOPOLOGY_CHAINS_MAX,
};
use std::fmt;
use std::sync::Arc;

/// The name of a node in chains and acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Creates a name. Returns `None` if it is empty or longer than [`NODE_NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        (1..=NODE_NAME_BYTES_MAX)
            .contains(&name.len())
            .then(|| Self(name.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The replication chains of a vBucket: one, or two while the vBucket moves. The first node of the first chain is the
/// active one, the first node of the second chain is the next active one. An entry without a name is a missing replica.
/// A SyncWrite needs the active node and a majority of the entries of each chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    chains: Arc<[Box<[Option<NodeName>]>]>,
}

impl Topology {
    /// Creates a topology from chains.
    ///
    /// # Errors
    /// `Invalid` unless there are one to [`TOPOLOGY_CHAINS_MAX`] chains of one to [`CHAIN_NODES_MAX`] entries, with a
    /// name in the first entry and no duplicate names in a chain.
    pub fn new(chains: Vec<Vec<Option<NodeName>>>) -> Result<Self, Status> {
        let is_sound = |chain: &Vec<Option<NodeName>>| {
            let repeats = |(at, node): (usize, &Option<NodeName>)| {
                node.is_some() && chain[..at].contains(node)
            };
            (1..=CHAIN_NODES_MAX).contains(&chain.len())
                && chain[0].is_some()
                && !chain.iter().enumerate().any(repeats)
        };
        let sound =
            (1..=TOPOLOGY_CHAINS_MAX).contains(&chains.len()) && chains.iter().all(is_sound);
        if !sound {
            return Err(Status::Invalid);
        }
        Ok(Self {
            chains: chains.into_iter().map(Into::into).collect(),
        })
    }

    /// Returns the topology of a bucket on a single node: a majority of one.
    #[must_use]
    pub fn alone() -> Self {
        let chain: Box<[_]> = Box::new([Some(NodeName("self".into()))]);
        Self {
            chains: Arc::new([chain]),
        }
    }

    /// Returns the chains, each starting with its active node.
    pub fn chains(&self) -> impl Iterator<Item = &[Option<NodeName>]> {
        self.chains.iter().map(|chain| &**chain)
    }

    /// Returns the active node.
    #[must_use]
    pub fn active(&self) -> Option<&NodeName> {
        self.chains().next()?.first()?.as_ref()
    }

    /// Returns the next active node, while the vBucket moves.
    #[must_use]
    pub fn next_active(&self) -> Option<&NodeName> {
        self.chains().nth(1)?.first()?.as_ref()
    }

    /// Returns whether a chain contains the node and it is not the active one.
    #[must_use]
    pub fn has_replica(&self, node: &NodeName) -> bool {
        self.active() != Some(node)
            && self
                .chains()
                .any(|chain| chain.iter().flatten().any(|name| name == node))
    }
}

/// The quorum of a chain.
pub(crate) struct ChainQuorum {
    /// The number of replicas that have to acknowledge a prepare.
    pub(crate) replicas: usize,
    /// True if the chain has fewer nodes than a majority.
    pub(crate) has_too_few: bool,
    /// True if the chain has more nodes than SyncWrites support.
    pub(crate) is_too_long: bool,
}

impl ChainQuorum {
    pub(crate) fn of(chain: &[Option<NodeName>], active: Option<&NodeName>) -> Self {
        let majority = chain.len() / 2 + 1;
        let there = chain.iter().flatten().count();
        let own = chain.iter().flatten().any(|name| Some(name) == active);
        Self {
            replicas: majority - usize::from(own),
            has_too_few: there < majority,
            is_too_long: there > SYNC_WRITE_NODES_MAX,
        }
    }
}
