//! Acknowledged writes of a cluster, and the loss of its nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_types::{DurabilityLevel, Status};
use serde_json::Value;

use crate::cluster::{Cluster, LEVELS, is_even, is_whole, put, put_durably, value_of};
use crate::process::{PASSWORD, PATIENCE, USER, connect_to, kedge, run};

#[test]
fn acknowledged_sync_writes_survive_the_loss_of_a_node_and_its_return() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    for n in 0..300 {
        put_durably(
            &mut connections,
            &format!("durable-{n}"),
            "1",
            LEVELS[n % 3],
        );
    }
    for n in 0..300 {
        put(&mut connections, &format!("plain-{n}"), "1");
    }
    cluster.wait_status(0, "replicas catch up", is_even);
    cluster.kill(1);
    connections.truncate(1);
    let (code, text, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
    for n in 0..300 {
        for kind in ["durable", "plain"] {
            let value = value_of(&mut connections, &format!("{kind}-{n}"));
            assert_eq!(value.as_deref(), Some("1"), "{kind}-{n}");
        }
    }
    // One of two is no majority.
    let refused = connections[0].set(b"durable-0", b"2", Some(LEVELS[0]));
    let refused = refused.expect_err("the other is gone");
    assert_eq!(refused.status(), Some(Status::DurabilityImpossible));
    for n in 0..300 {
        put(&mut connections, &format!("plain-{n}"), "2");
    }
    let back = cluster.serve(dir.path(), 1);
    cluster.nodes[1].kv = back.kv;
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "it catches up", |status| {
        is_whole(status) && status["buckets"][0]["nodes"][1]["replica"] == 64
    });
    put_durably(&mut connections, "durable-0", "2", LEVELS[2]);
    // With its commit: what the other has as a prepare only, it commits when there is a majority again.
    cluster.wait_status(0, "the commit comes", is_even);
    // Now the other way round.
    cluster.kill(0);
    let mut last = [cluster.connect(1)];
    let (code, _, why) = cluster.tool(1, &["failover", "n_0"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(value_of(&mut last, "durable-0").as_deref(), Some("2"));
    for n in 1..300 {
        let durable = value_of(&mut last, &format!("durable-{n}"));
        assert_eq!(durable.as_deref(), Some("1"), "durable-{n}");
        let plain = value_of(&mut last, &format!("plain-{n}"));
        assert_eq!(plain.as_deref(), Some("2"), "plain-{n}");
    }
}

/// Level majority is in memory only. An active that crashes has lost what its replicas have, and must not take them
/// back to what its disk has.
#[test]
fn crashed_active_recovers_lost_writes_from_its_replicas() {
    let dir = tempfile::tempdir().expect("a directory");
    // So late that a crash always takes something.
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--log-interval=1h"]);
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for n in 0..200 {
        put_durably(
            &mut connections,
            &format!("key-{n}"),
            "1",
            DurabilityLevel::Majority,
        );
    }
    cluster.kill(0);
    let server = cluster.serve(dir.path(), 0);
    connections[0] = connect_to(server.kv, PASSWORD).expect("a connection");
    for n in 0..200 {
        let value = value_of(&mut connections, &format!("key-{n}"));
        assert_eq!(value.as_deref(), Some("1"), "key-{n}");
    }
    put_durably(
        &mut connections,
        "key-0",
        "2",
        DurabilityLevel::PersistToMajority,
    );
}

/// A flush of one node must reach its replicas: other nodes rely on their content.
#[test]
fn flush_empties_all_nodes_and_replicas() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for n in 0..100 {
        put_durably(&mut connections, &format!("key-{n}"), "1", LEVELS[n % 3]);
    }
    let place = "/pools/default/buckets/default/controller/doFlush";
    cluster.http(1).expect("POST", place, &[]).expect("flushed");
    for n in 0..100 {
        assert_eq!(
            value_of(&mut connections, &format!("key-{n}")),
            None,
            "key-{n}"
        );
    }
    // In every vBucket: a replica that was rolled back counts for the failover once it has followed its active again.
    for n in 0..300 {
        let level = DurabilityLevel::PersistToMajority;
        put_durably(&mut connections, &format!("after-{n}"), "1", level);
    }
    cluster.wait_status(0, "replicas go with their actives", is_even);
    cluster.kill(1);
    let (code, _, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    for n in 0..100 {
        assert_eq!(
            value_of(&mut connections[..1], &format!("key-{n}")),
            None,
            "key-{n}"
        );
    }
    for n in 0..300 {
        let after = value_of(&mut connections[..1], &format!("after-{n}"));
        assert_eq!(after.as_deref(), Some("1"), "after-{n}");
    }
}

/// A node that lives, and is only not reached by who fails it over, must not have anything acknowledged any more.
#[test]
fn failed_over_live_node_acknowledges_no_more_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let (count, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (count, stop) = (count.clone(), stop.clone());
            let mut connections = [cluster.connect(0), cluster.connect(1)];
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("key-{writer}-{n}");
                    let level = LEVELS[n % 3];
                    let stored = connections
                        .iter_mut()
                        .map(|connection| connection.set(key.as_bytes(), b"1", Some(level)));
                    let mut stored =
                        stored.map(|it| it.map(|_| ()).map_err(|error| error.status()));
                    match stored.find(|it| *it != Err(Some(Status::NotMyVbucket))) {
                        Some(Ok(())) => {
                            acknowledged.push(key);
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        // Ambiguous at the node that goes, impossible at the one that is alone.
                        _ => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    while count.load(Ordering::Relaxed) < 200 {
        assert!(Instant::now() < deadline, "the writers are at work");
        thread::yield_now();
    }
    let (code, _, why) = cluster.tool(0, &["failover", "n_1", "--force"]);
    assert_eq!(code, Some(0), "{why}");
    stop.store(true, Ordering::Relaxed);
    // Of what was acknowledged last the other may have the prepare only, which takes a majority to be committed.
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    let mut left = cluster.connect(0);
    let deadline = Instant::now() + PATIENCE;
    for writer in writers {
        for key in writer.join().expect("writers do not panic") {
            let found = loop {
                match left.get(key.as_bytes()) {
                    Ok(found) => break found,
                    Err(error) => {
                        let open = Some(Status::SyncWriteReCommitInProgress);
                        assert_eq!(error.status(), open, "{key}: {error}");
                        assert!(Instant::now() < deadline, "{key} is not committed");
                    }
                }
            };
            assert_eq!(found.expect("it was acknowledged").value, b"1", "{key}");
        }
    }
}

#[test]
fn three_nodes_serve_a_majority_without_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    for n in 0..100 {
        put_durably(&mut connections, &format!("key-{n}"), "1", LEVELS[n % 3]);
    }
    cluster.kill(2);
    connections.truncate(2);
    let (code, _, why) = cluster.tool(1, &["failover", "n_2"]);
    assert_eq!(code, Some(0), "{why}");
    for n in 0..100 {
        let value = value_of(&mut connections, &format!("key-{n}"));
        assert_eq!(value.as_deref(), Some("1"), "key-{n}");
        put_durably(&mut connections, &format!("key-{n}"), "2", LEVELS[n % 3]);
    }
    cluster.wait_status(0, "replicas catch up", is_even);
    let chains = cluster.map(0);
    let chains = chains["vBucketServerMap"]["vBucketMap"]
        .as_array()
        .expect("a map");
    assert!(chains.iter().all(|chain| chain[2] == -1 || chain[1] == -1));
}

#[test]
fn load_requests_items_from_their_active_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1"]);
    let load = |flags: &[&str]| {
        let url = format!("couchbase://{}/default", cluster.nodes[1].kv);
        let mut command = kedge(&["load", "-U", &url, "-u", USER, "-P", PASSWORD, "--json"]);
        run(command.args(["--num-items=300"]).args(flags))
    };
    // In random order two connections may have the same key, which only one of them can write durably at a time.
    for order in [&["--sequential", "--durability=majority"][..], &[]] {
        let flags = ["--num-threads=7", "--num-cycles=50"];
        let (code, stdout, stderr) = load(&[&flags, order].concat());
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        let report: Value = serde_json::from_str(&stdout).expect("a report");
        let figures = ["populated", "ops", "misses", "errors"].map(|name| report[name].as_u64());
        assert_eq!(
            figures,
            [Some(300), Some(350), Some(0), Some(0)],
            "{report}"
        );
    }
    let (code, _, stderr) = load(&["--num-threads=2", "--num-cycles=1"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("--num-threads"), "{stderr}");
}
