//! Nodes that were failed over and are back catch up before they count.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    CatchUp, Chain, ClusterError, ClusterMap, VbucketRole, plan_balance, plan_failover, plan_move,
    plan_recovery,
};
use proptest::prelude::*;

use crate::copies::{self, Told, at, bucket, map, taken_by};

fn chain(map: &ClusterMap, vb: usize) -> &[Option<u16>] {
    &bucket(map).chains[vb].0
}

/// Nodes that have come so far with all vBuckets.
fn told(map: &ClusterMap, nodes: &[(u16, u64)]) -> Told {
    let positions: Vec<_> = nodes.iter().map(|it| (it.0, at(it.1))).collect();
    copies::told(map, &positions)
}

fn everyone(map: &ClusterMap) -> Told {
    copies::everyone(map, 5)
}

fn without(map: &ClusterMap, node: u16) -> Result<ClusterMap, ClusterError> {
    plan_failover(map, node, &everyone(map), false).map(|plan| plan.map)
}

fn forced(map: &ClusterMap, node: u16) -> ClusterMap {
    let plan = plan_failover(map, node, &everyone(map), true);
    plan.expect("it is forced").map
}

fn back(map: &ClusterMap, node: u16) -> ClusterMap {
    plan_recovery(map, node).expect("it was failed over")
}

/// The map when everyone who tells has come so far; `None` when that changes nothing.
fn caught_up(map: &ClusterMap, told: &Told) -> Option<ClusterMap> {
    let mut copies = CatchUp::begin(map);
    copies.note(told);
    copies.plan(map)
}

