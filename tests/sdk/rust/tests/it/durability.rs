use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::options::kv_binary_options::{AppendOptions, IncrementOptions};
use couchbase::options::kv_options::{InsertOptions, RemoveOptions, ReplaceOptions, UpsertOptions};
use serde_json::json;

use crate::{in_parallel, setup, want_content, want_error, within};

pub const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::MAJORITY,
    DurabilityLevel::MAJORITY_AND_PERSIST_ACTIVE,
    DurabilityLevel::PERSIST_TO_MAJORITY,
];

#[tokio::test(flavor = "multi_thread")]
async fn every_write_at_every_level() {
    let setup = setup().await;
    let collection = &setup.collection;
    for level in LEVELS {
        let insert = || InsertOptions::new().durability_level(level.clone());
        within(collection.insert("key", 1, insert())).await.unwrap();
        want_error(
            within(collection.insert("key", 2, insert())).await,
            ErrorKind::DocumentExists,
        );
        let upsert = UpsertOptions::new().durability_level(level.clone());
        let stored = within(collection.upsert("key", 3, upsert)).await.unwrap();
        assert!(stored.mutation_token().is_some());
        let replace = || {
            ReplaceOptions::new()
                .durability_level(level.clone())
                .cas(stored.cas())
        };
        let replaced = within(collection.replace("key", 4, replace()))
            .await
            .unwrap();
        want_error(
            within(collection.replace("key", 5, replace())).await,
            ErrorKind::CasMismatch,
        );
        want_content(collection, "key", json!(4)).await;
        let read = within(collection.get("key", None)).await.unwrap();
        assert_eq!(read.cas(), replaced.cas());
        let remove = RemoveOptions::new().durability_level(level.clone());
        within(collection.remove("key", remove)).await.unwrap();
        want_error(
            within(collection.get("key", None)).await,
            ErrorKind::DocumentNotFound,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_writes_at_every_level() {
    let setup = setup().await;
    let binary = setup.collection.binary();
    for (n, level) in LEVELS.into_iter().enumerate() {
        let (counter, text) = (format!("counter-{n}"), format!("text-{n}"));
        for wanted in [7, 8] {
            let options = IncrementOptions::new()
                .initial(7)
                .delta(1)
                .durability_level(level.clone());
            let result = within(binary.increment(&counter, options)).await.unwrap();
            assert_eq!(result.content(), wanted);
        }
        within(setup.collection.upsert_raw(&text, b"a", 0, None))
            .await
            .unwrap();
        let options = AppendOptions::new().durability_level(level);
        within(binary.append(&text, b"b", options)).await.unwrap();
        let read = within(setup.collection.get(&text, None)).await.unwrap();
        assert_eq!(read.content_as_raw().0, b"ab");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_writes_in_bulk() {
    let setup = setup().await;
    let collection = setup.collection.clone();
    in_parallel(1_000, 50, move |n| {
        let collection = collection.clone();
        async move {
            let options =
                UpsertOptions::new().durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
            within(collection.upsert(format!("key-{n}"), n, options))
                .await
                .unwrap();
        }
    })
    .await;
    want_content(&setup.collection, "key-999", json!(999)).await;
}
