//! Rebalance: steps of single vBuckets, until every member has its share.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    CatchUp, Chain, ClusterError, ClusterMap, CompatLevel, MapNode, MoveLimits, MovePace,
    MoveStart, PendingMove, RebalanceRecord, RebalanceRequest, RebalanceState, VbucketRole,
    begin_rebalance, plan_add_node, plan_failover, plan_moves_per_node, plan_recovery,
    plan_remove_node, plan_round, plan_steps, rebalance_left, stop_rebalance,
};
use proptest::prelude::*;

use crate::copies::{
    self, Told, UNLIMITED, all_taken as taken, at, bucket, everyone, map, taken_by,
};

const FEW: MoveLimits = MoveLimits {
    incoming: 2,
    outgoing: 2,
    drained: 2,
    awaited: BTreeSet::new(),
    silent: BTreeSet::new(),
};

fn added(map: &ClusterMap, number: u16) -> ClusterMap {
    let node = MapNode {
        name: format!("new_{number}"),
        uuid: format!("{number:032x}"),
        ..map.nodes.values().next().expect("there is one").clone()
    };
    plan_add_node(map, node).expect("it is new")
}

/// A rebalance over all nodes but these, which are removed at its end.
fn request(map: &ClusterMap, remove: &[u16]) -> RebalanceRequest {
    RebalanceRequest {
        id: "ab".repeat(16),
        now_ms: 1_000,
        servers: map.numbers(),
        remove: remove.iter().copied().collect(),
    }
}

fn begun(map: &ClusterMap, remove: &[u16]) -> ClusterMap {
    begin_rebalance(map, request(map, remove)).expect("it can begin")
}

fn steps(map: &ClusterMap, limits: MoveLimits) -> ClusterMap {
    plan_steps(map, limits).unwrap_or_else(|| map.clone())
}

/// The map after a step of all vBuckets, when everyone has everything.
fn caught_up(map: &ClusterMap) -> ClusterMap {
    let mut copies = CatchUp::begin(map);
    copies.note(&everyone(map, 5));
    copies.plan(map).unwrap_or_else(|| map.clone())
}

fn state(map: &ClusterMap) -> RebalanceState {
    map.rebalance.clone().expect("there was one").state
}

fn is_done(map: &ClusterMap) -> bool {
    rebalance_left(map).is_some_and(|left| left.is_done())
}

/// Returns the number of vBuckets that each node sends and receives.
fn slots(map: &ClusterMap) -> (BTreeMap<u16, usize>, BTreeMap<u16, usize>) {
    let (mut incoming, mut outgoing) = (BTreeMap::new(), BTreeMap::new());
    let bucket = bucket(map);
    for (vb, next) in bucket.next.iter().filter(|(_, next)| !next.counts) {
        let chain = &bucket.chains[usize::from(*vb)];
        for node in next.chain.nodes().filter(|node| !chain.contains(*node)) {
            *incoming.entry(node).or_default() += 1;
            *outgoing
                .entry(chain.active().expect("it has one"))
                .or_default() += 1;
        }
    }
    (incoming, outgoing)
}

#[test]
fn takeover_follows_after_the_target_chain_counts() {
    let before = begun(&map(3, 1, 12), &[2]);
    let building = steps(&before, UNLIMITED);
    // A vBucket that leaves its active, and one that only loses a replica.
    let leaves = |vb: &u16| bucket(&building).chains[usize::from(*vb)].active() == Some(2);
    let vbs: Vec<u16> = bucket(&building).next.keys().copied().collect();
    let vb = *vbs.iter().find(|vb| leaves(vb)).expect("n_2 leads four");
    let target = bucket(&building).next[&vb].chain.clone();
    let to = target.active().expect("it is whole");
    assert_eq!(bucket(&building).second_chain(vb), None);
    assert!(!target.contains(2));
    let counting = caught_up(&building);
    assert!(bucket(&counting).next[&vb].counts);
    assert_eq!(bucket(&counting).second_chain(vb), Some(target.clone()));
    let moving = caught_up(&counting);
    assert!(bucket(&moving).moves.keys().all(leaves));
    assert_eq!(bucket(&moving).moves[&vb].to, to);
    assert_eq!(bucket(&moving).second_chain(vb), Some(target.clone()));
    assert_eq!(
        bucket(&moving).role(vb, to),
        VbucketRole::Replica { active: Some(2) }
    );
    assert!(
        bucket(&moving).next.keys().all(leaves),
        "the others are done"
    );
    assert_eq!(
        ClusterMap::from_json(&moving.to_json()).expect("it can be"),
        moving
    );
    assert_eq!(caught_up(&moving), moving);
    let stopped = stop_rebalance(&moving).expect("it is running");
    assert_eq!(stopped.buckets, moving.buckets, "what moves goes on");
    assert!(taken_by(&moving, 1 - to, vb).is_none());
    let after = taken_by(&moving, to, vb).expect("it moves there");
    assert_eq!(bucket(&after).chains[usize::from(vb)], target);
    assert!(!bucket(&after).next.contains_key(&vb));
    assert_eq!(bucket(&after).role(vb, 2), VbucketRole::None);
    let done = taken(&after);
    assert!(is_done(&done));
    let finished = steps(&done, UNLIMITED);
    assert_eq!(finished.numbers(), [0, 1], "the node leaves at the end");
    assert_eq!(state(&finished), RebalanceState::Finished);
    assert!(plan_steps(&finished, UNLIMITED).is_none());
    assert!(stop_rebalance(&finished).is_none());
}

