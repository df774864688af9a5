use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::options::kv_options::{
    GetAndLockOptions, ReplaceOptions, UnlockOptions, UpsertOptions,
};
use serde_json::json;

use crate::{fail_fast, setup, want_content, want_error, within};

const LOCK: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn lock_and_unlock() {
    let setup = setup().await;
    let collection = &setup.collection;
    within(collection.upsert("key", 1, None)).await.unwrap();
    let locked = within(collection.get_and_lock("key", LOCK, None))
        .await
        .unwrap();
    assert_eq!(locked.content_as::<u32>().unwrap(), 1);
    want_content(collection, "key", json!(1)).await;
    let options = UpsertOptions::new().retry_strategy(fail_fast());
    want_error(
        within(collection.upsert("key", 2, options)).await,
        ErrorKind::DocumentLocked,
    );
    let options = GetAndLockOptions::new().retry_strategy(fail_fast());
    want_error(
        within(collection.get_and_lock("key", LOCK, options)).await,
        ErrorKind::DocumentLocked,
    );
    within(collection.unlock("key", locked.cas(), None))
        .await
        .unwrap();
    within(collection.upsert("key", 3, None)).await.unwrap();
    want_content(collection, "key", json!(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlock_needs_the_cas_of_the_lock() {
    let setup = setup().await;
    let collection = &setup.collection;
    let options = || UnlockOptions::new().retry_strategy(fail_fast());
    let stored = within(collection.upsert("key", 1, None)).await.unwrap();
    want_error(
        within(collection.unlock("key", stored.cas(), options())).await,
        ErrorKind::DocumentNotLocked,
    );
    let locked = within(collection.get_and_lock("key", LOCK, None))
        .await
        .unwrap();
    assert!(
        within(collection.unlock("key", locked.cas() + 1, options()))
            .await
            .is_err()
    );
    within(collection.unlock("key", locked.cas(), options()))
        .await
        .unwrap();
    want_error(
        within(collection.get_and_lock("none", LOCK, None)).await,
        ErrorKind::DocumentNotFound,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_the_cas_of_the_lock_unlocks() {
    let setup = setup().await;
    let collection = &setup.collection;
    within(collection.upsert("key", 1, None)).await.unwrap();
    let locked = within(collection.get_and_lock("key", LOCK, None))
        .await
        .unwrap();
    within(collection.replace("key", 2, ReplaceOptions::new().cas(locked.cas())))
        .await
        .unwrap();
    let options = UpsertOptions::new().retry_strategy(fail_fast());
    within(collection.upsert("key", 3, options)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_by_itself() {
    let setup = setup().await;
    let collection = &setup.collection;
    within(collection.upsert("key", 1, None)).await.unwrap();
    within(collection.get_and_lock("key", Duration::from_secs(1), None))
        .await
        .unwrap();
    // The SDK tries again for as long as the document is locked.
    within(collection.upsert("key", 2, None)).await.unwrap();
    want_content(collection, "key", json!(2)).await;
}
