use std::time::Duration;

use couchbase::options::diagnostic_options::{PingOptions, WaitUntilReadyOptions};
use couchbase::options::kv_options::GetOptions;
use couchbase::results::diagnostics::PingState;
use couchbase::service_type::ServiceType;

use crate::server::{BUCKET, PASSWORD, Server, USER};
use crate::{connect, fail_fast, setup, within};

#[tokio::test(flavor = "multi_thread")]
async fn cluster_and_bucket_become_ready() {
    let setup = setup().await;
    let options = WaitUntilReadyOptions::new().service_types(vec![ServiceType::KV]);
    within(setup.cluster.wait_until_ready(options))
        .await
        .unwrap();
    let report = within(setup.cluster.diagnostics(None)).await.unwrap();
    assert!(!report.services[&ServiceType::KV].is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ping_reaches_the_key_value_service() {
    let setup = setup().await;
    let options = PingOptions::new().service_types(vec![ServiceType::KV]);
    let report = within(setup.cluster.bucket(BUCKET).ping(options))
        .await
        .unwrap();
    let endpoints = &report.services[&ServiceType::KV];
    assert!(!endpoints.is_empty());
    assert!(
        endpoints
            .iter()
            .all(|endpoint| endpoint.state == PingState::Ok),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_never_connect() {
    // The SDK goes on trying, whatever the server answered; what a caller sees is its own timeout.
    let server = Server::start();
    for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD), ("nobody", "wrong")] {
        let attempt = connect(&server, user, password);
        let result = tokio::time::timeout(Duration::from_secs(1), attempt).await;
        assert!(!matches!(result, Ok(Ok(_))), "{user} with {password}");
    }
    connect(&server, USER, PASSWORD).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_never_answers() {
    // The SDK goes on trying to open the bucket; what a caller sees is its own timeout or an error.
    let setup = setup().await;
    let missing = setup.cluster.bucket("no-such-bucket").default_collection();
    let options = GetOptions::new().retry_strategy(fail_fast());
    let result = tokio::time::timeout(Duration::from_secs(2), missing.get("key", options)).await;
    assert!(!matches!(result, Ok(Ok(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn named_collections_fail_cleanly() {
    let setup = setup().await;
    let named = setup.cluster.bucket(BUCKET).scope("s").collection("c");
    let options = GetOptions::new().retry_strategy(fail_fast());
    let result = tokio::time::timeout(Duration::from_secs(2), named.get("key", options)).await;
    assert!(!matches!(result, Ok(Ok(_))));
}
