//! Nodes of a cluster of real processes that come back with empty disks: whatever dies before they have caught up, nothing
//! that was acknowledged is lost without a word.

use std::path::Path;

use kedge::client::ClientConnection;
use kedge_types::Status;

use crate::cluster::{Cluster, LEVELS, is_applied, is_even, is_whole, put, put_durably, value_of};
use crate::process::Server;

const DOCUMENTS: usize = 300;

fn key(n: usize) -> String {
    format!("durable-{n}")
}

fn write(connections: &mut [ClientConnection], value: &str) {
    for n in 0..DOCUMENTS {
        put_durably(connections, &key(n), value, LEVELS[n % 3]);
    }
}

fn check(connections: &mut [ClientConnection], value: &str) {
    for n in 0..DOCUMENTS {
        let found = value_of(connections, &key(n));
        assert_eq!(found.as_deref(), Some(value), "{}", key(n));
    }
}

fn fail_over(cluster: &Cluster, by: usize, node: usize) {
    let (code, text, why) = cluster.tool(by, &["failover", &format!("n_{node}")]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
}

/// Starts a node that was killed, with nothing on its disk but who may log in.
fn start_empty(cluster: &mut Cluster, dir: &Path, node: usize) -> Server {
    let its = dir.join(format!("n_{node}"));
    let users = std::fs::read(its.join("users.json")).expect("users");
    std::fs::remove_dir_all(&its).expect("it is there");
    std::fs::create_dir(&its).expect("a directory");
    std::fs::write(its.join("users.json"), users).expect("written");
    start(cluster, dir, node)
}

fn start(cluster: &mut Cluster, dir: &Path, node: usize) -> Server {
    let server = cluster.serve(dir, node);
    cluster.nodes[node].kv = server.kv;
    server
}

fn recover(cluster: &Cluster, by: usize, node: usize) {
    let (code, _, why) = cluster.tool(by, &["recover", &format!("n_{node}")]);
    assert_eq!(code, Some(0), "{why}");
}

/// Waits until a node has joined all vBuckets. Without [`is_applied`], SyncWrites that followed at once could fail with
/// `DurabilityImpossible`, and changes by another node with "another change was made at the same time".
fn wait_joined(cluster: &Cluster, by: usize, node: usize) {
    cluster.wait_status(by, "it catches up", |status| {
        let of_bucket = &status["buckets"][0]["nodes"][node];
        let has_caught_up = of_bucket["catchingUp"] == 0 && of_bucket["replica"] == 64;
        has_caught_up && is_even(status) && is_applied(status)
    });
}

/// The node counted at once: when the active died then, the failover promoted its empty copy, and nobody was told.
#[test]
fn failover_to_a_joining_replica_reports_losses() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    let value = "x".repeat(20_000);
    write(&mut connections, &value);
    cluster.kill(1);
    fail_over(&cluster, 0, 1);
    let _back = start_empty(&mut cluster, dir.path(), 1);
    recover(&cluster, 0, 1);
    cluster.kill(0);
    let (code, text, why) = cluster.tool(1, &["failover", "n_0"]);
    if code == Some(0) {
        // It was fast.
        assert!(!text.contains("warning"), "{text}");
        check(&mut [cluster.connect(1)], &value);
        return;
    }
    assert!(why.contains("no copy would be left"), "{why}");
    let _again = start(&mut cluster, dir.path(), 0);
    wait_joined(&cluster, 1, 1);
    check(&mut [cluster.connect(0), cluster.connect(1)], &value);
}

#[test]
fn full_recovery_gets_all_data_from_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    write(&mut [cluster.connect(0), cluster.connect(1)], "1");
    cluster.kill(1);
    for (words, discards) in [
        (&["recover", "n_1"][..], false),
        (&["recover", "n_1", "--full"], true),
    ] {
        fail_over(&cluster, 0, 1);
        let back = start(&mut cluster, dir.path(), 1);
        let (code, _, why) = cluster.tool(0, words);
        assert_eq!(code, Some(0), "{why}");
        wait_joined(&cluster, 0, 1);
        check(&mut [cluster.connect(0), cluster.connect(1)], "1");
        let all = cluster.connect(1).stat("").expect("statistics");
        let received = all.iter().find(|(name, _)| name == "ep_dcp_received_items");
        let received: usize = received.expect("it is there").1.parse().expect("a number");
        assert_eq!(received >= DOCUMENTS, discards, "{words:?}: {received}");
        back.kill();
    }
}

