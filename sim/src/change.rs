//! Changes of the map, by whichever node makes them.

use crate::map::{MAP_KEY, SimMap, name};
use kedge_cluster::MoveStart;
use kedge_coordination::{Revision, Transaction};
use kedge_types::VbId;
use std::fmt;

/// A change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MapChange {
    /// A vBucket is to move from its active to one of its replicas.
    Move { vb: VbId, to: usize },
    /// A node has taken vBuckets over, by moves with these starts.
    Taken {
        node: usize,
        vbuckets: Vec<(VbId, MoveStart)>,
    },
    /// A node has restarted: nothing moves away from it.
    GiveUpMoves(usize),
    /// Another number of replicas is wanted.
    Replicas(u8),
    /// The bucket is to be spread over other nodes.
    Servers(Vec<usize>),
    /// A node is added.
    Add(usize),
    /// Nodes are to be removed by a rebalance over the others.
    Eject(Vec<usize>),
    /// A node without copies is removed.
    Remove(usize),
    /// The actives of nodes are to move away.
    Drain(Vec<usize>),
    /// The actives of nodes are to move away, and the nodes to be failed over then.
    FailOverGracefully(Vec<usize>),
    /// The running operation is stopped.
    Stop,
    /// Copies that have caught up count, due steps begin or are cancelled, and due nodes join.
    Round,
    /// A failed-over node is back.
    Return(usize),
    /// A failed-over node is back, and discards its copies.
    ReturnEmpty(usize),
    /// Nodes have discarded their copies.
    Discarded,
    /// Nodes are failed over, by this attempt.
    FailOver(Vec<usize>, u64),
    /// A node puts the map that it follows into a store that was restored.
    PutBack(usize),
}

impl MapChange {
    /// Returns the changed map. `None` if there is nothing to change, and for changes that are based on more than the
    /// map.
    pub(crate) fn plan(&self, map: &SimMap) -> Option<SimMap> {
        match self {
            Self::Move { vb, to } => map.with_move(*vb, *to),
            Self::Taken { node, vbuckets } => map.with_taken(*node, vbuckets),
            Self::GiveUpMoves(node) => map.without_moves_from(*node),
            Self::Replicas(replicas) => Some(map.with_replicas(*replicas)),
            Self::Servers(servers) => map.with_rebalance(servers, &[]),
            Self::Add(node) => map.with_node(*node),
            Self::Eject(nodes) => map.with_ejection(nodes),
            Self::Remove(node) => map.without_node(*node),
            Self::Drain(nodes) => map.with_drain(nodes, false),
            Self::FailOverGracefully(nodes) => map.with_drain(nodes, true),
            Self::Stop => map.stopped(),
            Self::Return(node) => map.with(*node),
            Self::ReturnEmpty(node) => map.with_empty(*node),
            Self::Round | Self::Discarded | Self::FailOver(..) | Self::PutBack(_) => None,
        }
    }

    /// Adds what another change says, if one change of the map can make both. Returns whether it can.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let (
            Self::Taken { node, vbuckets },
            Self::Taken {
                node: by,
                vbuckets: more,
            },
        ) = (self, other)
        else {
            return false;
        };
        if node == by {
            vbuckets.extend(more);
            vbuckets.sort_unstable();
            vbuckets.dedup();
        }
        node == by
    }

    /// Returns the transaction that replaces the map of a revision, besides what `guarded` does.
    pub(crate) fn transaction(
        guarded: Transaction,
        based_on: Revision,
        next: &SimMap,
    ) -> Transaction {
        guarded.replace(MAP_KEY, Some(based_on), next.to_json())
    }
}

impl fmt::Display for MapChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Move { vb, to } => write!(f, "vBucket {vb} is to move to {}", name(*to)),
            Self::Taken { node, vbuckets } => {
                let is_taken = |(vb, _): &(VbId, MoveStart)| {
                    format!("{} has taken vBucket {vb} over", name(*node))
                };
                let all: Vec<String> = vbuckets.iter().map(is_taken).collect();
                f.write_str(&all.join(", "))
            }
            Self::GiveUpMoves(node) => write!(f, "moves from {} are given up", name(*node)),
            Self::Replicas(replicas) => write!(f, "there are to be {replicas} replicas"),
            Self::Servers(servers) => {
                write!(f, "the bucket is to be spread over {servers:?}")
            }
            Self::Drain(nodes) => write!(f, "{nodes:?} are to be drained"),
            Self::FailOverGracefully(nodes) => {
                write!(f, "{nodes:?} are to be failed over gracefully")
            }
            Self::Stop => write!(f, "the operation is stopped"),
            Self::Add(node) => write!(f, "{} is added", name(*node)),
            Self::Eject(nodes) => write!(f, "{nodes:?} are to be removed"),
            Self::Remove(node) => write!(f, "{} is removed", name(*node)),
            Self::Round => write!(f, "copies are to be made, or have what they have to"),
            Self::Return(node) => write!(f, "{} is back", name(*node)),
            Self::ReturnEmpty(node) => write!(f, "{} is to be emptied", name(*node)),
            Self::Discarded => write!(f, "copies are discarded"),
            Self::FailOver(nodes, _) => {
                let is_out = |node: &usize| format!("{} is failed over", name(*node));
                let all: Vec<String> = nodes.iter().map(is_out).collect();
                f.write_str(&all.join(", "))
            }
            Self::PutBack(node) => write!(f, "{} puts its map back", name(*node)),
        }
    }
}
