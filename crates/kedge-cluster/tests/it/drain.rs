//! Drains and graceful failovers: the actives of nodes move to their replicas, several at a time.

use std::collections::BTreeSet;

use kedge_cluster::{
    ClusterError, ClusterMap, DrainRequest, MoveLimits, RebalanceKind, RebalanceState, begin_drain,
    plan_balance, plan_failover, plan_recovery, plan_steps, stop_rebalance,
};
use proptest::prelude::*;
use serde_json::json;

use crate::copies::{Told, UNLIMITED, all_taken as taken, bucket, everyone, map, replicas};

const FEW: MoveLimits = MoveLimits {
    incoming: 1,
    outgoing: 1,
    drained: 4,
    awaited: BTreeSet::new(),
    silent: BTreeSet::new(),
};

fn request(nodes: &[u16], fails_over: bool) -> DrainRequest {
    DrainRequest {
        id: "ab".repeat(16),
        now_ms: 1_000,
        nodes: nodes.iter().copied().collect(),
        fails_over,
    }
}

fn begun(map: &ClusterMap, nodes: &[u16], fails_over: bool) -> ClusterMap {
    begin_drain(map, request(nodes, fails_over)).expect("it can begin")
}

fn steps(map: &ClusterMap) -> ClusterMap {
    plan_steps(map, FEW).unwrap_or_else(|| map.clone())
}

/// The map after the drain, whose every step keeps the limits.
fn drained(map: &ClusterMap) -> ClusterMap {
    let mut now = map.clone();
    for _ in 0..100 {
        let next = steps(&now);
        assert!(next.moving() <= FEW.drained * map.nodes.len());
        let is_over = next.running_rebalance().is_none();
        now = taken(&next);
        if is_over {
            return now;
        }
    }
    panic!("it does not end: {now:?}");
}

fn state(map: &ClusterMap) -> RebalanceState {
    map.rebalance.clone().expect("there was one").state
}

fn actives(map: &ClusterMap, node: u16) -> usize {
    let chains = map.buckets.iter().flat_map(|bucket| &bucket.chains);
    chains.filter(|chain| chain.active() == Some(node)).count()
}

#[test]
fn drained_node_keeps_its_replicas_and_gets_actives_back() {
    let before = map(3, 1, 60);
    let start = begun(&before, &[1], false);
    let first = steps(&start);
    assert_eq!(first.moving(), 4, "several at a time");
    assert_eq!(first.revision.rev, start.revision.rev + 1);
    let record = first.running_rebalance().expect("it is running");
    assert_eq!(record.kind, RebalanceKind::Drain);
    let left = record.left(&first).expect("all are there");
    assert_eq!((left.vbuckets, left.copies()), (20, 0));
    let done = drained(&start);
    assert_eq!(state(&done), RebalanceState::Finished);
    assert_eq!([0, 1, 2].map(|node| actives(&done, node)), [30, 0, 30]);
    assert_eq!(done.revision.epoch, before.revision.epoch);
    assert!(done.is_member(1));
    let nodes = |map: &ClusterMap| {
        let chains = bucket(map).chains.iter();
        let nodes = chains.map(|chain| chain.nodes().collect::<BTreeSet<u16>>());
        nodes.collect::<Vec<_>>()
    };
    assert_eq!(nodes(&done), nodes(&before), "no copy was made");
    assert_eq!(plan_steps(&done, FEW), None);
    let back = taken(&plan_balance(&done).expect("there is something to move"));
    assert_eq!([0, 1, 2].map(|node| actives(&back, node)), [20; 3]);
    let read = ClusterMap::from_json(&first.to_json()).expect("it can be");
    assert_eq!(read, first);
}

#[test]
fn graceful_failover_ends_with_a_failover_without_losses() {
    let before = map(3, 1, 60);
    let start = begun(&before, &[2], true);
    let done = drained(&start);
    assert_eq!(state(&done), RebalanceState::Finished);
    assert!(!done.is_member(2));
    assert_eq!(done.revision.epoch, before.revision.epoch + 1);
    let bucket = bucket(&done);
    let mut chains = bucket.chains.iter();
    assert!(chains.all(|chain| chain.active().is_some() && !chain.contains(2)));
    assert_eq!(bucket.missing_copies(), 40);
    // The failover was one change, after the last takeover.
    let mut now = start;
    while now.running_rebalance().is_some() {
        let next = steps(&now);
        assert_eq!(next.revision.rev, now.revision.rev + 1);
        now = taken(&next);
    }
    assert_eq!(now, done);
    let back = plan_recovery(&done, 2).expect("it was failed over");
    assert_eq!(back.catching_up(), [2]);
}

#[test]
fn several_nodes_are_drained_to_the_others() {
    let done = drained(&begun(&map(4, 2, 64), &[0, 3], true));
    assert_eq!(
        [0, 1, 2, 3].map(|node| actives(&done, node)),
        [0, 32, 32, 0]
    );
    assert_eq!(done.members().collect::<Vec<u16>>(), [1, 2]);
    assert_eq!(done.revision.epoch, map(4, 2, 64).revision.epoch + 1);
}

