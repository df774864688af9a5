//! Target chains: even, in different server groups, and with the fewest new copies.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{Chain, PlacementNode, even_actives, place, target_chains};
use proptest::prelude::*;

fn spread(nodes: u16, replicas: u8, vbuckets: u16) -> Vec<Chain> {
    let numbers: Vec<u16> = (0..nodes).collect();
    let chains = place(&numbers, replicas, vbuckets);
    target_chains(&members(&numbers), usize::from(replicas), &chains)
}

fn members(numbers: &[u16]) -> Vec<PlacementNode> {
    let member = |number: &u16| PlacementNode {
        number: *number,
        group: String::new(),
    };
    numbers.iter().map(member).collect()
}

fn in_groups(groups: &[(u16, u8)]) -> Vec<PlacementNode> {
    let member = |(number, group): &(u16, u8)| PlacementNode {
        number: *number,
        group: format!("group {group}"),
    };
    groups.iter().map(member).collect()
}

/// Returns the number of copies that nodes do not have yet.
fn moved(before: &[Chain], after: &[Chain]) -> usize {
    let both = before.iter().zip(after);
    both.map(|(before, after)| after.nodes().filter(|node| !before.contains(*node)).count())
        .sum()
}

fn taken_over(before: &[Chain], after: &[Chain]) -> usize {
    let both = before.iter().zip(after);
    both.filter(|(before, after)| before.active() != after.active())
        .count()
}

/// Returns the numbers of actives and of replicas of each node.
fn counts(nodes: &[u16], chains: &[Chain]) -> Vec<(usize, usize)> {
    let of_node = |node: &u16| {
        let active = chains
            .iter()
            .filter(|chain| chain.active() == Some(*node))
            .count();
        let replicas = chains
            .iter()
            .filter(|chain| chain.replicas().any(|it| it == *node))
            .count();
        (active, replicas)
    };
    nodes.iter().map(of_node).collect()
}

fn is_even(counts: impl Iterator<Item = usize> + Clone) -> bool {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0) <= 1
}

fn collisions(members: &[PlacementNode], chains: &[Chain]) -> usize {
    let group = |node: u16| {
        let member = members.iter().find(|member| member.number == node);
        &member.expect("it is a member").group
    };
    let of_chain = |chain: &Chain| {
        let mut groups: BTreeMap<&String, usize> = BTreeMap::new();
        for node in chain.nodes() {
            *groups.entry(group(node)).or_default() += 1;
        }
        // Three nodes of a group are worse than two and two.
        groups
            .values()
            .map(|nodes| nodes * (nodes - 1) / 2)
            .sum::<usize>()
    };
    chains.iter().map(of_chain).sum()
}

/// Checks the rules that need no comparison, and returns the numbers of shared groups and of moved copies.
fn checked(members: &[PlacementNode], replicas: usize, before: &[Chain]) -> (usize, usize) {
    let after = target_chains(members, replicas, before);
    let nodes: Vec<u16> = members.iter().map(|member| member.number).collect();
    assert_eq!(after.len(), before.len());
    for chain in &after {
        let all: BTreeSet<u16> = chain.nodes().collect();
        assert_eq!(chain.0.len(), replicas.min(nodes.len() - 1) + 1);
        assert_eq!(all.len(), chain.0.len(), "{chain:?}");
        assert!(all.iter().all(|node| nodes.contains(node)));
    }
    let counts = counts(&nodes, &after);
    assert!(is_even(counts.iter().map(|it| it.0)), "actives {counts:?}");
    assert!(is_even(counts.iter().map(|it| it.1)), "replicas {counts:?}");
    let mut reversed = members.to_vec();
    reversed.reverse();
    assert_eq!(
        after,
        target_chains(&reversed, replicas, before),
        "the order has no effect"
    );
    let again = target_chains(members, replicas, &after);
    assert_eq!(after, again, "nothing more changes");
    (collisions(members, &after), moved(before, &after))
}

