//! Rebalances of clusters of real processes: nodes come and go under load, and the operation is stopped, loses the orchestrator,
//! which executes it, or a node that gets copies.

use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_types::Status;
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, LEVELS, is_whole, suspend, value_of};
use crate::cluster_store::another;
use crate::process::{PASSWORD, PATIENCE, Server, connect_to};

/// Starts another node, and makes it a member.
fn add(cluster: &Cluster, dir: &Path, name: &str) -> Server {
    let command = another(dir, name, &dir.join(name));
    thread::scope(|scope| {
        let starting = scope.spawn(move || Server::spawn(command));
        while cluster.tool(0, &["add", name]).0 != Some(0) {
            assert!(!starting.is_finished(), "it waits");
        }
        let server = starting.join().expect("no panic");
        server.expect("it is ready once it is a member")
    })
}

/// Writes documents durably, one after the other, as an SDK does: a vBucket that no node has for a moment is retried.
struct Load<'a> {
    nodes: &'a Mutex<Vec<SocketAddr>>,
    written: &'a AtomicUsize,
    ends: &'a AtomicBool,
}

impl Load<'_> {
    fn run(&self) {
        while !self.ends.load(Ordering::SeqCst) {
            let number = self.written.load(Ordering::SeqCst);
            self.write(number);
            self.written.store(number + 1, Ordering::SeqCst);
        }
    }

    fn write(&self, number: usize) {
        let key = format!("durable-{number}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let nodes = self.nodes.lock().expect("no panic").clone();
            for address in nodes {
                let Ok(mut connection) = connect_to(address, PASSWORD) else {
                    continue;
                };
                let level = LEVELS[number % 3];
                match connection.set(key.as_bytes(), b"1", Some(level)) {
                    Ok(_) => return,
                    Err(error) => match error.status() {
                        // It moves, or the node is gone: an ambiguous result is repeated.
                        Some(
                            Status::NotMyVbucket
                            | Status::SyncWriteInProgress
                            | Status::SyncWriteAmbiguous
                            | Status::TemporaryFailure
                            | Status::NoBucket,
                        )
                        | None => {}
                        Some(status) => panic!("{key}: {status:?}"),
                    },
                }
            }
            assert!(Instant::now() < deadline, "no node takes {key}");
        }
    }
}

/// Runs `work` under load, with the addresses of the nodes to which clients write. Returns the number of written documents.
fn under_load(nodes: &Mutex<Vec<SocketAddr>>, work: impl FnOnce()) -> usize {
    let (written, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = Load {
        nodes,
        written: &written,
        ends: &ends,
    };
    let worked = thread::scope(|scope| {
        let writer = scope.spawn(|| load.run());
        let worked = panic::catch_unwind(AssertUnwindSafe(work));
        // Also when it failed: the scope waits for the writer.
        ends.store(true, Ordering::SeqCst);
        writer.join().expect("no write failed");
        worked
    });
    if let Err(failure) = worked {
        panic::resume_unwind(failure);
    }
    written.into_inner()
}

fn check(nodes: &Mutex<Vec<SocketAddr>>, written: usize) {
    let nodes = nodes.lock().expect("no panic").clone();
    let connect = |address: &SocketAddr| connect_to(*address, PASSWORD).expect("a connection");
    let mut connections: Vec<ClientConnection> = nodes.iter().map(connect).collect();
    for number in 0..written {
        let value = value_of(&mut connections, &format!("durable-{number}"));
        assert_eq!(
            value.as_deref(),
            Some("1"),
            "of {written}: durable-{number}"
        );
    }
}

/// Returns the numbers of active and replica vBuckets of each node.
pub(crate) fn counts(status: &Value) -> Vec<(u64, u64)> {
    let nodes = status["buckets"][0]["nodes"].as_array().expect("nodes");
    let count = |node: &Value, state: &str| node[state].as_u64().unwrap_or(0);
    nodes
        .iter()
        .map(|node| (count(node, "active"), count(node, "replica")))
        .collect()
}

fn wait_rebalance(cluster: &Cluster, node: usize, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = cluster
            .http(node)
            .json("/kedge/cluster/rebalance")
            .expect("a state");
        if status["state"] == state {
            return status;
        }
        assert!(Instant::now() < deadline, "{state}: {status}");
        thread::yield_now();
    }
}

/// Returns one of the first three nodes that is the orchestrator, which executes operations, and the two others.
fn orchestrator(cluster: &Cluster) -> [usize; 3] {
    cluster.wait_status(0, "there is an orchestrator", |status| {
        status["orchestrator"].is_string()
    });
    let status = cluster.status(0);
    let names = ["n_0", "n_1", "n_2"];
    let found = names
        .iter()
        .position(|name| status["orchestrator"] == **name);
    let found = found.unwrap_or_else(|| panic!("{status}"));
    [found, (found + 1) % 3, (found + 2) % 3]
}