#[test]
fn drains_that_cannot_end_are_refused() {
    let whole = map(3, 1, 12);
    let failed = plan_failover(&whole, 1, &everyone(&whole, 5), false)
        .expect("nothing is lost")
        .map;
    let alone = map(3, 0, 12);
    let lost = plan_failover(&map(3, 0, 12), 0, &Told::new(), true)
        .expect("forced")
        .map;
    for (map, nodes, fails_over, says) in [
        (&whole, vec![9], false, "no node \"9\""),
        (&whole, vec![], false, "no node was named"),
        (&whole, vec![0, 1, 2], false, "is the last one"),
        (
            &failed,
            vec![1],
            true,
            "node \"n_1\" was failed over already",
        ),
        (
            &failed,
            vec![0],
            true,
            "4 active vBuckets of bucket \"b\" have no replica",
        ),
        (
            &alone,
            vec![2],
            false,
            "4 active vBuckets of bucket \"b\" have no replica",
        ),
        (
            &lost,
            vec![1],
            true,
            "4 vBuckets of bucket \"b\" have no active",
        ),
        (
            &begun(&whole, &[0], false),
            vec![1],
            true,
            "a drain is running",
        ),
        (
            &begun(&whole, &[0], true),
            vec![1],
            false,
            "a graceful failover is running",
        ),
    ] {
        let refused = begin_drain(map, request(&nodes, fails_over));
        let why = refused.expect_err(says).to_string();
        assert!(why.contains(says), "{why}");
    }
    let alone = begin_drain(&map(1, 0, 4), request(&[0], false));
    assert!(matches!(alone, Err(ClusterError::LastNode(_))), "{alone:?}");
}

#[test]
fn stopped_drain_leaves_the_rest_and_can_be_repeated() {
    let first = steps(&begun(&map(3, 1, 60), &[1], true));
    let stopped = stop_rebalance(&first).expect("it is running");
    assert_eq!(stopped.buckets, first.buckets, "what moves goes on");
    let rest = taken(&stopped);
    assert_eq!(plan_steps(&rest, FEW), None);
    assert_eq!(actives(&rest, 1), 16);
    assert!(rest.is_member(1));
    let done = drained(&begun(&rest, &[1], false));
    assert_eq!(actives(&done, 1), 0);
}

/// Target chains of another number of replicas are finished first, and no others begin.
#[test]
fn copies_in_progress_are_finished_before_their_active_moves() {
    let mut growing = map(3, 1, 12);
    growing.buckets[0].settings = json!({ "replicas": 2 });
    let growing = replicas(&growing).expect("copies begin");
    let begun = begun(&growing, &[0], false);
    assert_eq!(plan_steps(&begun, UNLIMITED), None, "nothing can move yet");
    let mut fewer = begun;
    fewer.buckets[0].next.retain(|vb, _| vb % 2 == 0);
    let next = plan_steps(&fewer, UNLIMITED).expect("the others can");
    assert_eq!(bucket(&next).next.len(), 6, "no copies begin");
    assert!(bucket(&next).moves.keys().all(|vb| vb % 2 == 1));
    assert!(next.moving() > 0);
}

/// Of several drained nodes one is failed over: the drain goes on with the others.
#[test]
fn drain_goes_on_without_a_node_that_is_failed_over() {
    let first = steps(&begun(&map(4, 2, 48), &[0, 3], true));
    let plan = plan_failover(&first, 3, &everyone(&first, 5), false);
    let now = plan.expect("the others have everything").map;
    let record = now.running_rebalance().expect("it goes on");
    assert_eq!(record.drain, BTreeSet::from([0]));
    let done = drained(&now);
    assert_eq!(state(&done), RebalanceState::Finished);
    assert_eq!(done.members().collect::<Vec<u16>>(), [1, 2]);
}

/// A failover of another node leaves an active without a replica, one of the last drained node ends the drain, too.
#[test]
fn drain_fails_when_a_node_of_it_is_lost() {
    let first = steps(&begun(&map(3, 1, 60), &[1], true));
    for (lost, says) in [
        (0, "have no replica on another node"),
        (1, "\"n_1\" was failed over"),
    ] {
        let told = everyone(&first, 5);
        let failed = plan_failover(&first, lost, &told, true)
            .expect("forced")
            .map;
        let RebalanceState::Failed(why) = state(&failed) else {
            panic!("{:?}", state(&failed));
        };
        assert!(why.contains(says), "{why}");
        assert_eq!(plan_steps(&failed, FEW), None);
    }
}

proptest! {
    /// Whatever the cluster looks like, a drain ends, and the others have the actives as evenly as greedy choices are.
    #[test]
    fn drains_end(nodes in 2_usize..6, copies in 1_u8..4, vbuckets in 1_u16..80, node: u16, fails_over: bool) {
        let before = map(nodes, copies, vbuckets);
        let number = node % u16::try_from(nodes).unwrap();
        let done = drained(&begun(&before, &[number], fails_over));
        prop_assert_eq!(state(&done), RebalanceState::Finished);
        prop_assert_eq!(actives(&done, number), 0);
        prop_assert_eq!(done.is_member(number), !fails_over);
        prop_assert_eq!(done.moving(), 0);
    }
}

#[test]
fn drain_prefers_nodes_to_which_clients_are_connected() {
    let awaits = |nodes: &[u16]| MoveLimits {
        awaited: nodes.iter().copied().collect(),
        ..UNLIMITED
    };
    // With two replicas there is another taker.
    let two = begun(&map(3, 2, 60), &[0], false);
    let next = plan_steps(&two, awaits(&[1])).expect("there is a taker");
    let mut takers = next.buckets[0].moves.values();
    assert_eq!(next.moving(), actives(&two, 0));
    assert!(takers.all(|pending| pending.to == 2));
    // With one, the drain waits.
    let one = begun(&map(3, 1, 60), &[0], false);
    let next = plan_steps(&one, awaits(&[1])).expect("others move");
    assert!((1..actives(&one, 0)).contains(&next.moving()));
    assert_eq!(plan_steps(&one, awaits(&[1, 2])), None);
}
