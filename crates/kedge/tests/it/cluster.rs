//! Clusters of real processes: their start, what clients see, the loss of a node and its return.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ManagementClient};
use kedge_types::{DurabilityLevel, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{
    self, PASSWORD, PATIENCE, Server, USER, connect_to, has_stopped, kedge, run, serve, threads_of,
    wait_for,
};

/// A node, as its `ready` line names it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kv: SocketAddr,
    pub(crate) mgmt: SocketAddr,
    pid: u32,
}

/// A running `kedge cluster-run`. Dropping it stops it and its nodes.
pub(crate) struct Cluster {
    dir: PathBuf,
    child: Child,
    lines: Receiver<String>,
    pub(crate) nodes: Vec<Node>,
}

fn word<'a>(line: &'a str, name: &str) -> &'a str {
    let words = line.split(' ');
    let found = words.filter_map(|word| word.strip_prefix(name)).next();
    found.unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

/// Returns the flags of the ports of a cluster: those that it has, or ones that no other cluster gets. Of its own, `cluster-run` picks free ports at random, from 20,000 on: it took
/// those of nodes of other tests that were killed and had to start again.
fn ports_for(dir: &Path) -> [String; 2] {
    /// The first port, and the number of blocks with the ports of four nodes.
    const FIRST: u16 = 13_000;
    const BLOCKS: u16 = 300;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    if dir.join("n_0").exists() {
        return ["--kv-port=0", "--mgmt-port=0"].map(str::to_owned);
    }
    loop {
        let first = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % BLOCKS * 16;
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if (first..first + 16).all(is_free) {
            return [
                format!("--kv-port={first}"),
                format!("--mgmt-port={}", first + 8),
            ];
        }
    }
}

impl Cluster {
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = kedge(&["cluster-run", "--data-dir"]);
        command
            .arg(dir)
            .args(ports_for(dir))
            .arg("--vbuckets=64")
            .args(["--user", USER, "--password", PASSWORD])
            .args(more);
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut cluster = Self {
            dir: dir.to_owned(),
            child,
            lines,
            nodes: Vec::new(),
        };
        let mut found = Vec::new();
        loop {
            let line = cluster.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{error}; {}", cluster.logs(dir)));
            if line.starts_with("cluster ready ") {
                break;
            }
            let node = Node {
                kv: word(&line, "kv=").parse().expect("an address"),
                mgmt: word(&line, "mgmt=").parse().expect("an address"),
                pid: word(&line, "pid=").parse().expect("a number"),
            };
            found.push((word(&line, "node=").to_owned(), node));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        cluster.nodes = found.into_iter().map(|(_, node)| node).collect();
        // Tests of other things stop and kill nodes, and fail them over by hand.
        let (code, _, stderr) = cluster.tool(0, &["auto-failover", "--disable"]);
        assert_eq!(code, Some(0), "{stderr}");
        cluster
    }

    fn logs(&self, dir: &Path) -> String {
        let log = |n| std::fs::read_to_string(dir.join(format!("n_{n}/kedge.log")));
        (0..3).filter_map(|n| log(n).ok()).collect()
    }

    pub(crate) fn signal(&self, node: usize, signal: Signal) {
        let pid = i32::try_from(self.nodes[node].pid).expect("a pid");
        let pid = Pid::from_raw(pid).expect("a pid");
        kill_process(pid, signal).expect("the process is ours");
    }

    /// Stops a node with SIGSTOP, as [`suspend`] does.
    pub(crate) fn suspend(&self, node: usize) {
        suspend(&self.dir, self.nodes[node].pid);
    }

    /// Ends a node as `kill -9` does, and waits until nobody listens there.
    pub(crate) fn kill(&self, node: usize) {
        self.signal(node, Signal::KILL);
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(self.nodes[node].kv).is_ok() {
            assert!(Instant::now() < deadline, "the node does not end");
            thread::yield_now();
        }
    }

