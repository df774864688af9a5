//! Moves of actives between nodes that run.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    CatchUp, Chain, ClusterError, ClusterMap, CompatLevel, CopyPosition, DrainRequest, MapNode,
    MoveStart, NodePositions, RebalanceRequest, begin_drain, begin_rebalance, plan_add_node,
    plan_balance, plan_failover, plan_move, plan_recovery, plan_round, plan_steps,
};
use proptest::prelude::*;
use serde_json::json;

use crate::copies::{UNLIMITED, taken, taken_by};
use crate::failover::joined;
use crate::many::first_map;

fn map(nodes: usize, replicas: u8, vbuckets: u16) -> ClusterMap {
    let mut map = first_map(nodes, replicas);
    let added = map.add_bucket("b", json!({}), vbuckets, replicas);
    added.expect("no node has failed");
    map
}

fn chain(map: &ClusterMap, vb: usize) -> &Chain {
    &map.bucket("b").expect("it is there").chains[vb]
}

fn told(high_seqnos: &[u64]) -> NodePositions {
    let position = |high_seqno: &u64| {
        Some(CopyPosition {
            high_seqno: *high_seqno,
            persisted_seqno: *high_seqno,
            high_prepared: 0,
            consistent: true,
            catch_up_to: None,
            active: false,
            history: vec![(1, 0)],
        })
    };
    BTreeMap::from([("b".to_owned(), high_seqnos.iter().map(position).collect())])
}

#[test]
fn only_the_target_node_completes_a_move() {
    let before = map(3, 2, 3);
    let moving = plan_move(&before, "b", 0, "n_2").unwrap();
    assert_eq!(
        chain(&moving, 0),
        chain(&before, 0),
        "nothing has moved yet"
    );
    assert_eq!(moving.moving(), 1);
    assert_eq!(ClusterMap::from_json(&moving.to_json()).unwrap(), moving);
    assert!(taken_by(&moving, 1, 0).is_none(), "another node");
    assert!(taken_by(&moving, 2, 1).is_none(), "another vBucket");
    let after = taken_by(&moving, 2, 0).unwrap();
    assert_eq!(chain(&after, 0), &Chain(vec![Some(2), Some(1), Some(0)]));
    assert_eq!(after.moving(), 0);
    assert!(after.revision > moving.revision);
    let mut renamed = after;
    renamed.cluster_name = "another".to_owned();
}