/// A forced failover can continue with the data that the node had received.
#[test]
fn forced_failover_promotes_a_node_that_has_not_caught_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    write(&mut connections, "1");
    cluster.kill(1);
    fail_over(&cluster, 0, 1);
    let _back = start_empty(&mut cluster, dir.path(), 1);
    recover(&cluster, 0, 1);
    cluster.kill(0);
    let (code, text, why) = cluster.tool(1, &["failover", "n_0", "--force"]);
    assert_eq!(code, Some(0), "{why}");
    let status = cluster.http(1).json("/kedge/cluster/status").expect("one");
    if status["buckets"][0]["withoutActive"] != 0 {
        assert!(text.contains("warning: no copy would be left"), "{text}");
        recover(&cluster, 1, 1);
    }
    cluster.wait_status(1, "it leads all", |status| {
        status["buckets"][0]["nodes"][1]["active"] == 64
    });
    put(&mut [cluster.connect(1)], "after", "1");
}

#[test]
fn joining_node_does_not_count_for_sync_writes_and_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    write(&mut connections, "1");
    cluster.kill(1);
    connections.truncate(1);
    fail_over(&cluster, 0, 1);
    let _back = start_empty(&mut cluster, dir.path(), 1);
    recover(&cluster, 1, 1);
    // Until it counts, one of two is no majority.
    let mut refused = 0;
    while let Err(error) = connections[0].set(b"durable-0", b"2", Some(LEVELS[0])) {
        assert_eq!(
            error.status(),
            Some(Status::DurabilityImpossible),
            "{error}"
        );
        let (_, text, _) = cluster.tool(0, &["status"]);
        assert!(text.contains("CATCHING UP"), "{text}");
        refused += 1;
        assert!(refused < 10_000, "it does not catch up: {text}");
    }
    cluster.wait_status(0, "all count", is_whole);
    let status = cluster.http(0).json("/kedge/cluster/status").expect("one");
    assert_eq!(status["buckets"][0]["nodes"][1]["catchingUp"], 0);
    // It leads again what it led.
    let (code, text, why) = cluster.tool(0, &["balance"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("32 vBuckets have moved"), "{text}");
}

/// Recovery needs neither all nodes nor the one that saw to it first.
#[test]
fn nodes_rejoin_while_others_are_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    write(&mut connections, "1");
    cluster.wait_status(0, "replicas catch up", is_even);
    for node in [2, 1] {
        cluster.kill(node);
        connections.truncate(node);
        fail_over(&cluster, 0, node);
    }
    // One that is back makes a majority of three.
    let mut back = vec![start_empty(&mut cluster, dir.path(), 2)];
    recover(&cluster, 0, 2);
    wait_joined(&cluster, 0, 2);
    write(&mut connections, "2");
    // The next one has not caught up when the node is lost that led all, and saw to it.
    back.push(start_empty(&mut cluster, dir.path(), 1));
    recover(&cluster, 2, 1);
    cluster.kill(0);
    fail_over(&cluster, 2, 0);
    wait_joined(&cluster, 2, 1);
    let mut connections = vec![cluster.connect(1), cluster.connect(2)];
    check(&mut connections, "2");
    write(&mut connections, "3");
    back.push(start_empty(&mut cluster, dir.path(), 0));
    recover(&cluster, 1, 0);
    cluster.wait_status(1, "all are there", is_whole);
    check(&mut connections, "3");
    back.remove(0).kill();
    fail_over(&cluster, 1, 2);
    check(&mut [cluster.connect(0), cluster.connect(1)], "3");
}
