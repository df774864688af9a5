//! New copies from files of a bucket with scopes and collections.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ManagementClient};
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::{DurabilityLevel, Status, encode_leb128};
use serde_json::Value;

use crate::cluster::{Cluster, is_whole};
use crate::cluster_store::another;
use crate::file_copies::{figure, wait_for_figure};
use crate::process::{PASSWORD, PATIENCE, Server, USER, connect_to};

const SCOPES: &str = "/pools/default/buckets/default/scopes";
/// The documents of each collection.
const DOCUMENTS: u32 = 200;
/// Each copy is one of a file.
const SETTINGS: [&str; 2] = ["--file-copy-min-bytes=1", "--apply-max-lag=10ms"];

/// The collections, by `SCOPE.COLLECTION`, with their ids.
type Collections = BTreeMap<String, u32>;

/// Returns the uid of the manifest, and its collections.
fn collections(client: &ManagementClient) -> (Value, Collections) {
    let manifest = client.json(SCOPES).expect("a manifest");
    let scopes = manifest["scopes"].as_array().expect("scopes").iter();
    let of_scope = |scope: &Value| {
        let name = |it: &Value| it["name"].as_str().expect("a name").to_owned();
        let of_scope = scope["collections"].as_array().expect("collections").iter();
        let each = |it: &Value| {
            let id = u32::from_str_radix(it["uid"].as_str().expect("text"), 16);
            (format!("{}.{}", name(scope), name(it)), id.expect("an id"))
        };
        of_scope.map(each).collect::<Vec<_>>()
    };
    let all = scopes.flat_map(of_scope).collect();
    (manifest["uid"].clone(), all)
}

fn create(client: &ManagementClient, scope: &str, collection: &str) {
    let place = format!("{SCOPES}/{scope}/collections");
    let created = client.expect("POST", &place, &[("name", collection)]);
    created.expect("a new collection");
}

fn key(collection: u32, number: u32) -> Vec<u8> {
    let (prefix, len) = encode_leb128(collection);
    [&prefix[..len], format!("document-{number}").as_bytes()].concat()
}

fn value(name: &str, number: u32, round: u32) -> Vec<u8> {
    format!("{name} {number} {round}").repeat(20).into_bytes()
}

fn with_collections(mut connection: ClientConnection) -> ClientConnection {
    connection.hello(&[Feature::Collections]).expect("HELLO");
    connection
}

/// Calls whichever node has the active vBucket.
fn on_active<T>(
    connections: &mut [ClientConnection],
    call: impl Fn(&mut ClientConnection) -> Result<T, kedge::client::ClientError>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for connection in &mut *connections {
            match call(connection) {
                Ok(done) => return done,
                Err(error) => assert_eq!(error.status(), Some(Status::NotMyVbucket), "{error}"),
            }
        }
        assert!(Instant::now() < deadline, "no node has the vBucket");
        thread::yield_now();
    }
}

/// Writes all documents of a round: of each collection, the first `documents`.
fn write(connections: &mut [ClientConnection], (all, round): (&Collections, u32), documents: u32) {
    for (name, id) in all {
        for number in 0..documents {
            let (key, value) = (key(*id, number), value(name, number, round));
            let level = Some(DurabilityLevel::PersistToMajority);
            on_active(connections, |it| it.set(&key, &value, level));
        }
    }
}

/// Starts a third node, and replaces the first one by it.
fn replace_first_node(cluster: &Cluster, dir: &std::path::Path) -> Server {
    let mut command = another(dir, "n_2", &dir.join("n_2"));
    command.args(SETTINGS);
    let server = thread::scope(|scope| {
        let starting = scope.spawn(|| Server::spawn(command));
        while cluster.tool(1, &["add", "n_2"]).0 != Some(0) {
            assert!(!starting.is_finished(), "it waits");
        }
        starting.join().expect("no panic").expect("it is ready")
    });
    let (code, _, why) = cluster.tool(1, &["rebalance", "--remove", "n_0", "--wait"]);
    assert_eq!(code, Some(0), "{why}");
    server
}

