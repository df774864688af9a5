//! Nodes are added, removed and moved to other addresses.

use std::collections::BTreeMap;

use kedge_cluster::{
    CatchUp, ClusterError, ClusterMap, ClusterView, CompatLevel, MapNode, Ports, TlsPorts,
    plan_add_node, plan_balance, plan_failover, plan_move, plan_node_change, plan_recovery,
    plan_remove_node,
};
use kedge_types::limits::CLUSTER_NODES_MAX;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::copies::{
    Told, all_taken, at, bucket, everyone, map, replicas as replicas_of, taken_by,
};

/// A node whose name and uuid have this number.
fn node(number: usize) -> MapNode {
    MapNode {
        name: format!("new_{number}"),
        uuid: format!("{number:032x}"),
        host: "10.0.1.1".to_owned(),
        kv_port: 11210,
        mgmt_port: 8091,
        tls: TlsPorts::default(),
        external: None,
        server_group: "east".to_owned(),
        failed: false,
    }
}

fn without_losses(map: &ClusterMap, node: u16) -> ClusterMap {
    let plan = plan_failover(map, node, &everyone(map, 5), false);
    plan.expect("others have all").map
}

#[test]
fn added_node_is_a_member_without_vbuckets() {
    let before = map(2, 3, 4);
    let after = plan_add_node(&before, node(1)).expect("it is new");
    assert_eq!(after.members().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(after.revision > before.revision);
    assert_eq!(after.buckets, before.buckets);
    // Nothing begins by itself, although the settings ask for more replicas than there were nodes.
    assert_eq!(replicas_of(&after), None);
    assert_eq!(plan_balance(&after), None);
    let config = config(&after, 0);
    assert_eq!(config["nodesExt"].as_array().expect("a list").len(), 3);
    assert_eq!(config["nodesExt"][2]["serverGroup"], "east");
    // Clients connect to a node when it has the bucket.
    let services = json!({ "mgmt": config["nodesExt"][2]["services"]["mgmt"] });
    assert_eq!(config["nodesExt"][2]["services"], services);
    for list in [&config["nodes"], &config["vBucketServerMap"]["serverList"]] {
        assert_eq!(list.as_array().expect("a list").len(), 2);
    }
    assert_eq!(config["vBucketServerMap"]["vBucketMap"][0], json!([0, 1]));
    // The node itself never tells a client that it is no server.
    let own = self::config(&after, 2);
    assert_eq!(own["nodes"].as_array().expect("a list").len(), 3);
    assert_eq!(
        own["nodesExt"][2]["services"],
        own["nodesExt"][0]["services"]
    );
    let failed = plan_failover(&map(3, 1, 4), 2, &BTreeMap::new(), true);
    let failed = failed.expect("the others are there").map;
    for (asked, servers) in [(0, 2), (2, 3)] {
        let config = self::config(&failed, asked);
        assert_eq!(config["nodes"].as_array().expect("a list").len(), servers);
    }
    // A bucket that is made later is spread over all.
    let mut more = after.next();
    more.add_bucket("c", json!({}), 9, 1)
        .expect("none has failed");
    assert_eq!(more.bucket("c").expect("made").servers, [0, 1, 2]);
}

#[test]
fn map_says_since_when_a_node_is_a_member() {
    let first = map(2, 3, 4);
    let rev = first.revision.rev;
    assert!(first.is_member_since(0, 0) && !first.is_member_since(7, 0));
    assert!(!first.begins_membership());
    let added = plan_add_node(&first, node(1)).expect("it is new");
    assert!(added.begins_membership());
    assert!(added.is_member_since(2, rev + 1) && !added.is_member_since(2, rev));
    let failed = without_losses(&added.next(), 1);
    assert!(!failed.begins_membership());
    assert!(!failed.is_member_since(1, failed.revision.rev));
    let back = plan_recovery(&failed, 1).expect("it failed");
    assert!(back.begins_membership());
    let rev = back.revision.rev;
    assert!(back.is_member_since(1, rev) && !back.is_member_since(1, rev - 1));
    let read = ClusterMap::from_json(&back.to_json()).expect("a map");
    assert_eq!(read, back);
    let removed = plan_remove_node(&back, 2).expect("it is empty");
    assert!(!removed.is_member_since(2, removed.revision.rev));
}

fn config(map: &ClusterMap, me: u16) -> Value {
    let view = ClusterView::following(Ports::plain(11210, 8091));
    view.adopt(map, Some(me));
    let config = view.bucket_config("b", "10.9.9.9").expect("it is there");
    serde_json::from_slice(&config.json).expect("a config is JSON")
}

/// Chains have numbers, which stay. Clients get positions in the list of the members, which change.
#[test]
fn removal_of_a_node_keeps_the_numbers_of_the_others() {
    let failed_over = without_losses(&map(3, 1, 3), 1);
    let after = plan_remove_node(&failed_over, 1).expect("it has nothing");
    assert_eq!(after.numbers(), [0, 2]);
    assert_eq!(after.node("n_2").expect("it stays"), 2);
    assert_eq!(bucket(&after).servers, [0, 2]);
    let config = config(&after, 2);
    assert_eq!(
        config["vBucketServerMap"]["serverList"],
        json!(["10.0.0.1:11210", "10.0.0.3:11210"])
    );
    assert_eq!(
        config["vBucketServerMap"]["vBucketMap"],
        json!([[0, -1], [1, -1], [1, 0]])
    );
    assert_eq!(config["nodesExt"][1]["thisNode"], true);
    let again = plan_add_node(&after, node(1)).expect("it is new");
    assert_eq!(again.numbers(), [0, 2, 3]);
    // The places of the removed node are for those over which the bucket is still spread.
    assert!(bucket(&after).joins(0, 2) && bucket(&after).joins(1, 0));
    let mut copies = CatchUp::begin(&after);
    copies.note(&everyone(&after, 5));
    let whole = copies.plan(&after).expect("all have it");
    assert_eq!(bucket(&whole).missing_copies(), 0);
}

#[test]
fn node_with_copies_is_not_removed() {
    let whole = map(2, 0, 4);
    let failed_over = without_losses(&map(2, 1, 4), 1);
    let back = plan_recovery(&failed_over, 1).expect("it was failed over");
    let two = plan_add_node(&map(1, 0, 4), node(1)).expect("it is new");
    let lost = plan_failover(&two, 0, &everyone(&two, 5), true);
    let lost = lost.expect("it is forced").map;
    for (map, node, says) in [
        (
            &whole,
            1,
            "node \"n_1\" cannot be removed: it has copies of 2 vBuckets of bucket \"b\"",
        ),
        (&back, 1, "it has copies of 4 vBuckets of bucket \"b\""),
        (&failed_over, 0, "it has copies of 4 vBuckets"),
        (&lost, 0, "bucket \"b\" is on no other node"),
        (&failed_over, 7, "there is no node \"7\""),
    ] {
        let refused = plan_remove_node(map, node).expect_err(says).to_string();
        assert!(refused.contains(says), "{refused}");
    }
    let mut empty = map(1, 0, 4);
    empty.buckets.clear();
    plan_remove_node(&empty, 0).expect_err("it is the last one");
    // In a cluster of one node more it may go.
    let two = plan_add_node(&empty, node(1)).expect("it is new");
    let one = plan_remove_node(&two, 0).expect("it has nothing");
    assert_eq!(one.numbers(), [1]);
}

#[test]
fn nodes_that_cannot_be_are_not_added() {
    let two = map(2, 1, 4);
    type Break = fn(&mut MapNode);
    let table: [(Break, &str); 7] = [
        (|it| it.name = "n_1".to_owned(), "two nodes are called"),
        (|it| it.uuid = "01".repeat(16), "two nodes have the uuid"),
        (|it| it.uuid = "01".to_owned(), "32 hexadecimal digits"),
        (|it| it.name = "a b".to_owned(), "a node's name"),
        (|it| it.host = String::new(), "no host"),
        (|it| it.mgmt_port = 0, "a port of 0"),
        (|it| it.server_group = "g".repeat(65), "server group"),
    ];
    for (spoil, says) in table {
        let mut wrong = node(1);
        spoil(&mut wrong);
        let refused = plan_add_node(&two, wrong).expect_err(says);
        assert!(matches!(refused, ClusterError::Node(_)));
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let mut full = two;
    for number in 2..CLUSTER_NODES_MAX {
        full = plan_add_node(&full, node(number)).expect("there is room");
    }
    let refused = plan_add_node(&full, node(100)).expect_err("it is full");
    assert!(refused.to_string().contains("1 to 64 nodes, not 65"));
}

#[test]
fn node_gets_another_address_and_server_group() {
    let failed_over = without_losses(&map(2, 1, 4), 1);
    let there = failed_over.nodes[&1].clone();
    assert_eq!(
        plan_node_change(&failed_over, &there).expect("it is there"),
        None
    );
    let moved = MapNode {
        host: "10.0.0.9".to_owned(),
        kv_port: 1,
        server_group: "west".to_owned(),
        failed: false,
        ..there
    };
    let after = plan_node_change(&failed_over, &moved).expect("it is there");
    let after = after.expect("it is another one");
    let expected = MapNode {
        failed: true,
        ..moved.clone()
    };
    assert_eq!(after.nodes[&1], expected);
    assert_eq!(after.buckets, failed_over.buckets);
    let other = MapNode {
        uuid: "ab".repeat(16),
        ..moved.clone()
    };
    let refused = plan_node_change(&after, &other).expect_err("another node");
    assert!(
        refused.to_string().contains("has the uuid 0202"),
        "{refused}"
    );
    let nowhere = MapNode {
        kv_port: 0,
        ..moved
    };
    plan_node_change(&after, &nowhere).expect_err("it has no port");
    assert!(matches!(
        plan_node_change(&after, &node(1)),
        Err(ClusterError::NoNode(_))
    ));
}

#[test]
fn ports_of_tls_need_compatibility_level_2() {
    let mut first = map(2, 1, 4);
    first.level = CompatLevel::FIRST;
    let mut node = first.nodes[&1].clone();
    node.tls.kv = 11_207;
    let same = plan_node_change(&first, &node).expect("it is there");
    assert_eq!(same, None, "older releases cannot read the ports");
    let added = MapNode {
        name: "n_9".to_owned(),
        uuid: "9".repeat(32),
        ..node.clone()
    };
    let next = plan_add_node(&first, added).expect("it is new");
    assert_eq!(next.nodes[&2].tls, TlsPorts::default());
    first.level = CompatLevel::HIGHEST;
    let raised = plan_node_change(&first, &node).expect("it is there");
    let raised = raised.expect("the level has them");
    assert_eq!(raised.nodes[&1].tls.kv, 11_207);
    let json = raised.to_json();
    assert_eq!(ClusterMap::from_json(&json).expect("it is valid"), raised);
    let mut old = raised;
    old.level = CompatLevel::FIRST;
    let error = ClusterMap::from_json(&old.to_json()).expect_err("it has the ports");
    assert!(error.to_string().contains("the ports of TLS"), "{error}");
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

proptest! {
    /// Whatever happens to nodes and buckets, the map stays valid, and a number always means the same node.
    #[test]
    fn maps_stay_valid_while_nodes_come_and_go(
        nodes in 1_usize..4,
        replicas in 0_u8..4,
        steps in prop::collection::vec((0_u8..11, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..60),
    ) {
        let mut now = map(nodes, replicas, 12);
        let mut seen: BTreeMap<u16, String> = BTreeMap::new();
        let mut removed: Vec<u16> = Vec::new();
        for (number, (what, which, other)) in steps.into_iter().enumerate() {
            let numbers = now.numbers();
            let of_map = *which.get(&numbers);
            let vb = u16::try_from(other.index(12)).expect("few");
            let next = match what {
                0 => plan_add_node(&now, node(number)).ok(),
                1 => plan_remove_node(&now, of_map).ok(),
                2 | 3 => plan_failover(&now, of_map, &told(&now), what == 3).ok().map(|plan| plan.map),
                4 => plan_recovery(&now, of_map).ok(),
                5 => {
                    let mut more = now.next();
                    let settings = json!({ "replicas": replicas });
                    more.add_bucket(&format!("b_{number}"), settings, 12, replicas).ok().map(|()| more)
                }
                6 => {
                    let mut less = now.next();
                    let at = other.index(now.buckets.len().max(1));
                    (at < less.buckets.len()).then(|| less.buckets.remove(at)).map(|_| less)
                }
                7 => {
                    let moved = MapNode { host: format!("10.0.2.{}", vb + 1), ..now.nodes[&of_map].clone() };
                    plan_node_change(&now, &moved).expect("it can be")
                }
                8 => plan_move(&now, "b", vb, now.name(of_map)).ok(),
                9 => taken_by(&now, of_map, vb),
                _ => {
                    let mut copies = CatchUp::begin(&now);
                    copies.note(&told(&now));
                    copies.plan(&now).or_else(|| replicas_of(&now))
                }
            };
            let Some(next) = next else { continue };
            prop_assert!(next.revision > now.revision);
            prop_assert_eq!(&ClusterMap::from_json(&next.to_json()).expect("a valid map"), &next);
            removed.extend(numbers.iter().filter(|number| !next.nodes.contains_key(number)));
            for (number, node) in &next.nodes {
                let uuid = seen.entry(*number).or_insert_with(|| node.uuid.clone());
                prop_assert_eq!(&*uuid, &node.uuid);
                prop_assert!(!removed.contains(number), "a number is used again");
            }
            for bucket in &next.buckets {
                let mut nodes = bucket.chains.iter().flat_map(|chain| chain.nodes());
                prop_assert!(nodes.all(|node| bucket.servers.contains(&node)));
            }
            now = next;
        }
        // Without failed nodes all places are filled in the end.
        for node in now.numbers() {
            now = plan_recovery(&now, node).unwrap_or(now);
        }
        for _ in 0..8 {
            now = all_taken(&now);
            now = replicas_of(&now).unwrap_or(now);
            let mut copies = CatchUp::begin(&now);
            copies.note(&told(&now));
            now = copies.plan(&now).unwrap_or(now);
        }
        for bucket in &now.buckets {
            prop_assert_eq!(bucket.missing_copies(), 0);
            prop_assert_eq!(bucket.replicas(), bucket.wanted_replicas());
        }
    }
}
