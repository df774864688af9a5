//! Nodes of a cluster whose data directory has lost a file: nothing begins anew without a word, nothing that is left is
//! removed, and the remedies of `docs/guides/salvage.md` work.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_types::VbId;
use rustix::process::Signal;
use serde_json::Value;

use crate::auto_failover::exchange_store;
use crate::cluster::{Cluster, is_applied, is_whole, put, serve_node, value_of};
use crate::missing::stop;
use crate::process::{PASSWORD, PATIENCE, USER, kedge, run};

const KEYS: usize = 40;

/// A node that need not become ready. Dropping it kills it.
struct StartingNode {
    child: Child,
    log: PathBuf,
}

impl StartingNode {
    fn start(dir: &Path, node: usize) -> Self {
        let mut command = serve_node(dir, node);
        let log = dir.join(format!("starting-{node}.log"));
        let file = File::create(&log).expect("a file");
        let output = file.try_clone().expect("a handle");
        let child = command.stdout(output).stderr(file).spawn();
        let child = child.expect("the command starts");
        Self { child, log }
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// Waits until the log has a text.
    fn wait_log(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.logged().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?}: {}", self.logged());
            thread::yield_now();
        }
    }

    /// Waits until the node serves its vBuckets: it has applied the map and holds its lease.
    fn wait_ready(&self) {
        self.wait_log("ready kv=");
    }
}

impl Drop for StartingNode {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster of two nodes without replicas: only node 1 has its documents. Returns the keys, with their nodes.
fn two_nodes(dir: &Path, more: &[&str]) -> (Cluster, Vec<(String, usize)>) {
    let mut args = vec!["--nodes=2"];
    args.extend(more);
    let cluster = Cluster::start(dir, &args);
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    let mut written = Vec::new();
    for n in 0..KEYS {
        let key = format!("key-{n}");
        let node = put(&mut connections, &key, &key);
        written.push((key, node));
    }
    assert!(written.iter().any(|(_, node)| *node == 1));
    // Whatever is read later was on the disk of its node.
    for (key, node) in &written {
        let level = Some(kedge_types::DurabilityLevel::PersistToMajority);
        let stored = connections[*node].set(key.as_bytes(), key.as_bytes(), level);
        stored.expect("a write");
    }
    (cluster, written)
}

/// Checks that all documents are there.
fn check(connections: &mut [ClientConnection], written: &[(String, usize)]) {
    for (key, _) in written {
        assert_eq!(value_of(connections, key).as_ref(), Some(key));
    }
}

fn bucket_dir(dir: &Path, node: usize) -> PathBuf {
    dir.join(format!("n_{node}/buckets/default"))
}

fn lose_map(dir: &Path, node: usize) {
    std::fs::remove_file(dir.join(format!("n_{node}/cluster-map.json"))).expect("the map");
}

/// Removes the name of the map from the list of state files, as the error of the start demands.
fn remove_from_list(dir: &Path, node: usize) {
    let list = dir.join(format!("n_{node}/files.json"));
    let names: Vec<String> =
        serde_json::from_slice(&std::fs::read(&list).expect("the list")).expect("names");
    let rest: Vec<String> = names
        .iter()
        .filter(|name| *name != "cluster-map.json")
        .cloned()
        .collect();
    assert_eq!(rest.len() + 1, names.len(), "{names:?}");
    std::fs::write(&list, serde_json::to_vec(&rest).expect("JSON")).expect("the list");
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("a name");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

/// Gives the bucket of a directory another uuid, and a name.
fn change_settings(file: &Path, name: &str) {
    let bytes = std::fs::read(file).expect("the settings");
    let mut settings: Value = serde_json::from_slice(&bytes).expect("JSON");
    settings["name"] = name.into();
    settings["uuid"] = "00000000000000000000000000000007".into();
    std::fs::write(file, settings.to_string()).expect("the settings");
}

fn bucket(cluster: &Cluster, node: usize, words: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}", cluster.mgmt(node));
    let mut command = kedge(&["bucket"]);
    run(command
        .args(words)
        .args(["-U", &url, "-u", USER, "-P", PASSWORD]))
}

/// The documented remedy did not work: a node that had buckets and no map refused to start.
#[test]
fn node_without_its_map_takes_that_of_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=0"]);
    cluster.kill(1);
    lose_map(dir.path(), 1);
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1));
    for part in ["cluster-map.json is missing", "files.json"] {
        assert!(why.contains(part), "{why}");
    }
    remove_from_list(dir.path(), 1);
    let node = cluster.serve(dir.path(), 1);
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
    assert!(dir.path().join("n_1/cluster-map.json").exists());
    drop(node);
}

