//! Forms, field by field.

use kedge_bucket::{
    BucketChange, BucketConfig, CompactionChange, CompactionConfig, CompressionMode,
    ConflictResolution, DurabilityFallback, EvictionPolicy, MemoryChange, MemoryConfig, MinRatio,
    WarmupBehavior,
};

use super::{FormFields, changed_bucket, new_bucket, purge_days};

fn form(text: &str) -> FormFields {
    FormFields::parse(text.as_bytes())
}

#[test]
fn new_bucket_accepts_every_setting() {
    let config = new_bucket(
        &form(
            "name=b%25.x&bucketType=membase&ramQuotaMB=256&replicaNumber=2&flushEnabled=1&\
             evictionPolicy=fullEviction&compressionMode=active&minCompressionRatio=1.5&durabilityMinLevel=persistToMajority&\
             durabilityImpossibleFallback=fallbackToActiveAck&\
             storageBackend=couchstore&maxTTL=3600&conflictResolutionType=lww&numVBuckets=64&replicaIndex=1&\
             threadsNumber=8&rank=7&noRestart=true&expiryPagerSleepTime=600&versionPruningWindowHrs=720&\
             memoryLowWatermark=60&memoryHighWatermark=70&warmupBehavior=blocking&accessScannerEnabled=false&\
             historyRetentionBytes=0&encryptionAtRestKeyId=-1&enableCrossClusterVersioning=false&\
             continuousBackupEnabled=false&whatNobodyKnows=1&\
             autoCompactionDefined=true&parallelDBAndViewCompaction=false&\
             databaseFragmentationThreshold[percentage]=40&databaseFragmentationThreshold[size]=undefined&\
             viewFragmentationThreshold[percentage]=30&viewFragmentationThreshold[size]=7&purgeInterval=0.5",
        ),
        1024,
    )
    .unwrap();
    let expected = BucketConfig {
        uuid: config.uuid.clone(),
        flush_enabled: true,
        compression: CompressionMode::Active,
        min_compression_ratio: MinRatio::new(1.5).unwrap(),
        max_ttl_secs: 3_600,
        durability_min_level: 3,
        durability_impossible_fallback: DurabilityFallback::ActiveAck,
        replicas: 2,
        eviction_policy: EvictionPolicy::FullEviction,
        conflict_resolution: ConflictResolution::Lww,
        compaction: CompactionConfig {
            fragmentation_percent: 40,
            purge_age_secs: 43_200,
            ..CompactionConfig::default()
        },
        memory: MemoryConfig {
            low_wat_percent: 60,
            high_wat_percent: 70,
            warmup_behavior: WarmupBehavior::Blocking,
            access_scanner_enabled: false,
            ..MemoryConfig::default()
        },
        ..BucketConfig::new("b%.x", 64, 256 << 20)
    };
    assert_eq!(config, expected);
    config.check().unwrap();
}

#[test]
fn new_bucket_has_defaults() {
    let config = new_bucket(&form("name=b&ramQuotaMB=100"), 1024).unwrap();
    let expected = BucketConfig {
        uuid: config.uuid.clone(),
        ..BucketConfig::new("b", 1024, 100 << 20)
    };
    assert_eq!(config, expected);
}