/// n_1 was failed over and is back: it has all, and counts only then. Nothing is lost silently before.
#[test]
fn rejoining_node_counts_after_it_has_caught_up() {
    let before = map(2, 1, 4);
    let alone = without(&before, 1).expect("n_0 has all");
    let recovered = back(&alone, 1);
    assert_eq!(bucket(&recovered).chains, bucket(&alone).chains);
    assert_eq!(
        bucket(&recovered).role(3, 1),
        VbucketRole::Replica { active: Some(0) }
    );
    assert_eq!(bucket(&recovered).second_chain(3), None);
    assert_eq!(bucket(&recovered).missing_copies(), 4);
    let read = ClusterMap::from_json(&recovered.to_json()).expect("it can be");
    assert_eq!(read, recovered);
    assert_eq!(copies::replicas(&recovered), None, "that is under way");
    let refused = without(&recovered, 0);
    let Err(ClusterError::WouldLose(losses)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(losses.without_copy.len(), 4);
    assert_eq!(
        caught_up(&recovered, &told(&recovered, &[(0, 5), (1, 4)])),
        None
    );
    let after = caught_up(&recovered, &everyone(&recovered)).expect("it has all");
    assert_eq!(chain(&after, 0), [Some(0), Some(1)]);
    assert_eq!(chain(&after, 3), [Some(0), Some(1)]);
    assert!(!bucket(&after).is_unfinished() && bucket(&after).missing_copies() == 0);
    without(&after, 0).expect("n_1 has all");
}

/// One of three nodes was killed, and until its failover nothing said that a third of the vBuckets had no active: only empty
/// places counted.
#[test]
fn unreachable_node_is_a_shortfall_before_its_failover() {
    let whole = map(3, 1, 6);
    let short = |map: &ClusterMap, is_up: fn(u16) -> bool| {
        let found = bucket(map).shortfall(is_up);
        (found.without_active, found.missing_copies)
    };
    assert_eq!(short(&whole, |_| true), (0, 0));
    assert!(bucket(&whole).shortfall(|_| true).is_none());
    // Each node is the active of two and has a copy of two more.
    for node_is_up in [|node| node != 0, |node| node != 1, |node| node != 2] {
        assert_eq!(short(&whole, node_is_up), (2, 4));
        assert!(!bucket(&whole).shortfall(node_is_up).is_none());
    }
    assert_eq!(short(&whole, |_| false), (6, 6));
    let failed_over = without(&whole, 2).expect("all have a copy");
    assert_eq!(short(&failed_over, |node| node != 2), (0, 4));
    assert_eq!(
        short(&failed_over, |_| true),
        (0, 4),
        "it has nothing by now"
    );
}

#[test]
fn vbuckets_rejoin_independently() {
    let recovered = back(&without(&map(2, 1, 3), 1).unwrap(), 1);
    let mut copies = CatchUp::begin(&recovered);
    let mut told = told(&recovered, &[(0, 5), (1, 5)]);
    told.get_mut(&1).unwrap().get_mut("b").unwrap()[1] = Some(at(2));
    copies.note(&told);
    let next = copies.plan(&recovered).unwrap();
    assert_eq!(chain(&next, 0), [Some(0), Some(1)]);
    assert_eq!(chain(&next, 1), [Some(0), None]);
    assert_eq!(bucket(&next).joining, BTreeMap::from([(1, vec![1])]));
}

/// A node can come back while other nodes are still missing.
#[test]
fn two_nodes_rejoin_one_after_the_other() {
    let before = map(3, 2, 6);
    let one = forced(&without(&before, 2).unwrap(), 1);
    let first = back(&one, 2);
    assert_eq!(bucket(&first).joining[&0], [2]);
    // The second one comes while the first one still catches up, or later.
    let second = back(&first, 1);
    let mut both = bucket(&second).joining[&0].clone();
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
    let one_has = told(&second, &[(0, 5), (2, 5)]);
    let next = caught_up(&second, &one_has).unwrap();
    assert!(bucket(&next).chains[0].contains(2));
    assert_eq!(bucket(&next).joining[&0], [1]);
    let later = back(&caught_up(&first, &everyone(&first)).unwrap(), 1);
    assert_eq!(bucket(&later).joining[&0], [1]);
    for map in [next, later] {
        let whole = caught_up(&map, &everyone(&map)).unwrap();
        assert_eq!(bucket(&whole).missing_copies(), 0);
    }
}

/// A failover of a third node does not make it forget the one that catches up, which follows who is the active now.
#[test]
fn failover_of_one_node_does_not_stop_the_joining_of_another() {
    let recovered = back(&without(&map(3, 2, 3), 2).unwrap(), 2);
    let leads = bucket(&recovered).chains[0].active().unwrap();
    let next = without(&recovered, leads).unwrap();
    let other = bucket(&next).chains[0].active();
    assert!(other.is_some() && other != Some(leads) && other != Some(2));
    assert_eq!(
        bucket(&next).role(0, 2),
        VbucketRole::Replica { active: other }
    );
    assert_eq!(copies::replicas(&next), None);
    // The one that catches up is no copy to go on with, be it ever so far.
    let refused = without(&next, other.unwrap());
    assert!(matches!(refused, Err(ClusterError::WouldLose(_))));
    // It goes again before it has caught up: nothing is lost with it.
    let gone = without(&recovered, 2).unwrap();
    assert!(bucket(&gone).joining.is_empty());
}

/// A node that a map forgot for any reason joins again by itself, also while another node is failed over.
#[test]
fn forgotten_node_joins_again() {
    let recovered = back(&without(&map(3, 2, 3), 2).unwrap(), 2);
    let mut forgot = without(&recovered, 1).unwrap();
    let joining = std::mem::take(&mut forgot.buckets[0].joining);
    let again = copies::replicas(&forgot).unwrap();
    assert_eq!(bucket(&again).joining, joining);
    assert!(joining.values().flatten().all(|node| *node == 2));
}

#[test]
fn vbuckets_may_move_while_a_node_catches_up() {
    let begun = plan_move(&without(&map(3, 2, 3), 2).unwrap(), "b", 0, "n_1").unwrap();
    let recovered = back(&begun, 2);
    let moved = taken_by(&recovered, 1, 0).expect("it moves");
    ClusterMap::from_json(&moved.to_json()).expect("it can be");
    assert_eq!(
        bucket(&moved).role(0, 2),
        VbucketRole::Replica { active: Some(1) }
    );
    let refused = plan_move(&moved, "b", 0, "n_2").expect_err("it catches up");
    assert!(refused.to_string().contains("catches up"), "{refused}");
    let again = plan_move(&moved, "b", 0, "n_0").expect("another one");
    // It joins in the midst of a move.
    let joined = caught_up(&again, &everyone(&again)).unwrap();
    assert_eq!(chain(&joined, 0), [Some(1), Some(0), Some(2)]);
    assert_eq!(bucket(&joined).moves, bucket(&again).moves);
}

#[test]
fn nodes_become_active_again_only_after_they_have_caught_up() {
    let recovered = back(&without(&map(2, 1, 4), 1).unwrap(), 1);
    assert_eq!(plan_balance(&recovered), None);
    assert_eq!(recovered.catching_up(), [1]);
    let after = caught_up(&recovered, &everyone(&recovered)).unwrap();
    assert!(after.catching_up().is_empty());
    assert_eq!(bucket(&plan_balance(&after).unwrap()).moves.len(), 2);
}

/// A forced failover makes a copy valid: that of the node that went, or one that had not caught up.
#[test]
fn recovered_node_becomes_active_of_vbuckets_without_copies() {
    let recovered = back(&without(&map(2, 1, 4), 1).unwrap(), 1);
    let lost = forced(&recovered, 0);
    assert_eq!(chain(&lost, 0), [None, None]);
    // What it has so far stays.
    assert_eq!(
        bucket(&lost).role(0, 1),
        VbucketRole::Replica { active: None }
    );
    ClusterMap::from_json(&lost.to_json()).expect("it can be");
    assert_eq!(caught_up(&lost, &everyone(&lost)), None, "with whom?");
    let of_the_lost = back(&lost, 0);
    assert_eq!(chain(&of_the_lost, 0), [Some(0), None]);
    assert_eq!(bucket(&of_the_lost).joining[&0], [1]);
    let of_the_other = back(&lost, 1);
    assert_eq!(chain(&of_the_other, 0), [Some(1), None]);
    assert!(bucket(&of_the_other).joining.is_empty(), "n_0 is not there");
    let refused = plan_recovery(&of_the_other, 1);
    assert!(matches!(refused, Err(ClusterError::NotFailed(_))));
}

#[test]
fn maps_with_impossible_joins_are_rejected() {
    let good = back(&without(&map(3, 1, 3), 2).unwrap(), 2);
    let (vb, joins) = bucket(&good).joining.first_key_value().unwrap();
    assert_eq!(joins, &[2]);
    let leads = bucket(&good).chains[usize::from(*vb)].active().unwrap();
    for wrong in [vec![], vec![leads], vec![2, 2], vec![2, 1 - leads], vec![3]] {
        let mut map = good.clone();
        map.buckets[0].joining.insert(*vb, wrong.clone());
        assert!(ClusterMap::from_json(&map.to_json()).is_err(), "{wrong:?}");
    }
    let mut failed = good.clone();
    failed.nodes.get_mut(&2).unwrap().failed = true;
    assert!(ClusterMap::from_json(&failed.to_json()).is_err());
}

proptest! {
    /// Nodes go and come back, numbers change, vBuckets move, copies get further: a node is in a chain only when it has had all
    /// that the active had, and in the end all that are there are in all chains that they are to be in.
    #[test]
    fn every_recovered_node_joins_eventually(
        nodes in 2_usize..6,
        replicas in 1_u8..4,
        steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>(), 0_u64..3), 1..25),
    ) {
        const VBUCKETS: u16 = 12;
        let mut now = map(nodes, replicas, VBUCKETS);
        // Who has all of a vBucket: the model has no way to lose it but to fail.
        let mut whole: BTreeSet<(u16, u16)> = BTreeSet::new();
        for (vb, chain) in (0..VBUCKETS).zip(&bucket(&now).chains) {
            whole.extend(chain.nodes().map(|node| (vb, node)));
        }
        let told_by = |map: &ClusterMap, whole: &BTreeSet<(u16, u16)>| -> Told {
            let of_node = |node: u16| {
                let of_vb = |vb: u16| Some(at(if whole.contains(&(vb, node)) { 5 } else { 4 }));
                (node, BTreeMap::from([("b".to_owned(), (0..VBUCKETS).map(of_vb).collect())]))
            };
            map.members().map(of_node).collect()
        };
        for (what, which, vb) in steps {
            let node = u16::try_from(which.index(nodes)).expect("few");
            let vb = u16::try_from(which.index(usize::from(VBUCKETS))).expect("few") ^ u16::try_from(vb).expect("few");
            let vb = vb % VBUCKETS;
            let next = match what {
                0 => plan_failover(&now, node, &told_by(&now, &whole), false).ok().map(|plan| plan.map),
                1 => plan_recovery(&now, node).ok(),
                2 => {
                    let mut copies = CatchUp::begin(&now);
                    copies.note(&told_by(&now, &whole));
                    copies.plan(&now)
                }
                3 => plan_move(&now, "b", vb, now.name(node)).ok(),
                4 => taken_by(&now, node, vb),
                _ => {
                    let follows = matches!(bucket(&now).role(vb, node), VbucketRole::Replica { active: Some(_) });
                    if follows {
                        whole.insert((vb, node));
                    }
                    copies::replicas(&now)
                }
            };
            let Some(next) = next else { continue };
            if what == 0 {
                whole.retain(|(_, of)| *of != node);
            }
            prop_assert_eq!(&ClusterMap::from_json(&next.to_json()).expect("a valid map"), &next);
            prop_assert!(what == 0 || copies::replicas(&next).is_none_or(|it| !bucket(&it).next.is_empty()));
            for (vb, chain) in (0..VBUCKETS).zip(&bucket(&next).chains) {
                prop_assert!(chain.active().is_some(), "nothing was forced");
                for node in chain.nodes() {
                    prop_assert!(whole.contains(&(vb, node)), "{node} has not all of {vb}");
                }
            }
            now = next;
        }
        for node in 0..u16::try_from(nodes).expect("few") {
            now = plan_recovery(&now, node).unwrap_or(now);
        }
        for _ in 0..2 {
            now = caught_up(&now, &everyone(&now)).unwrap_or(now);
        }
        prop_assert_eq!(bucket(&now).missing_copies(), 0);
        prop_assert!(bucket(&now).joining.is_empty() && bucket(&now).next.is_empty());
        let set = |chain: &Chain| chain.nodes().collect::<BTreeSet<_>>();
        for (old, new) in bucket(&map(nodes, replicas, VBUCKETS)).chains.iter().zip(&bucket(&now).chains) {
            prop_assert_eq!(set(old), set(new));
        }
    }
}