fn name(node: usize) -> String {
    format!("n_{node}")
}

#[test]
fn nodes_come_and_go_under_load_without_lost_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1"]);
    let nodes: Vec<SocketAddr> = cluster.nodes.iter().map(|node| node.kv).collect();
    let nodes = Mutex::new(nodes);
    let [leaves, stays, _] = orchestrator(&cluster);
    let mut added = None;
    let written = under_load(&nodes, || {
        let server = add(&cluster, dir.path(), "n_3");
        nodes.lock().expect("no panic").push(server.kv);
        added = Some(server);
        let (code, text, why) = cluster.tool(1, &["rebalance", "--wait"]);
        assert_eq!(code, Some(0), "{why}");
        assert!(text.contains("32 of 32 copies"), "{text}");
        cluster.wait_status(2, "all nodes have their share", |status| {
            is_whole(status) && counts(status) == [(16, 16); 4]
        });
        // The node that executes it leaves, too.
        let leaves = name(leaves);
        let (code, text, why) = cluster.tool(stays, &["rebalance", "--remove", &leaves, "--wait"]);
        assert_eq!(code, Some(0), "{why}");
        assert!(text.contains("finished: 100 %"), "{text}");
        cluster.wait_status(stays, "the others have its share", |status| {
            let all = status["nodes"].as_array().expect("nodes");
            let even = counts(status).iter().all(|it| (21..=22).contains(&it.0));
            all.len() == 3 && is_whole(status) && even
        });
        cluster.wait_status(stays, "another node has the office", |status| {
            let holder = status["orchestrator"].as_str();
            holder.is_some_and(|holder| holder != leaves)
        });
    });
    nodes.lock().expect("no panic").remove(leaves);
    assert!(written > 0);
    check(&nodes, written);
    let (code, text, _) = cluster.tool(stays, &["rebalance", "--status"]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("finished: 100 %"), "{text}");
    drop(added);
}

#[test]
fn stopped_rebalance_is_resumed_by_the_original_rest() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1"]);
    let server = add(&cluster, dir.path(), "n_2");
    let nodes = vec![cluster.nodes[0].kv, cluster.nodes[1].kv, server.kv];
    let nodes = Mutex::new(nodes);
    let written = under_load(&nodes, || {
        let (code, _, why) = cluster.tool(0, &["rebalance"]);
        assert_eq!(code, Some(0), "{why}");
        let (code, _, why) = cluster.tool(1, &["rebalance"]);
        assert_eq!(code, Some(1));
        assert!(why.contains("a rebalance is running"), "{why}");
        let stopped = cluster
            .http(1)
            .expect("POST", "/controller/stopRebalance", &[]);
        stopped.expect("stopped");
        let status = wait_rebalance(&cluster, 0, "stopped");
        assert!(
            status["copiesDone"].as_u64() < status["copies"].as_u64(),
            "{status}"
        );
        let pool = cluster.http(0).json("/pools/default").expect("a pool");
        let names = pool["nodes"].as_array().expect("nodes").iter();
        let names: Vec<&str> = names.filter_map(|node| node["otpNode"].as_str()).collect();
        let known = names.join(",");
        let form = [("knownNodes", known.as_str()), ("ejectedNodes", "")];
        let begun = cluster
            .http(0)
            .expect("POST", "/controller/rebalance", &form);
        begun.expect("resumed");
        wait_rebalance(&cluster, 1, "finished");
    });
    let progress = cluster.http(1).json("/pools/default/rebalanceProgress");
    assert_eq!(
        progress.expect("an answer"),
        serde_json::json!({ "status": "none" })
    );
    let tasks = cluster.http(1).json("/pools/default/tasks").expect("tasks");
    assert_eq!(tasks[0]["status"], "notRunning");
    cluster.wait_status(0, "all copies count", is_whole);
    let (code, text, why) = cluster.tool(0, &["rebalance", "--moves-per-node", "16"]);
    assert_eq!((code, &*text), (Some(0), "moves per node: 16\n"), "{why}");
    let settings = cluster.http(1).json("/settings/rebalance");
    assert_eq!(
        settings.expect("an answer"),
        serde_json::json!({ "rebalanceMovesPerNode": 16 })
    );
    let (_, text, _) = cluster.tool(1, &["rebalance", "--status"]);
    assert!(text.ends_with("\nmoves per node: 16\n"), "{text}");
    check(&nodes, written);
}

