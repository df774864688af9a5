//! Scopes and collections that are made, used, dropped and made anew.

use std::time::Duration;

use couchbase::bucket::Bucket;
use couchbase::error::ErrorKind;
use couchbase::management::collections::collection_settings::{
    MaxExpiryValue, UpdateCollectionSettings,
};
use couchbase::options::kv_options::GetOptions;
use serde_json::json;

use crate::server::BUCKET;
use crate::{exists, fail_fast, setup, until, want_content, want_error, within};

/// The collections of a scope; `None` without such a scope.
async fn collections(bucket: &Bucket, scope: &str) -> Option<Vec<String>> {
    let scopes = within(bucket.collections().get_all_scopes(None))
        .await
        .unwrap();
    let found = scopes.iter().find(|each| each.name() == scope)?;
    let names = found.collections().iter();
    Some(names.map(|each| each.name().to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn create_and_drop() {
    let setup = setup().await;
    let bucket = setup.cluster.bucket(BUCKET);
    let manager = bucket.collections();
    within(manager.create_scope("s", None)).await.unwrap();
    want_error(
        within(manager.create_scope("s", None)).await,
        ErrorKind::ScopeExists,
    );
    assert_eq!(collections(&bucket, "s").await.unwrap().len(), 0);
    let create = || within(manager.create_collection("s", "a", None, None));
    create().await.unwrap();
    want_error(create().await, ErrorKind::CollectionExists);
    want_error(
        within(manager.create_collection("t", "a", None, None)).await,
        ErrorKind::ScopeNotFound,
    );
    assert_eq!(collections(&bucket, "s").await.unwrap(), ["a"]);
    let minute = MaxExpiryValue::Seconds(Duration::from_secs(60));
    let update = |name: &'static str| {
        let settings = UpdateCollectionSettings::new().max_expiry(minute);
        within(manager.update_collection("s", name, settings, None))
    };
    update("a").await.unwrap();
    let scopes = within(manager.get_all_scopes(None)).await.unwrap();
    let scope = scopes.iter().find(|each| each.name() == "s").unwrap();
    assert_eq!(scope.collections()[0].max_expiry(), minute);
    want_error(update("b").await, ErrorKind::CollectionNotFound);
    let drop = || within(manager.drop_collection("s", "a", None));
    drop().await.unwrap();
    want_error(drop().await, ErrorKind::CollectionNotFound);
    within(manager.drop_scope("s", None)).await.unwrap();
    want_error(
        within(manager.drop_scope("s", None)).await,
        ErrorKind::ScopeNotFound,
    );
    assert_eq!(collections(&bucket, "s").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_apart() {
    let setup = setup().await;
    let bucket = setup.cluster.bucket(BUCKET);
    let manager = bucket.collections();
    within(manager.create_scope("s", None)).await.unwrap();
    for name in ["a", "b"] {
        let made = manager.create_collection("s", name, None, None);
        within(made).await.unwrap();
    }
    let of = |name: &str| bucket.scope("s").collection(name);
    let all = [of("a"), of("b"), setup.collection.clone()];
    for (value, collection) in all.iter().enumerate() {
        within(collection.upsert("key", value, None)).await.unwrap();
    }
    for (value, collection) in all.iter().enumerate() {
        want_content(collection, "key", json!(value)).await;
    }
    within(all[0].remove("key", None)).await.unwrap();
    for (at, collection) in all.iter().enumerate() {
        assert_eq!(exists(collection, "key").await, at > 0);
    }
    let missing = of("none");
    let options = GetOptions::new().retry_strategy(fail_fast());
    // The SDK goes on trying; what a caller sees is its own timeout.
    let read = tokio::time::timeout(Duration::from_secs(2), missing.get("key", options)).await;
    assert!(!matches!(read, Ok(Ok(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn made_anew_it_is_empty() {
    let setup = setup().await;
    let bucket = setup.cluster.bucket(BUCKET);
    let manager = bucket.collections();
    within(manager.create_scope("s", None)).await.unwrap();
    let create = || within(manager.create_collection("s", "a", None, None));
    create().await.unwrap();
    let a = bucket.scope("s").collection("a");
    for value in 0..3 {
        until("the new collection is used, and empty", || async {
            let found = within(a.exists("key", None)).await;
            match found {
                Ok(found) => !found.exists(),
                Err(error) => error.kind() == &ErrorKind::DocumentNotFound,
            }
        })
        .await;
        within(a.upsert("key", value, None)).await.unwrap();
        want_content(&a, "key", json!(value)).await;
        let dropped = manager.drop_collection("s", "a", None);
        within(dropped).await.unwrap();
        create().await.unwrap();
    }
}
