//! Automatic failover of real processes: lost, stopped, and not failed over.

use std::path::Path;
use std::time::{Duration, Instant};

use kedge::client::{ClientConnection, ClientError};
use kedge_types::{DurabilityLevel, Status};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, serve_node, store_in};
use crate::missing::stop;
use crate::process::{PATIENCE, Server, clean_environment, kedge, run};

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
fn times_of_a_lease_that_do_not_fit_together_are_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let table: [(&[&str], &str); 4] = [
        (
            &["--lease-tolerated-pause=2495ms"],
            "lease_tolerated_pause: a lease of 5s cannot be held",
        ),
        (
            &["--auto-failover-timeout=2s", "--lease-tolerated-pause=1s"],
            "lease_tolerated_pause: a lease of 2s cannot be held",
        ),
        (
            &["--auto-failover-timeout=121s"],
            "auto_failover_timeout: a lease time is 1 s to 120 s, not 121s",
        ),
        (
            &[
                "--auto-failover-timeout=999ms",
                "--lease-tolerated-pause=9s",
            ],
            "auto_failover_timeout: a lease time is 1 s to 120 s, not 999ms",
        ),
    ];
    for (flags, why) in table {
        let mut command = kedge(&["serve", "--kv-port=0", "--mgmt-port=0", "--node-name=n_0"]);
        command
            .args(["--coordinator", &store_in(dir.path()), "--data-dir"])
            .arg(dir.path().join("n_0"))
            .args(flags);
        let (code, _, stderr) = run(&mut command);
        assert_eq!(code, Some(1), "{flags:?}: {stderr}");
        assert!(stderr.contains(why), "{flags:?}: {stderr}");
    }
}

/// A shorter timeout replaced the configured pause of a node, and nobody heard of it.
#[test]
fn pause_that_a_later_timeout_shortens_is_a_warning_in_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.kill(1);
    let mut command = serve_node(dir.path(), 1);
    command.args(["--lease-tolerated-pause", "2s"]);
    let node = Server::spawn(command);
    let node = node.expect("the pause fits 5 s");
    let (code, _, stderr) = cluster.tool(0, &["auto-failover", "--timeout=2s"]);
    assert_eq!(code, Some(0), "{stderr}");
    cluster.wait_status(1, "the lease is shorter", |status| {
        status["coordinator"]["lease"]["timeMs"] == 2_000
    });
    let log = stop(node);
    let warned =
        |line: &&str| line.contains("WARN") && line.contains("lease_tolerated_pause is too long");
    let line = log.lines().find(warned);
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("configured=2s") && line.contains("used=500ms"),
        "{line}"
    );
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
    cluster.suspend(1);
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
    let mut command = serve_node(dir, node);
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
    let _back = Server::spawn(serve_node(dir.path(), 1)).expect("it starts");
    cluster.wait_status(0, "the other one is alone then", |status| {
        is_failed_over(status, 2)
    });
    assert!(store_in(dir.path()).starts_with("embedded:"));
}

/// It comes back with its replicas, and nobody has missed it.
#[test]
fn drained_node_is_not_failed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = cluster(dir.path());
    let (code, _, stderr) = cluster.tool(0, &["drain", "n_1"]);
    assert_eq!(code, Some(0), "{stderr}");
    cluster.kill(1);
    cluster.wait_status(0, "it is down", |status| {
        status["autoFailover"]["refused"] == "no_actives"
    });
    let mut rest = connections(&cluster, &[0, 2]);
    for n in 0..100 {
        put_durably(&mut rest, &key(n), "meanwhile");
    }
    assert!(!is_failed_over(&cluster.status(0), 1));
}

/// Exchanges the directory of the coordination store and a file, so that no node reaches the store, or back.
pub(crate) fn exchange_store(dir: &Path) {
    let (there, away) = (dir.join("coordinator"), dir.join("away"));
    if !away.exists() {
        std::fs::write(&away, "").expect("written");
    }
    // At no moment is there nothing, which would be a store that was lost.
    let exchange = RenameFlags::EXCHANGE;
    renameat_with(CWD, &there, CWD, &away, exchange).expect("exchanged");
}

/// Returns the node that serves each key.
fn owners(all: &mut [ClientConnection], keys: u32) -> Vec<usize> {
    let owner = |n: u32| {
        let gets = all.iter_mut().map(|it| it.get(key(n).as_bytes()).is_ok());
        gets.collect::<Vec<bool>>().iter().position(|ok| *ok)
    };
    (0..keys)
        .map(owner)
        .map(|it| it.expect("a node serves it"))
        .collect()
}

