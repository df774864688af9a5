//! Scopes and collections outlive processes, and are those of all nodes.

use std::collections::BTreeMap;

use kedge::client::ManagementClient;
use kedge_node::http_client::HttpClient as Transport;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::process::{PASSWORD, Server, USER};

const SCOPES: &str = "/pools/default/buckets/default/scopes";

/// Collections of the default scope with their ids, and the uid of the manifest.
fn collections(client: &ManagementClient) -> (u64, BTreeMap<String, u64>) {
    let number = |value: &Value| {
        let text = value.as_str().expect("hexadecimal text");
        u64::from_str_radix(text, 16).expect("hexadecimal text")
    };
    let manifest = client.json(SCOPES).expect("a manifest");
    let scope = &manifest["scopes"][0];
    let list = scope["collections"].as_array().expect("a list");
    let pair = |it: &Value| {
        (
            it["name"].as_str().expect("a name").to_owned(),
            number(&it["uid"]),
        )
    };
    (number(&manifest["uid"]), list.iter().map(pair).collect())
}

/// Each round makes a collection, asks for another and kills the process before, while or after that is made, and drops one. What
/// was answered is there afterwards, under the same id, and no id is given to two.
#[test]
fn collection_ids_are_unique_across_kill_9() {
    const ROUNDS: usize = 12;
    let dir = tempfile::tempdir().expect("a directory");
    let place = format!("{SCOPES}/_default/collections");
    let mut ids: BTreeMap<u64, String> = BTreeMap::new();
    let (mut last_uid, mut answered) = (0, BTreeMap::new());
    for round in 0..ROUNDS {
        let server = Server::start(dir.path(), &["--vbuckets=4"]);
        let address = server.mgmt;
        let client =
            || ManagementClient::new(&address.ip().to_string(), address.port(), USER, PASSWORD);
        let (uid, there) = collections(&client());
        assert!(uid >= last_uid, "round {round}");
        for (name, id) in &answered {
            assert_eq!(there.get(name), Some(id), "round {round}: {name}");
        }
        for (name, id) in &there {
            let owner = ids.entry(*id).or_insert_with(|| name.clone());
            assert_eq!(owner, name, "round {round}: id {id:x} is another's");
        }
        let name = format!("c{round}");
        client()
            .expect("POST", &place, &[("name", &name)])
            .expect("it is made");
        if let Some(old) = there.keys().find(|name| name.starts_with('c')) {
            let old = format!("{place}/{old}");
            client().expect("DELETE", &old, &[]).expect("it is dropped");
        }
        (last_uid, answered) = collections(&client());
        let unanswered = std::thread::spawn({
            let (client, place) = (client(), place.clone());
            move || {
                // Whether this is answered is up to the kill.
                let _ = client.send("POST", &place, &[("name", "u")]);
            }
        });
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        server.kill();
        unanswered.join().expect("it does not panic");
    }
}

#[test]
fn collections_are_replicated_to_all_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=3"]);
    let place = format!("{SCOPES}/_default/collections");
    for node in 0..3 {
        let name = format!("n{node}");
        cluster
            .http(node)
            .expect("POST", &place, &[("name", &name)])
            .expect("made");
        // Whoever is asked next knows of it.
        let expected = collections(&cluster.http(node));
        assert_eq!(expected.1.len(), node + 2);
        for other in 0..3 {
            assert_eq!(collections(&cluster.http(other)), expected, "node {other}");
            let shown = &cluster.map(other)["collectionsManifestUid"];
            assert_eq!(*shown, format!("{:x}", expected.0), "node {other}");
        }
    }
    let (uid, there) = collections(&cluster.http(0));
    let ids: std::collections::BTreeSet<u64> = there.values().copied().collect();
    assert_eq!(ids.len(), there.len());
    let ensure = format!("{SCOPES}/@ensureManifest/{uid:x}");
    cluster
        .http(1)
        .expect("POST", &ensure, &[])
        .expect("all nodes have it");
    let again = cluster.http(2).expect("POST", &place, &[("name", "n0")]);
    let again = again.expect_err("it is there").to_string();
    assert!(again.contains("already exists"), "{again}");

    cluster.kill(2);
    let refused = cluster.http(0).expect("POST", &place, &[("name", "more")]);
    let refused = refused.expect_err("a node does not answer").to_string();
    assert!(refused.contains("n_2"), "{refused}");
    assert_eq!(collections(&cluster.http(0)), (uid, there.clone()));
    let form = [("node", "n_2"), ("force", "true")];
    cluster
        .http(0)
        .expect("POST", "/kedge/cluster/failover", &form)
        .expect("failed over");
    cluster
        .http(1)
        .expect("POST", &place, &[("name", "more")])
        .expect("made");
    let (now, left) = collections(&cluster.http(0));
    assert!(now > uid);
    assert_eq!(left.len(), there.len() + 1);
    // The node that was lost hears of it when it is back.
    let back = cluster.serve(dir.path(), 2);
    cluster
        .http(0)
        .expect("POST", "/kedge/cluster/recover", &[("node", "n_2")])
        .expect("recovered");
    let mgmt = back.mgmt;
    let client = ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD);
    let ensure = format!("{SCOPES}/@ensureManifest/{now:x}");
    client.expect("POST", &ensure, &[]).expect("it has it");
    assert_eq!(collections(&client).1, left);
}

/// Sends a whole manifest to a node; what it answered, if it was not refused.
fn put(cluster: &Cluster, node: usize, manifest: &str) -> Result<(), String> {
    let mgmt = cluster.mgmt(node);
    let client = Transport::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD);
    let sent = client.send("PUT", SCOPES, "application/json", manifest.as_bytes());
    let reply = sent.expect("an answer");
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    reply.is_success().then_some(()).ok_or(said)
}

#[test]
fn whole_manifest_is_replicated_to_all_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let of = |names: &[&str]| {
        let named: Vec<String> = names
            .iter()
            .map(|it| format!("{{\"name\":\"{it}\"}}"))
            .collect();
        format!(
            "{{\"scopes\":[{{\"name\":\"_default\",\"collections\":[{}]}}]}}",
            named.join(",")
        )
    };
    put(&cluster, 0, &of(&["_default", "a", "b"])).expect("made");
    let first = collections(&cluster.http(0));
    assert_eq!(collections(&cluster.http(1)), first);
    put(&cluster, 1, &of(&["b", "c"])).expect("made");
    let second = collections(&cluster.http(1));
    assert_eq!(collections(&cluster.http(0)), second);
    assert!(second.0 > first.0);
    let names: Vec<&str> = second.1.keys().map(String::as_str).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(second.1["b"], first.1["b"], "it is the same");
    let refused = put(&cluster, 0, &of(&["_new"])).expect_err("a name of the system");
    assert!(refused.contains("First character"), "{refused}");
    cluster.kill(1);
    let refused = put(&cluster, 0, &of(&["b"])).expect_err("a node does not answer");
    assert!(refused.contains("n_1"), "{refused}");
    assert_eq!(collections(&cluster.http(0)), second);
}