    /// Stops all with SIGTERM: the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the process is ours");
        wait_for(&mut self.child).code()
    }

    pub(crate) fn mgmt(&self, node: usize) -> SocketAddr {
        self.nodes[node].mgmt
    }

    pub(crate) fn kv(&self, node: usize) -> SocketAddr {
        self.nodes[node].kv
    }

    pub(crate) fn http(&self, node: usize) -> ManagementClient {
        let mgmt = self.mgmt(node);
        ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD)
    }

    pub(crate) fn connect(&self, node: usize) -> ClientConnection {
        connect_to(self.kv(node), PASSWORD).expect("a connection")
    }

    /// `kedge cluster ...`, asked of one node.
    pub(crate) fn tool(&self, node: usize, words: &[&str]) -> (Option<i32>, String, String) {
        run(&mut self.tool_command(node, words))
    }

    fn tool_command(&self, node: usize, words: &[&str]) -> Command {
        let url = format!("http://{}", self.nodes[node].mgmt);
        let mut command = kedge(&["cluster"]);
        command
            .args(words)
            .args(["-U", &url, "-u", USER, "-P", PASSWORD]);
        command
    }

    /// Returns the status that a node gives.
    pub(crate) fn status(&self, node: usize) -> Value {
        self.http(node)
            .json("/kedge/cluster/status")
            .expect("a status")
    }

    /// Waits until the status that a node gives is as it should be.
    pub(crate) fn wait_status(&self, node: usize, what: &str, is: impl Fn(&Value) -> bool) {
        process::wait_status(what, || self.status(node), is);
    }

    /// Starts a node again, by itself.
    pub(crate) fn serve(&self, dir: &Path, node: usize) -> Server {
        Server::spawn(serve_node(dir, node)).expect("the node starts")
    }

    pub(crate) fn map(&self, node: usize) -> Value {
        let document = self.http(node).json("/pools/default/b/default");
        document.expect("a map")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            if let Some(pid) = i32::try_from(node.pid).ok().and_then(Pid::from_raw) {
                // One that was stopped could not end.
                let _ = kill_process(pid, Signal::CONT);
            }
        }
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Returns the address of the coordination store of a `kedge cluster-run` in a directory.
pub(crate) fn store_in(dir: &Path) -> String {
    format!("embedded:{}", dir.join("coordinator").display())
}

/// Stops a node of the cluster in a directory with SIGSTOP, and returns when all its threads have stopped. It does not hold the
/// lock of the coordination store then: it would keep it, and no other node could renew its lease.
pub(crate) fn suspend(dir: &Path, pid: u32) {
    let lock = File::open(dir.join("coordinator/LOCK")).expect("the store has a lock");
    lock.lock().expect("nobody keeps it");
    let process = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(process, Signal::STOP).expect("the process is ours");
    let deadline = Instant::now() + PATIENCE;
    while !has_stopped(pid) {
        assert!(Instant::now() < deadline, "the node does not stop");
        thread::yield_now();
    }
}

/// Returns the ports of a node, as any node with a map knows them; 0 if there is none.
fn ports_of(dir: &Path, name: &str) -> [String; 2] {
    let files = (0..3).map(|node| dir.join(format!("n_{node}/cluster-map.json")));
    let Some(file) = files.filter_map(|file| std::fs::read(file).ok()).next() else {
        return ["0".to_owned(), "0".to_owned()];
    };
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let nodes = file["map"]["nodes"].as_object().expect("nodes");
    let node = nodes.values().find(|node| node["name"] == name);
    let node = node.expect("it is a member");
    ["kv_port", "mgmt_port"].map(|port| node[port].to_string())
}

/// Returns the command that starts a node of a cluster again, once its directory is free.
pub(crate) fn serve_node(dir: &Path, node: usize) -> Command {
    let name = format!("n_{node}");
    // A node that was killed listens no more before its thread that syncs a file lets go of the directory.
    if let Ok(lock) = File::open(dir.join(&name).join("LOCK")) {
        let deadline = Instant::now() + PATIENCE;
        while lock.try_lock().is_err() {
            assert!(Instant::now() < deadline, "the node does not end");
            thread::yield_now();
        }
    }
    let [kv, mgmt] = ports_of(dir, &name);
    let mut command = kedge(&["serve", "--memcached-enabled", "--memcached-port=0"]);
    command
        .arg("--data-dir")
        .arg(dir.join(&name))
        .args(["--kv-port", &kv, "--mgmt-port", &mgmt])
        .args(["--node-name", &name, "--coordinator", &store_in(dir)]);
    command
}