fn serve_by(cluster: &Cluster, nodes: &[usize], by: &'static str) {
    for node in nodes {
        let what = format!("node {node} serves by {by}");
        cluster.wait_status(*node, &what, |status| {
            status["coordinator"]["lease"]["servesBy"] == by
        });
    }
}

fn promised(cluster: &Cluster, node: usize) -> u64 {
    let status = cluster.status(node);
    let promised = status["coordinator"]["lease"]["promised"].as_u64();
    promised.expect("a number")
}

#[test]
fn nodes_serve_by_promises_while_the_store_is_unreachable_for_all() {
    const KEYS: u32 = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    // Long enough for a busy machine: no call may be refused.
    let (code, _, stderr) = cluster.tool(0, &["auto-failover", "--enable", "--timeout=3s"]);
    assert_eq!(code, Some(0), "{stderr}");
    cluster.wait_status(0, "the leases have their time", |status| {
        let nodes = status["nodes"].as_array().into_iter().flatten();
        nodes
            .map(|node| &node["lease"]["timeMs"])
            .all(|ms| *ms == 3_000)
            && status["autoFailover"]["nodes"]
                .as_array()
                .is_some_and(Vec::is_empty)
    });
    let mut all = connections(&cluster, &[0, 1, 2]);
    for n in 0..KEYS {
        put_durably(&mut all, &key(n), "before");
    }
    let owners = owners(&mut all, KEYS);
    exchange_store(dir.path());
    let before: Vec<u64> = (0..3).map(|node| promised(&cluster, node)).collect();
    let began = Instant::now();
    let mut rounds = 0;
    // Several leases long.
    let is_enough = |node: usize| promised(&cluster, node) >= before[node] + 20;
    while began.elapsed() < Duration::from_secs(7) || !(0..3).all(is_enough) {
        assert!(began.elapsed() < PATIENCE, "there are few promises");
        rounds += 1;
        for n in 0..KEYS {
            let connection = &mut all[owners[n as usize]];
            let value = format!("round {rounds}");
            let level = (n % 2 == 0).then_some(DurabilityLevel::Majority);
            let put = connection.set(key(n).as_bytes(), value.as_bytes(), level);
            put.unwrap_or_else(|error| panic!("{} in round {rounds}: {error}", key(n)));
            let got = connection.get(key(n).as_bytes());
            let got = got.unwrap_or_else(|error| panic!("{} in round {rounds}: {error}", key(n)));
            assert_eq!(got.expect("it exists").value, value.as_bytes());
        }
    }
    serve_by(&cluster, &[0, 1, 2], "promises");
    let (code, said, stderr) = cluster.tool(0, &["status"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(said.contains("  promises  "), "{said}");
    exchange_store(dir.path());
    serve_by(&cluster, &[0, 1, 2], "lease");
    let status = cluster.status(0);
    assert!(
        (0..3).all(|node| !is_failed_over(&status, node)),
        "{status}"
    );
    for n in 0..KEYS {
        put_durably(&mut all, &key(n), "after");
    }
}

#[test]
fn nodes_without_the_promise_of_a_lost_node_stop_until_the_store_is_back() {
    const KEYS: u32 = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = cluster(dir.path());
    let mut all = connections(&cluster, &[0, 1, 2]);
    for n in 0..KEYS {
        put_durably(&mut all, &key(n), "before");
    }
    all.remove(1);
    let map = cluster.map(0)["rev"].clone();
    exchange_store(dir.path());
    serve_by(&cluster, &[0, 1, 2], "promises");
    cluster.kill(1);
    serve_by(&cluster, &[0, 2], "none");
    for (n, connection) in (0..KEYS).flat_map(|n| [(n, 0), (n, 1)]) {
        let put = all[connection].set(key(n).as_bytes(), b"lost", None);
        let status = put.expect_err("it does not serve").status();
        assert_eq!(status, Some(Status::NotMyVbucket), "{}", key(n));
    }
    let ready = cluster.http(0).send("GET", "/kedge/ready", &[]);
    let ready = ready.expect("an answer");
    assert_eq!(ready.code, 503);
    assert!(String::from_utf8_lossy(&ready.body).contains("noLease"));
    let (code, _, stderr) = cluster.tool(0, &["status"]);
    assert_eq!(code, Some(1));
    let why = "node \"n_0\" serves nothing, as it has no valid lease";
    assert!(stderr.contains(why), "{stderr}");
    assert_eq!(cluster.map(0)["rev"], map, "nothing is failed over");
    exchange_store(dir.path());
    cluster.wait_status(0, "the lost node is failed over", |status| {
        is_failed_over(status, 1)
    });
    for n in 0..KEYS {
        assert_eq!(value_of(&mut all, &key(n)).as_deref(), Some("before"));
        put_durably(&mut all, &key(n), "after");
    }
}
