//! Buckets of a cluster of real processes get more and fewer replicas.

use kedge::client::ClientConnection;
use serde_json::Value;

use crate::cluster::{Cluster, LEVELS, is_even, is_whole, put, put_durably, value_of};
use crate::process::{PASSWORD, USER, kedge, run};

/// `kedge bucket edit default --replicas N`.
fn ask(cluster: &Cluster, node: usize, replicas: u8) -> (Option<i32>, String, String) {
    let url = format!("http://{}", cluster.mgmt(node));
    let mut command = kedge(&["bucket", "edit", "default", "--replicas"]);
    command
        .arg(replicas.to_string())
        .args(["-U", &url, "-u", USER, "-P", PASSWORD]);
    run(&mut command)
}

/// Waits until there are as many, and each has what its active has.
fn wait(cluster: &Cluster, node: usize, replicas: u64) {
    cluster.wait_status(node, "the number of replicas changes", |status| {
        let bucket = &status["buckets"][0];
        bucket["replicas"] == replicas && bucket["wantedReplicas"] == replicas && is_whole(status)
    });
}

/// Returns the number of vBuckets of all nodes in a state.
fn count(status: &Value, state: &str) -> u64 {
    let nodes = status["buckets"][0]["nodes"].as_array().expect("nodes");
    nodes.iter().filter_map(|node| node[state].as_u64()).sum()
}

fn write(connections: &mut [ClientConnection], from: usize) {
    for n in from..from + 100 {
        put_durably(connections, &format!("durable-{n}"), "1", LEVELS[n % 3]);
        put(connections, &format!("plain-{n}"), "1");
    }
}

fn check(connections: &mut [ClientConnection], upto: usize) {
    for n in 0..upto {
        for kind in ["durable", "plain"] {
            let value = value_of(connections, &format!("{kind}-{n}"));
            assert_eq!(value.as_deref(), Some("1"), "{kind}-{n}");
        }
    }
}

#[test]
fn replicas_are_added_and_removed_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let more = ["--nodes=3", "--replicas=0", "--apply-max-lag=1s"];
    let mut cluster = Cluster::start(dir.path(), &more);
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    write(&mut connections, 0);
    let (code, _, why) = ask(&cluster, 1, 2);
    assert_eq!(code, Some(0), "{why}");
    write(&mut connections, 100);
    wait(&cluster, 2, 2);
    write(&mut connections, 200);
    cluster.wait_status(0, "replicas catch up", is_even);
    for node in 0..3 {
        assert_eq!(cluster.map(node)["vBucketServerMap"]["numReplicas"], 2);
    }
    let status = cluster.http(0).json("/kedge/cluster/status").expect("one");
    assert_eq!(
        (count(&status, "active"), count(&status, "replica")),
        (64, 128)
    );
    let metrics = cluster.http(0).send("GET", "/metrics", &[]);
    let metrics = String::from_utf8(metrics.expect("an answer").body).expect("text");
    for line in [
        "kedge_cluster_replicas{bucket=\"default\"} 2",
        "kedge_cluster_wanted_replicas{bucket=\"default\"} 2",
        "kedge_cluster_missing_copies{bucket=\"default\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // Each of them is worth a node.
    cluster.kill(2);
    let (code, _, why) = ask(&cluster, 0, 1);
    assert_eq!(code, Some(1));
    assert!(why.contains("\"n_2\" does not answer"), "{why}");
    let (code, text, why) = cluster.tool(0, &["failover", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
    connections.truncate(2);
    check(&mut connections, 300);
    // What is asked for now is done when all are there again.
    let (code, _, why) = ask(&cluster, 0, 1);
    assert_eq!(code, Some(0), "{why}");
    let (_, text, _) = cluster.tool(1, &["status"]);
    assert!(text.contains("with 2 replicas, to be 1;"), "{text}");
    let back = cluster.serve(dir.path(), 2);
    cluster.nodes[2].kv = back.kv;
    let (code, _, why) = cluster.tool(0, &["recover", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    wait(&cluster, 1, 1);
    connections.push(cluster.connect(2));
    write(&mut connections, 300);
    // Copies that went are gone.
    cluster.wait_status(0, "there are no others", |status| {
        let states = ["active", "replica", "pending", "dead"];
        states.map(|state| count(status, state)) == [64, 64, 0, 0]
    });
    cluster.wait_status(0, "replicas catch up", is_even);
    cluster.kill(0);
    let (code, text, why) = cluster.tool(1, &["failover", "n_0"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
    connections.remove(0);
    check(&mut connections, 400);
}

/// The node that was to see to it is gone in the midst of it, and nothing that counted is lost.
#[test]
fn failover_cancels_a_replica_change_that_restarts_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1"]);
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    write(&mut connections, 0);
    cluster.wait_status(0, "replicas catch up", is_even);
    let (code, _, why) = ask(&cluster, 2, 2);
    assert_eq!(code, Some(0), "{why}");
    cluster.kill(0);
    let (code, text, why) = cluster.tool(1, &["failover", "n_0"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
    connections.remove(0);
    check(&mut connections, 100);
    let back = cluster.serve(dir.path(), 0);
    cluster.nodes[0].kv = back.kv;
    let (code, _, why) = cluster.tool(1, &["recover", "n_0"]);
    assert_eq!(code, Some(0), "{why}");
    wait(&cluster, 1, 2);
    connections.push(cluster.connect(0));
    check(&mut connections, 100);
    // All of them are in all places: two may go, one after the other.
    for node in [2, 1] {
        cluster.kill(node);
        connections.remove(node - 1);
        let name = format!("n_{node}");
        // The status of a node that was started by itself is asked through the other port.
        let mut command = kedge(&["cluster", "failover", &name, "--force"]);
        let url = format!("http://{}", back.mgmt);
        command.args(["-U", &url, "-u", USER, "-P", PASSWORD]);
        let (code, _, why) = run(&mut command);
        assert_eq!(code, Some(0), "{why}");
    }
    check(&mut connections, 100);
}