#[test]
fn moves_without_counted_target_chains_are_rejected() {
    let building = steps(&begun(&map(3, 0, 12), &[2]), UNLIMITED);
    let moving = caught_up(&caught_up(&building));
    let mut moves = bucket(&moving).moves.iter();
    let is_new = |(vb, it): &(&u16, &PendingMove)| {
        !bucket(&moving).chains[usize::from(**vb)].contains(it.to)
    };
    let (vb, pending) = moves.find(is_new).expect("some move to new copies");
    let breaks: [fn(&mut ClusterMap, u16, u16); 4] = [
        |map, vb, _| map.buckets[0].next.get_mut(&vb).unwrap().counts = false,
        |map, vb, to| map.buckets[0].moves.get_mut(&vb).unwrap().to = 1 - to,
        |map, vb, _| drop(map.buckets[0].next.remove(&vb)),
        |map, vb, to| drop(map.buckets[0].joining.insert(vb, vec![to])),
    ];
    for (number, spoil) in breaks.iter().enumerate() {
        let mut wrong = moving.clone();
        spoil(&mut wrong, *vb, pending.to);
        assert!(ClusterMap::from_json(&wrong.to_json()).is_err(), "{number}");
    }
}

#[test]
fn no_node_sends_or_receives_more_than_its_limit() {
    let mut now = begun(&added(&map(3, 1, 60), 1), &[]);
    let copies = rebalance_left(&now).expect("all are there").copies();
    assert_eq!(copies, 30);
    let mut made = 0;
    for _ in 0..100 {
        let next = steps(&now, FEW);
        let (incoming, outgoing) = slots(&next);
        made += next.buckets[0].next.len() - now.buckets[0].next.len();
        assert!(
            incoming
                .values()
                .chain(outgoing.values())
                .all(|count| *count <= 2)
        );
        // Joined by takeovers, at most as many.
        assert!(bucket(&next).moves.len() <= 8);
        now = taken(&caught_up(&next));
    }
    assert!(is_done(&now));
    assert_eq!(made, 30);
    let none = MoveLimits {
        incoming: 0,
        outgoing: 0,
        drained: 0,
        ..FEW
    };
    let paused = begun(&added(&map(3, 1, 60), 1), &[]);
    assert_eq!(plan_steps(&paused, none), None);
}

/// All nodes and clients follow each map, so that few maps are made.
#[test]
fn copies_count_and_others_begin_in_one_map() {
    let now = steps(&begun(&added(&map(3, 1, 60), 1), &[]), FEW);
    let mut copies = CatchUp::begin(&now);
    assert_eq!(plan_round(&now, Some(&copies), FEW), None, "nothing is due");
    copies.note(&everyone(&now, 5));
    let next = plan_round(&now, Some(&copies), FEW).expect("all have caught up");
    assert_eq!(next.revision.rev, now.revision.rev + 1);
    assert_eq!(next.revision.epoch, now.revision.epoch);
    let counting = |map: &ClusterMap| bucket(map).next.values().filter(|it| it.counts).count();
    assert_eq!(
        (counting(&now), counting(&next)),
        (0, bucket(&now).next.len())
    );
    assert_eq!(bucket(&next).next.len(), 2 * bucket(&now).next.len());
    let after = steps(&caught_up(&now), FEW);
    assert_eq!(bucket(&next), bucket(&after), "as by two maps");
    assert_eq!(plan_round(&now, None, FEW), None);
}