/// Works on all names at two nodes at the same moment: on half of them at each.
pub(crate) fn at_two_nodes<N: Send>(
    nodes: [N; 2],
    names: &[String],
    work: impl Fn(&N, &str) + Sync,
) {
    let work = &work;
    thread::scope(|scope| {
        for (at, node) in nodes.into_iter().enumerate() {
            let names = names.iter().skip(at).step_by(2);
            scope.spawn(move || names.for_each(|name| work(&node, name)));
        }
    });
}

/// Writes a document to whichever node takes it: its number. All others say that it is not theirs.
pub(crate) fn put(connections: &mut [ClientConnection], key: &str, value: &str) -> usize {
    let mut taken = Vec::new();
    for (node, connection) in connections.iter_mut().enumerate() {
        match connection.set(key.as_bytes(), value.as_bytes(), None) {
            Ok(_) => taken.push(node),
            Err(error) => assert_eq!(error.status(), Some(Status::NotMyVbucket), "{error}"),
        }
    }
    assert_eq!(taken.len(), 1, "one node has {key}, not {taken:?}");
    taken[0]
}

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

pub(crate) const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnActive,
    DurabilityLevel::PersistToMajority,
];

/// Writes a document durably to whichever node has it.
pub(crate) fn put_durably(
    connections: &mut [ClientConnection],
    key: &str,
    value: &str,
    level: DurabilityLevel,
) {
    let mut tries = connections.iter_mut();
    let stored = tries.any(|connection| {
        match connection.set(key.as_bytes(), value.as_bytes(), Some(level)) {
            Ok(_) => true,
            Err(error) if error.status() == Some(Status::NotMyVbucket) => false,
            Err(error) => panic!("{key}: {error}"),
        }
    });
    assert!(stored, "no node has {key}");
}

/// Returns the value of a document, from whichever node has it. Waits, as SDKs do, for an active that is about to serve, and for
/// a SyncWrite that was in progress when its active failed.
pub(crate) fn value_of(connections: &mut [ClientConnection], key: &str) -> Option<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut why = "no node has it";
        for connection in &mut *connections {
            match connection.get(key.as_bytes()) {
                Ok(found) => {
                    return found.map(|it| String::from_utf8(it.value).expect("text"));
                }
                Err(error) => match error.status() {
                    Some(Status::NotMyVbucket) => {}
                    Some(Status::SyncWriteReCommitInProgress) => why = "its SyncWrite does not end",
                    _ => panic!("{key}: {error}"),
                },
            }
        }
        assert!(Instant::now() < deadline, "{key}: {why}");
        thread::yield_now();
    }
}

/// Returns whether the replicas of all nodes have everything that their actives have.
pub(crate) fn is_even(status: &Value) -> bool {
    let nodes = status["buckets"][0]["nodes"].as_array().expect("nodes");
    // One that is gone says nothing.
    let says = |node: &&Value| node.get("lagItems").is_some();
    nodes.iter().filter(says).all(|node| node["lagItems"] == 0)
}

/// Returns whether no place is empty either: all copies count.
pub(crate) fn is_whole(status: &Value) -> bool {
    is_even(status) && is_applied(status) && status["buckets"][0]["missingCopies"] == 0
}

/// Returns whether all nodes that are up have applied the map of the status. A status shows a map as soon as the node
/// follows it. The SyncWrites of an active count a copy when the active's node has applied the map.
pub(crate) fn is_applied(status: &Value) -> bool {
    let nodes = status["nodes"].as_array().expect("nodes");
    let takes_part = |node: &&Value| node["up"] == true && node["failedOver"] == false;
    let mut nodes = nodes.iter().filter(takes_part);
    nodes.all(|node| node["applied"] == status["revision"])
}

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
