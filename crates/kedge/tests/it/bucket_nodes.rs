//! `/pools/default/buckets/BUCKET/nodes` in a cluster: the list of nodes, and the figures of a node that another one is
//! asked for.

use kedge::client::{ClientConnection, HttpReply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{Cluster, put};

const AT: &str = "/pools/default/buckets/default/nodes";
const MISSING: &[u8] = b"Requested resource not found.";

/// The path of a node, whose name is `HOST:PORT` of its management.
fn uri(cluster: &Cluster, node: usize) -> String {
    format!(
        "{AT}/{}",
        cluster.mgmt(node).to_string().replace(':', "%3A")
    )
}

fn get(cluster: &Cluster, asked: usize, path: &str) -> HttpReply {
    let reply = cluster.http(asked).send("GET", path, &[]);
    reply.expect("an answer")
}

/// Asks a node for the list: the names of its nodes.
fn listed(cluster: &Cluster, asked: usize) -> Vec<Value> {
    let document = cluster.http(asked).json(AT).expect("a list");
    let servers = document["servers"].as_array().expect("a list");
    let names = servers.iter().map(|server| server["hostname"].clone());
    names.collect()
}

/// Checks that a node does not give the figures of a node that does not answer, and names it.
fn check_unavailable(cluster: &Cluster, asked: usize, node: usize) {
    let reply = get(cluster, asked, &format!("{}/stats", uri(cluster, node)));
    let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(reply.code, 503, "{body}");
    let why = body["errors"]["_"].as_str().expect("a reason");
    let expected = format!("node {} did not give its figures: ", cluster.mgmt(node));
    assert!(why.len() > expected.len(), "{why}");
    assert!(why.starts_with(&expected), "{why}");
}

#[test]
fn each_node_lists_all_nodes_of_a_bucket_and_gives_the_figures_of_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3", "--replicas=0"]);
    let mut connections: Vec<ClientConnection> = (0..3).map(|node| cluster.connect(node)).collect();
    // No two nodes have the same number of documents: node 0 has one, node 1 two, node 2 three.
    let mut missing = [1, 2, 3];
    for n in 0.. {
        let key = format!("key-{n}");
        let node = put(&mut connections, &key, "x");
        if missing[node] > 0 {
            missing[node] -= 1;
        } else {
            let deleted = connections[node].delete(key.as_bytes(), None);
            deleted.expect("a deletion");
        }
        if missing == [0; 3] {
            break;
        }
    }
    let names: Vec<Value> = (0..3)
        .map(|node| cluster.mgmt(node).to_string().into())
        .collect();
    for asked in 0..3 {
        let servers = (0..3).map(|node| {
            let uri = uri(&cluster, node);
            json!({
                "hostname": names[node],
                "uri": uri,
                "stats": { "uri": format!("{uri}/stats") },
            })
        });
        let expected = json!({ "servers": servers.collect::<Vec<_>>() });
        let list = cluster.http(asked).json(AT).expect("a list");
        assert_eq!(list, expected, "node {asked}");
        for (node, name) in names.iter().enumerate() {
            let what = format!("node {node}, asked of {asked}");
            let uri = uri(&cluster, node);
            let about = cluster.http(asked).json(&uri).expect("a node");
            assert_eq!(&about["hostname"], name, "{what}");
            assert_eq!(about["bucketName"], "default", "{what}");
            let stats = cluster.http(asked).json(&format!("{uri}/stats"));
            let stats = stats.expect("figures");
            assert_eq!(&stats["hostname"], name, "{what}");
            let samples = &stats["op"]["samples"];
            assert_eq!(samples["curr_items"], json!([node as f64 + 1.0]), "{what}");
        }
        let unknown = format!("{AT}/127.0.0.1%3A1");
        for path in [format!("{unknown}/stats"), unknown] {
            let reply = get(&cluster, asked, &path);
            assert_eq!((reply.code, &*reply.body), (404, MISSING), "{path}");
        }
    }
}

#[test]
fn figures_of_a_node_that_does_not_answer_are_unavailable() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let names: Vec<Value> = (0..2)
        .map(|node| cluster.mgmt(node).to_string().into())
        .collect();
    cluster.suspend(1);
    // Its threads stop a moment after the signal.
    cluster.wait_status(0, "it is seen to hang", |status| {
        status["nodes"][1]["up"] == false
    });
    check_unavailable(&cluster, 0, 1);
    cluster.signal(1, Signal::CONT);
    cluster.kill(1);
    check_unavailable(&cluster, 0, 1);
    // It is a node of the bucket until it is failed over.
    assert_eq!(listed(&cluster, 0), names);
    let own = get(&cluster, 0, &format!("{}/stats", uri(&cluster, 0)));
    assert_eq!(own.code, 200);
    let (code, _, why) = cluster.tool(0, &["failover", "n_1"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(listed(&cluster, 0), names[..1]);
    let gone = get(&cluster, 0, &format!("{}/stats", uri(&cluster, 1)));
    assert_eq!((gone.code, &*gone.body), (404, MISSING));
}
