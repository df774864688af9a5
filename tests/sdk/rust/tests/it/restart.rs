use std::time::Duration;

use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::options::kv_options::{RemoveOptions, UpsertOptions};
use serde_json::json;

use crate::{Setup, in_parallel, setup, until, want_content, want_error, within};

async fn start_again(setup: &mut Setup, key: &str) {
    setup.server.start_again();
    let collection = &setup.collection;
    until("the client reconnects", || async {
        let read = tokio::time::timeout(Duration::from_secs(1), collection.get(key, None)).await;
        matches!(read, Ok(Ok(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_restart_keeps_everything() {
    let mut setup = setup().await;
    let collection = setup.collection.clone();
    in_parallel(1_000, 50, move |n| {
        let collection = collection.clone();
        async move {
            within(collection.upsert(format!("key-{n}"), n, None))
                .await
                .unwrap();
        }
    })
    .await;
    let cas = within(setup.collection.get("key-0", None))
        .await
        .unwrap()
        .cas();

    assert!(setup.server.terminate(), "{}", setup.server.log());
    start_again(&mut setup, "key-0").await;

    for n in 0..1_000 {
        want_content(&setup.collection, &format!("key-{n}"), json!(n)).await;
    }
    assert_eq!(
        within(setup.collection.get("key-0", None))
            .await
            .unwrap()
            .cas(),
        cas
    );
    assert!(
        within(setup.collection.upsert("key-0", 1, None))
            .await
            .unwrap()
            .cas()
            > cas
    );
}

async fn writes_survive_a_kill(level: DurabilityLevel) {
    let mut setup = setup().await;
    let options = || UpsertOptions::new().durability_level(level.clone());
    for n in 0..200 {
        within(setup.collection.upsert(format!("key-{n}"), n, options()))
            .await
            .unwrap();
    }
    let remove = RemoveOptions::new().durability_level(level.clone());
    within(setup.collection.remove("key-0", remove))
        .await
        .unwrap();

    setup.server.kill();
    start_again(&mut setup, "key-1").await;

    for n in 1..200 {
        want_content(&setup.collection, &format!("key-{n}"), json!(n)).await;
    }
    want_error(
        within(setup.collection.get("key-0", None)).await,
        ErrorKind::DocumentNotFound,
    );
    within(setup.collection.upsert("key-0", 0, options()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_persisted_on_the_active_survive_a_kill() {
    writes_survive_a_kill(DurabilityLevel::MAJORITY_AND_PERSIST_ACTIVE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_persisted_to_a_majority_survive_a_kill() {
    writes_survive_a_kill(DurabilityLevel::PERSIST_TO_MAJORITY).await;
}
