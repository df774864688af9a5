//! Encryption at rest in clusters of real processes: nodes come, go and return, buckets are encrypted while they are in use, and a
//! node has no master key.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use serde_json::Value;

use crate::cluster::{Cluster, LEVELS, is_even, is_whole, put, put_durably, serve_node, value_of};
use crate::cluster_store::another;
use crate::encryption::search;
use crate::file_copies::{figure, wait_for_figure};
use crate::process::{PASSWORD, PATIENCE, Server, USER, kedge, run, wait_status};
use crate::rebalance::counts;

/// Files are copied between nodes whenever that is possible, and get all data soon.
const SETTINGS: [&str; 2] = ["--file-copy-min-bytes=1", "--apply-max-lag=10ms"];
/// Number of documents of one call of [`write`].
const DOCUMENTS: usize = 150;

/// The directory of a cluster, and that of master keys beside it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("cluster")).expect("a directory");
        for (name, digit) in [("first", "1a"), ("second", "2b")] {
            std::fs::write(dir.path().join(name), digit.repeat(32)).expect("a key");
        }
        Self { dir }
    }

    fn cluster(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    fn key(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        format!("--encryption-master-key=file:{}", path.display())
    }

    /// Starts two nodes with the first master key.
    fn start(&self, more: &[&str]) -> Cluster {
        let key = self.key("first");
        let common = ["--nodes=2", "--replicas=1", &*key];
        Cluster::start(&self.cluster(), &[&common, &SETTINGS[..], more].concat())
    }

    /// Returns the command of a third node.
    fn third(&self) -> Command {
        let mut command = another(&self.cluster(), "n_2", &self.cluster().join("n_2"));
        command.args(SETTINGS);
        command
    }

    /// Returns the files of all nodes that contain a marker.
    fn plain(&self) -> Vec<String> {
        let mut found = Vec::new();
        search(&self.cluster(), &mut found);
        found
    }
}

/// Starts a node that waits, and makes it a member.
fn join(cluster: &Cluster, command: Command, name: &str) -> Server {
    thread::scope(|scope| {
        let starting = scope.spawn(move || Server::spawn(command));
        while cluster.tool(0, &["add", name]).0 != Some(0) {
            assert!(!starting.is_finished(), "it waits");
        }
        let server = starting.join().expect("no panic");
        server.expect("it is ready once it is a member")
    })
}

fn key_of(number: usize) -> String {
    format!("marker-of-a-key-{number}")
}

fn value(number: usize) -> String {
    format!("marker-of-a-value-{number} {}", "x".repeat(number % 500))
}

fn write(connections: &mut [ClientConnection], from: usize) {
    for number in from..from + DOCUMENTS {
        if number % 5 == 0 {
            let level = LEVELS[number / 5 % 3];
            put_durably(connections, &key_of(number), &value(number), level);
        } else {
            put(connections, &key_of(number), &value(number));
        }
    }
}

fn check(connections: &mut [ClientConnection], upto: usize) {
    for number in 0..upto {
        let found = value_of(connections, &key_of(number));
        assert!(found == Some(value(number)), "{number}: {found:?}");
    }
}

/// Waits until the files have everything that the log has.
fn wait_applied(connections: &mut [ClientConnection]) {
    let deadline = Instant::now() + PATIENCE;
    while connections
        .iter_mut()
        .any(|connection| figure(connection, "ep_unapplied_items") > 0)
    {
        assert!(Instant::now() < deadline, "the files do not get all");
        thread::yield_now();
    }
}

fn rebalance(cluster: &Cluster, nodes: usize) {
    let (code, _, why) = cluster.tool(0, &["rebalance", "--wait"]);
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "all nodes have their share", |status| {
        is_whole(status) && counts(status).len() == nodes
    });
}

fn edit(cluster: &Cluster, node: usize, flag: &str) -> (Option<i32>, String, String) {
    let url = format!("http://{}", cluster.mgmt(node));
    let mut command = kedge(&["bucket", "edit", "default", flag, "-U", &url]);
    run(command.args(["-u", USER, "-P", PASSWORD]))
}

/// Waits until all data of a node is encrypted.
fn wait_encrypted(connection: &mut ClientConnection) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = connection.stat("encryption-key-ids").expect("statistics");
        if !stats[0].1.contains("unencrypted") {
            return;
        }
        assert!(Instant::now() < deadline, "{stats:?}");
        thread::yield_now();
    }
}