/// A map that does not have a bucket drops it from the node.
#[test]
fn node_without_its_map_keeps_buckets_that_the_cluster_does_not_have() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=0"]);
    cluster.kill(1);
    drop(serve_node(dir.path(), 1));
    lose_map(dir.path(), 1);
    remove_from_list(dir.path(), 1);
    let foreign = dir.path().join("n_1/buckets/foreign");
    copy_dir(&bucket_dir(dir.path(), 1), &foreign);
    change_settings(&foreign.join("bucket.json"), "foreign");

    let node = StartingNode::start(dir.path(), 1);
    node.wait_log("the map of the coordination store is not followed");
    let log = node.logged();
    assert!(log.contains("n_1/buckets/foreign"), "{log}");
    drop(node);
    assert!(foreign.join("bucket.json").exists());
    std::fs::rename(&foreign, dir.path().join("foreign")).expect("moved");
    let _node = cluster.serve(dir.path(), 1);
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
}

/// A store that is lost, or another one, must not make nodes begin anew.
#[test]
fn nodes_of_a_lost_store_begin_no_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=0"]);
    for node in 0..2 {
        cluster.kill(node);
        drop(serve_node(dir.path(), node));
    }
    let (store, away) = (dir.path().join("coordinator"), dir.path().join("away"));
    std::fs::rename(&store, &away).expect("moved");
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1));
    assert!(why.contains("the coordination store has no map"), "{why}");
    let again = run(kedge(&["cluster-run", "--data-dir"]).arg(dir.path()));
    assert_eq!(again.0, Some(1));
    assert!(
        again.2.contains("and the coordination store has none"),
        "{}",
        again.2
    );

    let map = dir.path().join("n_1/cluster-map.json");
    let saved = std::fs::read(&map).expect("the map");
    lose_map(dir.path(), 1);
    remove_from_list(dir.path(), 1);
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1));
    assert!(why.contains("has buckets and no cluster-map.json"), "{why}");
    std::fs::write(map, saved).expect("the map");

    std::fs::remove_dir_all(&store).expect("removed");
    std::fs::rename(&away, &store).expect("moved back");
    let second = StartingNode::start(dir.path(), 1);
    let _first = cluster.serve(dir.path(), 0);
    second.wait_ready();
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
}