#[test]
fn takeovers_of_a_node_begin_together() {
    let now = begun(&added(&map(3, 1, 60), 1), &[]);
    let mut now = plan_moves_per_node(&now, 3)
        .expect("it is in range")
        .expect("it is new");
    let limits = MoveLimits::of(&now);
    let (mut together, mut rounds) = (Vec::new(), 0);
    while !is_done(&now) {
        let mut copies = CatchUp::begin(&now);
        copies.note(&everyone(&now, 5));
        now = plan_round(&now, Some(&copies), limits.clone()).unwrap_or(now);
        let moves = bucket(&now).moves.len();
        together.extend((moves > 0).then_some(moves));
        now = taken(&now);
        rounds += 1;
        assert!(rounds < 200, "it ends");
    }
    let takeovers: usize = together.iter().sum();
    assert_eq!(takeovers, 15);
    assert!(together.len() <= takeovers / 3, "{together:?}");
}

#[test]
fn more_vbuckets_begin_while_copies_end_within_a_round() {
    let mut now = begun(&added(&map(3, 1, 400), 1), &[]);
    let (mut pace, mut begun) = (MovePace::default(), Vec::new());
    for _ in 0..6 {
        let mut copies = CatchUp::begin(&now);
        copies.note(&everyone(&now, 5));
        let limits = pace.limits(&now);
        begun.push(limits.incoming);
        let next = plan_round(&now, Some(&copies), limits).expect("there is more to do");
        pace.note_round(&now, &next);
        now = taken(&next);
    }
    assert_eq!(begun, [4, 4, 8, 16, 32, 32]);

    // Now no copy ends.
    let slower = [(); 4].map(|()| {
        pace.note_round(&now, &now);
        pace.limits(&now).outgoing
    });
    assert_eq!(slower, [16, 8, 4, 4]);
}

#[test]
fn large_vbuckets_do_not_exceed_the_moves_per_node() {
    let mut now = begun(&added(&map(3, 1, 400), 1), &[]);
    let mut pace = MovePace::default();
    for _ in 0..10 {
        let next = plan_round(&now, None, pace.limits(&now)).unwrap_or(now.clone());
        pace.note_round(&now, &next);
        let building = bucket(&next).next.values().filter(|next| !next.counts);
        assert!((1..=4).contains(&building.count()));
        now = next;
    }
    let mut moving = now.clone();
    for (vb, next) in std::mem::take(&mut moving.buckets[0].next) {
        let to = next.chain.active().expect("it has one");
        let start = MoveStart::default();
        moving.buckets[0]
            .moves
            .insert(vb, PendingMove { to, start });
    }
    pace.note_round(&now, &moving);
    assert_eq!(pace.limits(&moving).incoming, 8, "all copies have ended");
    pace.note_round(&moving, &moving);
    assert_eq!(pace.limits(&moving).incoming, 4, "no takeover has ended");
}

#[test]
fn nothing_moves_to_a_node_that_clients_have_to_connect_to_again() {
    let now = begun(&added(&map(3, 1, 60), 1), &[]);
    let awaits = |node: u16| MoveLimits {
        awaited: BTreeSet::from([node]),
        ..UNLIMITED
    };
    assert_eq!(plan_steps(&now, awaits(3)), None, "all copies are for it");

    // Its copies exist already, and count: only takeovers are left.
    let mut now = steps(&now, UNLIMITED);
    while bucket(&now).moves.is_empty() {
        let mut copies = CatchUp::begin(&now);
        copies.note(&everyone(&now, 5));
        let next = plan_round(&now, Some(&copies), UNLIMITED).expect("it goes on");
        let waits = plan_round(&now, Some(&copies), awaits(3)).unwrap_or(now.clone());
        assert!(bucket(&waits).moves.is_empty());
        now = next;
    }
}

