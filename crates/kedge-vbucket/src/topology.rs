//! Which nodes have to acknowledge SyncWrites.

use kedge_types::Status;
use kedge_types::limits::{
    CHAIN_NODES_MAX, NODE_NAME_BYTES_MAX, SYNC_WRITE_NODES_MAX, TOPOLOGY_CHAINS_MAX,
};
use std::fmt;
use std::sync::Arc;

/// The name of a node in chains, and in its acknowledgements of prepares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// A name; `None` when it is empty or longer than [`NODE_NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        (1..=NODE_NAME_BYTES_MAX)
            .contains(&name.len())
            .then(|| Self(name.into()))
    }

    /// As text.
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

/// The nodes of a vBucket: one chain, or two while it moves. The first of the first chain is the active, that of the
/// second is to be; a place without a name is a replica that is not there now. A SyncWrite needs a majority of the
/// places of each chain, and the active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    chains: Arc<[Box<[Option<NodeName>]>]>,
}

impl Topology {
    /// # Errors
    /// `Invalid` unless there are one or [`TOPOLOGY_CHAINS_MAX`] chains of one to [`CHAIN_NODES_MAX`] places, the first
    /// of each with a name, and no name twice in a chain.
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

    /// That of a bucket which is on one node only: a majority of one.
    #[must_use]
    pub fn alone() -> Self {
        let chain: Box<[_]> = Box::new([Some(NodeName("self".into()))]);
        Self {
            chains: Arc::new([chain]),
        }
    }

    /// Its chains, the active first in each.
    pub fn chains(&self) -> impl Iterator<Item = &[Option<NodeName>]> {
        self.chains.iter().map(|chain| &**chain)
    }

    /// The active.
    #[must_use]
    pub fn active(&self) -> Option<&NodeName> {
        self.chains().next()?.first()?.as_ref()
    }

    /// The node that becomes the active, while the vBucket moves.
    #[must_use]
    pub fn next_active(&self) -> Option<&NodeName> {
        self.chains().nth(1)?.first()?.as_ref()
    }

    /// Returns whether a node that is not the active is in one of its chains.
    #[must_use]
    pub fn has_replica(&self, node: &NodeName) -> bool {
        self.active() != Some(node)
            && self
                .chains()
                .any(|chain| chain.iter().flatten().any(|name| name == node))
    }
}

/// The needs of a chain.
pub(crate) struct ChainQuorum {
    /// Nodes other than the active that have to acknowledge a prepare.
    pub(crate) replicas: usize,
    /// Fewer are there.
    pub(crate) has_too_few: bool,
    /// There are more nodes than SyncWrites are made with.
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
