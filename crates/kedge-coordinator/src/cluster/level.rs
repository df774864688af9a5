//! The compatibility levels of the nodes, and the plan to raise that of the cluster.
//!
//! Invariant: the map with the next level is put by a transaction that compares the records of all nodes. A node puts its
//! record before it takes part, by a transaction that compares the map: a node of an older release that starts at the same
//! moment either keeps the level down, or sees the new one and does not start.

use std::collections::BTreeMap;

use kedge_cluster::{ClusterMap, LevelRange, plan_next_level};
use kedge_coordination::Transaction;
use serde_json::{Value, json};

use super::followed::Followed;
use super::peers::Peers;
use super::store::StoredRecord;

/// Returns the levels that the running process of a node supports; `None` if it is not reachable.
pub(super) fn levels_of(followed: &Followed, peers: &Peers, name: &str) -> Option<LevelRange> {
    if name == followed.name() {
        return Some(followed.release.levels);
    }
    let peers = peers.all();
    let peer = peers.iter().find(|peer| peer.name == name)?;
    peer.is_reached().then(|| peer.levels())?
}

/// Returns the level in force, and the nodes that it waits for, for the status of the cluster.
pub(super) fn status(map: &ClusterMap, levels_of: impl Fn(&str) -> Option<LevelRange>) -> Value {
    let names: Vec<&str> = map.without_next_level(levels_of).collect();
    let is_newest = names.len() == map.nodes.len();
    json!({
        "level": map.level,
        "isHeld": map.level_is_held,
        "waitsFor": if is_newest { Vec::new() } else { names },
    })
}

/// Returns the map at the next level, and the compares of its transaction; `None` if not all nodes support it, by what they
/// report and by their records.
pub(super) fn plan(
    map: &ClusterMap,
    reported: impl Fn(&str) -> Option<LevelRange>,
    records: &BTreeMap<String, StoredRecord>,
) -> Option<(ClusterMap, Transaction)> {
    let lower = |name: &str| {
        let recorded = records.get(name)?.record.levels;
        let reported = reported(name)?;
        Some(match recorded.highest < reported.highest {
            true => recorded,
            false => reported,
        })
    };
    let next = plan_next_level(map, lower)?;
    let names = map.nodes.values().map(|node| &node.name);
    let stored = names.filter_map(|name| records.get(name));
    let compares = stored.fold(Transaction::new(), |compares, it| {
        compares.when(it.unchanged.clone())
    });
    Some((next, compares))
}

#[cfg(test)]
mod tests {
    use kedge_cluster::{CompatLevel, MapNode, NodeRecord, Release};
    use kedge_coordination::{Compare, Revision};

    use super::super::testing::map;
    use super::*;

    #[test]
    fn raise_compares_the_records_of_all_nodes() {
        let mut map = map(&["a", "b"]);
        map.level = CompatLevel::FIRST;
        let current = Release::CURRENT.levels;
        let record = |node: &MapNode| {
            let stored = StoredRecord {
                record: NodeRecord::new(node, Release::CURRENT),
                unchanged: Compare::Unchanged(node.name.clone(), Revision(1)),
            };
            (node.name.clone(), stored)
        };
        let mut records = BTreeMap::from([record(&map.nodes[&0])]);
        let all = |_: &str| Some(current);
        assert!(plan(&map, all, &records).is_none(), "b has no record");
        records.extend([record(&map.nodes[&1])]);
        let (next, compares) = plan(&map, all, &records).expect("all support it");
        assert_eq!(next.level, CompatLevel(2));
        assert_eq!(compares.compares().len(), 2);
        let one = |name: &str| (name == "a").then_some(current);
        assert!(plan(&map, one, &records).is_none(), "b is down");
        let back = records.get_mut("b").expect("it is there");
        back.record.levels = LevelRange::default();
        assert!(plan(&map, all, &records).is_none(), "b went back");
    }
}
