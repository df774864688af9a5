//! Maps with one bucket, and what nodes tell of their copies.

use std::collections::{BTreeMap, BTreeSet};

use kedge_cluster::{
    ClusterMap, CopyPosition, MapBucket, MoveLimits, MoveStart, NodePositions, PendingMove,
    TakenVbucket, plan_steps,
};
use serde_json::json;

use crate::many::first_map;

/// No limit of copies at the same time.
pub(crate) const UNLIMITED: MoveLimits = MoveLimits {
    incoming: usize::MAX,
    outgoing: usize::MAX,
    drained: usize::MAX,
    awaited: BTreeSet::new(),
    silent: BTreeSet::new(),
};

/// The map in which due changes of the number of replicas begin, all at once.
pub(crate) fn replicas(map: &ClusterMap) -> Option<ClusterMap> {
    plan_steps(map, UNLIMITED)
}

pub(crate) type Told = BTreeMap<u16, NodePositions>;

pub(crate) fn map(nodes: usize, replicas: u8, vbuckets: u16) -> ClusterMap {
    let mut map = first_map(nodes, replicas);
    let settings = json!({ "replicas": replicas });
    map.add_bucket("b", settings, vbuckets, replicas)
        .expect("no node has failed");
    map
}

pub(crate) fn bucket(map: &ClusterMap) -> &MapBucket {
    map.bucket("b").expect("it is there")
}

/// A takeover of a vBucket by which its present move ends.
pub(crate) fn taken(map: &ClusterMap, vb: u16) -> [TakenVbucket; 1] {
    let pending = map.bucket("b").and_then(|bucket| bucket.moves.get(&vb));
    [TakenVbucket {
        bucket: "b".to_owned(),
        vb,
        start: pending.map_or(MoveStart::default(), |pending| pending.start),
    }]
}

/// The map after a takeover of a vBucket by a node; `None` if it does not move there.
pub(crate) fn taken_by(map: &ClusterMap, node: u16, vb: u16) -> Option<ClusterMap> {
    map.with_taken(node, &taken(map, vb))
}

/// The map after all takeovers, of all buckets.
pub(crate) fn all_taken(map: &ClusterMap) -> ClusterMap {
    let mut after = map.clone();
    for bucket in &map.buckets {
        for (&vb, &PendingMove { to, start }) in &bucket.moves {
            let bucket = bucket.name.clone();
            let taken = after.with_taken(to, &[TakenVbucket { bucket, vb, start }]);
            after = taken.expect("it moves there");
        }
    }
    after
}

pub(crate) fn at(seqno: u64) -> CopyPosition {
    CopyPosition {
        high_seqno: seqno,
        persisted_seqno: seqno,
        high_prepared: seqno,
        consistent: true,
        catch_up_to: None,
        active: false,
        history: vec![(1, 0)],
    }
}

/// Every node has the same of all vBuckets.
pub(crate) fn told(map: &ClusterMap, positions: &[(u16, CopyPosition)]) -> Told {
    let all = |position: &CopyPosition| vec![Some(position.clone()); bucket(map).chains.len()];
    let of_node = |(node, position): &(u16, CopyPosition)| {
        (*node, BTreeMap::from([("b".to_owned(), all(position))]))
    };
    positions.iter().map(of_node).collect()
}

pub(crate) fn everyone(map: &ClusterMap, seqno: u64) -> Told {
    let nodes: Vec<(u16, CopyPosition)> = map.members().map(|node| (node, at(seqno))).collect();
    told(map, &nodes)
}
