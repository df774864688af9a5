//! Target chains: the placement of copies on the members of a cluster that changes the fewest copies.
//!
//! In order of priority:
//! 1. Every chain has all its places filled with members.
//! 2. The numbers of actives, and of replicas, of any two members differ by at most one.
//! 3. As few nodes of a chain as possible share a server group.
//! 4. The fewest copies are created.
//! 5. The fewest actives are taken over.
//!
//! Both parts are minimum-cost flows: the first one selects the nodes of each vBucket, the second one its active.
//!
//! Evenness precedes server groups: with groups of different sizes, some chains stay within the larger group, rather
//! than that the nodes of the smaller one get more than their share.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::{Cost, EdgeId, FlowNetwork};
use crate::Chain;

/// A node that is to have copies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementNode {
    /// The number of the node.
    pub number: u16,
    /// The server group.
    pub group: String,
}

/// Returns the target chains for `replicas` replicas, limited to the number of other members. `present` are the chains
/// now; they may have empty places, and nodes that are not members. The order of the members has no effect.
#[must_use]
pub fn target_chains(members: &[PlacementNode], replicas: usize, present: &[Chain]) -> Vec<Chain> {
    let members: BTreeSet<&PlacementNode> = members.iter().collect();
    let members: Vec<&PlacementNode> = members.into_iter().collect();
    if members.is_empty() {
        return present.to_vec();
    }
    let shares = Shares::new(
        present.len(),
        replicas.min(members.len() - 1),
        members.len(),
    );
    let chosen = choose_nodes(&members, &shares, present);
    let actives = choose_actives(&members, &shares, &chosen, present);
    let chains = present.iter().zip(chosen).zip(actives);
    chains
        .map(|((present, chosen), active)| {
            let number = |at: usize| members[at].number;
            let nodes: BTreeSet<u16> = chosen.into_iter().map(number).collect();
            ordered(present, &nodes, active.map(number))
        })
        .collect()
}

/// Returns the chains with the same nodes, and actives that are as even as these nodes allow, with the fewest
/// takeovers.
#[must_use]
pub fn even_actives(chains: &[Chain]) -> Vec<Chain> {
    let nodes: BTreeSet<u16> = chains.iter().flat_map(Chain::nodes).collect();
    let nodes: Vec<u16> = nodes.into_iter().collect();
    let of_chain = |chain: &Chain| {
        let places = chain
            .nodes()
            .filter_map(|node| nodes.binary_search(&node).ok());
        places.collect::<Vec<usize>>()
    };
    let chosen: Vec<Vec<usize>> = chains.iter().map(of_chain).collect();
    let served = chosen.iter().filter(|nodes| !nodes.is_empty()).count();
    let shares = Shares::new(served, 0, nodes.len().max(1));
    let lead = |chain: &Chain, active: Option<usize>| {
        active.map_or_else(|| chain.clone(), |at| chain.led_by(nodes[at]))
    };
    // Surplus actives stay possible, at a price above everything else.
    let costs = vec![chains.len() as Cost + 1; nodes.len()];
    let actives = select_actives(&nodes, &shares, &chosen, chains, &costs);
    chains
        .iter()
        .zip(actives)
        .map(|(chain, active)| lead(chain, active))
        .collect()
}

/// The even shares of `nodes` nodes, rounded down, and the number of nodes that get one more.
#[derive(Debug)]
struct Shares {
    vbuckets: usize,
    replicas: usize,
    active: usize,
    more_active: usize,
    replica: usize,
    more_replica: usize,
}

impl Shares {
    fn new(vbuckets: usize, replicas: usize, nodes: usize) -> Self {
        Self {
            vbuckets,
            replicas,
            active: vbuckets / nodes,
            more_active: vbuckets % nodes,
            replica: vbuckets * replicas / nodes,
            more_replica: vbuckets * replicas % nodes,
        }
    }

    fn copies(&self) -> usize {
        self.vbuckets * (self.replicas + 1)
    }
}

/// Returns the vBuckets in a fixed order without a pattern, so that what a node loses is spread over all others.
fn scattered(vbuckets: usize) -> Vec<usize> {
    const GOLDEN: u32 = 0x9e37_79b1;
    let mut order: Vec<usize> = (0..vbuckets).collect();
    order.sort_by_key(|&vb| {
        (
            u32::try_from(vb).unwrap_or(u32::MAX).wrapping_mul(GOLDEN),
            vb,
        )
    });
    order
}

