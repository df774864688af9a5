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
//! * The map keeps the nodes that had the empty places. The joining nodes are those of them that are not failed over.
//!   Every change recomputes them, so no node is forgotten, whatever else happens in the meantime.
//! * No node joins a vBucket that has a target chain: this one fills the empty places.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Gives a place to a node that has joined.
    pub(crate) fn put_in(&mut self, vb: u16, node: u16) {
        let chain = &mut self.chains[usize::from(vb)];
        if let Some(place) = chain.free_place().filter(|_| !chain.contains(node)) {
            chain.0[place] = Some(node);
            self.trim_vacated(vb);
        }
    }

    /// Makes the place of a failed-over node in a chain its own, until it is back.
    pub(crate) fn vacate(&mut self, vb: u16, node: u16) {
        self.vacated.entry(vb).or_default().push(node);
    }

    /// Removes the nodes that have a place again, and as many others as no empty place is left for.
    pub(crate) fn trim_vacated(&mut self, vb: u16) {
        let chain = &self.chains[usize::from(vb)];
        if let Some(nodes) = self.vacated.get_mut(&vb) {
            nodes.retain(|node| !chain.contains(*node));
            nodes.truncate(chain.free_places());
        }
        self.vacated.retain(|_, nodes| !nodes.is_empty());
    }

    pub(crate) fn vacated_is_valid(&self, is_known: impl Fn(u16) -> bool) -> bool {
        self.vacated.iter().all(|(vb, nodes)| {
            let chain = self.chains.get(usize::from(*vb));
            chain.is_some_and(|chain| {
                let may_return = |node: &u16| is_known(*node) && !chain.contains(*node);
                (1..=chain.free_places()).contains(&nodes.len()) && nodes.iter().all(may_return)
            })
        })
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
        self.joining.iter().all(may_join)
    }

    /// Gives the empty places that no node had, as their nodes were removed, to those servers with the fewest copies that
    /// are members, or else to the other ones.
    fn give_places(&mut self, is_member: impl Fn(u16) -> bool) {
        for vb in (0_u16..).take(self.chains.len()) {
            let chain = &self.chains[usize::from(vb)];
            let owners = |bucket: &Self| bucket.vacated.get(&vb).map_or(0, Vec::len);
            for _ in owners(self)..chain.free_places() {
                let lacks = |node: &&u16| {
                    let owns = self
                        .vacated
                        .get(&vb)
                        .is_some_and(|nodes| nodes.contains(*node));
                    !owns && !self.chains[usize::from(vb)].contains(**node)
                };
                let servers = self.servers.iter().filter(lacks).copied();
                let Some(node) = servers.min_by_key(|node| (!is_member(*node), self.share(*node)))
                else {
                    break;
                };
                self.vacate(vb, node);
            }
        }
    }

    /// Returns the number of copies and empty places of a node.
    fn share(&self, node: u16) -> usize {
        let copies = self
            .chains
            .iter()
            .filter(|chain| chain.contains(node))
            .count();
        copies
            + self
                .vacated
                .values()
                .filter(|nodes| nodes.contains(&node))
                .count()
    }

    /// Removes a node that has no copies any more.
    pub(crate) fn forget(&mut self, node: u16) {
        self.servers.retain(|server| *server != node);
        for nodes in self.vacated.values_mut() {
            nodes.retain(|it| *it != node);
        }
        self.vacated.retain(|_, nodes| !nodes.is_empty());
    }

    fn who_joins(&self, is_member: impl Fn(u16) -> bool) -> BTreeMap<u16, Vec<u16>> {
        let joining = |(vb, nodes): (&u16, &Vec<u16>)| {
            let nodes = nodes.iter().copied().filter(|node| is_member(*node));
            let nodes: Vec<u16> = nodes.collect();
            (!nodes.is_empty()).then_some((*vb, nodes))
        };
        // A target chain fills the empty places, too.
        let vacated = self
            .vacated
            .iter()
            .filter(|(vb, _)| !self.next.contains_key(vb));
        vacated.filter_map(joining).collect()
    }
}

impl Chain {
    /// Returns the first place without a node.
    pub(crate) fn free_place(&self) -> Option<usize> {
        self.0.iter().position(Option::is_none)
    }

    /// Returns the number of places without a node.
    pub(crate) fn free_places(&self) -> usize {
        self.0.iter().filter(|place| place.is_none()).count()
    }
}

impl ClusterMap {
    /// Makes exactly those nodes join for which empty places are meant, once they have discarded what they are to discard.
    pub(crate) fn let_join(&mut self) {
        let members = self.members().filter(|node| !self.discards(*node));
        let members: BTreeSet<u16> = members.collect();
        for bucket in &mut self.buckets {
            bucket.give_places(|node| members.contains(&node));
            bucket.joining = bucket.who_joins(|node| members.contains(&node));
        }
    }

    /// Returns the nodes that join a vBucket.
    #[must_use]
    pub fn catching_up(&self) -> Vec<u16> {
        let all = self
            .buckets
            .iter()
            .flat_map(|bucket| bucket.joining.values());
        let nodes: BTreeSet<u16> = all.flatten().copied().collect();
        nodes.into_iter().collect()
    }
}