#[test]
fn another_node_continues_when_the_orchestrator_is_failed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let server = add(&cluster, dir.path(), "n_3");
    let nodes = cluster.nodes.iter().map(|node| node.kv).chain([server.kv]);
    let nodes = Mutex::new(nodes.collect::<Vec<_>>());
    let [lost, other, third] = orchestrator(&cluster);
    let written = under_load(&nodes, || {
        let (code, _, why) = cluster.tool(other, &["rebalance"]);
        assert_eq!(code, Some(0), "{why}");
        let begun = cluster.http(other).json("/kedge/cluster/rebalance");
        let begun = begun.expect("a state");
        cluster.kill(lost);
        let (code, _, why) = cluster.tool(other, &["failover", &name(lost)]);
        assert_eq!(code, Some(0), "{why}");
        let status = wait_rebalance(&cluster, third, "finished");
        assert_eq!(status["id"], begun["id"], "it is the same one");
        cluster.wait_status(third, "the others have all", |status| {
            let of_lost = &status["buckets"][0]["nodes"][lost];
            is_whole(status) && of_lost.get("active").is_none()
        });
        // It has nothing any more.
        let (code, _, why) = cluster.tool(other, &["remove", &name(lost)]);
        assert_eq!(code, Some(0), "{why}");
    });
    nodes.lock().expect("no panic").remove(lost);
    check(&nodes, written);
}

/// The first member that was not failed over executed the steps, and one that was dead stopped all of them.
#[test]
fn another_node_continues_when_the_orchestrator_is_dead_and_a_member() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let [dead, back, other] = orchestrator(&cluster);
    cluster.kill(back);
    let (code, _, why) = cluster.tool(other, &["failover", &name(back)]);
    assert_eq!(code, Some(0), "{why}");
    let _server = cluster.serve(dir.path(), back);
    cluster.kill(dead);
    let recovered = cluster.tool(other, &["recover", &name(back)]);
    assert_eq!(recovered.0, Some(0), "{}", recovered.2);
    cluster.wait_status(other, "its copies count where the active lives", |status| {
        let of_node = |node: usize| &status["buckets"][0]["nodes"][node];
        let led_by_dead = 64 - of_node(other)["active"].as_u64().unwrap_or(64);
        let holder = status["orchestrator"].as_str();
        holder.is_some_and(|holder| holder != name(dead))
            && status["nodes"][dead]["failedOver"] == false
            && of_node(back)["catchingUp"].as_u64() == Some(led_by_dead)
            && (1..64).contains(&led_by_dead)
    });
}

#[test]
fn rebalance_goes_on_when_a_node_that_gets_copies_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1"]);
    let server = add(&cluster, dir.path(), "n_2");
    let nodes = Mutex::new(vec![cluster.nodes[0].kv, cluster.nodes[1].kv, server.kv]);
    let written = under_load(&nodes, || {
        let (code, _, why) = cluster.tool(0, &["rebalance"]);
        assert_eq!(code, Some(0), "{why}");
        server.kill();
        let (code, _, why) = cluster.tool(0, &["failover", "n_2"]);
        assert_eq!(code, Some(0), "{why}");
        wait_rebalance(&cluster, 0, "finished");
        cluster.wait_status(1, "the others have all", is_whole);
        let (code, _, why) = cluster.tool(0, &["rebalance", "--wait"]);
        assert_eq!(code, Some(1));
        assert!(why.contains("node \"n_2\" is failed over"), "{why}");
        let (code, _, why) = cluster.tool(0, &["rebalance", "--remove", "n_2", "--wait"]);
        assert_eq!(code, Some(0), "{why}");
    });
    nodes.lock().expect("no panic").truncate(2);
    check(&nodes, written);
}

#[test]
fn nodes_restart_one_after_the_other_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let nodes = Mutex::new(cluster.nodes.iter().map(|node| node.kv).collect());
    let mut servers = Vec::new();
    let written = under_load(&nodes, || {
        for node in 0..3 {
            let name = format!("n_{node}");
            let (code, text, why) = cluster.tool(node, &["drain", &name]);
            assert_eq!(code, Some(0), "{why}");
            assert!(text.contains("finished: 100 %"), "{text}");
            assert_eq!(counts(&cluster.status(0))[node], (0, 64));
            cluster.signal(node, Signal::TERM);
            servers.push(cluster.serve(dir.path(), node));
            let (code, text, why) = cluster.tool((node + 1) % 3, &["balance"]);
            assert_eq!(code, Some(0), "{why}");
            assert!(text.contains("21 vBuckets have moved"), "{text}");
        }
        cluster.wait_status(0, "all have their share", |status| {
            is_whole(status) && counts(status).iter().all(|it| (21..=22).contains(&it.0))
        });
    });
    assert!(written > 0);
    check(&nodes, written);
}