/// Returns the smallest possible numbers of shared groups and of moved copies, by trying all chains of one vBucket after
/// the other, with the numbers of copies so far as the state.
fn optimum(members: &[PlacementNode], replicas: usize, before: &[Chain]) -> (usize, usize) {
    let nodes: Vec<u16> = members.iter().map(|member| member.number).collect();
    let replicas = replicas.min(nodes.len() - 1);
    let most = |copies: usize| copies.div_ceil(nodes.len());
    let most = (most(before.len()), most(before.len() * replicas));
    let mut states = BTreeMap::from([(vec![(0, 0); nodes.len()], (0, 0))]);
    for chain in before {
        let mut next: BTreeMap<Vec<(usize, usize)>, (usize, usize)> = BTreeMap::new();
        for active in 0..nodes.len() {
            for set in 0..1_usize << nodes.len() {
                if set & 1 << active != 0 || set.count_ones() as usize != replicas {
                    continue;
                }
                let is_in = |at: &usize| set & 1 << at != 0;
                let others: Vec<usize> = (0..nodes.len()).filter(is_in).collect();
                let made = std::iter::once(active).chain(others.iter().copied());
                let made = Chain(made.map(|at| Some(nodes[at])).collect());
                let cost = (
                    collisions(members, std::slice::from_ref(&made)),
                    moved(std::slice::from_ref(chain), std::slice::from_ref(&made)),
                );
                for (counts, so_far) in &states {
                    let mut counts = counts.clone();
                    counts[active].0 += 1;
                    for &other in &others {
                        counts[other].1 += 1;
                    }
                    if counts.iter().any(|it| it.0 > most.0 || it.1 > most.1) {
                        continue;
                    }
                    let total = (so_far.0 + cost.0, so_far.1 + cost.1);
                    let best = next.entry(counts).or_insert(total);
                    *best = total.min(*best);
                }
            }
        }
        states = next;
    }
    let even = states.iter().filter(|(counts, _)| {
        is_even(counts.iter().map(|it| it.0)) && is_even(counts.iter().map(|it| it.1))
    });
    *even
        .map(|(_, cost)| cost)
        .min()
        .expect("some placement is even")
}

/// Returns a chain of some of these nodes, with empty places.
fn chain(nodes: u16) -> impl Strategy<Value = Chain> {
    let all: Vec<u16> = (0..nodes).collect();
    let some = prop::sample::subsequence(all, 1..=usize::from(nodes.min(4))).prop_shuffle();
    (some, prop::collection::vec(any::<bool>(), 4)).prop_map(|(nodes, empty)| {
        let places = nodes.into_iter().zip(empty);
        Chain(
            places
                .map(|(node, empty)| (!empty).then_some(node))
                .collect(),
        )
    })
}

#[test]
fn balanced_cluster_stays_unchanged() {
    for nodes in 1..8 {
        for replicas in 0..4 {
            let before = spread(nodes, replicas, 1024);
            let numbers: Vec<u16> = (0..nodes).collect();
            let after = target_chains(&members(&numbers), usize::from(replicas), &before);
            assert_eq!(before, after, "{nodes} nodes, {replicas} replicas");
        }
    }
}

#[test]
fn new_node_gets_its_share_from_all_others_and_nothing_else_moves() {
    let before = spread(3, 1, 1024);
    let nodes = [0, 1, 2, 3];
    let after = target_chains(&members(&nodes), 1, &before);
    assert_eq!(moved(&before, &after), 512);
    assert_eq!(counts(&nodes, &after), [(256, 256); 4]);
    assert!(taken_over(&before, &after) <= 256 + 2);
    for other in 0..3 {
        // Its load after a failover of the new node.
        let pair = Chain(vec![Some(3), Some(other)]);
        let pairs = after.iter().filter(|chain| **chain == pair).count();
        assert!((43..=128).contains(&pairs), "{pairs} of node {other}");
    }
}

#[test]
fn only_the_copies_of_the_leaving_node_move_in_a_swap() {
    for replicas in 0..4 {
        let before = spread(5, replicas, 1024);
        let after = target_chains(&members(&[0, 2, 3, 4, 7]), usize::from(replicas), &before);
        let leaving = before.iter().filter(|chain| chain.contains(1)).count();
        assert_eq!(moved(&before, &after), leaving);
        for (before, after) in before.iter().zip(&after) {
            let stays = before.nodes().filter(|node| *node != 1);
            assert!(stays.into_iter().all(|node| after.contains(node)));
        }
    }
}