#[test]
fn encrypted_cluster_moves_and_rebuilds_copies_without_plain_text() {
    let place = Place::new();
    let cluster = place.start(&["--encryption-at-rest=true"]);
    let dir = place.cluster();
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    write(&mut connections, 0);
    cluster.wait_status(0, "replicas catch up", is_even);
    wait_applied(&mut connections);
    assert_eq!(place.plain(), [""; 0], "after writes");

    // Another node has another master key. Its copies come by DCP.
    let mut third = place.third();
    third.arg(place.key("second"));
    let third = join(&cluster, third, "n_2");
    rebalance(&cluster, 3);
    connections.push(third.connect());
    assert_eq!(figure(&mut connections[2], "replication_files"), 0);
    assert!(figure(&mut connections[2], "curr_items_tot") > 0);
    write(&mut connections, DOCUMENTS);
    cluster.wait_status(0, "replicas catch up", is_even);
    wait_applied(&mut connections);
    assert_eq!(place.plain(), [""; 0], "after a rebalance");

    // A node fails, and returns with what it had.
    cluster.kill(1);
    let (code, text, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(!text.contains("warning"), "{text}");
    drop(connections.remove(1));
    check(&mut connections, 2 * DOCUMENTS);
    assert_eq!(place.plain(), [""; 0], "after a failover");
    let why = Server::spawn(serve_node(&dir, 1)).expect_err("it has no master key");
    assert!(why.contains("bucket default is encrypted"), "{why}");
    let mut again = serve_node(&dir, 1);
    again.arg(place.key("first"));
    let back = Server::spawn(again).expect("the node starts");
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    rebalance(&cluster, 3);
    connections.push(back.connect());

    // All copies are made once more: each document is on each node.
    let (code, _, why) = edit(&cluster, 0, "--replicas=2");
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "all nodes have all", |status| {
        status["buckets"][0]["replicas"] == 2 && is_whole(status)
    });
    write(&mut connections, 2 * DOCUMENTS);
    cluster.wait_status(0, "replicas catch up", is_even);
    wait_applied(&mut connections);
    for connection in &mut connections {
        assert_eq!(figure(connection, "curr_items_tot"), 3 * DOCUMENTS as u64);
        assert_eq!(figure(connection, "replication_files"), 0);
        wait_encrypted(connection);
    }
    assert_eq!(place.plain(), [""; 0], "after new copies");
    cluster.kill(0);
    let url = format!("http://{}", back.mgmt);
    let mut failover = kedge(&["cluster", "failover", "n_0", "-U", &url]);
    let (code, _, why) = run(failover.args(["-u", USER, "-P", PASSWORD]));
    assert_eq!(code, Some(0), "{why}");
    drop(connections.remove(0));
    check(&mut connections, 3 * DOCUMENTS);
    assert_eq!(place.plain(), [""; 0], "after the loss of another node");
}

/// Shows that the search finds copies of files, too.
#[test]
fn cluster_is_encrypted_while_it_runs() {
    let place = Place::new();
    let cluster = place.start(&[]);
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    write(&mut connections, 0);
    wait_applied(&mut connections);
    let mut third = place.third();
    third.arg(place.key("second"));
    let third = join(&cluster, third, "n_2");
    rebalance(&cluster, 3);
    connections.push(third.connect());
    wait_for_figure(&third, "replication_files", |files| files > 0);
    let found = place.plain();
    for node in ["n_0", "n_1", "n_2"] {
        let is_of_node = |it: &String| it.contains(&format!("/{node}/"));
        assert!(found.iter().any(is_of_node), "{node}: {found:?}");
    }

    let (code, _, why) = edit(&cluster, 1, "--encryption-at-rest=true");
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "all nodes know", is_whole);
    for connection in &mut connections {
        wait_encrypted(connection);
    }
    let deadline = Instant::now() + PATIENCE;
    // Released segments of the log are removed step by step.
    while !place.plain().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", place.plain());
        thread::yield_now();
    }
    // From now on no file is copied.
    let files: Vec<u64> = connections
        .iter_mut()
        .map(|connection| figure(connection, "replication_files"))
        .collect();
    let (code, _, why) = edit(&cluster, 0, "--replicas=2");
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "all nodes have all", |status| {
        status["buckets"][0]["replicas"] == 2 && is_whole(status)
    });
    write(&mut connections, DOCUMENTS);
    wait_applied(&mut connections);
    for (connection, files) in connections.iter_mut().zip(files) {
        assert_eq!(figure(connection, "replication_files"), files);
    }
    assert_eq!(place.plain(), [""; 0]);
    check(&mut connections, 2 * DOCUMENTS);
}

#[test]
fn nodes_without_a_master_key_get_no_encrypted_bucket() {
    let place = Place::new();
    let dir = place.cluster();
    let more = ["--nodes=2", "--replicas=1"];
    let cluster = Cluster::start(&dir, &[&more, &SETTINGS[..]].concat());
    let mut connections = vec![cluster.connect(0), cluster.connect(1)];
    write(&mut connections, 0);
    let (code, _, why) = edit(&cluster, 0, "--encryption-at-rest=true");
    assert_eq!(code, Some(1));
    let needs = "needs a master key on all nodes, and node \"n_0\" has none";
    assert!(why.contains(needs), "{why}");

    // One node after the other gets one.
    let mut servers = Vec::new();
    for (node, other) in [(0, 1), (1, 0)] {
        drop(connections);
        cluster.kill(node);
        let mut again = serve_node(&dir, node);
        again.args(SETTINGS).arg(place.key("first"));
        servers.push(Server::spawn(again).expect("the node starts"));
        cluster.wait_status(other, "it is back", is_whole);
        connections = (0..2).map(|node| cluster.connect(node)).collect();
        let (code, _, why) = edit(&cluster, other, "--encryption-at-rest=true");
        match node {
            0 => assert!(why.contains("node \"n_1\" has none"), "{why}"),
            _ => assert_eq!(code, Some(0), "{why}"),
        }
    }
    check(&mut connections, DOCUMENTS);
    write(&mut connections, DOCUMENTS);
    for connection in &mut connections {
        wait_encrypted(connection);
    }

    // A new node needs one, too.
    let mut waiting = place.third().spawn().expect("the command starts");
    wait_status(
        "the node waits",
        || {
            let (_, _, why) = cluster.tool(0, &["add", "n_2"]);
            Value::from(why)
        },
        |why| {
            let why = why.as_str().expect("text");
            why.contains("node \"n_2\" has no master key, and bucket \"default\" is encrypted")
        },
    );
    waiting.kill().expect("the process is ours");
    waiting.wait().expect("the process is ours");
    let mut third = place.third();
    third.arg(place.key("second"));
    let third = join(&cluster, third, "n_2");
    rebalance(&cluster, 3);
    connections.push(third.connect());
    assert_eq!(figure(&mut connections[2], "replication_files"), 0);
    let mut found = Vec::new();
    search(&dir.join("n_2"), &mut found);
    assert_eq!(found, [""; 0]);
    check(&mut connections, 2 * DOCUMENTS);
}
