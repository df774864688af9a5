//! A cluster as its clients see it, and nodes that fail, step down and come back.

use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ManagementClient};
use kedge_types::Status;
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, put, store_in};
use crate::process::{PASSWORD, PATIENCE, USER, kedge, run, serve, threads_of};

#[test]
fn all_nodes_have_the_cluster_config_and_their_vbuckets() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let maps: Vec<Value> = (0..3).map(|node| cluster.map(node)).collect();
    for (node, map) in maps.iter().enumerate() {
        assert_eq!(map["vBucketServerMap"], maps[0]["vBucketServerMap"]);
        assert_eq!(map["rev"], maps[0]["rev"]);
        assert_eq!(map["vBucketServerMap"]["numReplicas"], 2);
        let nodes = map["nodesExt"].as_array().expect("nodes");
        let this: Vec<bool> = nodes.iter().map(|it| it["thisNode"] == true).collect();
        assert_eq!(this, [node == 0, node == 1, node == 2]);
        let kv = cluster.nodes[node].kv.to_string();
        assert_eq!(map["vBucketServerMap"]["serverList"][node], kv);
    }
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    let keys = (0..100).map(|n| format!("key-{n}"));
    let takers: BTreeSet<usize> = keys.map(|key| put(&mut connections, &key, "x")).collect();
    assert_eq!(takers.len(), 3, "all nodes have documents");
    let status = cluster.status(1);
    let of = |field: &str| {
        let nodes = status["buckets"][0]["nodes"].as_array().expect("nodes");
        nodes
            .iter()
            .map(|node| node[field].as_u64().expect("a count"))
            .sum::<u64>()
    };
    assert_eq!((of("active"), of("replica"), of("dead")), (64, 128, 0));
    let metrics = cluster
        .http(0)
        .send("GET", "/metrics", &[])
        .expect("an answer");
    let metrics = String::from_utf8(metrics.body).expect("text");
    assert!(
        metrics.contains("kedge_cluster_node_up{node=\"n_2\"} 1"),
        "{metrics}"
    );
    let (code, text, _) = cluster.tool(2, &["status"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("64 vBuckets with 2 replicas; 0 miss a copy"),
        "{text}"
    );
    assert_eq!(cluster.stop(), Some(0));
}

#[test]
fn cluster_restarts_from_its_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let map = cluster.map(0);
    let mut connections: Vec<ClientConnection> = (0..2).map(|node| cluster.connect(node)).collect();
    let owner = put(&mut connections, "kept", "value");
    drop(connections);
    assert_eq!(cluster.stop(), Some(0));
    let cluster = Cluster::start(dir.path(), &[]);
    let again = cluster.map(1);
    for field in ["uuid", "clusterUUID", "rev", "vBucketServerMap"] {
        assert_eq!(again[field], map[field], "{field}");
    }
    let found = cluster.connect(owner).get(b"kept").expect("an answer");
    assert_eq!(found.expect("a document").value, b"value");
    drop(cluster);
    // Neither alone nor as another node.
    let alone = run(&mut serve(&dir.path().join("n_0"), &[]));
    assert_eq!(alone.0, Some(1));
    assert!(
        alone.2.contains("belongs to a node of a cluster"),
        "{}",
        alone.2
    );
    let mut other = kedge(&["serve", "--node-name=n_1", "--data-dir"]);
    other.arg(dir.path().join("n_0"));
    let other = run(other.args(["--coordinator", &store_in(dir.path())]));
    assert_eq!(other.0, Some(1));
    assert!(other.2.contains("belongs to node \"n_0\""), "{}", other.2);
    let fewer = run(kedge(&["cluster-run", "--nodes=3", "--data-dir"]).arg(dir.path()));
    assert_eq!(fewer.0, Some(1));
    assert!(fewer.2.contains("has 2 nodes, not 3"), "{}", fewer.2);
}

#[test]
fn nodes_share_the_cores_by_default() {
    let dir = tempfile::tempdir().expect("a directory");
    // A thread has its name a moment after it has begun.
    let check = |cluster: &Cluster, expected: usize| {
        for node in &cluster.nodes {
            let front_ends = || {
                let names = threads_of(node.pid);
                let of_clients = names.iter().filter(|name| name.starts_with("kedge-fe-"));
                of_clients.count()
            };
            let deadline = Instant::now() + PATIENCE;
            while front_ends() != expected {
                assert!(Instant::now() < deadline, "{} threads", front_ends());
                thread::yield_now();
            }
        }
    };
    let cores = thread::available_parallelism().expect("it is known").get();
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    check(&cluster, (cores / 2).max(1));
    drop(cluster);
    check(&Cluster::start(dir.path(), &["--threads=3"]), 3);
}