/// A bucket that an operator adopted was dropped with all files when the cluster did not have it.
#[test]
fn bucket_without_settings_on_a_node_is_served_after_adopt() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=0"]);
    cluster.kill(1);
    drop(serve_node(dir.path(), 1));
    let own = bucket_dir(dir.path(), 1);
    std::fs::remove_file(own.join("bucket.json")).expect("the settings");
    let foreign = dir.path().join("n_1/buckets/foreign");
    copy_dir(&own, &foreign);
    change_settings(&foreign.join("bucket.json.copy"), "foreign");

    let node = StartingNode::start(dir.path(), 1);
    node.wait_log("cannot make a bucket of the cluster");
    let log = node.logged();
    for part in [
        "is not served and stays as it is",
        "n_1/buckets/default",
        "kedge bucket adopt default",
        "n_1/buckets/foreign",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let (code, listed, why) = bucket(&cluster, 1, &["list"]);
    assert_eq!(code, Some(0), "{why}");
    for name in ["default", "foreign"] {
        assert!(
            listed.contains(&format!("not served: {name} (")),
            "{listed}"
        );
    }
    let (code, _, why) = bucket(&cluster, 1, &["adopt", "foreign"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("the cluster has no bucket foreign"), "{why}");
    let (code, said, why) = bucket(&cluster, 1, &["adopt", "default"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(said, "bucket \"default\" is served\n");
    node.wait_ready();
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
    // Another map drops neither.
    let (code, _, why) = bucket(&cluster, 0, &["create", "second"]);
    assert_eq!(code, Some(0), "{why}");
    let (_, listed, _) = bucket(&cluster, 1, &["list"]);
    for part in ["second", "not served: foreign ("] {
        assert!(listed.contains(part), "{listed}");
    }
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
    assert!(foreign.join("log").exists());
    drop(node);

    // The cluster has a bucket of this name, but another one.
    drop(serve_node(dir.path(), 1));
    let second = dir.path().join("n_1/buckets/second");
    std::fs::remove_file(second.join("bucket.json")).expect("the settings");
    change_settings(&second.join("bucket.json.copy"), "second");
    let node = StartingNode::start(dir.path(), 1);
    node.wait_log("cannot make a bucket of the cluster");
    let (code, _, why) = bucket(&cluster, 1, &["adopt", "second"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("another bucket than the cluster's"), "{why}");
    assert!(second.join("log").exists() && !second.join("bucket.json").exists());
}

/// Waits until a node has failed another one over by hand: it is refused while the other one seems to be alive.
fn fail_over(cluster: &Cluster, by: usize, node: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, _, why) = cluster.tool(by, &["failover", node]);
        if code == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "{why}");
    }
}

/// A node whose bucket directory was removed began with an empty bucket, whose copies counted: when the other node was lost
/// before they had caught up, they were promoted, and acknowledged SyncWrites were lost.
#[test]
fn node_without_a_bucket_directory_is_failed_over_before_its_copies_count() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=1"]);
    let missing = "the directories of buckets are missing: default";
    cluster.kill(1);
    drop(serve_node(dir.path(), 1));
    for node in 0..2 {
        let log = std::fs::read_to_string(dir.path().join(format!("n_{node}/kedge.log")));
        let log = log.expect("the log");
        assert!(!log.contains("missing"), "a new bucket is none: {log}");
    }
    std::fs::remove_dir_all(bucket_dir(dir.path(), 1)).expect("the directory");
    // Nobody can fail it over.
    cluster.suspend(0);
    exchange_store(dir.path());
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1), "{why}");
    assert!(
        why.contains(missing) && why.contains("without the coordination store"),
        "{why}"
    );
    exchange_store(dir.path());
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1), "{why}");
    let remedy = "kedge cluster failover n_1 --force";
    assert!(why.contains(missing) && why.contains(remedy), "{why}");
    assert!(!bucket_dir(dir.path(), 1).exists());
    cluster.signal(0, Signal::CONT);

    let node = cluster.serve(dir.path(), 1);
    cluster.wait_status(0, "the node is failed over", |status| {
        status["nodes"][1]["failedOver"] == true
    });
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "it has copies again", is_whole);
    let log = stop(node);
    let line = log
        .lines()
        .find(|line| line.contains("the directory of a bucket was missing"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("ERROR") && line.contains("n_1/buckets/default"),
        "{line}"
    );
    // The next start has the directory, and the copies count.
    let node = cluster.serve(dir.path(), 1);
    cluster.wait_status(0, "it is back", is_whole);
    cluster.kill(0);
    fail_over(&cluster, 1, "n_0");
    check(&mut [cluster.connect(1)], &written);
    let log = stop(node);
    assert!(!log.contains("missing"), "{log}");
}