#[test]
fn vbuckets_without_a_silent_node_get_their_copies() {
    let now = begun(&added(&map(4, 1, 60), 1), &[]);
    let silent = MoveLimits {
        silent: BTreeSet::from([1]),
        ..UNLIMITED
    };
    let next = plan_steps(&now, silent.clone()).expect("others can begin");
    let all = plan_steps(&now, UNLIMITED).expect("all can begin");
    let begun = &bucket(&next).next;
    assert!((1..bucket(&all).next.len()).contains(&begun.len()));
    for (vb, target) in begun {
        let chain = &bucket(&next).chains[usize::from(*vb)];
        assert!(!chain.contains(1) && !target.chain.contains(1));
    }
    let mut now = now;
    for _ in 0..20 {
        now = taken(&caught_up(&steps(&now, silent.clone())));
    }
    assert_eq!(state(&now), RebalanceState::Running);
    assert_eq!(plan_steps(&now, silent), None, "the rest waits");
    assert_eq!(state(&executed(&now)), RebalanceState::Finished);
}

#[test]
fn moves_per_node_are_a_setting_of_the_map() {
    let before = map(3, 1, 60);
    assert_eq!(before.moves_per_node(), 4);
    assert!(!String::from_utf8_lossy(&before.to_json()).contains("moves_per_node"));
    let same = plan_moves_per_node(&before, 4).expect("it is in range");
    assert_eq!(same, None);
    for moves in [0, 65] {
        assert!(plan_moves_per_node(&before, moves).is_err(), "{moves}");
    }
    let after = plan_moves_per_node(&before, 64)
        .expect("it is in range")
        .expect("it is new");
    assert_eq!(after.revision.rev, before.revision.rev + 1);
    assert_eq!(
        ClusterMap::from_json(&after.to_json()).expect("it can be"),
        after
    );
    assert_eq!(MoveLimits::of(&after).incoming, 64);
    let mut first = after;
    first.level = CompatLevel::FIRST;
    assert!(ClusterMap::from_json(&first.to_json()).is_err());
    let mut first = before;
    first.level = CompatLevel::FIRST;
    let refused = plan_moves_per_node(&first, 64).expect_err("it needs level 2");
    assert!(
        matches!(refused, ClusterError::NeedsLevel { .. }),
        "{refused}"
    );
}

#[test]
fn stopped_rebalance_continues_where_it_was() {
    let mut now = begun(&added(&map(3, 1, 60), 1), &[]);
    for _ in 0..8 {
        now = taken(&caught_up(&steps(&now, FEW)));
    }
    let now = steps(&now, FEW);
    let left = rebalance_left(&now).expect("all are there").copies();
    assert!(0 < left && left < 30);
    let stopped = stop_rebalance(&now).expect("copies are being made");
    assert!(bucket(&stopped).next.is_empty());
    assert_eq!(bucket(&stopped).chains, bucket(&now).chains);
    assert_eq!(
        copies::replicas(&stopped),
        None,
        "nothing goes on by itself"
    );
    let mut again = begun(&stopped, &[]);
    assert_eq!(
        rebalance_left(&again).expect("all are there").copies(),
        left
    );
    for _ in 0..60 {
        again = taken(&caught_up(&steps(&again, FEW)));
    }
    assert!(is_done(&again));
}

