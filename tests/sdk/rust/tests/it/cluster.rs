use std::time::Duration;

use couchbase::collection::Collection;
use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::get_replica_strategy::{GetReplicaStrategy, ReplicaIndex};
use couchbase::options::kv_options::UpsertOptions;
use serde_json::{Value, json};

use crate::durability::LEVELS;
use crate::nodes::Nodes;
use crate::server::{BUCKET, PASSWORD, USER};
use crate::{connect_to, until, want_content, want_error, within};

const COUNT: usize = 100;

async fn open(nodes: &Nodes) -> (couchbase::cluster::Cluster, Collection) {
    let cluster = connect_to(&nodes.connection_string(), USER, PASSWORD)
        .await
        .unwrap();
    let bucket = cluster.bucket(BUCKET);
    within(bucket.wait_until_ready(None)).await.unwrap();
    let collection = bucket.default_collection();
    (cluster, collection)
}

pub async fn upsert(collection: &Collection, key: &str, value: usize, level: &DurabilityLevel) {
    let options = UpsertOptions::new().durability_level(level.clone());
    within(collection.upsert(key, value, options))
        .await
        .unwrap();
}

pub fn replica(index: ReplicaIndex) -> GetReplicaStrategy {
    GetReplicaStrategy::from_index(index, None)
}

/// Reads from each replica until it has the document: it hears of the commit after the client does.
pub async fn until_on_replicas(collection: &Collection, key: &str, value: usize, replicas: usize) {
    for index in [ReplicaIndex::First, ReplicaIndex::Second]
        .into_iter()
        .take(replicas)
    {
        until(&format!("{key} is on replica {index:?}"), || async {
            let read = within(collection.get_replica(key, replica(index), None)).await;
            read.is_ok_and(|found| found.content_as::<Value>().unwrap() == json!(value))
        })
        .await;
    }
}

async fn durable_writes_and_replica_reads(count: usize) {
    let nodes = Nodes::start(count);
    let (_cluster, collection) = open(&nodes).await;
    for (at, level) in LEVELS.iter().enumerate() {
        for n in 0..COUNT {
            upsert(&collection, &format!("{at}-{n}"), n, level).await;
        }
        for n in 0..20 {
            until_on_replicas(&collection, &format!("{at}-{n}"), n, count - 1).await;
        }
    }
    let nothing = collection.get_replica("nothing", replica(ReplicaIndex::First), None);
    want_error(within(nothing).await, ErrorKind::DocumentNotFoundOnReplica);
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_writes_and_replica_reads_on_two_nodes() {
    durable_writes_and_replica_reads(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_writes_and_replica_reads_on_three_nodes() {
    durable_writes_and_replica_reads(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_goes_on_through_a_failover() {
    let nodes = Nodes::start(3);
    let (_cluster, collection) = open(&nodes).await;
    let key = |n: usize| format!("key-{n}");
    for n in 0..COUNT {
        upsert(&collection, &key(n), n, &LEVELS[0]).await;
    }
    nodes.fail_over(2);
    for n in 0..COUNT {
        until(&format!("{} is found at another node", key(n)), || async {
            let read = collection.get(key(n), None);
            let read = tokio::time::timeout(Duration::from_secs(1), read).await;
            matches!(read, Ok(Ok(found)) if found.content_as::<Value>().unwrap() == json!(n))
        })
        .await;
    }
    for level in &LEVELS {
        for n in 0..50 {
            upsert(&collection, &key(n), n + COUNT, level).await;
            want_content(&collection, &key(n), json!(n + COUNT)).await;
        }
    }
}