#[test]
fn drain_goes_on_when_the_orchestrator_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let nodes = Mutex::new(cluster.nodes.iter().map(|node| node.kv).collect::<Vec<_>>());
    let [lost, other, drained] = orchestrator(&cluster);
    let written = under_load(&nodes, || {
        let drained_name = name(drained);
        let form = [("node", drained_name.as_str())];
        let begun = cluster
            .http(other)
            .expect("POST", "/kedge/cluster/drain", &form);
        begun.expect("it begins");
        cluster.kill(lost);
        let (code, _, why) = cluster.tool(other, &["failover", &name(lost)]);
        assert_eq!(code, Some(0), "{why}");
        let status = wait_rebalance(&cluster, other, "finished");
        assert_eq!(status["kind"], "drain");
        assert_eq!(status["nodes"][&drained_name]["drains"], true);
        cluster.wait_status(other, "it has no active", |status| {
            let counts = counts(status);
            (counts[other].0, counts[drained].0) == (64, 0)
        });
    });
    nodes.lock().expect("no panic").remove(lost);
    check(&nodes, written);
}

/// The office went with the orchestrator that was failed over gracefully: it lived, and kept its lease.
#[test]
fn orchestrator_leaves_gracefully_and_returns_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let nodes = Mutex::new(cluster.nodes.iter().map(|node| node.kv).collect());
    let [leaves, other, third] = orchestrator(&cluster);
    let written = under_load(&nodes, || {
        let leaving = name(leaves);
        let (code, text, why) = cluster.tool(leaves, &["failover", "--graceful", &leaving]);
        assert_eq!(code, Some(0), "{why}");
        assert!(text.contains("finished: 100 %"), "{text}");
        let (code, _, why) = cluster.tool(other, &["failover", "--graceful", &leaving]);
        assert_eq!(code, Some(1));
        assert!(why.contains("was failed over already"), "{why}");
        assert_eq!(cluster.status(other)["nodes"][leaves]["failedOver"], true);
        cluster.wait_status(other, "another node has the office", |status| {
            let holder = status["orchestrator"].as_str();
            holder.is_some_and(|holder| holder != leaving)
        });
        let (code, _, why) = cluster.tool(other, &["recover", &leaving]);
        assert_eq!(code, Some(0), "{why}");
        cluster.wait_status(third, "all copies count", is_whole);
        let (code, text, why) = cluster.tool(other, &["balance"]);
        assert_eq!(code, Some(0), "{why}");
        assert!(text.contains("vBuckets have moved"), "{text}");
    });
    check(&nodes, written);
}

/// Begins a drain or a graceful failover, and stops another node meanwhile, to which nothing moves as it has restarted just now.
/// Returns the state of the operation when `waits` holds, and the stopped process. The operation may be faster: it is repeated.
fn begun_without(
    (cluster, dir): (&Cluster, &Path),
    [other, stops, drained]: [usize; 3],
    fails_over: bool,
    waits: impl Fn(&Value) -> bool,
) -> (Value, Server) {
    cluster.kill(stops);
    for _ in 0..5 {
        let server = cluster.serve(dir, stops);
        let (node, failover) = (name(drained), fails_over.to_string());
        let form = [("node", &*node), ("failover", &*failover)];
        let begun = cluster
            .http(other)
            .expect("POST", "/kedge/cluster/drain", &form);
        begun.expect("it begins");
        suspend(dir, server.pid());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = cluster.http(other).json("/kedge/cluster/rebalance");
            let status = status.expect("a state");
            let unreachable = serde_json::json!([name(stops)]);
            if status["state"] == "running"
                && status["unreachable"] == unreachable
                && waits(&status)
            {
                return (status, server);
            }
            if status["state"] != "running" {
                break;
            }
            assert!(Instant::now() < deadline, "{status}");
            thread::yield_now();
        }
        server.signal(Signal::CONT);
        if fails_over {
            let (code, _, why) = cluster.tool(other, &["recover", &node]);
            assert_eq!(code, Some(0), "{why}");
        }
        cluster.wait_status(other, "all copies count", is_whole);
        let (code, _, why) = cluster.tool(other, &["balance"]);
        assert_eq!(code, Some(0), "{why}");
    }
    panic!("it never waits for the stopped node");
}