#[test]
fn invalid_bucket_fields_are_named() {
    let long = format!("name={}", "x".repeat(101));
    // (fields beside a good name and quota, the field that is wrong, part of what is said)
    for (fields, field, says) in [
        ("name=", "name", "needs to be specified"),
        ("name=a b", "name", "can only contain"),
        ("name=a/b", "name", "can only contain"),
        ("name=.a", "name", "start with dot"),
        (&long, "name", "exceed 100"),
        ("ramQuotaMB=", "ramQuota", "from 1"),
        ("ramQuotaMB=0", "ramQuota", "from 1"),
        ("ramQuotaMB=-1", "ramQuota", "from 1"),
        ("ramQuotaMB=99999999999999999999", "ramQuota", "from 1"),
        ("bucketType=ephemeral", "bucketType", "not supported"),
        ("bucketType=memcached", "bucketType", "not supported"),
        ("bucketType=x", "bucketType", "invalid"),
        ("storageBackend=magma", "storageBackend", "not supported"),
        ("storageBackend=x", "storageBackend", "couchstore"),
        (
            "compressionMode=x",
            "compressionMode",
            "'off', 'passive' or 'active'",
        ),
        (
            "minCompressionRatio=0.9",
            "minCompressionRatio",
            "1 to 1000",
        ),
        ("minCompressionRatio=x", "minCompressionRatio", "1 to 1000"),
        ("flushEnabled=2", "flushEnabled", "one of"),
        ("replicaNumber=4", "replicaNumber", "larger than 3 is not"),
        ("replicaNumber=-1", "replicaNumber", "0 to 3"),
        ("replicaIndex=2", "replicaIndex", "1 or 0"),
        ("replicaIndex=true", "replicaIndex", "1 or 0"),
        ("threadsNumber=x", "threadsNumber", "0 to 8"),
        ("rank=1001", "rank", "0 to 1000"),
        ("noRestart=x", "noRestart", "true"),
        ("expiryPagerSleepTime=0", "expiryPagerSleepTime", "from 1"),
        (
            "versionPruningWindowHrs=x",
            "versionPruningWindowHrs",
            "number",
        ),
        ("ramQuota=0", "ramQuota", "from 1"),
        ("memoryLowWatermark=49", "memoryLowWatermark", "50 to 89"),
        ("memoryHighWatermark=91", "memoryHighWatermark", "51 to 90"),
        (
            "memoryLowWatermark=85",
            "memoryLowWatermark",
            "below memoryHighWatermark, 85",
        ),
        (
            "memoryHighWatermark=75",
            "memoryLowWatermark",
            "75, must be below",
        ),
        (
            "warmupBehavior=none",
            "warmupBehavior",
            "background, blocking",
        ),
        ("accessScannerEnabled=x", "accessScannerEnabled", "true"),
        (
            "replicaNumber=3&durabilityMinLevel=majority",
            "durability_min_level",
            "3 replicas",
        ),
        (
            "encryptionAtRestKeyId=0",
            "encryptionAtRestKeyId",
            "must be one of -1, 1",
        ),
        (
            "magmaSeqTreeDataBlockSize=4096",
            "magmaSeqTreeDataBlockSize",
            "Magma",
        ),
        (
            "enableCrossClusterVersioning=true",
            "enableCrossClusterVersioning",
            "not supported",
        ),
        (
            "continuousBackupEnabled=true",
            "continuousBackupEnabled",
            "not supported",
        ),
        ("evictionPolicy=noEviction", "evictionPolicy", "valueOnly"),
        (
            "durabilityMinLevel=all",
            "durability_min_level",
            "none, majority",
        ),
        (
            "durabilityImpossibleFallback=active",
            "durabilityImpossibleFallback",
            "disabled, fallbackToActiveAck",
        ),
        ("maxTTL=2147483648", "maxTTL", "2147483647"),
        (
            "conflictResolutionType=custom",
            "conflictResolutionType",
            "seqno, lww",
        ),
        ("numVBuckets=0", "numVBuckets", "1 to 65535"),
        ("numVBuckets=65536", "numVBuckets", "1 to 65535"),
        (
            "historyRetentionSeconds=9",
            "historyRetentionSeconds",
            "Magma",
        ),
        (
            "historyRetentionCollectionDefault=true",
            "historyRetentionCollectionDefault",
            "Magma",
        ),
    ] {
        let errors = new_bucket(&form(&format!("name=b&ramQuotaMB=100&{fields}")), 8).unwrap_err();
        assert_eq!(errors.len(), 1, "{fields}: {errors:?}");
        assert!(errors[field].contains(says), "{fields}: {errors:?}");
    }
    let errors = new_bucket(&form(""), 8).unwrap_err();
    assert_eq!(
        errors.keys().copied().collect::<Vec<_>>(),
        ["name", "ramQuota"]
    );
}

/// `autoCompactionDefined=true` and what goes with it.
fn own_compaction(more: &str) -> FormFields {
    form(&format!(
        "autoCompactionDefined=true&parallelDBAndViewCompaction=false&{more}"
    ))
}

