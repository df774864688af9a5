//! Changes of the number of replicas.

use kedge_cluster::{
    CatchUp, Chain, ClusterError, ClusterMap, CopyPosition, MoveStart, PendingMove, VbucketRole,
    plan_balance, plan_failover, plan_move, plan_recovery,
};
use proptest::prelude::*;
use serde_json::json;

use crate::copies::{all_taken, at, bucket, everyone, map, replicas, told};

/// The map in which so many replicas are asked for.
fn asked(map: &ClusterMap, replicas: u8) -> ClusterMap {
    let mut next = map.next();
    next.buckets[0].settings = json!({ "replicas": replicas });
    next
}

fn begun(map: &ClusterMap, wanted: u8) -> ClusterMap {
    replicas(&asked(map, wanted)).expect("there is something to change")
}

/// The next step, when everyone has everything.
fn step(map: &ClusterMap) -> Option<ClusterMap> {
    let mut copies = CatchUp::begin(map);
    copies.note(&everyone(map, 5));
    copies.plan(map)
}

#[test]
fn new_copy_counts_only_when_it_is_complete() {
    let before = map(2, 0, 4);
    let building = begun(&before, 1);
    assert_eq!(bucket(&building).chains, bucket(&before).chains);
    assert_eq!(bucket(&building).replicas(), 0);
    assert_eq!(
        bucket(&building).role(0, 1),
        VbucketRole::Replica { active: Some(0) }
    );
    assert_eq!(bucket(&building).second_chain(0), None);
    assert_eq!(
        ClusterMap::from_json(&building.to_json()).unwrap(),
        building
    );
    assert!(replicas(&building).is_none(), "it is under way already");
    let counting = step(&building).unwrap();
    assert_eq!(bucket(&counting).chains, bucket(&before).chains);
    let both = Chain(vec![Some(0), Some(1)]);
    assert_eq!(bucket(&counting).second_chain(0), Some(both.clone()));
    let after = step(&counting).unwrap();
    assert_eq!(bucket(&after).chains[0], both);
    assert_eq!(bucket(&after).chains[3], Chain(vec![Some(1), Some(0)]));
    assert_eq!(bucket(&after).replicas(), 1);
    assert!(bucket(&after).next.is_empty());
    assert!(replicas(&after).is_none() && step(&after).is_none_or(|it| it == after));
    // Whoever asked for it takes none of these for another change.
    let mut renamed = after;
    renamed.cluster_name = "another".to_owned();
}

#[test]
fn new_copies_need_the_data_of_the_active_on_disk() {
    let building = begun(&map(2, 0, 1), 1);
    let behind = [
        CopyPosition {
            high_seqno: 9,
            persisted_seqno: 9,
            ..at(10)
        },
        CopyPosition {
            persisted_seqno: 9,
            ..at(10)
        },
        CopyPosition {
            high_prepared: 9,
            ..at(10)
        },
        CopyPosition {
            consistent: false,
            ..at(10)
        },
        CopyPosition {
            catch_up_to: Some(11),
            ..at(10)
        },
        CopyPosition {
            history: vec![(2, 3), (7, 0)],
            ..at(10)
        },
        CopyPosition {
            history: vec![(7, 0)],
            ..at(10)
        },
    ];
    for copy in behind {
        let mut copies = CatchUp::begin(&building);
        copies.note(&told(&building, &[(0, at(10))]));
        // The active goes on.
        copies.note(&told(&building, &[(0, at(12)), (1, copy.clone())]));
        assert_eq!(copies.plan(&building), None, "{copy:?}");
        copies.note(&told(&building, &[(1, at(10))]));
        assert!(copies.plan(&building).is_some());
        // In the midst of the next snapshot it has that still; when it had to go back it has not.
        let midst = CopyPosition {
            consistent: false,
            ..at(11)
        };
        copies.note(&told(&building, &[(1, midst)]));
        assert!(copies.plan(&building).is_some());
        copies.note(&told(&building, &[(1, at(8))]));
        assert_eq!(copies.plan(&building), None);
    }
}

