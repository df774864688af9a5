//! The configs of the nodes of a cluster.

use expect_test::expect;
use kedge_cluster::{
    ChangeKind, ClusterChange, ClusterMap, ClusterView, External, MapNode, Ports, SERVER_GROUP,
    TlsPorts, plan_failover,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Returns nodes `n_0` and so on at 10.0.0.1 and so on.
fn nodes(count: usize) -> Vec<MapNode> {
    let node = |n: usize| MapNode {
        name: format!("n_{n}"),
        uuid: format!("{:02x}", n + 1).repeat(16),
        host: format!("10.0.0.{}", n + 1),
        kv_port: 11210,
        mgmt_port: 8091,
        tls: TlsPorts::default(),
        external: None,
        server_group: SERVER_GROUP.to_owned(),
        failed: false,
    };
    (0..count).map(node).collect()
}

/// Returns the first map of a cluster, without buckets.
pub(crate) fn first_map(count: usize, replicas: u8) -> ClusterMap {
    map_of(nodes(count), replicas)
}

fn map_of(nodes: Vec<MapNode>, replicas: u8) -> ClusterMap {
    let uuid = format!("{:02x}", nodes.len() + 1).repeat(16);
    let mut map = ClusterMap::new(uuid, replicas, nodes).expect("the nodes are valid");
    map.cluster_name = "shop".to_owned();
    map
}

const PORTS: Ports = Ports::plain(11210, 8091);

fn with_bucket(mut map: ClusterMap, vbuckets: u16) -> ClusterMap {
    let settings = json!({ "uuid": "1b".repeat(16) });
    map.add_bucket("default", settings, vbuckets, map.replicas)
        .expect("no node has failed");
    map
}

fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("a config is JSON")
}