#[test]
fn impossible_moves_are_rejected() {
    let map = plan_move(&map(3, 1, 3), "b", 1, "n_2").unwrap();
    for (bucket, vb, to) in [
        ("b", 0, "n_0"),
        ("b", 0, "n_2"),
        ("b", 1, "n_2"),
        ("b", 3, "n_0"),
        ("c", 0, "n_1"),
    ] {
        let refused = plan_move(&map, bucket, vb, to);
        assert!(
            matches!(refused, Err(ClusterError::Move(_))),
            "{bucket} {vb} {to}"
        );
    }
    let unknown = plan_move(&map, "b", 0, "n_9");
    assert!(matches!(unknown, Err(ClusterError::NoNode(_))));
    // Nor are they read.
    let text = String::from_utf8(map.to_json()).unwrap();
    for wrong in [
        r#""moves":{"1":0}"#,
        r#""moves":{"1":[9,2]}"#,
        r#""moves":{"7":2}"#,
        r#""moves":{"1":[2]}"#,
        r#""moves":{"1":[2,2,2]}"#,
    ] {
        let text = text.replace(r#""moves":{"1":[2,2]}"#, wrong);
        assert!(ClusterMap::from_json(text.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn restarted_node_cancels_moves_away_from_it() {
    let mut moving = plan_move(&map(3, 2, 3), "b", 0, "n_1").unwrap();
    moving = plan_move(&moving, "b", 1, "n_0").unwrap();
    let given_up = moving.without_moves_from(0).unwrap();
    let moves = &given_up.bucket("b").unwrap().moves;
    assert_eq!(
        moves
            .iter()
            .map(|(vb, it)| (*vb, it.to))
            .collect::<Vec<_>>(),
        [(1, 0)]
    );
    assert!(given_up.without_moves_from(0).is_none());
}

/// A node had taken a vBucket over, and could not make the map of it. The old active restarted and cancelled the move, and
/// the vBucket began to move to the same node again: that put the first takeover into the map, while the old active served.
#[test]
fn takeover_does_not_complete_a_later_move_to_the_same_node() {
    let first = plan_move(&map(3, 2, 3), "b", 0, "n_1").unwrap();
    let late = taken(&first, 0);
    let cancelled = first.without_moves_from(0).unwrap();
    assert!(cancelled.with_taken(1, &late).is_none());
    let second = plan_move(&cancelled, "b", 0, "n_1").unwrap();
    assert!(second.with_taken(1, &late).is_none());
    assert_eq!(chain(&second, 0).active(), Some(0));
    let after = second.with_taken(1, &taken(&second, 0)).unwrap();
    assert_eq!(chain(&after, 0).active(), Some(1));
    // A move is the same one after changes of anything else.
    assert!(second.next().with_taken(1, &taken(&second, 0)).is_some());
}

/// All ways in which a move begins record its start, which is the revision of the map.
#[test]
fn moves_start_with_the_map_in_which_they_begin() {
    let before = map(3, 2, 12);
    let drained = DrainRequest {
        id: String::new(),
        now_ms: 0,
        nodes: BTreeSet::from([0]),
        fails_over: false,
    };
    let drained = begin_drain(&before, drained).unwrap();
    let mut uneven = before.clone();
    for chain in &mut uneven.buckets[0].chains {
        *chain = chain.led_by(0);
    }
    let counted = |map: &ClusterMap| {
        let mut copies = CatchUp::begin(map);
        let all = |node| (node, told(&[1; 12]));
        copies.note(&(0..4).map(all).collect());
        plan_round(map, Some(&copies), UNLIMITED).expect("it goes on")
    };
    let node = MapNode {
        name: "n_3".to_owned(),
        uuid: "9".repeat(32),
        host: "10.0.0.9".to_owned(),
        ..before.nodes[&0].clone()
    };
    let mut rebalanced = plan_add_node(&before, node).unwrap();
    let request = RebalanceRequest {
        id: String::new(),
        now_ms: 0,
        servers: vec![0, 1, 2, 3],
        remove: BTreeSet::new(),
    };
    rebalanced = begin_rebalance(&rebalanced, request).unwrap();
    while rebalanced.moving() == 0 {
        rebalanced = counted(&rebalanced);
    }
    for moving in [
        plan_move(&before, "b", 0, "n_1").unwrap(),
        plan_balance(&uneven).unwrap(),
        plan_steps(&drained, UNLIMITED).unwrap(),
        rebalanced,
    ] {
        let start = MoveStart(Some(moving.revision.rev));
        assert!(moving.moving() > 0);
        assert!(
            moving.buckets[0].moves.values().all(|it| it.start == start),
            "{moving:?}"
        );
    }
}

/// The release before reads the node only, and its maps have nothing else.
#[test]
fn map_of_the_first_level_has_moves_without_a_start() {
    let mut map = map(3, 2, 3);
    map.level = CompatLevel::FIRST;
    let moving = plan_move(&map, "b", 1, "n_2").unwrap();
    let text = String::from_utf8(moving.to_json()).unwrap();
    assert!(text.contains(r#""moves":{"1":2}"#), "{text}");
    let read = ClusterMap::from_json(text.as_bytes()).unwrap();
    assert_eq!(read, moving);
    // It goes on when the level has been raised meanwhile.
    let late = taken(&moving, 1);
    let mut raised = moving.next();
    raised.level = CompatLevel::HIGHEST;
    assert!(raised.with_taken(2, &late).is_some());
    let text = text.replace(r#""moves":{"1":2}"#, r#""moves":{"1":[2,2]}"#);
    let error = ClusterMap::from_json(text.as_bytes())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the start of a move needs compatibility level 2"),
        "{error}"
    );
}

#[test]
fn failover_during_a_move_chooses_among_all_copies() {
    let moving = plan_move(&map(3, 2, 1), "b", 0, "n_1").unwrap();
    for (failed, told, active) in [
        // The one that gives: who has the most.
        (0, [(1, told(&[7])), (2, told(&[6]))], 1),
        (0, [(1, told(&[6])), (2, told(&[7]))], 2),
        // The one that takes; the active has handed the vBucket over.
        (1, [(0, told(&[7])), (2, told(&[7]))], 0),
        (1, [(0, told(&[6])), (2, told(&[7]))], 2),
        // Another one.
        (2, [(0, told(&[7])), (1, told(&[7]))], 0),
    ] {
        let plan = plan_failover(&moving, failed, &BTreeMap::from(told), false).unwrap();
        assert_eq!(chain(&plan.map, 0).active(), Some(active), "{failed}");
        let goes_on = failed == 2;
        assert_eq!(plan.map.moving(), usize::from(goes_on));
        assert_eq!(plan.promoted, usize::from(active != 0));
        assert!(ClusterMap::from_json(&plan.map.to_json()).is_ok());
    }
}

/// A restarted active had lost a prepare that another replica has. The node to which the vBucket was moving was failed over, the
/// replica became the active, and the old one served as well until it got the map: nobody had waited for its lease.
#[test]
fn serving_active_stays_when_the_move_target_fails() {
    let moving = plan_move(&map(3, 2, 1), "b", 0, "n_1").unwrap();
    let mut serves = told(&[6]);
    serves.get_mut("b").unwrap()[0].as_mut().unwrap().active = true;
    for told in [
        BTreeMap::from([(0, serves), (2, told(&[7]))]),
        // It may serve.
        BTreeMap::from([(2, told(&[7]))]),
    ] {
        let plan = plan_failover(&moving, 1, &told, false).unwrap();
        assert_eq!(chain(&plan.map, 0), &Chain(vec![Some(0), None, Some(2)]));
        assert_eq!((plan.map.moving(), plan.promoted), (0, 0));
    }
}

/// The node that was to take over was failed over while the active's disk was slow: another replica had a prepare on its
/// disk that the active had in memory only, and was made active. The active then acknowledged a later SyncWrite, which the
/// lost node and its own disk had, and the new active had not.
#[test]
fn complete_active_stays_when_the_move_target_fails() {
    let moving = plan_move(&map(3, 2, 1), "b", 0, "n_1").unwrap();
    let position = |high_prepared, high_seqno, history: &[(u64, u64)]| {
        let position = CopyPosition {
            high_seqno,
            persisted_seqno: high_seqno,
            high_prepared,
            consistent: true,
            catch_up_to: None,
            active: false,
            history: history.to_vec(),
        };
        BTreeMap::from([("b".to_owned(), vec![Some(position)])])
    };
    let branch = [(1, 0)];
    for (active, other, leads) in [
        (position(20, 33, &branch), position(28, 28, &branch), 0),
        (position(20, 33, &branch), position(28, 33, &branch), 0),
        // It was taken over from: another has more of its branch, or is on a newer one.
        (position(33, 33, &branch), position(34, 34, &branch), 2),
        (
            position(32, 33, &branch),
            position(33, 33, &[(2, 33), (1, 0)]),
            2,
        ),
    ] {
        let told = BTreeMap::from([(0, active), (2, other)]);
        let plan = plan_failover(&moving, 1, &told, false).unwrap();
        assert_eq!(chain(&plan.map, 0).active(), Some(leads), "{told:?}");
    }
}

fn is_even(actives: &[Option<u16>], nodes: usize) -> bool {
    let of_node = |node: u16| {
        actives
            .iter()
            .filter(|active| **active == Some(node))
            .count()
    };
    let counts: Vec<usize> = (0..).take(nodes).map(of_node).collect();
    counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
}

proptest! {
    /// After a failover and a recovery, a balance gives a node as many as it had once.
    #[test]
    fn balance_moves_actives_back(
        nodes in 2_usize..6,
        vbuckets in 1_u16..60,
        replicas in 1_u8..4,
        failed in any::<prop::sample::Index>(),
    ) {
        let first = map(nodes, replicas, vbuckets);
        let failed = u16::try_from(failed.index(nodes)).expect("few");
        let all = || told(&vec![1; usize::from(vbuckets)]);
        let told = (0..).take(nodes).map(|node: u16| (node, all())).collect();
        let plan = plan_failover(&first, failed, &told, true).expect("there are others");
        let back = joined(&plan_recovery(&plan.map, failed).expect("it was failed over"));
        let leads = |map: &ClusterMap| {
            let chains = &map.bucket("b").expect("it is there").chains;
            chains.iter().map(Chain::active).collect::<Vec<_>>()
        };
        let Some(mut now) = plan_balance(&back) else {
            prop_assert!(is_even(&leads(&back), nodes));
            return Ok(());
        };
        prop_assert!(plan_balance(&now).is_none(), "it is under way");
        prop_assert!(now.moving() <= plan.promoted);
        while now.moving() > 0 {
            let moves = &now.bucket("b").expect("it is there").moves;
            let (vb, pending) = moves.first_key_value().expect("something moves");
            now = taken_by(&now, pending.to, *vb).expect("it moves there");
            prop_assert!(ClusterMap::from_json(&now.to_json()).is_ok());
        }
        prop_assert!(is_even(&leads(&now), nodes));
        prop_assert!(plan_balance(&now).is_none());
    }
}

/// A node was killed when it had taken vBuckets over and made maps of it that nobody had heard of. The failover's map was
/// older than those, so it was undone when the node came back: what the others had acknowledged meanwhile was lost.
#[test]
fn failover_map_is_newer_than_maps_of_the_lost_node() {
    let mut moving = map(3, 2, 12);
    let theirs: Vec<u16> = (0..12)
        .filter(|&vb| chain(&moving, usize::from(vb)).active() != Some(2))
        .collect();
    for &vb in &theirs {
        moving = plan_move(&moving, "b", vb, "n_2").unwrap();
    }
    let mut alone = moving.clone();
    for &vb in &theirs {
        alone = taken_by(&alone, 2, vb).unwrap();
    }
    assert!(moving.next().revision < alone.revision);
    let all = BTreeMap::from([(0, told(&[1; 12])), (1, told(&[1; 12]))]);
    let plan = plan_failover(&moving, 2, &all, false).unwrap();
    assert!(plan.map.revision > alone.revision);
    assert_eq!(plan.map.moving(), 0);
}