#[test]
fn replica_change_waits_for_missing_reports() {
    let building = begun(&map(2, 0, 1), 1);
    let mut copies = CatchUp::begin(&building);
    copies.note(&told(&building, &[(1, at(10))]));
    assert_eq!(copies.plan(&building), None, "what is it to have?");
    copies.note(&told(&building, &[(0, at(10))]));
    assert_eq!(copies.plan(&building), None);
    copies.note(&told(&building, &[(1, at(10))]));
    assert!(copies.plan(&building).is_some());
    // Another map came: the actives may not have followed it.
    assert_eq!(copies.plan(&building.next()), None);
    // The active has started anew, perhaps with less, and goes on from there.
    let anew = |seqno| CopyPosition {
        history: vec![(3, 8), (1, 0)],
        ..at(seqno)
    };
    copies.note(&told(&building, &[(0, anew(8))]));
    assert_eq!(copies.plan(&building), None);
    copies.note(&told(&building, &[(1, at(10))]));
    assert_eq!(copies.plan(&building), None, "it has to go back");
    copies.note(&told(&building, &[(0, anew(9)), (1, anew(8))]));
    assert!(copies.plan(&building).is_some());
}

#[test]
fn replicas_are_removed_only_when_the_remaining_ones_are_complete() {
    let building = begun(&map(3, 2, 3), 1);
    let next = bucket(&building).next.clone();
    assert!(next.len() == 3 && next.values().all(|next| next.chain.0.len() == 2));
    let counting = step(&building).unwrap();
    let (old, new) = (&bucket(&counting).chains[0], &next[&0].chain);
    assert_eq!(bucket(&counting).second_chain(0).as_ref(), Some(new));
    let goes = old.nodes().find(|node| !new.contains(*node)).unwrap();
    assert!(matches!(
        bucket(&counting).role(0, goes),
        VbucketRole::Replica { .. }
    ));
    let after = step(&counting).unwrap();
    assert_eq!(bucket(&after).role(0, goes), VbucketRole::None);
}

#[test]
fn vbuckets_do_not_move_during_a_replica_change() {
    let building = begun(&map(3, 1, 3), 2);
    let refused = plan_move(&building, "b", 0, "n_1");
    assert!(matches!(refused, Err(ClusterError::Move(_))));
    assert!(plan_balance(&building).is_none());
    // Such a map is not read either.
    let mut wrong = building.clone();
    let (to, start) = (1, MoveStart::default());
    wrong.buckets[0].moves.insert(0, PendingMove { to, start });
    assert!(ClusterMap::from_json(&wrong.to_json()).is_err());
    let mut wrong = building;
    wrong.buckets[0].next.get_mut(&0).unwrap().chain.0[0] = None;
    assert!(
        ClusterMap::from_json(&wrong.to_json()).is_err(),
        "no active"
    );
}

#[test]
fn obsolete_replica_change_is_cancelled() {
    let before = map(3, 1, 3);
    let given_up = replicas(&asked(&begun(&before, 2), 1)).unwrap();
    assert!(bucket(&given_up).next.is_empty());
    assert_eq!(bucket(&given_up).chains, bucket(&before).chains);
    // Another one takes its place.
    let other = replicas(&asked(&begun(&before, 2), 0)).unwrap();
    assert!(
        bucket(&other)
            .next
            .values()
            .all(|next| next.chain.0.len() == 1)
    );
    assert_eq!(bucket(&other).next.len(), 3);
}

#[test]
fn replicas_are_limited_by_the_number_of_other_nodes() {
    assert!(replicas(&asked(&map(2, 1, 4), 3)).is_none());
    assert_eq!(bucket(&asked(&map(2, 1, 4), 3)).wanted_replicas(), 1);
}

#[test]
fn failover_cancels_a_replica_change_which_restarts_after_recovery() {
    let counting = step(&begun(&map(3, 1, 6), 2)).unwrap();
    let all = everyone(&counting, 5);
    let failed_over = plan_failover(&counting, 2, &all, false).unwrap().map;
    assert!(bucket(&failed_over).next.is_empty());
    assert_eq!(bucket(&failed_over).replicas(), 1);
    assert!(replicas(&failed_over).is_none(), "a node is missing");
    let recovered = plan_recovery(&failed_over, 2).unwrap();
    assert_eq!(replicas(&recovered), None, "it catches up first");
    let building = replicas(&step(&recovered).unwrap()).unwrap();
    let after = step(&step(&building).unwrap()).unwrap();
    assert!(
        bucket(&after)
            .chains
            .iter()
            .all(|chain| chain.nodes().count() == 3)
    );
}

