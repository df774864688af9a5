//! Rejoining of nodes that were failed over and are back: pure functions of the map.
//!
//! A node *joins* a vBucket if it is not failed over, and an empty place of the chain is meant for it. It then follows
//! the active without counting: no config lists it, no SyncWrite waits for it, and no failover chooses it. Once it has
//! on its disk everything that the active had, it becomes part of the chain ([`crate::CatchUp`]), separately for each
//! vBucket.
//!
//! A SyncWrite needs a majority of the places of a chain, and empty places count as places. So everything that was
//! acknowledged without the node was acknowledged by a majority of the chain with the node, too. Unlike during a change
//! of the number of replicas, no write needs both chains. A write that only the active had to acknowledge, as a
//! durability rule may allow, is as safe as a write without a level.
//!
//! Invariants:
//! * The joining nodes follow from the chains and from the failed-over nodes. Every change of these recomputes them, so
//!   no node is forgotten, whatever else happens in the meantime.
//! * In no bucket do nodes join while the number of replicas changes: such a change begins only if no place is empty.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::place;
use crate::replicas::places;
use crate::{Chain, ClusterMap, MapBucket};

/// The parts of a bucket that clients miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The number of vBuckets that no node serves: they have no active, or it cannot be reached.
    pub without_active: usize,
    /// The number of vBuckets with a missing copy: their chain has an empty place, or a node that cannot be reached.
    pub missing_copies: usize,
}

impl Shortfall {
    /// Returns whether nothing is missing.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.without_active == 0 && self.missing_copies == 0
    }
}

impl MapBucket {
    /// Returns whether a node has no place yet, and follows the active to get one.
    #[must_use]
    pub fn joins(&self, vb: u16, node: u16) -> bool {
        let joining = self.joining.get(&vb);
        joining.is_some_and(|nodes| nodes.contains(&node))
    }

    /// Returns the number of vBuckets with an empty place in their chain.
    #[must_use]
    pub fn missing_copies(&self) -> usize {
        let are_short = |chain: &&Chain| chain.free_place().is_some();
        self.chains.iter().filter(are_short).count()
    }

    /// Returns the parts that clients miss while only the nodes for which `is_up` holds can be reached.
    #[must_use]
    pub fn shortfall(&self, is_up: impl Fn(u16) -> bool) -> Shortfall {
        let has_active = |chain: &&Chain| chain.active().is_some_and(&is_up);
        let is_whole = |chain: &&Chain| chain.0.iter().all(|node| node.is_some_and(&is_up));
        let all = self.chains.len();
        Shortfall {
            without_active: all - self.chains.iter().filter(has_active).count(),
            missing_copies: all - self.chains.iter().filter(is_whole).count(),
        }
    }

    /// Returns the chains that a new bucket on the same nodes would have, with as many places as now.
    pub(crate) fn first_chains(&self) -> Vec<Chain> {
        self.new_chains(self.replicas())
    }

    /// Returns the chains that a new bucket on the same nodes would have, with this number of replicas.
    pub(crate) fn new_chains(&self, replicas: usize) -> Vec<Chain> {
        let replicas = u8::try_from(replicas).unwrap_or(u8::MAX);
        let vbuckets = u16::try_from(self.chains.len()).unwrap_or(u16::MAX);
        place(&self.servers, replicas, vbuckets)
    }

    /// Gives a place to a node that has joined.
    pub(crate) fn put_in(&mut self, vb: usize, node: u16) {
        let chain = &mut self.chains[vb];
        if let Some(place) = chain.free_place().filter(|_| !chain.contains(node)) {
            chain.0[place] = Some(node);
        }
    }

    pub(crate) fn joining_is_valid(&self, is_member: impl Fn(u16) -> bool) -> bool {
        let may_join = |(vb, joining): (&u16, &Vec<u16>)| {
            let Some(chain) = self.chains.get(usize::from(*vb)) else {
                return false;
            };
            let mut full = chain.clone();
            for node in joining {
                let Some(place) = full.free_place() else {
                    return false;
                };
                full.0[place] = Some(*node);
            }
            !joining.is_empty() && full.is_valid(&is_member)
        };
        self.joining.iter().all(may_join) && (self.joining.is_empty() || self.next.is_none())
    }

    fn who_joins(&self, is_member: impl Fn(u16) -> bool) -> BTreeMap<u16, Vec<u16>> {
        if self.next.is_some() || self.missing_copies() == 0 {
            return BTreeMap::new();
        }
        let of_chain = |((vb, chain), first): ((u16, &Chain), Chain)| {
            let free = places(&self.chains) - chain.nodes().count();
            let lacks = |node: &u16| is_member(*node) && !chain.contains(*node);
            let joining: Vec<u16> = first.nodes().filter(lacks).take(free).collect();
            (!joining.is_empty()).then_some((vb, joining))
        };
        let chains = (0_u16..).zip(&self.chains);
        let first = self.first_chains();
        chains.zip(first).filter_map(of_chain).collect()
    }
}

impl Chain {
    /// Returns the first place without a node.
    pub(crate) fn free_place(&self) -> Option<usize> {
        self.0.iter().position(Option::is_none)
    }
}

impl ClusterMap {
    /// Makes exactly those nodes join for which empty places are meant.
    pub(crate) fn let_join(&mut self) {
        let members: BTreeSet<u16> = self.members().collect();
        for bucket in &mut self.buckets {
            bucket.joining = bucket.who_joins(|node| members.contains(&node));
        }
    }

    /// Returns the nodes that would be actives in a new cluster, and cannot be before they have joined.
    #[must_use]
    pub fn cannot_lead_yet(&self) -> Vec<u16> {
        let joins_to_lead = |bucket: &MapBucket, node: u16| {
            let chains = (0_u16..).zip(bucket.first_chains());
            let mut led = chains.filter(|(_, chain)| chain.active() == Some(node));
            led.any(|(vb, _)| bucket.joins(vb, node))
        };
        let joins = |node: &u16| self.buckets.iter().any(|it| joins_to_lead(it, *node));
        self.members().filter(joins).collect()
    }
}