/// Returns the members of each chain, as indexes.
fn choose_nodes(members: &[&PlacementNode], shares: &Shares, present: &[Chain]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        groups.entry(&member.group).or_default().push(at);
    }
    let copies = shares.copies() as Cost;
    // Each cost exceeds the sum of all lower ones.
    let (moved, shared) = (copies + 1, (copies + 1) * (copies + 1));
    let cost = |chain: &Chain, node: u16| match chain.active() {
        Some(active) if active == node => 0,
        _ if chain.contains(node) => 1,
        _ => moved,
    };
    let mut network = FlowNetwork::default();
    let (source, sink) = (network.node(), network.node());
    let bins = network.nodes(members.len());
    limit_copies(&mut network, &bins, sink, shares);
    let mut edges: Vec<Vec<(usize, EdgeId)>> = vec![Vec::new(); present.len()];
    for vb in scattered(present.len()) {
        let (chain, vbucket) = (&present[vb], network.node());
        network.edge(source, vbucket, shares.replicas + 1, 0);
        for group in groups.values() {
            let in_group = network.node();
            for nth in 0..group.len().min(shares.replicas + 1) {
                network.edge(vbucket, in_group, 1, shared * nth as Cost);
            }
            // Another member comes first for each vBucket.
            let turn = vb % group.len();
            for &at in group[turn..].iter().chain(&group[..turn]) {
                let cost = cost(chain, members[at].number);
                edges[vb].push((at, network.edge(in_group, bins[at], 1, cost)));
            }
        }
    }
    let sent = network.send(source, sink);
    assert_eq!(sent, shares.copies(), "even shares always fit");
    let is_used = |(_, edge): &&(usize, EdgeId)| network.flow(*edge) > 0;
    let of_vbucket =
        |edges: &Vec<(usize, EdgeId)>| edges.iter().filter(is_used).map(|it| it.0).collect();
    edges.iter().map(of_vbucket).collect()
}

/// Limits the copies of each member to what an even number of actives and of replicas allows.
fn limit_copies(network: &mut FlowNetwork, bins: &[usize], sink: usize, shares: &Shares) {
    let (both, more) = (network.node(), network.node());
    let least = shares.more_active.min(shares.more_replica);
    network.edge(both, more, least, 0);
    network.edge(more, sink, shares.more_active + shares.more_replica, 0);
    for &bin in bins {
        network.edge(bin, sink, shares.active + shares.replica, 0);
        // One more active or replica, or one more of both.
        network.edge(bin, more, 1, 0);
        network.edge(bin, both, 1, 0);
    }
}

/// Returns the active of each chain, as an index of a member.
fn choose_actives(
    members: &[&PlacementNode],
    shares: &Shares,
    chosen: &[Vec<usize>],
    present: &[Chain],
) -> Vec<Option<usize>> {
    let mut copies = vec![0; members.len()];
    for &at in chosen.iter().flatten() {
        copies[at] += 1;
    }
    // The price of one more active: so that the rest is an even number of replicas.
    let price = chosen.len() as Cost + 1;
    let most_replicas = shares.replica + usize::from(shares.more_replica > 0);
    let cost = |copies: usize| {
        let must_have = copies > shares.active + most_replicas;
        let must_not = copies < shares.active + 1 + shares.replica;
        match (must_have, must_not) {
            (true, false) => 0,
            (false, true) => 2 * price,
            _ => price,
        }
    };
    let costs: Vec<Cost> = copies.into_iter().map(cost).collect();
    let numbers: Vec<u16> = members.iter().map(|member| member.number).collect();
    select_actives(&numbers, shares, chosen, present, &costs)
}

/// Selects one of the chosen nodes of each vBucket as its active. `costs` are those of one active more than the share.
fn select_actives(
    numbers: &[u16],
    shares: &Shares,
    chosen: &[Vec<usize>],
    present: &[Chain],
    costs: &[Cost],
) -> Vec<Option<usize>> {
    let mut network = FlowNetwork::default();
    let (source, sink, more) = (network.node(), network.node(), network.node());
    let bins = network.nodes(numbers.len());
    network.edge(more, sink, shares.more_active, 0);
    let surplus = 3 * (chosen.len() as Cost + 1);
    for (&bin, cost) in bins.iter().zip(costs) {
        network.edge(bin, sink, shares.active, 0);
        network.edge(bin, more, 1, *cost);
        // Only if the nodes of the chains do not allow even actives.
        network.edge(bin, sink, chosen.len(), surplus);
    }
    let mut edges: Vec<Vec<(usize, EdgeId)>> = vec![Vec::new(); chosen.len()];
    for vb in scattered(chosen.len()) {
        let vbucket = network.node();
        network.edge(source, vbucket, 1, 0);
        for &at in &chosen[vb] {
            let is_same = present[vb].active() == Some(numbers[at]);
            edges[vb].push((at, network.edge(vbucket, bins[at], 1, Cost::from(!is_same))));
        }
    }
    network.send(source, sink);
    let is_used = |(_, edge): &&(usize, EdgeId)| network.flow(*edge) > 0;
    edges
        .iter()
        .map(|edges| edges.iter().find(is_used).map(|it| it.0))
        .collect()
}

/// Returns a chain of these nodes: the active, then replicas in the order of the present chain, then new ones.
fn ordered(present: &Chain, nodes: &BTreeSet<u16>, active: Option<u16>) -> Chain {
    let stay = present.nodes().filter(|node| nodes.contains(node));
    let come = nodes
        .iter()
        .copied()
        .filter(|node| !present.contains(*node));
    let rest = stay.chain(come).filter(|node| Some(*node) != active);
    Chain(std::iter::once(active).chain(rest.map(Some)).collect())
}
