//! What is done with documents of named collections, on one node and on two.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use couchbase::bucket::Bucket;
use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::error::ErrorKind;
use couchbase::get_replica_strategy::ReplicaIndex;
use couchbase::management::collections::collection_settings::{
    CreateCollectionSettings, MaxExpiryValue,
};
use couchbase::options::kv_options::{GetOptions, LookupInOptions, UpsertOptions};
use couchbase::subdoc::lookup_in_specs::{GetSpecOptions, LookupInSpec};
use couchbase::subdoc::mutate_in_specs::{MutateInSpec, UpsertSpecOptions};
use serde_json::json;

use crate::cluster::{replica, until_on_replicas, upsert};
use crate::documents::ten_thousand;
use crate::durability::LEVELS;
use crate::nodes::Nodes;
use crate::server::{BUCKET, PASSWORD, Server, USER};
use crate::{connect_to, want_content, want_error, within};

/// Nodes, a connection to them, and two collections. The fields are dropped in this order.
struct Opened {
    a: Collection,
    b: Collection,
    bucket: Bucket,
    _cluster: Cluster,
    _server: Option<Server>,
    _nodes: Option<Nodes>,
}

async fn open(count: usize) -> Opened {
    let server = (count == 1).then(Server::start);
    let nodes = (count > 1).then(|| Nodes::start(count));
    let to = server
        .as_ref()
        .map(Server::connection_string)
        .or(nodes.as_ref().map(Nodes::connection_string));
    let cluster = connect_to(&to.unwrap(), USER, PASSWORD).await.unwrap();
    let bucket = cluster.bucket(BUCKET);
    within(bucket.wait_until_ready(None)).await.unwrap();
    let manager = bucket.collections();
    within(manager.create_scope("s", None)).await.unwrap();
    for name in ["a", "b"] {
        let made = manager.create_collection("s", name, None, None);
        within(made).await.unwrap();
    }
    let scope = bucket.scope("s");
    Opened {
        a: scope.collection("a"),
        b: scope.collection("b"),
        bucket,
        _cluster: cluster,
        _server: server,
        _nodes: nodes,
    }
}

/// In seconds of Unix time.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

async fn expiry(collection: &Collection) -> i64 {
    let options = GetOptions::new().expiry(true);
    let found = within(collection.get("key", options)).await.unwrap();
    found.expiry_time().unwrap().timestamp()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_live_is_the_collections() {
    const LONGEST: Duration = Duration::from_secs(600);
    const DAY: Duration = Duration::from_secs(86_400);
    for count in [1, 2] {
        let opened = open(count).await;
        let longest = CreateCollectionSettings::new().max_expiry(MaxExpiryValue::Seconds(LONGEST));
        let manager = opened.bucket.collections();
        let made = manager.create_collection("s", "ttl", longest, None);
        within(made).await.unwrap();
        let documents = opened.bucket.scope("s").collection("ttl");
        for options in [UpsertOptions::new(), UpsertOptions::new().expiry(20 * DAY)] {
            let earliest = now() + 600;
            within(documents.upsert("key", 1, options)).await.unwrap();
            let latest = now() + 601;
            let found = expiry(&documents).await;
            assert!((earliest..=latest).contains(&found), "{earliest} {found}");
        }
        let options = UpsertOptions::new().expiry(Duration::from_secs(60));
        within(documents.upsert("key", 1, options)).await.unwrap();
        assert!(expiry(&documents).await <= now() + 61);
    }
}

fn attribute(path: &str) -> LookupInSpec {
    LookupInSpec::get(path, GetSpecOptions::new().xattr(true))
}

#[tokio::test(flavor = "multi_thread")]
async fn paths() {
    for count in [1, 2] {
        let Opened { a, b, .. } = &open(count).await;
        for (n, collection) in [a, b].into_iter().enumerate() {
            within(collection.upsert("key", json!({"n": n}), None))
                .await
                .unwrap();
        }
        let path = || UpsertSpecOptions::new().xattr(true).create_path(true);
        let changes = [
            MutateInSpec::upsert("meta.owner", "me", path()).unwrap(),
            MutateInSpec::upsert("_sys", 2, path()).unwrap(),
            MutateInSpec::increment("n", 10, None).unwrap(),
        ];
        within(a.mutate_in("key", &changes, None)).await.unwrap();
        let paths = [
            attribute("meta.owner"),
            attribute("_sys"),
            LookupInSpec::get("n", None),
        ];
        let found = within(a.lookup_in("key", &paths, None)).await.unwrap();
        assert_eq!(found.content_as::<String>(0).unwrap(), "me");
        assert_eq!(found.content_as::<u32>(1).unwrap(), 2);
        assert_eq!(found.content_as::<u32>(2).unwrap(), 10);
        let other = within(b.lookup_in("key", &paths, None)).await.unwrap();
        want_error(other.content_as::<String>(0), ErrorKind::PathNotFound);
        want_error(other.content_as::<u32>(1), ErrorKind::PathNotFound);
        assert_eq!(other.content_as::<u32>(2).unwrap(), 1);
        // An attribute of the system outlives the document, in its collection only.
        within(a.remove("key", None)).await.unwrap();
        let deleted = LookupInOptions::new().access_deleted(true);
        let left = within(a.lookup_in("key", &paths[..2], deleted))
            .await
            .unwrap();
        want_error(left.content_as::<String>(0), ErrorKind::PathNotFound);
        assert_eq!(left.content_as::<u32>(1).unwrap(), 2);
        want_content(b, "key", json!({"n": 1})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_documents_of_a_collection() {
    for count in [1, 2] {
        let opened = open(count).await;
        ten_thousand(&opened.a).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_writes_and_reads_from_replicas() {
    for count in [1, 2] {
        let Opened { a, b, .. } = &open(count).await;
        for (at, level) in LEVELS.iter().enumerate() {
            for n in 0..20 {
                let key = format!("{at}-{n}");
                within(b.upsert(&key, -1, None)).await.unwrap();
                upsert(a, &key, n, level).await;
                want_content(a, &key, json!(n)).await;
                until_on_replicas(a, &key, n, count - 1).await;
            }
        }
        within(b.upsert("elsewhere", 1, None)).await.unwrap();
        if count > 1 {
            let missing = a.get_replica("elsewhere", replica(ReplicaIndex::First), None);
            want_error(within(missing).await, ErrorKind::DocumentNotFoundOnReplica);
        }
    }
}
