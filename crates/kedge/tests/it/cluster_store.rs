//! The coordination store of a cluster of real processes: changes at the same moment, nodes that come and go, a restored
//! backup.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;

use kedge_types::DurabilityLevel;
use serde_json::Value;

use crate::cluster::{Cluster, at_two_nodes, put_durably, store_in};
use crate::process::{PASSWORD, Server, USER, kedge, run};

/// Returns the command that starts another node with the store of a cluster in a directory.
pub(crate) fn another(dir: &Path, name: &str, data: &Path) -> Command {
    another_with(dir, name, data, PASSWORD)
}

/// The same, with another password of the administrator.
pub(crate) fn another_with(dir: &Path, name: &str, data: &Path, password: &str) -> Command {
    let mut command = kedge(&[
        "serve",
        "--kv-port=0",
        "--mgmt-port=0",
        "--memcached-enabled",
    ]);
    command
        .args(["--memcached-port=0", "--user", USER, "--password", password])
        .args(["--coordinator", &store_in(dir), "--node-name", name])
        .arg("--data-dir")
        .arg(data);
    command
}

fn create_bucket(mgmt: SocketAddr, name: &str) -> (Option<i32>, String, String) {
    let url = format!("http://{mgmt}");
    let mut command = kedge(&["bucket", "create", name, "--vbuckets=8", "-U", &url]);
    run(command.args(["-u", USER, "-P", PASSWORD]))
}

#[test]
fn changes_by_two_nodes_at_the_same_moment_are_both_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let names: Vec<String> = (0..8).map(|n| format!("bucket-{n}")).collect();
    let nodes = [cluster.mgmt(0), cluster.mgmt(1)];
    at_two_nodes(nodes, &names, |mgmt, name| {
        let (code, _, why) = create_bucket(*mgmt, name);
        assert_eq!(code, Some(0), "{name}: {why}");
    });
    for node in 0..2 {
        let listed = cluster.http(node).json("/pools/default/buckets");
        let listed = listed.expect("a list").to_string();
        for name in &names {
            assert!(listed.contains(name), "node {node} has no {name}: {listed}");
        }
    }
}

#[test]
fn node_waits_until_it_is_added_and_leaves_when_it_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let (code, _, why) = cluster.tool(0, &["add", "n_2"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("no node waits under the name"), "{why}");
    let data = dir.path().join("n_2");
    let command = another(dir.path(), "n_2", &data);
    let server = thread::scope(|scope| {
        let starting = scope.spawn(move || Server::spawn(command));
        while cluster.tool(1, &["add", "n_2"]).0 != Some(0) {
            assert!(!starting.is_finished(), "it waits");
        }
        let server = starting.join().expect("no panic");
        server.expect("it is ready once it is a member")
    });
    cluster.wait_status(0, "it is a member", |status| {
        status["nodes"][2]["name"] == "n_2" && status["nodes"][2]["applied"] == status["revision"]
    });
    // A new bucket is spread over it, too.
    let (code, _, why) = create_bucket(cluster.mgmt(0), "wide");
    assert_eq!(code, Some(0), "{why}");
    let (code, _, why) = cluster.tool(0, &["remove", "n_2"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("it has copies of"), "{why}");
    let place = "/pools/default/buckets/wide";
    let dropped = cluster.http(1).expect("DELETE", place, &[]);
    dropped.expect("dropped");
    let (code, text, why) = cluster.tool(0, &["remove", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("is removed"), "{text}");
    cluster.wait_status(1, "it is gone", |status| {
        status["nodes"].as_array().expect("nodes").len() == 2
    });
    let (code, _, why) = cluster.tool(1, &["add", "n_2"]);
    assert_eq!(code, Some(0), "it waits again: {why}");
    drop(server);
}

#[test]
fn node_under_a_taken_name_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let other = dir.path().join("other");
    let (code, _, why) = run(&mut another(dir.path(), "n_1", &other));
    assert_eq!(code, Some(1));
    assert!(
        why.contains("another process runs as node \"n_1\""),
        "{why}"
    );
    // That of another cluster.
    let foreign = tempfile::tempdir().expect("a directory");
    drop(Cluster::start(foreign.path(), &["--nodes=2"]));
    let data = foreign.path().join("n_1");
    let (code, _, why) = run(&mut another(dir.path(), "n_1", &data));
    assert_eq!(code, Some(1));
    assert!(why.contains("this node belongs to"), "{why}");
    assert_eq!(cluster.stop(), Some(0));
}

#[test]
fn restored_store_gets_the_newest_map_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let store = dir.path().join("coordinator");
    let (backup, away) = (dir.path().join("backup"), dir.path().join("away"));
    std::fs::create_dir(&backup).expect("a directory");
    for file in std::fs::read_dir(&store).expect("a directory") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), backup.join(file.file_name())).expect("a copy");
    }
    for name in ["shop", "warehouse"] {
        let form = [("clusterName", name)];
        let renamed = cluster.http(0).expect("POST", "/pools/default", &form);
        renamed.expect("renamed");
    }
    let before = cluster.map(1)["rev"].as_i64();
    std::fs::rename(&store, away).expect("moved away");
    std::fs::rename(&backup, &store).expect("restored");
    // The first node that notices puts the newest map back. The other may see the store only after that.
    let has_noticed = |status: &Value| status["coordinator"]["wentBackwards"] == true;
    cluster.wait_status(0, "it is noticed", |status| {
        has_noticed(status) || has_noticed(&cluster.status(1))
    });
    for node in 0..2 {
        cluster.wait_status(node, "it is over", |status| {
            status["coordinator"]["trouble"].is_null()
        });
    }
    // The next change is based on the newest map.
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    put_durably(&mut connections, "key", "1", DurabilityLevel::Majority);
    let (code, _, why) = create_bucket(cluster.mgmt(1), "later");
    assert_eq!(code, Some(0), "{why}");
    for node in 0..2 {
        let map = cluster.map(node);
        assert_eq!(map["clusterName"], "warehouse", "node {node}");
        assert!(map["rev"].as_i64() > before, "node {node}");
    }
}
