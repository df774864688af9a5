//! Full recovery: a node discards its copies before it joins. And the recovery that the next rebalance executes.

use std::collections::BTreeMap;

use kedge_cluster::{
    CatchUp, ClusterError, ClusterMap, RebalanceRequest, RecoveryType, VbucketRole,
    begin_rebalance, plan_discarded, plan_failover, plan_full_recovery, plan_recovery,
    plan_recovery_type, plan_steps,
};

use crate::copies::{Told, UNLIMITED, at, bucket, everyone, map, told};

fn failed(nodes: usize, node: u16) -> ClusterMap {
    let map = map(nodes, 1, 12);
    plan_failover(&map, node, &everyone(&map, 5), false)
        .expect("nothing is lost")
        .map
}

/// The report of a node without any data.
fn empty(node: u16) -> Told {
    BTreeMap::from([(node, BTreeMap::from([("b".to_owned(), vec![None; 12])]))])
}

fn rebalance(map: &ClusterMap, remove: &[u16]) -> Result<ClusterMap, ClusterError> {
    let request = RebalanceRequest {
        id: "ab".repeat(16),
        now_ms: 1_000,
        servers: map.numbers(),
        remove: remove.iter().copied().collect(),
    };
    begin_rebalance(map, request)
}

#[test]
fn fully_recovered_node_joins_after_it_has_discarded_its_copies() {
    let back = plan_full_recovery(&failed(3, 1), 1).expect("it was failed over");
    assert!(back.is_member(1) && back.discards(1));
    assert!(back.catching_up().is_empty());
    let roles = (0..12).map(|vb| bucket(&back).role(vb, 1));
    assert!(roles.into_iter().all(|role| role == VbucketRole::None));
    let read = ClusterMap::from_json(&back.to_json()).expect("it can be");
    assert_eq!(read, back);
    // Nothing else begins, and it does not join before it says that it is empty.
    assert_eq!(plan_steps(&back, UNLIMITED), None);
    assert_eq!(plan_discarded(&back, &Told::new()), None);
    assert_eq!(plan_discarded(&back, &told(&back, &[(1, at(1))])), None);
    assert_eq!(
        plan_discarded(&back, &BTreeMap::from([(1, BTreeMap::new())])),
        None
    );
    let joins = plan_discarded(&back, &empty(1)).expect("it is empty");
    assert_eq!((joins.catching_up(), joins.discards(1)), (vec![1], false));
    assert_eq!(plan_discarded(&joins, &empty(1)), None);
    let mut copies = CatchUp::begin(&joins);
    copies.note(&everyone(&joins, 5));
    let whole = copies.plan(&joins).expect("all have caught up");
    assert_eq!(bucket(&whole).missing_copies(), 0);
}

#[test]
fn node_that_is_failed_over_again_keeps_the_rest_of_its_copies() {
    let back = plan_full_recovery(&failed(3, 1), 1).expect("it was failed over");
    let again = plan_failover(&back, 1, &everyone(&back, 5), false).expect("nothing is lost");
    assert_eq!(again.map.recovery_type(1), None);
    let delta = plan_recovery(&again.map, 1).expect("it was failed over");
    assert_eq!((delta.catching_up(), delta.discards(1)), (vec![1], false));
}

#[test]
fn last_copies_are_not_discarded() {
    let map = map(2, 0, 12);
    let lost = plan_failover(&map, 1, &everyone(&map, 5), true).expect("forced");
    let refused = plan_full_recovery(&lost.map, 1).expect_err("they would be gone");
    assert!(
        refused
            .to_string()
            .contains("the last copies of 6 vBuckets"),
        "{refused}"
    );
    plan_recovery(&lost.map, 1).expect("it keeps them");
}

#[test]
fn rebalance_recovers_nodes_as_it_was_chosen() {
    let lost = failed(3, 1);
    let refused = plan_recovery_type(&lost, 2, Some(RecoveryType::Full));
    assert!(
        matches!(refused, Err(ClusterError::NotFailed(_))),
        "{refused:?}"
    );
    let refused = rebalance(&lost, &[]).expect_err("a node is failed over");
    assert!(
        refused.to_string().contains("\"n_1\" is failed over"),
        "{refused}"
    );
    for (recovery, joins) in [(RecoveryType::Delta, vec![1]), (RecoveryType::Full, vec![])] {
        let chosen = plan_recovery_type(&lost, 1, Some(recovery)).expect("it was failed over");
        let chosen = chosen.expect("it is a change");
        assert_eq!(chosen.recovery_type(1), Some(recovery));
        let same = plan_recovery_type(&chosen, 1, Some(recovery)).expect("it was failed over");
        assert_eq!(same, None);
        let begun = rebalance(&chosen, &[]).expect("it recovers the node");
        assert!(begun.is_member(1));
        assert_eq!(begun.revision.rev, chosen.revision.rev + 1);
        assert_eq!(begun.catching_up(), joins);
        assert_eq!(begun.discards(1), recovery == RecoveryType::Full);
        let removed = rebalance(&chosen, &[1]).expect("it is removed instead");
        assert!(!removed.is_member(1));
        let undone = plan_recovery_type(&chosen, 1, None).expect("it was failed over");
        assert_eq!(undone.expect("it is a change").recovery_type(1), None);
    }
}
