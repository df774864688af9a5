//! Automatic failover of real processes: lost, stopped, and not failed over.

use std::path::Path;
use std::time::{Duration, Instant};

use kedge::client::{ClientConnection, ClientError};
use kedge_types::{DurabilityLevel, Status};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, store_in};
use crate::process::{PATIENCE, Server, clean_environment};

/// A cluster of three nodes with two replicas that fails nodes over after a second.
fn cluster(dir: &Path) -> Cluster {
    let cluster = Cluster::start(dir, &["--nodes=3", "--replicas=2"]);
    enable(&cluster, &[]);
    cluster
}

fn enable(cluster: &Cluster, more: &[&str]) {
    let mut words = vec!["auto-failover", "--enable", "--timeout=1s"];
    words.extend(more);
    let (code, said, stderr) = cluster.tool(0, &words);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        said.starts_with("automatic failover: enabled, after 1 s\n"),
        "{said}"
    );
    cluster.wait_status(0, "there is an orchestrator", |status| {
        status["autoFailover"]["enabled"] == true
    });
}

fn is_failed_over(status: &Value, node: usize) -> bool {
    status["nodes"][node]["failedOver"] == true
}

fn connections(cluster: &Cluster, nodes: &[usize]) -> Vec<ClientConnection> {
    nodes.iter().map(|node| cluster.connect(*node)).collect()
}

/// Repeats a call on all nodes until one of them serves the vBucket: the others may not have the map yet.
fn served<T>(
    connections: &mut [ClientConnection],
    key: &str,
    call: impl Fn(&mut ClientConnection) -> Result<T, ClientError>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for connection in &mut *connections {
            match call(connection) {
                Ok(done) => return done,
                Err(error) => {
                    let waits = [
                        Status::NotMyVbucket,
                        Status::SyncWriteReCommitInProgress,
                        Status::SyncWriteInProgress,
                    ];
                    let is_known = error.status().is_some_and(|it| waits.contains(&it));
                    assert!(is_known, "{key}: {error}");
                }
            }
        }
        std::thread::yield_now();
    }
    panic!("no node serves {key}");
}

fn put_durably(connections: &mut [ClientConnection], key: &str, value: &str) {
    let level = Some(DurabilityLevel::Majority);
    served(connections, key, |connection| {
        connection
            .set(key.as_bytes(), value.as_bytes(), level)
            .map(drop)
    });
}

fn value_of(connections: &mut [ClientConnection], key: &str) -> Option<String> {
    let found = served(connections, key, |connection| {
        connection.get(key.as_bytes())
    });
    found.map(|it| String::from_utf8(it.value).expect("text"))
}

fn key(n: u32) -> String {
    format!("key-{n}")
}

