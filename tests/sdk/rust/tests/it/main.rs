//! The official Rust SDK against a Kedge server. Every test starts a server of its own, which costs milliseconds.

mod buckets;
mod cluster;
mod collection_use;
mod collections;
mod connect;
mod documents;
mod durability;
mod locks;
mod nodes;
mod readme;
mod restart;
mod server;
mod subdocument;
mod tls;
mod users;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::collection::Collection;
use couchbase::error::{Error, ErrorKind};
use couchbase::options::cluster_options::ClusterOptions;
use couchbase::retry::{RetryAction, RetryReason, RetryRequest, RetryStrategy};

use server::{BUCKET, PASSWORD, Server, USER};

/// The deadline of every operation.
const LIMIT: Duration = Duration::from_secs(60);

/// A server, a connection to it and its collection. The fields are dropped in this order.
pub struct Setup {
    pub collection: Collection,
    pub cluster: Cluster,
    pub server: Server,
}

/// Starts a server and connects to it.
pub async fn setup() -> Setup {
    let server = Server::start();
    let cluster = connect(&server, USER, PASSWORD).await.unwrap();
    let bucket = cluster.bucket(BUCKET);
    within(bucket.wait_until_ready(None)).await.unwrap();
    let collection = bucket.default_collection();
    Setup {
        collection,
        cluster,
        server,
    }
}

pub async fn connect(server: &Server, user: &str, password: &str) -> Result<Cluster, Error> {
    connect_to(&server.connection_string(), user, password).await
}

pub async fn connect_to(to: &str, user: &str, password: &str) -> Result<Cluster, Error> {
    let options = ClusterOptions::new(PasswordAuthenticator::new(user, password).into());
    within(Cluster::connect(to, options)).await
}

/// The SDK has no timeouts of its own; a test fails after [`LIMIT`].
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work)
        .await
        .expect("done within the limit")
}

/// Asks again and again until the condition is true.
pub async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let end = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        // sleep: between two questions to another process, which sends no event
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns whether there is a document. For a tombstone the SDK says no; for a key that was never written it has an error.
pub async fn exists(collection: &Collection, key: &str) -> bool {
    match within(collection.exists(key, None)).await {
        Ok(found) => found.exists(),
        Err(error) if error.kind() == &ErrorKind::DocumentNotFound => false,
        Err(error) => panic!("{key}: {error}"),
    }
}

pub async fn until_gone(collection: &Collection, key: &str) {
    until(&format!("{key} is gone"), || async {
        !exists(collection, key).await
    })
    .await;
}

/// Returns an error where the SDK would try again.
#[derive(Debug)]
struct FailFast;

impl RetryStrategy for FailFast {
    fn retry_after(&self, _: &RetryRequest, _: &RetryReason) -> Option<RetryAction> {
        None
    }
}

pub fn fail_fast() -> Arc<dyn RetryStrategy> {
    Arc::new(FailFast)
}

#[track_caller]
pub fn want_error<T: std::fmt::Debug>(result: Result<T, Error>, wanted: ErrorKind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), &wanted, "{error}");
}

pub async fn want_content(collection: &Collection, key: &str, wanted: serde_json::Value) {
    let read = within(collection.get(key, None)).await.unwrap();
    assert_eq!(
        read.content_as::<serde_json::Value>().unwrap(),
        wanted,
        "{key}"
    );
}

/// Runs `work(n)` for 0 to `count` - 1 on `width` tasks.
pub async fn in_parallel<F>(
    count: usize,
    width: usize,
    work: impl Fn(usize) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let work = Arc::new(work);
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..width {
        let work = Arc::clone(&work);
        tasks.spawn(async move {
            for n in (first..count).step_by(width) {
                work(n).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}