#[test]
fn fields_of_compaction() {
    let current = BucketConfig::new("b", 8, 100 << 20);
    let change = |form: &FormFields| changed_bucket(form, &current).unwrap().compaction;
    let expected = |percent, secs| CompactionChange {
        fragmentation_percent: Some(percent),
        purge_age_secs: Some(secs),
        garbage_bytes: Some(None),
        hours: Some(None),
        ..CompactionChange::default()
    };
    const DAY: u32 = 86_400;
    // (fields, percent, seconds)
    for (fields, percent, secs) in [
        ("", 100, 3 * DAY),
        (
            "databaseFragmentationThreshold[percentage]=undefined",
            100,
            3 * DAY,
        ),
        (
            "databaseFragmentationThreshold[percentage]=1&purgeInterval=60",
            1,
            60 * DAY,
        ),
        (
            "databaseFragmentationThreshold[percentage]=47&purgeInterval=0.04",
            47,
            3_456,
        ),
    ] {
        assert_eq!(
            change(&own_compaction(fields)),
            expected(percent, secs),
            "{fields}"
        );
        assert!((purge_days(secs) - f64::from(secs) / f64::from(DAY)).abs() < 1e-9);
    }
    let none = change(&form(
        "databaseFragmentationThreshold[percentage]=7&purgeInterval=9",
    ));
    assert_eq!(
        none,
        CompactionChange::default(),
        "it takes autoCompactionDefined"
    );
    let back = change(&form("autoCompactionDefined=false&purgeInterval=x"));
    assert_eq!(back, expected(30, 3 * DAY), "and it can be taken back");

    for (fields, field, says) in [
        (
            "databaseFragmentationThreshold[percentage]=0",
            "",
            "1 to 100",
        ),
        (
            "databaseFragmentationThreshold[percentage]=101",
            "",
            "1 to 100",
        ),
        (
            "databaseFragmentationThreshold[percentage]=x",
            "",
            "must be an integer",
        ),
        (
            "databaseFragmentationThreshold[size]=0",
            "",
            "must be an integer",
        ),
        (
            "viewFragmentationThreshold[percentage]=101",
            "",
            "must be an integer",
        ),
        (
            "viewFragmentationThreshold[size]=x",
            "",
            "must be an integer",
        ),
        ("purgeInterval=x", "", "must be a number"),
        ("purgeInterval=0.03", "", "must be a number"),
        ("purgeInterval=NaN", "", "must be a number"),
        ("purgeInterval=61", "", "must be a number"),
        (
            "parallelDBAndViewCompaction=x",
            "parallelDBAndViewCompaction",
            "parallelDBAndViewCompaction is invalid",
        ),
    ] {
        let field = match field {
            "" => fields.split('=').next().unwrap(),
            field => field,
        };
        let errors = changed_bucket(&own_compaction(fields), &current).unwrap_err();
        assert_eq!(errors.len(), 1, "{fields}: {errors:?}");
        assert!(errors[field].contains(says), "{fields}: {errors:?}");
    }
    for (fields, field, says) in [
        (
            "autoCompactionDefined=x",
            "autoCompactionDefined",
            "is invalid",
        ),
        (
            "autoCompactionDefined=true",
            "parallelDBAndViewCompaction",
            "is missing",
        ),
    ] {
        let errors = changed_bucket(&form(fields), &current).unwrap_err();
        assert!(errors[field].contains(says), "{fields}: {errors:?}");
    }
}

#[test]
fn bucket_settings_are_checked_together_with_current_ones() {
    let mut current = BucketConfig::new("b", 8, 100 << 20);
    current.replicas = 3;
    current.memory.high_wat_percent = 70;
    current.memory.low_wat_percent = 60;
    let errors = |fields: &str| changed_bucket(&form(fields), &current).unwrap_err();
    assert!(errors("durabilityMinLevel=majority").contains_key("durability_min_level"));
    assert!(errors("memoryLowWatermark=70").contains_key("memoryLowWatermark"));
    let both = changed_bucket(
        &form("memoryLowWatermark=70&memoryHighWatermark=80"),
        &current,
    );
    let expected = MemoryChange {
        low_wat_percent: Some(70),
        high_wat_percent: Some(80),
        ..MemoryChange::default()
    };
    assert_eq!(both.unwrap().memory, expected);
    // What somebody set at a start does not stand in the way of other changes.
    current.durability_min_level = 1;
    changed_bucket(&form("maxTTL=1"), &current).unwrap();
}

#[test]
fn newer_name_of_the_quota_takes_precedence() {
    let quota = |fields: &str| {
        let config = new_bucket(&form(&format!("name=b&{fields}")), 8).unwrap();
        config.quota_bytes >> 20
    };
    assert_eq!(quota("ramQuota=100"), 100);
    assert_eq!(quota("ramQuota=100&ramQuotaMB=200"), 100);
}

#[test]
fn bucket_change_keeps_settings_that_are_not_given() {
    let current = BucketConfig::new("b", 8, 100 << 20);
    let same = "name=b&bucketType=couchbase&numVBuckets=8&conflictResolutionType=seqno";
    let change = changed_bucket(&form(same), &current).unwrap();
    assert_eq!(change, BucketChange::default());
    let change = changed_bucket(&form("ramQuotaMB=200&flushEnabled=1"), &current).unwrap();
    assert_eq!(
        change,
        BucketChange {
            quota_bytes: Some(200 << 20),
            flush_enabled: Some(true),
            ..BucketChange::default()
        }
    );
}

#[test]
fn immutable_bucket_settings_are_rejected() {
    let current = BucketConfig::new("b", 8, 100 << 20);
    for (fields, field) in [
        ("name=c", "name"),
        ("numVBuckets=16", "numVBuckets"),
        ("conflictResolutionType=lww", "conflictResolutionType"),
        ("bucketType=ephemeral", "bucketType"),
        ("ramQuotaMB=x", "ramQuota"),
    ] {
        let errors = changed_bucket(&form(fields), &current).unwrap_err();
        assert_eq!(
            errors.keys().copied().collect::<Vec<_>>(),
            [field],
            "{errors:?}"
        );
    }
}
