//! Clusters of real processes that `kedge cluster-run` starts, and what clients of a cluster do.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ManagementClient};
use kedge_types::{DurabilityLevel, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::endpoint::{Endpoint, ToolOutput};
use crate::process::{LineProcess, PASSWORD, PATIENCE, Server, USER, has_stopped, kedge, wait_for};

/// A node, as its `ready` line names it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kv: SocketAddr,
    pub(crate) mgmt: SocketAddr,
    pub(crate) pid: u32,
}

/// A running `kedge cluster-run`. Dropping it stops it and its nodes.
pub(crate) struct Cluster {
    dir: PathBuf,
    process: LineProcess,
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
        let mut cluster = Self {
            dir: dir.to_owned(),
            process: LineProcess::spawn(&mut command),
            nodes: Vec::new(),
        };
        let mut found = Vec::new();
        loop {
            let line = cluster.process.line();
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
        let child = &mut self.process.child;
        kill_process(Pid::from_child(child), Signal::TERM).expect("the process is ours");
        wait_for(child).code()
    }

    pub(crate) fn mgmt(&self, node: usize) -> SocketAddr {
        self.nodes[node].mgmt
    }

    pub(crate) fn kv(&self, node: usize) -> SocketAddr {
        self.nodes[node].kv
    }

    pub(crate) fn endpoint(&self, node: usize) -> Endpoint<'_> {
        Endpoint {
            kv: self.kv(node),
            mgmt: self.mgmt(node),
            ca: None,
        }
    }

    pub(crate) fn http(&self, node: usize) -> ManagementClient {
        self.endpoint(node).http()
    }

    pub(crate) fn connect(&self, node: usize) -> ClientConnection {
        self.endpoint(node).connect()
    }

    /// `kedge cluster ...`, asked of one node.
    pub(crate) fn tool(&self, node: usize, words: &[&str]) -> ToolOutput {
        self.endpoint(node).tool(words)
    }

    /// Returns the status that a node gives.
    pub(crate) fn status(&self, node: usize) -> Value {
        self.endpoint(node).status()
    }

    /// Waits until the status that a node gives is as it should be.
    pub(crate) fn wait_status(&self, node: usize, what: &str, is: impl Fn(&Value) -> bool) {
        self.endpoint(node).wait_status(what, is);
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
        let child = &mut self.process.child;
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let _ = child.wait();
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
