use std::time::Duration;

use couchbase::durability_level::DurabilityLevel;
use couchbase::error::ErrorKind;
use couchbase::management::buckets::bucket_settings::{
    BucketSettings, CompressionMode, ConflictResolutionType, EvictionPolicyType,
};
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

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_what_was_asked_for() {
    let setup = setup().await;
    let manager = setup.cluster.buckets();
    let check = async |asked: &BucketSettings| {
        let got = within(manager.get_bucket("other", None)).await.unwrap();
        assert_eq!(got.ram_quota_mb, asked.ram_quota_mb);
        assert_eq!(got.flush_enabled, asked.flush_enabled);
        assert_eq!(got.num_replicas, asked.num_replicas);
        assert_eq!(got.max_expiry, asked.max_expiry);
        assert_eq!(got.compression_mode, asked.compression_mode);
        assert_eq!(got.eviction_policy, asked.eviction_policy);
        assert_eq!(got.minimum_durability_level, asked.minimum_durability_level);
    };
    let asked = BucketSettings::new("other")
        .ram_quota_mb(101)
        .flush_enabled(false)
        .num_replicas(2)
        .max_expiry(Duration::from_secs(3_600))
        .compression_mode(CompressionMode::ACTIVE)
        .eviction_policy(EvictionPolicyType::FULL)
        .minimum_durability_level(DurabilityLevel::MAJORITY);
    let made = asked
        .clone()
        .conflict_resolution_type(ConflictResolutionType::TIMESTAMP);
    within(manager.create_bucket(made, None)).await.unwrap();
    check(&asked).await;
    let other = BucketSettings::new("other")
        .ram_quota_mb(102)
        .flush_enabled(true)
        .num_replicas(1)
        .max_expiry(Duration::from_secs(7_200))
        .compression_mode(CompressionMode::OFF)
        .eviction_policy(EvictionPolicyType::VALUE_ONLY)
        .minimum_durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
    within(manager.update_bucket(other.clone(), None))
        .await
        .unwrap();
    check(&other).await;
    let wrong = other.clone().num_replicas(4);
    assert!(within(manager.update_bucket(wrong, None)).await.is_err());
    check(&other).await;
}
