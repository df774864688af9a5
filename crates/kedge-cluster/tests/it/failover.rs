//! Placement, failover and recovery: properties over random clusters, and the cases that are worth a name.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    CatchUp, Chain, ClusterError, ClusterMap, CopyPosition, NodePositions,
    lacks_durability_majority, newest_branch, place, plan_automatic_failover, plan_failover,
    plan_recovery,
};
use proptest::prelude::*;
use serde_json::json;

use crate::many::first_map;

fn map(nodes: usize, replicas: u8, vbuckets: u16) -> ClusterMap {
    let mut map = first_map(nodes, replicas);
    map.add_bucket("b", json!({}), vbuckets, replicas)
        .expect("no node has failed");
    map
}

fn chains(map: &ClusterMap) -> &[Chain] {
    &map.bucket("b").expect("it is there").chains
}

/// Positions on one branch: `(high prepared, high seqno)` of each vBucket.
fn told(positions: impl IntoIterator<Item = (u64, u64)>) -> NodePositions {
    let position = |(high_prepared, high_seqno)| {
        Some(CopyPosition {
            high_seqno,
            persisted_seqno: high_seqno,
            high_prepared,
            consistent: true,
            catch_up_to: None,
            active: false,
            history: vec![(1, 0)],
        })
    };
    BTreeMap::from([(
        "b".to_owned(),
        positions.into_iter().map(position).collect(),
    )])
}

fn spread(counts: impl IntoIterator<Item = usize>) -> usize {
    let counts: Vec<usize> = counts.into_iter().collect();
    let (low, high) = (counts.iter().min(), counts.iter().max());
    high.unwrap_or(&0) - low.unwrap_or(&0)
}

fn no_chain_repeats(chains: &[Chain]) -> bool {
    chains.iter().all(|chain| {
        let nodes: Vec<u16> = chain.nodes().collect();
        nodes.iter().collect::<BTreeSet<_>>().len() == nodes.len()
    })
}

/// All that join have caught up.
pub(crate) fn joined(map: &ClusterMap) -> ClusterMap {
    let vbuckets = chains(map).len();
    let mut copies = CatchUp::begin(map);
    let all = |node| (node, told(vec![(0, 0); vbuckets]));
    copies.note(&map.members().map(all).collect());
    copies.plan(map).unwrap_or_else(|| map.clone())
}