/// The copies of a change are no replicas yet: without the only node that counts there is nothing left, whoever says so.
#[test]
fn failover_does_not_promote_an_incomplete_new_copy() {
    let building = begun(&map(2, 0, 2), 1);
    let refused = plan_failover(&building, 0, &everyone(&building, 5), false);
    let Err(ClusterError::WouldLose(losses)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(losses.without_copy, [("b".to_owned(), 0)]);
    let forced = plan_failover(&building, 0, &everyone(&building, 5), true).unwrap();
    assert_eq!(bucket(&forced.map).chains[0].active(), None);
    // Those that count have had what the active had: better than none, if that is accepted.
    let counting = step(&building).unwrap();
    let refused = plan_failover(&counting, 0, &everyone(&building, 5), false);
    let Err(ClusterError::WouldLose(losses)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(losses.uncertain, [("b".to_owned(), 0)]);
    let forced = plan_failover(&counting, 0, &everyone(&building, 5), true).unwrap();
    assert_eq!(bucket(&forced.map).chains[0].active(), Some(1));
}

/// A place that stayed empty, because its node had failed when the bucket was made, is filled when all are there.
#[test]
fn empty_places_of_a_new_bucket_are_filled() {
    let empty = map(3, 1, 6);
    let mut failed = plan_failover(&empty, 2, &everyone(&empty, 0), false)
        .unwrap()
        .map;
    failed.buckets.clear();
    failed
        .add_bucket("b", json!({ "replicas": 1 }), 6, 1)
        .unwrap();
    assert!(bucket(&failed).missing_copies() > 0 && replicas(&failed).is_none());
    let after = step(&plan_recovery(&failed, 2).unwrap()).unwrap();
    assert_eq!(bucket(&after).missing_copies(), 0);
    assert!(bucket(&after).vacated.is_empty());
}

proptest! {
    /// From any number to any other, with any of the replicas leading: all become balanced chains, with the active that there
    /// was unless it had to move, and who leads never is without the data.
    #[test]
    fn every_replica_change_ends(
        nodes in 2_usize..6,
        from in 0_u8..4,
        to in 0_u8..4,
        vbuckets in 1_u16..20,
        leads in prop::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let mut map = map(nodes, from, vbuckets);
        for (chain, leads) in map.buckets[0].chains.iter_mut().zip(leads) {
            let all: Vec<u16> = chain.nodes().collect();
            *chain = chain.led_by(*leads.get(&all));
        }
        let mut map = asked(&map, to);
        for _ in 0..10 {
            prop_assert_eq!(&ClusterMap::from_json(&map.to_json()).unwrap(), &map);
            if let Some(next) = replicas(&map) {
                map = next;
            }
            map = all_taken(&map);
            let before: Vec<Option<u16>> = bucket(&map).chains.iter().map(Chain::active).collect();
            if let Some(next) = step(&map) {
                map = next;
            }
            let after: Vec<Option<u16>> = bucket(&map).chains.iter().map(Chain::active).collect();
            prop_assert_eq!(before, after, "only takeovers change actives");
        }
        let wanted = usize::from(to).min(nodes - 1);
        prop_assert_eq!(bucket(&map).replicas(), wanted);
        prop_assert!(bucket(&map).next.is_empty() && replicas(&map).is_none());
        let copies = |node: &u16| bucket(&map).chains.iter().filter(|chain| chain.contains(*node)).count();
        let all = map.numbers();
        if usize::from(from).min(nodes - 1) != wanted {
            let most = all.iter().map(copies).max().unwrap();
            prop_assert!(most <= (usize::from(vbuckets) * (wanted + 1)).div_ceil(nodes) + 1);
        }
    }
}