/// Moves the file of a vBucket away, of a node that is not running.
fn move_file(from: &Path, to: &Path, vb: u16) {
    let mut moved = 0;
    for entry in std::fs::read_dir(from).expect("a directory") {
        let name = entry.expect("a name").file_name();
        if name.to_string_lossy().starts_with(&format!("{vb}.couch.")) {
            std::fs::rename(from.join(&name), to.join(&name)).expect("moved");
            moved += 1;
        }
    }
    assert_eq!(moved, 1, "the vBucket has a file");
}

/// A vBucket whose file is missing is quarantined, and its copy does not count. A reset gives the copy up, and it began with what
/// the log had while the others counted it.
#[test]
fn copy_without_its_file_does_not_count_and_is_not_reset_while_others_count_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let away = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=1"]);
    // The node has a replica of it.
    let (key, _) = written
        .iter()
        .find(|(_, node)| *node == 0)
        .expect("half of them");
    let vb = VbId::of_key(key.as_bytes(), 64).get();
    cluster.signal(1, Signal::TERM);
    drop(serve_node(dir.path(), 1));
    move_file(&bucket_dir(dir.path(), 1), away.path(), vb);
    let node = StartingNode::start(dir.path(), 1);
    node.wait_log("the vBucket is quarantined");
    let is_up = |status: &Value| status["nodes"][1]["up"] == true;
    cluster.wait_status(0, "the node is up", |status| {
        is_up(status) && is_applied(status)
    });
    let reset = |node: usize| {
        let url = format!("http://{}", cluster.mgmt(node));
        let vb = vb.to_string();
        let mut command = kedge(&["vbucket", "reset", &vb, "default"]);
        run(command.args(["-U", &url, "-u", USER, "-P", PASSWORD]))
    };
    let (code, _, why) = reset(1);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("kedge cluster failover"), "{why}");
    cluster.kill(0);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, _, why) = cluster.tool(1, &["failover", "n_0"]);
        assert_eq!(code, Some(1), "{why}");
        if why.contains("it is not known how far the copies of n_1 are") {
            break;
        }
        assert!(Instant::now() < deadline, "{why}");
    }
    // The administrator gives the copy up, and the node gets it from the other one.
    let _first = cluster.serve(dir.path(), 0);
    drop(node);
    fail_over(&cluster, 0, "n_1");
    drop(serve_node(dir.path(), 1));
    let node = StartingNode::start(dir.path(), 1);
    node.wait_log("the vBucket is quarantined");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Until the node follows the map without it.
        let (code, _, why) = reset(1);
        if code == Some(0) {
            break;
        }
        assert!(Instant::now() < deadline, "{why}");
    }
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    cluster.wait_status(0, "it has all copies again", is_whole);
    check(&mut [cluster.connect(0), cluster.connect(1)], &written);
}

/// The node began with empty copies, which counted as the others.
#[test]
fn node_that_lost_the_last_copies_starts_when_they_are_given_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, written) = two_nodes(dir.path(), &["--replicas=0"]);
    cluster.kill(1);
    drop(serve_node(dir.path(), 1));
    std::fs::remove_dir_all(dir.path().join("n_1")).expect("the directory");
    let (code, _, why) = run(&mut serve_node(dir.path(), 1));
    assert_eq!(code, Some(1));
    let remedy = "kedge cluster failover n_1 --force";
    assert!(why.contains(remedy), "{why}");
    let (code, _, why) = cluster.tool(0, &["failover", "n_1", "--force"]);
    assert_eq!(code, Some(0), "{why}");
    let _node = cluster.serve(dir.path(), 1);
    let (code, _, why) = cluster.tool(0, &["recover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    let mut connections = [cluster.connect(0), cluster.connect(1)];
    for (key, node) in &written {
        let expected = (*node == 0).then_some(key);
        assert_eq!(value_of(&mut connections, key).as_ref(), expected);
    }
}