proptest! {
    #[test]
    fn placement_is_balanced(nodes in 1_usize..12, replicas in 0_u8..4, vbuckets in 1_u16..300) {
        let all: Vec<u16> = (0..).step_by(3).take(nodes).collect();
        let chains = place(&all, replicas, vbuckets);
        prop_assert_eq!(chains.len(), usize::from(vbuckets));
        prop_assert!(no_chain_repeats(&chains));
        let places = 1 + usize::from(replicas).min(nodes - 1);
        prop_assert!(chains.iter().all(|chain| chain.nodes().count() == places));
        let numbers = || all.iter().copied();
        let actives = numbers().map(|node| chains.iter().filter(|it| it.active() == Some(node)).count());
        prop_assert!(spread(actives) <= 1);
        let having = numbers().map(|node| chains.iter().filter(|it| it.contains(node)).count());
        prop_assert!(spread(having) <= nodes, "replicas are spread");
        // A node that goes leaves its work to all others.
        for active in numbers() {
            let of: Vec<&Chain> = chains.iter().filter(|it| it.active() == Some(active)).collect();
            let seconds = numbers().filter(|node| *node != active);
            let seconds = seconds.map(|node| of.iter().filter(|it| it.contains(node)).count());
            prop_assert!(spread(seconds) <= 1);
        }
    }

    #[test]
    fn failover_never_promotes_a_copy_with_fewer_acknowledged_writes(
        nodes in 2_usize..7,
        replicas in 1_u8..4,
        failed in any::<prop::sample::Index>(),
        seed in prop::collection::vec((0_u64..5, 0_u64..5), 7 * 40),
        force in any::<bool>(),
    ) {
        let before = map(nodes, replicas, 40);
        let failed = u16::try_from(failed.index(nodes)).expect("few");
        let told: BTreeMap<u16, NodePositions> = before
            .members()
            .filter(|node| *node != failed)
            .map(|node| {
                let at = usize::from(node) * 40;
                (node, told(seed[at..at + 40].iter().map(|(prepared, more)| (*prepared, prepared + more))))
            })
            .collect();
        let plan = plan_failover(&before, failed, &told, force).expect("each has a replica that told");
        prop_assert!(plan.map.revision > before.revision);
        prop_assert!(no_chain_repeats(chains(&plan.map)));
        let mut promoted = 0;
        for (vb, (old, new)) in chains(&before).iter().zip(chains(&plan.map)).enumerate() {
            prop_assert_eq!(new.0.len(), old.0.len());
            prop_assert!(!new.contains(failed));
            let mut rest: Vec<u16> = old.nodes().filter(|node| *node != failed).collect();
            let standing = |node: &u16| {
                let position = told[node]["b"][vb].as_ref().expect("told");
                (position.high_prepared, position.high_seqno)
            };
            let active = new.active().expect("one takes over");
            if old.active() == Some(failed) {
                promoted += 1;
                prop_assert_eq!(Some(standing(&active)), rest.iter().map(standing).max());
            } else {
                prop_assert_eq!(Some(active), old.active());
            }
            let mut kept: Vec<u16> = new.nodes().collect();
            kept.sort_unstable();
            rest.sort_unstable();
            prop_assert_eq!(kept, rest, "who had a copy has it still");
        }
        prop_assert_eq!(plan.promoted, promoted);
    }

    #[test]
    fn failover_and_recovery_of_nodes(
        nodes in 2_usize..7,
        replicas in 0_u8..4,
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..12),
    ) {
        let first = map(nodes, replicas, 60);
        let mut now = first.clone();
        for (node, back) in steps {
            let node = u16::try_from(node.index(nodes)).expect("few");
            let told = now.members().map(|node| (node, told([(0, 0); 60]))).collect();
            let next = if back {
                plan_recovery(&now, node).map(|map| joined(&map))
            } else {
                plan_failover(&now, node, &told, true).map(|plan| plan.map)
            };
            let Ok(next) = next else { continue };
            prop_assert!(next.revision > now.revision);
            prop_assert_eq!(&ClusterMap::from_json(&next.to_json()).expect("a valid map"), &next);
            now = next;
        }
        // All are back: each has what it had, but for who is the active.
        for node in 0..u16::try_from(nodes).expect("few") {
            if let Ok(next) = plan_recovery(&now, node) {
                now = joined(&next);
            }
        }
        for (old, new) in chains(&first).iter().zip(chains(&now)) {
            let set = |chain: &Chain| chain.nodes().collect::<BTreeSet<_>>();
            prop_assert_eq!(set(old), set(new));
            prop_assert!(new.active().is_some());
        }
    }
}

#[test]
fn each_change_has_the_next_revision_and_a_failover_the_next_epoch() {
    let first = map(2, 1, 4);
    let all = BTreeMap::from([(0, told([(0, 0); 4]))]);
    let failed_over = plan_failover(&first, 1, &all, false).expect("node 0 has all");
    let back = plan_recovery(&failed_over.map, 1).expect("it failed");
    let revisions = [&first, &failed_over.map, &back].map(|map| map.revision);
    let revisions = revisions.map(|it| (it.epoch, it.rev));
    assert_eq!(revisions, [(1, 1), (2, 2), (2, 3)]);
    // The manifests stay.
    let manifest = |map: &ClusterMap| map.bucket("b").expect("it is there").manifest.clone();
    assert_eq!(manifest(&back), manifest(&first));
}

