use couchbase::error::ErrorKind;
use couchbase::management::buckets::bucket_settings::BucketSettings;
use serde_json::json;

use crate::{exists, setup, until_gone, want_content, want_error, within};

#[tokio::test(flavor = "multi_thread")]
async fn create_use_flush_drop() {
    let setup = setup().await;
    let manager = setup.cluster.buckets();
    let settings = || {
        BucketSettings::new("other")
            .ram_quota_mb(100)
            .flush_enabled(true)
            .num_replicas(0)
    };
    within(manager.create_bucket(settings(), None))
        .await
        .unwrap();
    want_error(
        within(manager.create_bucket(settings(), None)).await,
        ErrorKind::BucketExists,
    );
    let created = within(manager.get_bucket("other", None)).await.unwrap();
    assert_eq!(
        (created.ram_quota_mb, created.flush_enabled),
        (Some(100), Some(true))
    );
    let mut names: Vec<String> = within(manager.get_all_buckets(None))
        .await
        .unwrap()
        .into_iter()
        .map(|one| one.name)
        .collect();
    names.sort();
    assert_eq!(names, ["default", "other"]);

    let bucket = setup.cluster.bucket("other");
    within(bucket.wait_until_ready(None)).await.unwrap();
    let other = bucket.default_collection();
    within(other.upsert("key", 1, None)).await.unwrap();
    assert!(!exists(&setup.collection, "key").await);
    within(manager.flush_bucket("other", None)).await.unwrap();
    until_gone(&other, "key").await;
    within(other.upsert("key", 2, None)).await.unwrap();
    want_content(&other, "key", json!(2)).await;

    within(manager.drop_bucket("other", None)).await.unwrap();
    want_error(
        within(manager.get_bucket("other", None)).await,
        ErrorKind::BucketNotFound,
    );
    want_error(
        within(manager.drop_bucket("other", None)).await,
        ErrorKind::BucketNotFound,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn flush_must_be_enabled() {
    let setup = setup().await;
    let manager = setup.cluster.buckets();
    let settings = BucketSettings::new("other")
        .ram_quota_mb(100)
        .flush_enabled(false)
        .num_replicas(0);
    within(manager.create_bucket(settings, None)).await.unwrap();
    want_error(
        within(manager.flush_bucket("other", None)).await,
        ErrorKind::BucketNotFlushable,
    );
    let settings = BucketSettings::new("other")
        .ram_quota_mb(128)
        .flush_enabled(true)
        .num_replicas(0);
    within(manager.update_bucket(settings, None)).await.unwrap();
    let updated = within(manager.get_bucket("other", None)).await.unwrap();
    assert_eq!(
        (updated.ram_quota_mb, updated.flush_enabled),
        (Some(128), Some(true))
    );
    within(manager.flush_bucket("other", None)).await.unwrap();
}