#[test]
fn killed_nodes_are_failed_over_up_to_the_maximum_without_lost_sync_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = cluster(dir.path());
    let mut all = connections(&cluster, &[0, 1, 2]);
    for n in 0..200 {
        put_durably(&mut all, &key(n), "before");
    }
    drop(all);
    cluster.kill(1);
    cluster.wait_status(0, "the lost node is failed over", |status| {
        is_failed_over(status, 1) && status["buckets"][0]["withoutActive"] == 0
    });
    let mut rest = connections(&cluster, &[0, 2]);
    for n in 0..200 {
        assert_eq!(value_of(&mut rest, &key(n)).as_deref(), Some("before"));
        put_durably(&mut rest, &key(n), "after");
    }
    drop(rest);
    // The other one may be the orchestrator, and then the first takes the office.
    cluster.kill(2);
    let refused = |reason: &'static str| {
        move |status: &Value| {
            let decision = &status["autoFailover"];
            decision["refused"] == reason && decision["nodes"][0] == "n_2"
        }
    };
    cluster.wait_status(
        0,
        "the count has reached the maximum",
        refused("maximum_reached"),
    );
    let (code, said, stderr) = cluster.tool(0, &["status"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        stderr.contains("not failed over: n_2: the count of failovers has reached"),
        "{stderr}"
    );
    let (code, said, stderr) = cluster.tool(0, &["auto-failover", "--reset-count"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(said.contains("count: 0 of 1\n"), "{said}");
    // The chains had three nodes, and one is left.
    cluster.wait_status(0, "a majority of each chain is gone", refused("would_lose"));
    assert!(!is_failed_over(
        &cluster
            .http(0)
            .json("/kedge/cluster/status")
            .expect("a status"),
        2
    ));
    let metrics = cluster
        .http(0)
        .send("GET", "/metrics", &[])
        .expect("an answer");
    let metrics = String::from_utf8(metrics.body).expect("text");
    let line = "kedge_cluster_auto_failover_refused{reason=\"would_lose\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

/// A stopped node holds its connections, and knows nothing of what happens when it goes on.
#[test]
fn stopped_node_answers_nothing_after_it_was_failed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = cluster(dir.path());
    let mut all = connections(&cluster, &[0, 1, 2]);
    for n in 0..100 {
        put_durably(&mut all, &key(n), "before");
    }
    let mut stopped = all.remove(1);
    cluster.signal(1, Signal::STOP);
    cluster.wait_status(0, "the stopped node is failed over", |status| {
        is_failed_over(status, 1)
    });
    for n in 0..100 {
        assert_eq!(value_of(&mut all, &key(n)).as_deref(), Some("before"));
        put_durably(&mut all, &key(n), "after");
    }
    cluster.signal(1, Signal::CONT);
    for n in 0..100 {
        match stopped.get(key(n).as_bytes()) {
            Ok(found) => panic!("a stale read of {}: {found:?}", key(n)),
            Err(error) if error.status() == Some(Status::NotMyVbucket) => {}
            // It was ended.
            Err(_) => break,
        }
        match stopped.set(key(n).as_bytes(), b"lost", None) {
            Ok(_) => panic!("{} was acknowledged, and is lost", key(n)),
            Err(error) if error.status() == Some(Status::NotMyVbucket) => {}
            Err(_) => break,
        }
    }
    for n in 0..100 {
        assert_eq!(value_of(&mut all, &key(n)).as_deref(), Some("after"));
    }
}

/// Starts a node of the cluster again, in another server group.
fn serve_in_group(cluster: &Cluster, dir: &Path, node: usize, group: &str) -> Server {
    cluster.signal(node, Signal::TERM);
    let mut command = crate::cluster::serve_node(dir, node);
    clean_environment(&mut command).args(["--server-group", group]);
    Server::spawn(command).expect("the node starts")
}

#[test]
fn nodes_of_two_server_groups_are_not_failed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let mut servers = vec![
        serve_in_group(&cluster, dir.path(), 1, "rack 1"),
        serve_in_group(&cluster, dir.path(), 2, "rack 2"),
    ];
    cluster.wait_status(0, "all nodes are up", |status| {
        status["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.iter().all(|node| node["up"] == true))
    });
    enable(&cluster, &["--max-count=5"]);
    // Each was seen to renew its lease.
    cluster.wait_status(0, "all nodes have leases", |status| {
        status["autoFailover"]["nodes"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    for server in &servers {
        server.signal(Signal::KILL);
    }
    let what = "nodes of two groups are down";
    cluster.wait_status(0, what, |status| {
        status["autoFailover"]["refused"] == "several_groups"
    });
    let status = cluster
        .http(0)
        .json("/kedge/cluster/status")
        .expect("a status");
    assert!(!is_failed_over(&status, 1) && !is_failed_over(&status, 2));
    servers.remove(0);
    let _back = Server::spawn(crate::cluster::serve_node(dir.path(), 1)).expect("it starts");
    cluster.wait_status(0, "the other one is alone then", |status| {
        is_failed_over(status, 2)
    });
    assert!(store_in(dir.path()).starts_with("embedded:"));
}

/// A node that is stopped for less than its lease, again and again.
#[test]
fn node_that_stalls_again_and_again_is_failed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = cluster(dir.path());
    for _ in 0..60 {
        cluster.signal(1, Signal::STOP);
        // sleep: most of its lease, whose end would be another reason.
        std::thread::sleep(Duration::from_millis(800));
        cluster.signal(1, Signal::CONT);
        let status = cluster
            .http(0)
            .json("/kedge/cluster/status")
            .expect("a status");
        if is_failed_over(&status, 1) {
            return;
        }
        // sleep: less than the time after which it counts as recovered.
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("it is still a member");
}