#[test]
fn impossible_failovers_and_recoveries_are_rejected() {
    let two = map(2, 1, 4);
    let all = BTreeMap::from([(1, told([(0, 0); 4]))]);
    let plan = |map: &ClusterMap, node, told: &BTreeMap<u16, NodePositions>, force| {
        plan_failover(map, node, told, force)
    };
    let gone = plan(&two, 0, &all, false).expect("node 1 takes over").map;
    let texts = [
        plan(&gone, 0, &all, true).map(|_| ()).expect_err("gone"),
        plan(&gone, 1, &all, true).map(|_| ()).expect_err("last"),
        plan(&two, 0, &BTreeMap::new(), false)
            .map(|_| ())
            .expect_err("silent"),
        plan(&map(2, 0, 4), 0, &all, false)
            .map(|_| ())
            .expect_err("no replicas"),
        plan_recovery(&two, 0).map(|_| ()).expect_err("not failed"),
        two.node("n_9").map(|_| ()).expect_err("unknown"),
    ]
    .map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "node \"n_0\" was failed over already",
            "node \"n_1\" is the last one that was not failed over",
            "no copy would be left of vBuckets: 2 (b/0, b/1); it is not known how far the copies of n_1 are; force it \
             to accept that",
            "no copy would be left of vBuckets: 2 (b/0, b/1); force it to accept that",
            "node \"n_0\" was not failed over",
            "there is no node \"n_9\" in the cluster",
        ]
    );
    let forced = plan(&map(2, 0, 4), 0, &all, true).expect("forced");
    assert_eq!(chains(&forced.map)[0], Chain(vec![None]));
    assert_eq!(forced.losses.without_copy.len(), 2);
    let back = plan_recovery(&forced.map, 0).expect("it failed");
    assert_eq!(chains(&back)[0].active(), Some(0), "nobody else has it");
}

/// Two of three copies gone at once: a SyncWrite may have been acknowledged by just these two.
#[test]
fn failover_reports_a_loss_when_a_majority_of_a_chain_is_gone() {
    let three = map(3, 2, 3);
    let one = BTreeMap::from([(1, told([(5, 5); 3]))]);
    let refused = plan_failover(&three, 0, &one, false).expect_err("node 2 is silent");
    let ClusterError::WouldLose(losses) = refused else {
        panic!("{refused}");
    };
    assert_eq!(losses.uncertain, [("b".to_owned(), 0)]);
    assert_eq!(losses.silent, ["n_2"]);
    let both = BTreeMap::from([(1, told([(5, 5); 3])), (2, told([(5, 5); 3]))]);
    plan_failover(&three, 0, &both, false).expect("a majority is left");
}