#[test]
fn a_config_of_three_nodes() {
    let mut nodes = nodes(3);
    nodes[2].external = Some(External {
        host: "kedge.example".to_owned(),
        kv_port: Some(30_210),
        mgmt_port: None,
    });
    let view = ClusterView::following(PORTS);
    view.adopt(&with_bucket(map_of(nodes, 1), 3), Some(1));
    let config = view.bucket_config("default", "10.9.9.9").expect("exists");
    let mut document = parse(&config.json);
    for known in [
        "bucketCapabilities",
        "clusterCapabilities",
        "clusterCapabilitiesVer",
    ] {
        document.as_object_mut().expect("an object").remove(known);
    }
    expect![[r#"
        {"bucketCapabilitiesVer":"","bucketType":"membase","clusterName":"shop","clusterUUID":"04040404040404040404040404040404","collectionsManifestUid":"0","name":"default","nodeLocator":"vbucket","nodes":[{"hostname":"10.0.0.1:8091","ports":{"direct":11210}},{"hostname":"10.0.0.2:8091","ports":{"direct":11210}},{"hostname":"10.0.0.3:8091","ports":{"direct":11210}}],"nodesExt":[{"hostname":"10.0.0.1","nodeUUID":"01010101010101010101010101010101","serverGroup":"Group 1","services":{"kv":11210,"mgmt":8091}},{"hostname":"10.0.0.2","nodeUUID":"02020202020202020202020202020202","serverGroup":"Group 1","services":{"kv":11210,"mgmt":8091},"thisNode":true},{"alternateAddresses":{"external":{"hostname":"kedge.example","ports":{"kv":30210,"mgmt":8091}}},"hostname":"10.0.0.3","nodeUUID":"03030303030303030303030303030303","serverGroup":"Group 1","services":{"kv":11210,"mgmt":8091}}],"prod":"server","rev":1,"revEpoch":1,"streamingUri":"/pools/default/bucketsStreaming/default?bucket_uuid=1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b","uri":"/pools/default/buckets/default?bucket_uuid=1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b","uuid":"1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b","vBucketServerMap":{"hashAlgorithm":"CRC","numReplicas":1,"serverList":["10.0.0.1:11210","10.0.0.2:11210","10.0.0.3:11210"],"vBucketMap":[[0,1],[1,2],[2,0]]}}"#]]
    .assert_eq(&document.to_string());
    let global = parse(&view.global_config("10.9.9.9").json);
    assert_eq!(global["nodesExt"], document["nodesExt"]);
    for of_bucket in ["name", "uuid", "nodeLocator", "vBucketServerMap"] {
        assert!(global.get(of_bucket).is_none(), "{of_bucket}");
    }
}

#[test]
fn config_names_the_ports_of_tls_of_the_nodes_that_have_some() {
    let mut nodes = nodes(3);
    let external = |kv_port| External {
        host: "kedge.example".to_owned(),
        kv_port,
        mgmt_port: None,
    };
    nodes[1].tls = TlsPorts {
        kv: 11_207,
        mgmt: 18_091,
        external_kv: 30_207,
        external_mgmt: 0,
    };
    nodes[1].external = Some(external(Some(30_210)));
    // It does not serve TLS, whatever another network has.
    nodes[2].tls.external_kv = 30_207;
    nodes[2].external = Some(external(None));
    let view = ClusterView::following(Ports {
        kv_tls: 1,
        mgmt_tls: 2,
        ..PORTS
    });
    view.adopt(&with_bucket(map_of(nodes, 1), 3), Some(0));
    let config = parse(&view.bucket_config("default", "::1").expect("exists").json);
    let of = |node: usize| &config["nodesExt"][node];
    // The node's own ports are those on which it listens.
    let own = json!({ "kv": 11210, "kvSSL": 1, "mgmt": 8091, "mgmtSSL": 2 });
    assert_eq!(of(0)["services"], own);
    let other = json!({ "kv": 11210, "kvSSL": 11207, "mgmt": 8091, "mgmtSSL": 18091 });
    assert_eq!(of(1)["services"], other);
    let outside = json!({ "kv": 30210, "kvSSL": 30207, "mgmt": 8091, "mgmtSSL": 18091 });
    let addresses = |node| &of(node)["alternateAddresses"]["external"]["ports"];
    assert_eq!(*addresses(1), outside);
    let plain = json!({ "kv": 11210, "mgmt": 8091 });
    assert_eq!((&of(2)["services"], addresses(2)), (&plain, &plain));
    assert_eq!(
        config["nodes"][1]["ports"],
        json!({ "direct": 11210, "httpsMgmt": 18091 })
    );
}

#[test]
fn config_of_a_node_without_plain_ports_names_those_of_tls() {
    let view = ClusterView::following(Ports {
        kv_tls: 11_207,
        mgmt_tls: 18_091,
        ..Ports::default()
    });
    let map = with_bucket(first_map(1, 0), 1);
    view.adopt(&map, Some(0));
    let config = parse(&view.bucket_config("default", "::1").expect("exists").json);
    let services = json!({ "kvSSL": 11207, "mgmtSSL": 18091 });
    assert_eq!(config["nodesExt"][0]["services"], services);
    assert_eq!(config["nodes"][0]["hostname"], "10.0.0.1:18091");
    assert_eq!(config["nodes"][0]["ports"], json!({ "httpsMgmt": 18091 }));
    assert_eq!(
        config["vBucketServerMap"]["serverList"],
        json!(["10.0.0.1:11207"])
    );
}

#[test]
fn config_of_loopback_nodes_has_the_host_that_the_client_used() {
    let mut nodes = nodes(2);
    for (n, node) in (0..).zip(&mut nodes) {
        node.host = "127.0.0.1".to_owned();
        node.kv_port = 12_000 + 2 * n;
        node.mgmt_port = 9_000 + n;
    }
    let view = ClusterView::following(Ports::plain(12_000, 9_000));
    view.adopt(&with_bucket(map_of(nodes, 1), 2), Some(0));
    for (host, kv) in [
        ("192.168.1.9", ["192.168.1.9:12000", "192.168.1.9:12002"]),
        ("::1", ["[::1]:12000", "[::1]:12002"]),
    ] {
        let config = parse(&view.bucket_config("default", host).expect("exists").json);
        assert_eq!(config["vBucketServerMap"]["serverList"], json!(kv));
        assert_eq!(config["nodesExt"][1]["hostname"], host);
    }
}

#[test]
fn copies_of_a_chain_are_counted_by_its_other_nodes() {
    let counted = |view: &ClusterView| {
        let is_counted = |vb| view.is_counted_by_others("default", vb);
        [0, 1, 2].map(is_counted)
    };
    let view = ClusterView::following(PORTS);
    assert_eq!(counted(&view), [true; 3], "the map is not known yet");
    let map = with_bucket(first_map(3, 1), 3);
    view.adopt(&map, Some(1));
    assert_eq!(counted(&view), [true, true, false]);
    let failed = plan_failover(&map, 1, &BTreeMap::new(), true).expect("it is forced");
    view.adopt(&failed.map, Some(1));
    assert_eq!(counted(&view), [false; 3]);
    let view = ClusterView::following(PORTS);
    view.adopt(&with_bucket(first_map(1, 0), 3), Some(0));
    assert_eq!(counted(&view), [false; 3], "there is no other copy");
}

#[test]
fn failed_over_node_leaves_the_config_and_its_place_is_empty() {
    let before = with_bucket(first_map(3, 1), 3);
    let told = before.members().map(|node| {
        let position = Some(kedge_cluster::CopyPosition::default());
        let positions = vec![position; 3];
        (node, BTreeMap::from([("default".to_owned(), positions)]))
    });
    let told = told.collect();
    let after = plan_failover(&before, 0, &told, false)
        .expect("one replica each")
        .map;
    let view = ClusterView::following(PORTS);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    view.subscribe(move |change: &ClusterChange| {
        sink.lock().expect("not poisoned").push(change.clone());
    });
    view.adopt(&after, Some(0));
    // An older one does not come back.
    view.adopt(&before, Some(0));
    let changes = heard.lock().expect("not poisoned").clone();
    let expected = ClusterChange {
        revision: after.revision,
        kind: ChangeKind::Map,
    };
    assert_eq!(changes, [expected]);
    let config = parse(&view.bucket_config("default", "::1").expect("exists").json);
    let other = ClusterView::following(PORTS);
    other.adopt(&after, Some(1));
    let others = parse(&other.bucket_config("default", "::1").expect("exists").json);
    for config in [&config, &others] {
        assert_eq!(
            config["vBucketServerMap"]["vBucketMap"],
            json!([[0, -1], [0, 1], [1, -1]])
        );
        assert_eq!(config["vBucketServerMap"]["numReplicas"], 1);
    }
    let servers = json!(["10.0.0.2:11210", "10.0.0.3:11210"]);
    assert_eq!(others["vBucketServerMap"]["serverList"], servers);
    assert_eq!(others["nodes"].as_array().expect("a list").len(), 2);
    // The node itself does not tell its clients to close the connection on which they hear it.
    let servers = json!(["10.0.0.2:11210", "10.0.0.3:11210", "10.0.0.1:11210"]);
    assert_eq!(config["vBucketServerMap"]["serverList"], servers);
    assert_eq!(config["nodesExt"][2]["thisNode"], true);
}

#[test]
fn view_of_a_cluster_changes_only_with_its_map() {
    let view = ClusterView::following(PORTS);
    let before = view.revision();
    assert!(view.bucket_config("default", "::1").is_none());
    let put = view.put_bucket(crate::bucket("b", 8)).expect("no error");
    assert_eq!((put, view.revision()), (before, before));
    view.set_cluster_name("x").expect("no error");
    view.remove_bucket("b").expect("no error");
    assert_eq!(view.revision(), before);
    assert!(view.snapshot().bucket("b").is_none());
    let map = with_bucket(first_map(2, 1), 2);
    view.adopt(&map, Some(0));
    assert_eq!(view.revision(), map.revision);
    assert_eq!(view.snapshot().state().cluster_name, "shop");
}

#[test]
fn invalid_nodes_are_rejected() {
    type Break = fn(&mut Vec<MapNode>);
    let table: [(Break, &str); 8] = [
        (|nodes| nodes.clear(), "1 to 64 nodes"),
        (
            |nodes| nodes[1].name = "n_0".to_owned(),
            "two nodes are called",
        ),
        (
            |nodes| nodes[1].uuid = nodes[0].uuid.clone(),
            "two nodes have the uuid",
        ),
        (
            |nodes| nodes[1].uuid = "1".to_owned(),
            "32 hexadecimal digits",
        ),
        (|nodes| nodes[1].name = "a b".to_owned(), "a node's name"),
        (|nodes| nodes[1].name = String::new(), "a node's name"),
        (|nodes| nodes[1].kv_port = 0, "a port of 0"),
        (
            |nodes| nodes[1].server_group = String::new(),
            "server group",
        ),
    ];
    let uuid = || "0".repeat(32);
    for (at, (spoil, says)) in table.into_iter().enumerate() {
        let mut nodes = nodes(2);
        spoil(&mut nodes);
        let error = ClusterMap::new(uuid(), 1, nodes)
            .expect_err(says)
            .to_string();
        assert!(error.contains(says), "{at}: {error}");
    }
    let error = ClusterMap::new(uuid(), 4, nodes(2)).expect_err("too many replicas");
    assert!(error.to_string().contains("0 to 3 replicas"), "{error}");
}
