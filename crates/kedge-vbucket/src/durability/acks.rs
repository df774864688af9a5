//! Acknowledgements of prepares by the nodes of a vBucket.
//!
//! Invariants:
//! * An acknowledgement is kept under the name of the node, whether or not a chain contains it: the chain or the
//!   prepare may follow later. It only grows, until the node starts another stream.
//! * `reached` is recalculated after each change of acknowledgements, chains or rules.

use super::DurabilityRules;
use crate::topology::{ChainQuorum, NodeName, Topology};
use kedge_types::limits::{ACKNOWLEDGING_NODES_MAX, CHAIN_NODES_MAX};
use kedge_types::{Seqno, Status};

/// A value above any seqno.
const ALL: Seqno = Seqno(u64::MAX);

/// The acknowledgements of the nodes.
#[derive(Debug)]
pub(crate) struct Acks {
    topology: Option<Topology>,
    rules: DurabilityRules,
    acks: Vec<(NodeName, Seqno)>,
    /// Prepares up to this seqno are acknowledged by enough other nodes of each chain.
    reached: Seqno,
    /// True if a chain has too few nodes and the active node alone is sufficient.
    is_fallback: bool,
}

impl Acks {
    pub(crate) fn new(topology: Option<Topology>) -> Self {
        let mut acks = Self {
            topology,
            rules: DurabilityRules::default(),
            acks: Vec::new(),
            reached: Seqno(0),
            is_fallback: false,
        };
        acks.count();
        acks
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    pub(crate) fn set_topology(&mut self, topology: Option<Topology>) {
        self.topology = topology;
        self.count();
    }

    pub(crate) fn set_rules(&mut self, rules: DurabilityRules) {
        self.rules = rules;
        self.count();
    }

    pub(crate) fn reached(&self) -> Seqno {
        self.reached
    }

    pub(crate) fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    pub(crate) fn all(&self) -> &[(NodeName, Seqno)] {
        &self.acks
    }

    /// Checks that the chains can satisfy a SyncWrite.
    pub(crate) fn check_possible(&self) -> Result<(), Status> {
        let topology = self.topology.as_ref().ok_or(Status::TemporaryFailure)?;
        for needs in topology
            .chains()
            .map(|chain| ChainQuorum::of(chain, topology.active()))
        {
            let too_few = needs.has_too_few && !self.rules.active_is_enough;
            if too_few || needs.is_too_long {
                return Err(Status::DurabilityImpossible);
            }
        }
        Ok(())
    }

    /// Records that `node` has all prepares up to `seqno`. Returns whether `reached` has advanced.
    pub(crate) fn acknowledge(&mut self, node: &NodeName, seqno: Seqno) -> Result<bool, Status> {
        match self.acks.iter_mut().find(|(name, _)| name == node) {
            Some((_, acked)) if *acked >= seqno => return Ok(false),
            Some((_, acked)) => *acked = seqno,
            None => {
                if self.acks.len() == ACKNOWLEDGING_NODES_MAX && !self.forget_stranger() {
                    return Err(Status::TemporaryFailure);
                }
                self.acks.push((node.clone(), seqno));
            }
        }
        let before = self.reached;
        self.count();
        Ok(self.reached > before)
    }

    /// Removes a node that no chain contains. Returns whether there was one.
    fn forget_stranger(&mut self) -> bool {
        let topology = self.topology.as_ref();
        let is_stranger = |(name, _): &(NodeName, Seqno)| {
            topology.is_none_or(|topology| !topology.has_replica(name))
        };
        let stranger = self.acks.iter().position(is_stranger);
        stranger.map(|at| self.acks.swap_remove(at)).is_some()
    }

    pub(crate) fn forget(&mut self, node: &NodeName) {
        self.acks.retain(|(name, _)| name != node);
        self.count();
    }

    pub(crate) fn forget_all(&mut self) {
        self.acks.clear();
        self.count();
    }

    fn count(&mut self) {
        self.is_fallback = false;
        let Some(topology) = &self.topology else {
            self.reached = Seqno(0);
            return;
        };
        self.reached = ALL;
        for chain in topology.chains() {
            let needs = ChainQuorum::of(chain, topology.active());
            let reached = match needs.replicas {
                0 => ALL,
                _ if needs.has_too_few => {
                    self.is_fallback |= self.rules.active_is_enough;
                    if self.rules.active_is_enough {
                        ALL
                    } else {
                        Seqno(0)
                    }
                }
                replicas => self.acked_by(topology, chain, replicas),
            };
            self.reached = self.reached.min(reached);
        }
    }

    /// Returns the highest seqno that at least `replicas` nodes of a chain have acknowledged, the active node excluded.
    fn acked_by(&self, topology: &Topology, chain: &[Option<NodeName>], replicas: usize) -> Seqno {
        let mut acked = [Seqno(0); CHAIN_NODES_MAX];
        let others = chain.iter().flatten();
        let others = others.filter(|node| topology.active() != Some(*node));
        for (acked, node) in acked.iter_mut().zip(others) {
            let ack = self.acks.iter().find(|(name, _)| name == node);
            *acked = ack.map_or(Seqno(0), |(_, seqno)| *seqno);
        }
        acked.sort_unstable_by(|a, b| b.cmp(a));
        acked[replicas - 1]
    }
}