#[test]
fn nodes_of_a_chain_are_in_different_server_groups() {
    let before = spread(6, 1, 1024);
    let groups = in_groups(&[(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]);
    let after = target_chains(&groups, 1, &before);
    assert_eq!(collisions(&groups, &after), 0);
    let three = in_groups(&[(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]);
    assert_eq!(collisions(&three, &target_chains(&three, 2, &before)), 0);
    // A group of one node does not get more than its share.
    let uneven = in_groups(&[(0, 0), (1, 0), (2, 0), (3, 1)]);
    let (shared, _) = checked(&uneven, 1, &spread(4, 1, 64));
    assert_eq!(shared, 32);
}

#[test]
fn empty_places_are_filled_and_nodes_that_are_not_members_go() {
    let before = [
        [Some(0), None],
        [Some(9), Some(1)],
        [None, Some(0)],
        [Some(1), Some(0)],
    ];
    let before = before.map(|chain| Chain(chain.to_vec()));
    assert_eq!(checked(&members(&[0, 1]), 1, &before).1, 3);
    assert_eq!(
        target_chains(&[], 1, &before),
        before,
        "there is no place for them"
    );
}

#[test]
fn actives_become_as_even_as_the_chains_allow() {
    let chain = |nodes: &[u16]| Chain(nodes.iter().map(|node| Some(*node)).collect());
    let before = [
        chain(&[0, 1]),
        chain(&[0, 1]),
        chain(&[0, 2]),
        chain(&[0]),
        Chain(vec![None]),
    ];
    let after = even_actives(&before);
    assert_eq!(counts(&[0, 1, 2], &after), [(2, 2), (1, 1), (1, 0)]);
    assert_eq!(moved(&before, &after), 0);
    let one = [chain(&[0, 1]), chain(&[0, 1]), chain(&[0, 1])];
    assert_eq!(
        taken_over(&one, &even_actives(&one)),
        1,
        "not more than necessary"
    );
    assert!(even_actives(&[]).is_empty());
}

proptest! {
    #[test]
    fn no_placement_moves_fewer_copies(
        before in prop::collection::vec(chain(5), 1..8),
        nodes in prop::sample::subsequence(vec![0_u16, 1, 2, 3, 4, 5], 1..=4),
        replicas in 0_usize..4,
    ) {
        let members = members(&nodes);
        prop_assert_eq!(checked(&members, replicas, &before), optimum(&members, replicas, &before));
    }

    #[test]
    fn no_placement_in_server_groups_moves_fewer_copies(
        before in prop::collection::vec(chain(4), 1..7),
        groups in prop::collection::vec(0_u8..3, 4),
        replicas in 1_usize..3,
    ) {
        let groups: Vec<(u16, u8)> = (0..).zip(groups).collect();
        let members = in_groups(&groups);
        prop_assert_eq!(checked(&members, replicas, &before), optimum(&members, replicas, &before));
    }

    /// For many vBuckets, against what must move in any case.
    #[test]
    fn members_come_and_go_with_the_fewest_moves(
        from in 1_u16..8,
        joined in 0_u16..4,
        left in prop::collection::btree_set(0_u16..8, 0..3),
        replicas in 0_u8..4,
        vbuckets in 1_u16..200,
    ) {
        let before = spread(from, replicas, vbuckets);
        let nodes: Vec<u16> = (0..from).filter(|node| !left.contains(node)).chain(8..8 + joined).collect();
        prop_assume!(!nodes.is_empty());
        let (_, moves) = checked(&members(&nodes), usize::from(replicas), &before);
        let copies = usize::from(vbuckets) * (usize::from(replicas).min(nodes.len() - 1) + 1);
        let has = |node: &u16| before.iter().filter(|chain| chain.contains(*node)).count();
        let share = usize::from(vbuckets) / nodes.len() + usize::from(vbuckets) * (copies / usize::from(vbuckets) - 1) / nodes.len();
        // No node keeps more than its share with both roundings.
        let kept: usize = nodes.iter().map(|node| has(node).min(share + 2)).sum();
        prop_assert!(moves + kept >= copies);
        let needed: usize = nodes.iter().map(|node| share.saturating_sub(has(node))).sum();
        prop_assert!(moves >= needed);
    }
}