#[test]
fn failover_promotes_replicas_and_the_node_rejoins_as_replica() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let before = cluster.map(0);
    let (code, _, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("\"n_1\" answers"), "{why}");
    let (_, _, why) = cluster.tool(0, &["failover", "n_7"]);
    assert!(why.contains("there is no node \"n_7\""), "{why}");
    let (_, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert!(why.contains("was not failed over"), "{why}");
    cluster.kill(1);
    // Nothing that all nodes have to do is begun by some.
    let (code, _, why) = run(
        kedge(&["bucket", "create", "late", "-u", USER, "-P", PASSWORD])
            .args(["-U", &format!("http://{}", cluster.nodes[0].mgmt)]),
    );
    assert_eq!(code, Some(1));
    assert!(why.contains("\"n_1\" does not answer"), "{why}");
    let (code, text, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("failed over: 32 vBuckets"), "{text}");
    let after = cluster.map(0);
    assert!(after["rev"].as_i64() > before["rev"].as_i64());
    let servers = after["vBucketServerMap"]["serverList"]
        .as_array()
        .expect("a list");
    assert_eq!(servers.len(), 1);
    let chains = after["vBucketServerMap"]["vBucketMap"]
        .as_array()
        .expect("a map");
    assert!(
        chains
            .iter()
            .all(|chain| *chain == serde_json::json!([0, -1]))
    );
    let mut only = [cluster.connect(0)];
    for n in 0..50 {
        assert_eq!(put(&mut only, &format!("key-{n}"), "x"), 0);
    }
    let (_, _, why) = cluster.tool(0, &["failover", "n_0"]);
    assert!(why.contains("\"n_0\" answers"), "{why}");
    let (_, _, why) = cluster.tool(0, &["failover", "n_0", "--force"]);
    assert!(why.contains("last one"), "{why}");

    // It comes back, and hears that it has nothing before it serves anything.
    let back = cluster.serve(dir.path(), 1);
    cluster.nodes[1].kv = back.kv;
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for n in 0..50 {
        assert_eq!(put(&mut connections, &format!("key-{n}"), "y"), 0);
    }
    let (code, text, why) = cluster.tool(1, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(
        text.contains("back as a replica") && !text.contains("warning"),
        "{text}"
    );
    cluster.wait_status(0, "it is a replica of all", |status| {
        status["buckets"][0]["nodes"][1]["replica"] == 64
            && status["buckets"][0]["missingCopies"] == 0
    });
}

#[test]
fn stopped_active_steps_down_after_a_failover() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    let key = (0..100)
        .map(|n| format!("key-{n}"))
        .find(|key| put(&mut connections, key, "x") == 1)
        .expect("half of the keys");
    cluster.suspend(1);
    cluster.wait_status(0, "it is seen to hang", |status| {
        status["nodes"][1]["up"] == false
    });
    let deadline = Instant::now() + PATIENCE;
    // Refused until node 0 has found out for itself.
    while cluster.tool(0, &["failover", "n_1"]).0 != Some(0) {
        assert!(Instant::now() < deadline, "it is not failed over");
    }
    cluster.signal(1, Signal::CONT);
    cluster.wait_status(0, "it has nothing any more", |status| {
        status["buckets"][0]["nodes"][1]["dead"] == 64
    });
    let refused = connections[1]
        .set(key.as_bytes(), b"y", None)
        .expect_err("not its own");
    assert_eq!(refused.status(), Some(Status::NotMyVbucket));
    connections[0]
        .set(key.as_bytes(), b"y", None)
        .expect("its own");
}

#[test]
fn buckets_and_users_are_replicated_to_all_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3"]);
    let form = [
        ("name", "second"),
        ("ramQuotaMB", "100"),
        ("numVBuckets", "16"),
        ("flushEnabled", "1"),
    ];
    cluster
        .http(1)
        .expect("POST", "/pools/default/buckets", &form)
        .expect("made");
    for node in 0..3 {
        let bucket = cluster.http(node).json("/pools/default/buckets/second");
        let bucket = bucket.expect("it is there");
        assert_eq!(bucket["replicaNumber"], 1, "as the cluster has it");
        assert_eq!(bucket["vBucketServerMap"]["numReplicas"], 1);
    }
    let again = cluster
        .http(2)
        .send("POST", "/pools/default/buckets", &form)
        .expect("an answer");
    assert_eq!(again.code, 400);
    let place = "/pools/default/buckets/second";
    cluster
        .http(2)
        .expect("POST", place, &[("flushEnabled", "0")])
        .expect("changed");
    let more = cluster
        .http(2)
        .send("POST", place, &[("replicaNumber", "4")]);
    assert_eq!(more.expect("an answer").code, 400);
    for node in 0..3 {
        let bucket = cluster.http(node).json(place).expect("it is there");
        assert!(
            bucket.pointer("/controllers/flush").is_none(),
            "node {node}"
        );
    }
    cluster
        .http(0)
        .expect("DELETE", place, &[])
        .expect("dropped");
    for node in 0..3 {
        let gone = cluster
            .http(node)
            .send("GET", place, &[])
            .expect("an answer");
        assert_eq!(gone.code, 404, "node {node}");
    }
    let user = "/settings/rbac/users/local/ada";
    let form = [("password", "lovelace"), ("roles", "admin")];
    cluster.http(2).expect("PUT", user, &form).expect("added");
    for node in &cluster.nodes {
        let ada = ManagementClient::new(
            &node.mgmt.ip().to_string(),
            node.mgmt.port(),
            "ada",
            "lovelace",
        );
        let users = ada.json("/settings/rbac/users").expect("she may log in");
        assert_eq!(
            users.as_array().expect("a list").len(),
            1,
            "neither nodes nor the administrator of the settings are among them"
        );
    }
    cluster
        .http(0)
        .expect("POST", "/pools/default", &[("clusterName", "shop")])
        .expect("renamed");
    for node in 0..3 {
        assert_eq!(cluster.map(node)["clusterName"], "shop");
    }
}