#[test]
fn rebalance_that_cannot_begin_is_refused() {
    let whole = map(2, 1, 4);
    let failed = plan_failover(&whole, 1, &everyone(&whole, 5), false)
        .expect("n_0 has all")
        .map;
    let lost = plan_failover(&map(2, 0, 4), 1, &Told::new(), true)
        .expect("forced")
        .map;
    for (map, remove, says) in [
        (&whole, vec![0, 1], "no node would be left"),
        (&failed, vec![], "node \"n_1\" is failed over"),
        (&lost, vec![1], "2 vBuckets of bucket \"b\" have no active"),
        (&begun(&whole, &[]), vec![], "a rebalance is running"),
    ] {
        let refused = begin_rebalance(map, request(map, &remove));
        let Err(ClusterError::Node(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains(says), "{why}");
    }
    let removed = begun(&failed, &[1]);
    assert!(is_done(&taken(&caught_up(&caught_up(&steps(
        &removed, UNLIMITED
    ))))));
}

fn failed_over(map: &ClusterMap, node: u16) -> ClusterMap {
    let plan = plan_failover(map, node, &everyone(map, 5), false);
    plan.expect("the others have everything").map
}

/// Executes a rebalance until it ends.
fn executed(map: &ClusterMap) -> ClusterMap {
    let mut now = map.clone();
    for _ in 0..200 {
        now = steps(&now, FEW);
        if now.running_rebalance().is_none() {
            return now;
        }
        now = taken(&caught_up(&now));
    }
    panic!("it does not end: {now:?}");
}

fn record(map: &ClusterMap) -> &RebalanceRecord {
    map.rebalance.as_deref().expect("there was one")
}

/// The numbers of copies of each node.
fn copies_of(map: &ClusterMap) -> Vec<usize> {
    let chains = || bucket(map).chains.iter();
    let count = |node: u16| chains().filter(|chain| chain.contains(node)).count();
    map.nodes.keys().map(|node| count(*node)).collect()
}

/// The same operation goes on: what was done stays done, and the other nodes get what is missing.
#[test]
fn rebalance_goes_on_without_a_node_that_is_failed_over() {
    let mut before = begun(&added(&map(3, 1, 60), 1), &[]);
    for _ in 0..8 {
        before = taken(&caught_up(&steps(&before, FEW)));
    }
    let progress = |map: &ClusterMap| {
        let left = record(map).left(map).expect("its nodes are members");
        record(map).progress(&left, 2_000)
    };
    let done = progress(&before).vbuckets_done;
    assert!(done > 0);
    // The added node, and an old one.
    for (lost, left) in [(3, [40, 40, 40, 0]), (1, [40, 0, 40, 40])] {
        let now = failed_over(&before, lost);
        assert_eq!(record(&now).state, RebalanceState::Running);
        assert_eq!(record(&now).id, record(&before).id);
        assert!(!record(&now).servers.contains(&lost));
        assert_eq!(progress(&now).vbuckets_done, done);
        assert_eq!(progress(&now).copies_done, progress(&before).copies_done);
        let end = executed(&now);
        assert_eq!(record(&end).state, RebalanceState::Finished);
        assert_eq!(copies_of(&end), left);
        assert_eq!(bucket(&end).missing_copies(), 0);
        assert!(end.nodes[&lost].failed, "it can be recovered");
    }
}

#[test]
fn rebalance_removes_a_node_that_was_failed_over_meanwhile() {
    let before = steps(&begun(&added(&map(3, 1, 60), 1), &[2]), FEW);
    let end = executed(&failed_over(&before, 2));
    assert_eq!(record(&end).state, RebalanceState::Finished);
    assert_eq!(end.numbers(), [0, 1, 3]);
    assert_eq!(copies_of(&end), [40; 3]);
}

/// With as many replicas as other nodes, chains become shorter by the failover, and longer again when the node is back.
#[test]
fn recovered_node_takes_part_in_the_running_rebalance_again() {
    let before = steps(&begun(&added(&map(2, 2, 12), 1), &[]), FEW);
    let now = failed_over(&before, 1);
    assert_eq!(bucket(&executed(&now)).replicas(), 1);
    let back = plan_recovery(&steps(&now, FEW), 1).expect("it was failed over");
    assert_eq!(record(&back).servers, [0, 1, 2]);
    let end = executed(&back);
    assert_eq!(record(&end).state, RebalanceState::Finished);
    assert_eq!(copies_of(&end), [12; 3]);

    let leaves = failed_over(&begun(&added(&map(2, 1, 12), 1), &[1]), 1);
    let back = plan_recovery(&leaves, 1).expect("it was failed over");
    assert_eq!(record(&back).servers, [0, 2], "it is to be removed");
    assert_eq!(executed(&back).numbers(), [0, 2]);
}

/// The rebalance spread the buckets over the removed node again when another one was recovered: the map was refused by all.
#[test]
fn rebalance_goes_on_without_a_node_that_is_removed() {
    let before = begun(&added(&map(3, 1, 12), 1), &[2]);
    let back = plan_recovery(&failed_over(&before, 3), 3).expect("it was failed over");
    assert_eq!(record(&back).servers, [0, 1, 3]);
    let removed = plan_remove_node(&back, 3).expect("it has nothing yet");
    assert_eq!(record(&removed).servers, [0, 1]);
    let again = plan_recovery(&failed_over(&removed, 1), 1).expect("it was failed over");
    assert_eq!(
        ClusterMap::from_json(&again.to_json()).ok().as_ref(),
        Some(&again)
    );
    let end = executed(&again);
    assert_eq!(record(&end).state, RebalanceState::Finished);
    assert_eq!(end.numbers(), [0, 1]);
}

#[test]
fn rebalance_fails_when_no_node_or_no_active_is_left() {
    let before = begun(&map(2, 1, 12), &[1]);
    let RebalanceState::Failed(why) = state(&failed_over(&before, 0)) else {
        panic!("{before:?}");
    };
    assert!(why.contains("\"n_0\" was failed over"), "{why}");
    let alone = begun(&map(3, 0, 12), &[]);
    let lost = plan_failover(&alone, 1, &Told::new(), true).expect("forced");
    let RebalanceState::Failed(why) = state(&lost.map) else {
        panic!("{:?}", lost.map);
    };
    assert!(why.contains("have no active"), "{why}");
    begin_rebalance(&failed_over(&before, 0), request(&before, &[0])).expect("the next one");
}

/// A bucket that is created meanwhile is spread over all nodes. The rebalance moves it, too, before it removes a node.
#[test]
fn bucket_that_is_created_meanwhile_is_rebalanced_too() {
    let mut now = begun(&map(3, 1, 12), &[2]).next();
    let added = now.add_bucket("c", serde_json::json!({}), 6, 1);
    added.expect("no node has failed");
    for _ in 0..20 {
        now = steps(&now, FEW);
        let mut copies = CatchUp::begin(&now);
        copies.note(&told(&now));
        now = copies.plan(&now).unwrap_or(now);
        now = taken(&now);
    }
    assert_eq!(state(&now), RebalanceState::Finished);
    assert_eq!(now.numbers(), [0, 1]);
    let mut chains = now.buckets.iter().flat_map(|bucket| &bucket.chains);
    assert!(chains.all(|chain| chain.nodes().count() == 2));
}

/// All members have the same of all buckets.
fn told(map: &ClusterMap) -> Told {
    let positions = map.buckets.iter().map(|bucket| {
        let all = vec![Some(at(5)); bucket.chains.len()];
        (bucket.name.clone(), all)
    });
    let positions: BTreeMap<_, _> = positions.collect();
    map.members()
        .map(|node| (node, positions.clone()))
        .collect()
}

/// The node that takes over is not in the chain yet. It may have done so when the active fails.
#[test]
fn node_that_may_have_taken_over_is_a_candidate_at_a_failover() {
    let building = steps(&begun(&map(3, 1, 12), &[2]), UNLIMITED);
    let moving = caught_up(&caught_up(&building));
    let (vb, pending) = bucket(&moving).moves.first_key_value().expect("some move");
    let (chain, next) = (
        &bucket(&moving).chains[usize::from(*vb)],
        &bucket(&moving).next[vb].chain,
    );
    let other = chain.replicas().next().expect("one");
    if other == pending.to {
        return;
    }
    let all = |seqno| BTreeMap::from([("b".to_owned(), vec![Some(at(seqno)); 12])]);
    let told = BTreeMap::from([(other, all(5)), (pending.to, all(6))]);
    let plan = plan_failover(&moving, 2, &told, false).expect("they have all");
    assert_eq!(&bucket(&plan.map).chains[usize::from(*vb)], next);
    let told = BTreeMap::from([(other, all(6)), (pending.to, all(6))]);
    let plan = plan_failover(&moving, 2, &told, false).expect("they have all");
    assert_eq!(
        bucket(&plan.map).chains[usize::from(*vb)].active(),
        Some(other)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever a node is failed over, the rebalance goes on to its end, and the other nodes have even shares then.
    #[test]
    fn rebalance_survives_failovers(
        nodes in 3_usize..6,
        replicas in 1_u8..3,
        rounds in 0_usize..20,
        half_round: bool,
        lost: prop::sample::Index,
        removed: Option<prop::sample::Index>,
    ) {
        let before = added(&map(nodes, replicas, 24), 1);
        let numbers = before.numbers();
        let removed = removed.map(|it| *it.get(&numbers));
        let mut now = begun(&before, removed.as_slice());
        for _ in 0..rounds {
            let next = taken(&caught_up(&steps(&now, FEW)));
            if next.running_rebalance().is_none() {
                break;
            }
            now = next;
        }
        if half_round {
            now = caught_up(&steps(&now, FEW));
        }
        let lost = *lost.get(&numbers);
        prop_assume!(now.running_rebalance().is_some());
        let end = executed(&failed_over(&now, lost));
        prop_assert_eq!(&record(&end).state, &RebalanceState::Finished);
        prop_assert_eq!(end.nodes.contains_key(&lost), removed != Some(lost));
        prop_assert!(removed.is_none_or(|node| !end.nodes.contains_key(&node)));
        prop_assert_eq!(bucket(&end).missing_copies(), 0);
        let stay = end.members().map(|node| bucket(&end).chains.iter().filter(|it| it.contains(node)).count());
        let stay: Vec<usize> = stay.collect();
        prop_assert!(stay.iter().max().unwrap() - stay.iter().min().unwrap() <= 2, "{:?}", stay);
        prop_assert_eq!(stay.iter().sum::<usize>(), copies_of(&end).iter().sum::<usize>());
    }

    /// Nodes come, go, fail and return, the operation stops and goes on: a node is in a chain only when it has had all that the
    /// active had, and in the end every server has its share, by as few copies as are necessary.
    #[test]
    fn every_rebalance_ends(
        nodes in 2_usize..5,
        replicas in 0_u8..3,
        events in prop::collection::vec((0_u8..14, any::<prop::sample::Index>()), 1..80),
    ) {
        const VBUCKETS: u16 = 24;
        let mut now = map(nodes, replicas, VBUCKETS);
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
        let mut copies = CatchUp::begin(&now);
        for (number, (what, which)) in (100_u16..).zip(events) {
            let numbers = now.numbers();
            let node = *which.get(&numbers);
            let vb = u16::try_from(which.index(usize::from(VBUCKETS))).expect("few");
            let next = match what {
                0 if numbers.len() < 6 => Some(added(&now, number)),
                1 => begin_rebalance(&now, request(&now, &[node])).ok(),
                2 => begin_rebalance(&now, request(&now, &[])).ok(),
                3 => plan_remove_node(&now, node).ok(),
                4 => plan_failover(&now, node, &told_by(&now, &whole), false).ok().map(|plan| plan.map),
                5 => plan_recovery(&now, node).ok(),
                6 => stop_rebalance(&now),
                7 => now.without_moves_from(node),
                8 => {
                    let moves = bucket(&now).moves.iter().find(|(_, pending)| pending.to == node);
                    let vb = moves.map(|(vb, _)| *vb);
                    vb.and_then(|vb| taken_by(&now, node, vb))
                }
                9 | 10 => {
                    for vb in 0..VBUCKETS {
                        if matches!(bucket(&now).role(vb, node), VbucketRole::Replica { active: Some(_) }) {
                            whole.insert((vb, node));
                        }
                    }
                    copies.follow(&now);
                    copies.note(&told_by(&now, &whole));
                    copies.plan(&now)
                }
                11 => copies::replicas(&now),
                _ => plan_steps(&now, FEW),
            };
            let Some(next) = next else { continue };
            if what == 4 {
                whole.retain(|(_, of)| *of != node);
            }
            prop_assert_eq!(&ClusterMap::from_json(&next.to_json()).expect("a valid map"), &next);
            for (vb, chain) in (0..VBUCKETS).zip(&bucket(&next).chains) {
                prop_assert!(chain.active().is_some(), "nothing was forced");
                // In an old chain, in the new one, or in both.
                for node in chain.nodes() {
                    prop_assert!(whole.contains(&(vb, node)), "{node} has not all of {vb}");
                }
            }
            // A copy that the map does not know is deleted.
            whole.retain(|(vb, node)| bucket(&next).role(*vb, *node) != VbucketRole::None);
            let _ = vb;
            now = next;
        }
        for node in now.numbers() {
            now = plan_recovery(&now, node).unwrap_or(now);
        }
        for _ in 0..3 {
            now = taken(&caught_up(&now));
        }
        now = stop_rebalance(&now).unwrap_or(now);
        now = begun(&now, &[]);
        let optimum = rebalance_left(&now).expect("all are there").copies();
        let mut made = 0;
        for _ in 0..200 {
            let next = taken(&caught_up(&steps(&now, FEW)));
            let both = bucket(&now).chains.iter().zip(&bucket(&next).chains);
            made += both.map(|(old, new)| new.nodes().filter(|node| !old.contains(*node)).count()).sum::<usize>();
            now = next;
        }
        prop_assert!(is_done(&now));
        prop_assert_eq!(made, optimum);
        prop_assert_eq!(bucket(&now).missing_copies(), 0);
        prop_assert_eq!(bucket(&now).replicas(), bucket(&now).wanted_replicas());
        let count = |of: fn(&Chain, u16) -> bool| -> Vec<usize> {
            let all = now.numbers();
            all.iter().map(|node| bucket(&now).chains.iter().filter(|chain| of(chain, *node)).count()).collect()
        };
        for counts in [
            count(|chain, node| chain.active() == Some(node)),
            count(|chain, node| chain.replicas().any(|it| it == node)),
        ] {
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }
}