#[test]
fn copied_files_have_all_collections_but_dropped_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = ["--nodes=2", "--replicas=1"].iter().chain(&SETTINGS);
    let cluster = Cluster::start(dir.path(), &settings.copied().collect::<Vec<_>>());
    let client = cluster.http(0);
    for scope in ["eu", "us", "gone"] {
        let created = client.expect("POST", SCOPES, &[("name", scope)]);
        created.expect("a new scope");
    }
    let names = [
        ("_default", "orders"),
        ("eu", "orders"),
        ("eu", "customers"),
        ("us", "orders"),
        ("gone", "orders"),
    ];
    for (scope, collection) in names {
        create(&client, scope, collection);
    }
    let (_, before) = collections(&client);
    assert!(before.len() > names.len(), "{before:?}");
    let connect = |node| with_collections(cluster.connect(node));
    let mut connections = vec![connect(0), connect(1)];
    write(&mut connections, (&before, 0), DOCUMENTS);
    wait_until_applied(&mut connections);
    // The files have the documents of what is dropped now.
    for path in ["eu/collections/customers", "gone"] {
        let dropped = client.expect("DELETE", &format!("{SCOPES}/{path}"), &[]);
        dropped.expect("dropped");
    }
    create(&client, "eu", "customers");
    let (uid, after) = collections(&client);
    let is_new = |name: &str| before.get(name) != after.get(name);
    assert!(is_new("eu.customers") && !after.contains_key("gone.orders"));

    let server = replace_first_node(&cluster, dir.path());
    // All copies of the first node are copies of files.
    assert!(wait_for_figure(&server, "replication_files", |files| files > 0) > 0);
    assert_eq!(
        wait_for_figure(&server, "ep_file_copy_failures", |_| true),
        0
    );
    let mgmt = server.mgmt;
    let on_new = ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD);
    assert_eq!(collections(&on_new), (uid, after.clone()));

    let new = || with_collections(connect_to(server.kv, PASSWORD).expect("a connection"));
    let mut connections = vec![connect(1), new()];
    let written: Collections = after
        .iter()
        .filter(|(name, _)| !is_new(name))
        .map(|(name, id)| (name.clone(), *id))
        .collect();
    // The new node has a copy of each vBucket.
    for (name, id) in &written {
        for number in 0..DOCUMENTS {
            let found = copy_of(&mut connections[1], &key(*id, number));
            assert!(found == Some(value(name, number, 0)), "{name} {number}");
        }
    }
    // Later changes arrive: of the old documents, and in a collection that came after.
    write(&mut connections, (&written, 1), DOCUMENTS / 2);
    let created: Collections = after
        .iter()
        .filter(|(name, _)| is_new(name))
        .map(|(name, id)| (name.clone(), *id))
        .collect();
    write(&mut connections, (&created, 1), 1);
    let deleted = DOCUMENTS - 1;
    for id in written.values() {
        let key = key(*id, deleted);
        let level = Some(DurabilityLevel::PersistToMajority);
        on_active(&mut connections, |it| it.delete(&key, level).map(drop));
    }
    cluster.wait_status(1, "all copies are even", is_whole);

    cluster.kill(1);
    drop(connections);
    fail_over(&server, "n_1");
    let mut connections = vec![new()];
    for (name, id) in &written {
        for number in 0..DOCUMENTS {
            let key = key(*id, number);
            let found = on_active(&mut connections, |it| it.get(&key));
            let round = u32::from(number < DOCUMENTS / 2);
            let expected = (number != deleted).then(|| value(name, number, round));
            assert!(found.map(|it| it.value) == expected, "{name} {number}");
        }
    }
    for (name, id) in &created {
        let found = |number: u32, connections: &mut [ClientConnection]| {
            let key = key(*id, number);
            on_active(connections, |it| it.get(&key)).map(|it| it.value)
        };
        assert!(
            found(0, &mut connections) == Some(value(name, 0, 1)),
            "{name}"
        );
        assert_eq!(found(1, &mut connections), None, "{name} began empty");
    }
    let unknown = connections[0].get(&key(before["gone.orders"], 0));
    let unknown = unknown.expect_err("the collection was dropped").status();
    assert_eq!(unknown, Some(Status::UnknownCollection));
    // Nothing of what was dropped came with the files.
    let kept = written.len() as u64 * u64::from(DOCUMENTS - 1) + created.len() as u64;
    wait_for_figure(&server, "curr_items", |items| items == kept);
}

fn wait_until_applied(connections: &mut [ClientConnection]) {
    let deadline = Instant::now() + PATIENCE;
    while connections
        .iter_mut()
        .any(|it| figure(it, "ep_unapplied_items") > 0)
    {
        assert!(Instant::now() < deadline, "the files do not get all");
        thread::yield_now();
    }
}

/// Returns the value of a document from a node that has a copy, active or not.
fn copy_of(connection: &mut ClientConnection, key: &[u8]) -> Option<Vec<u8>> {
    match connection.get(key) {
        Ok(found) => found.map(|it| it.value),
        Err(error) if error.status() == Some(Status::NotMyVbucket) => {
            let writer = connection.document(Opcode::GetReplica, key);
            let found = connection.expect(&writer, &[], key, &[]);
            found.ok().map(|reply| reply.value)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fails a killed node over, once the other one has noticed.
fn fail_over(server: &Server, node: &str) {
    let url = format!("http://{}", server.mgmt);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut command = crate::process::kedge(&["cluster", "failover", node, "-U", &url]);
        let done = crate::process::run(command.args(["-u", USER, "-P", PASSWORD]));
        if done.0 == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "{}", done.2);
    }
}