/// The failover was made: the copies of the node were removed while another node with the only other copies was down.
#[test]
fn graceful_failover_waits_for_a_member_that_is_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=2"]);
    let nodes = orchestrator(&cluster);
    let [other, stops, drained] = nodes;
    let has_no_active = |status: &Value| status["vbucketsDone"] == status["vbuckets"];
    let (status, server) = begun_without((&cluster, dir.path()), nodes, true, has_no_active);
    assert_eq!(status["kind"], "gracefulFailover");
    let (code, text, _) = cluster.tool(other, &["rebalance", "--status"]);
    assert_eq!(code, Some(0));
    let says = format!(", cannot reach {}\n", name(stops));
    assert!(
        text.starts_with("running: 100 %") && text.contains(&says),
        "{text}"
    );
    // The last step is due: the orchestrator has found that it cannot be made.
    let log = dir.path().join(name(other)).join("kedge.log");
    let says = format!("{} does not answer, and all nodes", name(stops));
    let deadline = Instant::now() + PATIENCE;
    let is_said = || {
        let log = std::fs::read_to_string(&log).expect("a log");
        log.replace(['"', '\\'], "").contains(&says)
    };
    while !is_said() {
        assert!(Instant::now() < deadline, "it does not wait");
        thread::yield_now();
    }
    let is_out = |node: usize| cluster.status(other)["nodes"][node]["failedOver"] == true;
    assert!(!is_out(drained));
    server.signal(Signal::CONT);
    wait_rebalance(&cluster, other, "finished");
    assert!(is_out(drained));
}

#[test]
fn running_drain_shows_its_progress_and_is_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=1"]);
    let nodes = orchestrator(&cluster);
    let [other, _, drained] = nodes;
    let is_partly_done = |status: &Value| {
        let progress = status["progress"].as_f64().unwrap_or(0.0);
        (0.01..0.99).contains(&progress) && status["leftMs"].as_u64() > Some(0)
    };
    let (status, server) = begun_without((&cluster, dir.path()), nodes, false, is_partly_done);
    let of_drained = &status["nodes"][name(drained)];
    assert_eq!(of_drained["progress"], status["progress"]);
    assert_eq!(status["nodes"][name(other)]["progress"], 1.0);

    let http = cluster.http(other);
    let is_drained = |otp_name: &str| otp_name.starts_with(&format!("ns_{}@", drained + 1));
    let progress = http.json("/pools/default/rebalanceProgress").expect("it");
    let tasks = http.json("/pools/default/tasks").expect("tasks");
    assert_eq!(progress["status"], "running");
    assert_eq!(tasks[0]["status"], "running");
    assert_eq!(tasks[0]["subtype"], "drain");
    assert_eq!(tasks[0]["statusId"], status["id"]);
    for (document, whole) in [(&progress, 1.0), (&tasks[0]["perNode"], 100.0)] {
        let nodes = document.as_object().expect("nodes").iter();
        let nodes: Vec<_> = nodes.filter(|(key, _)| *key != "status").collect();
        assert_eq!(nodes.len(), 3, "{document}");
        for (node, of_node) in nodes {
            let progress = of_node["progress"].as_f64().expect("a number");
            let is_right = match is_drained(node) {
                true => 0.0 < progress && progress < whole,
                false => (progress - whole).abs() < 1e-9,
            };
            assert!(is_right, "{node}: {progress}");
        }
    }
    let (code, text, _) = cluster.tool(other, &["rebalance", "--status"]);
    assert_eq!(code, Some(0));
    assert!(
        text.starts_with("running: ") && text.contains(" s left"),
        "{text}"
    );

    let (code, text, why) = cluster.tool(other, &["rebalance", "--stop"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.starts_with("the drain is stopped; map "), "{text}");
    let (code, text, _) = cluster.tool(other, &["rebalance", "--status"]);
    assert_eq!(code, Some(0));
    assert!(
        text.starts_with("stopped: ") && !text.contains("left"),
        "{text}"
    );
    let (code, _, why) = cluster.tool(other, &["rebalance", "--status", "--wait"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("the drain was stopped"), "{why}");
    server.signal(Signal::CONT);
}

#[test]
fn last_copies_are_not_drained() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=0"]);
    for words in [&["drain", "n_1"][..], &["failover", "--graceful", "n_1"]] {
        let (code, _, why) = cluster.tool(0, words);
        assert_eq!(code, Some(1));
        let says = "32 active vBuckets of bucket \"default\" have no replica on another node";
        assert!(why.contains(says), "{why}");
    }
    let tasks = cluster.http(1).json("/pools/default/tasks").expect("tasks");
    assert_eq!(tasks[0]["status"], "notRunning");
}