/// Several nodes of one rack are gone at once.
#[test]
fn automatic_failover_of_several_nodes_needs_a_majority_of_each_chain() {
    let five = map(5, 2, 60);
    let all: BTreeMap<u16, NodePositions> = five
        .members()
        .map(|node| (node, told([(5, 5); 60])))
        .collect();
    let rest = |gone: &[u16]| {
        let rest = all.iter().filter(|(node, _)| !gone.contains(node));
        rest.map(|(node, positions)| (*node, positions.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let plan = plan_automatic_failover(&five, &[1], &rest(&[1])).expect("a majority is left");
    assert!(plan.promoted > 0 && chains(&plan.map).iter().all(|it| !it.contains(1)));
    let refused = plan_automatic_failover(&five, &[1, 2], &rest(&[1, 2]));
    let Err(ClusterError::WouldLose(losses)) = refused else {
        panic!("{refused:?}");
    };
    assert!(losses.silent.is_empty(), "nobody waits for what is gone");
    let has_both = |chain: &Chain| chain.contains(1) && chain.contains(2);
    let is_active = |chain: &Chain| matches!(chain.active(), Some(1 | 2));
    let lost = (0_u16..).zip(chains(&five));
    let lost = lost.filter(|(_, chain)| has_both(chain) && is_active(chain));
    let lost: BTreeSet<u16> = lost.map(|(vb, _)| vb).collect();
    let uncertain: BTreeSet<u16> = losses.uncertain.iter().map(|(_, vb)| *vb).collect();
    assert_eq!(uncertain, lost);
    // Three of four are a majority, which leaves one that has each SyncWrite if two are gone.
    let four = map(5, 3, 60);
    plan_automatic_failover(&four, &[1, 2], &rest(&[1, 2])).expect("two of four are left");
}

/// A SyncWrite that the lost replica had acknowledged may exist on the active alone.
#[test]
fn automatic_failover_counts_empty_places_as_lost_copies() {
    let three = map(3, 2, 30);
    let all = |nodes: &[u16]| -> BTreeMap<u16, NodePositions> {
        let of = nodes.iter();
        of.map(|node| (*node, told([(5, 5); 30]))).collect()
    };
    let first = plan_automatic_failover(&three, &[2], &all(&[0, 1])).expect("two are left");
    assert!(!lacks_durability_majority(&first.map));
    let second = plan_automatic_failover(&first.map, &[1], &all(&[0]));
    assert!(
        matches!(second, Err(ClusterError::WouldLose(_))),
        "{second:?}"
    );
    let by_hand = plan_failover(&first.map, 1, &all(&[0]), false).expect("it is asked for");
    assert!(lacks_durability_majority(&by_hand.map));
    let two = map(2, 1, 30);
    let one = plan_automatic_failover(&two, &[1], &all(&[0])).expect("the other has all");
    assert!(lacks_durability_majority(&one.map));
}

fn position(high_prepared: u64, high_seqno: u64, history: &[(u64, u64)]) -> CopyPosition {
    CopyPosition {
        high_seqno,
        persisted_seqno: high_seqno,
        high_prepared,
        consistent: true,
        catch_up_to: None,
        active: false,
        history: history.to_vec(),
    }
}

/// An active restarted and lost what was only in its memory. Its replica rolled back further than that, to a commit of its
/// file, below a SyncWrite that both had acknowledged. Then the active is lost before the replica has caught up.
#[test]
fn failover_to_a_rolled_back_copy_is_refused_until_it_has_caught_up() {
    let positions = |catch_up_to: Option<u64>| {
        let position = CopyPosition {
            catch_up_to,
            ..position(34, 34, &[(9, 34), (1, 0)])
        };
        BTreeMap::from([("b".to_owned(), vec![Some(position)])])
    };
    let two = map(2, 1, 1);
    let behind = BTreeMap::from([(1, positions(Some(39)))]);
    let by_hand = plan_failover(&two, 0, &behind, false);
    let automatic = plan_automatic_failover(&two, &[0], &behind);
    for refused in [by_hand, automatic] {
        let refused = refused.expect_err("a SyncWrite would be lost");
        assert_eq!(
            refused.to_string(),
            "copies were rolled back below acknowledged SyncWrites and have not caught up of vBuckets: 1 (b/0); force it \
             to accept that"
        );
        let ClusterError::WouldLose(losses) = refused else {
            panic!("{refused}");
        };
        assert_eq!(losses.rolled_back, [("b".to_owned(), 0)]);
        assert!(losses.uncertain.is_empty() && losses.without_copy.is_empty());
    }
    let forced = plan_failover(&two, 0, &behind, true).expect("it is forced");
    assert_eq!(chains(&forced.map)[0].active(), Some(1));
    assert_eq!(forced.losses.rolled_back.len(), 1);
    let caught_up = BTreeMap::from([(1, positions(None))]);
    plan_failover(&two, 0, &caught_up, false).expect("it has caught up");
    plan_automatic_failover(&two, &[0], &caught_up).expect("it has caught up");
    // The active and the copy that rolled back may have been the only ones that acknowledged.
    let three = map(3, 2, 1);
    let one_behind = BTreeMap::from([(1, positions(Some(39))), (2, positions(None))]);
    let refused = plan_failover(&three, 0, &one_behind, false);
    assert!(
        matches!(refused, Err(ClusterError::WouldLose(_))),
        "{refused:?}"
    );
    let four = map(4, 3, 1);
    let mut most = one_behind;
    most.insert(3, positions(None));
    plan_failover(&four, 0, &most, false).expect("one of the others has each SyncWrite");
}

/// Data of a copy beyond the point where the others left its branch does not count, however much it is.
#[test]
fn failover_ignores_data_on_a_dead_branch() {
    let old = position(900, 900, &[(1, 0)]);
    let new = position(120, 130, &[(2, 100), (1, 0)]);
    let branch = newest_branch(&[&old, &new]);
    assert_eq!(branch, [(2, 100), (1, 0)]);
    assert!(new.on(branch) > old.on(branch));
    assert_eq!(old.on(branch).high_seqno, 100);
    assert!(!old.on(branch).undivided);
    // One that has the new history and is not there yet has less than one that has all of the old.
    let short = position(50, 50, &[(2, 100), (1, 0)]);
    let branch = newest_branch(&[&old, &short]);
    assert!(old.on(branch) > short.on(branch));
    // A branch of its own that began before the others left the common one.
    let own = position(60, 60, &[(3, 40), (1, 0)]);
    assert_eq!(own.on(branch).high_seqno, 40);
    assert!(!own.on(branch).undivided);
    // One without any common history has nothing.
    let stranger = position(9_999, 9_999, &[(77, 0)]);
    assert_eq!(stranger.on(branch).high_seqno, 0);
}

#[test]
fn failover_promotes_an_inconsistent_copy_only_for_acknowledged_prepares() {
    let branch = [(1, 0)];
    let whole = position(10, 20, &branch);
    let middle = CopyPosition {
        consistent: false,
        ..position(10, 25, &branch)
    };
    assert!(whole.on(&branch) > middle.on(&branch));
    let promised = CopyPosition {
        consistent: false,
        ..position(11, 15, &branch)
    };
    assert!(promised.on(&branch) > whole.on(&branch));
}

#[test]
fn contradictory_maps_are_rejected() {
    let good = map(3, 1, 2);
    let json = String::from_utf8(good.to_json()).expect("JSON is UTF-8");
    assert_eq!(ClusterMap::from_json(json.as_bytes()).expect("good"), good);
    for (from, to, says) in [
        ("[0,1]", "[0,0]", "chain"),
        ("[0,1]", "[0,3]", "chain"),
        ("[0,1]", "[]", "chain"),
        ("\"version\":2", "\"version\":3", "use the release"),
        ("\"version\":2", "\"version\":1", "back up the buckets"),
        ("\"n_1\"", "\"n_0\"", "two nodes are called"),
        ("\"0202", "\"xx02", "32 hexadecimal digits"),
        (&"02".repeat(16), &"01".repeat(16), "have the uuid"),
        ("\"next_node\":3", "\"next_node\":2", "the next node gets 2"),
        ("\"servers\":[0,1,2]", "\"servers\":[0,2,1]", "spread"),
        ("\"servers\":[0,1,2]", "\"servers\":[0,1,3]", "spread"),
        ("\"replicas\":1", "\"replicas\":4", "0 to 3 replicas"),
        ("\"Group 1\"", "\"\"", "server group"),
        ("\"kv_port\":11210", "\"kv_port\":0", "a port of 0"),
        ("\"buckets\"", "\"packets\"", "damaged"),
    ] {
        let bad = json.replacen(from, to, 1);
        assert_ne!(bad, json, "{from}");
        let error = ClusterMap::from_json(bad.as_bytes()).expect_err(to);
        assert!(error.to_string().contains(says), "{error}");
    }
    let failed = json.replacen("\"name\":\"n_0\",", "\"name\":\"n_0\",\"failed\":true,", 1);
    ClusterMap::from_json(failed.as_bytes()).expect_err("a node that failed has nothing");
}
