//! The fields of a bucket's form, but for its name.

use kedge_bucket::{
    BucketChange, CompactionChange, CompressionMode, ConflictResolution, DurabilityFallback,
    EvictionPolicy, MemoryChange, MinRatio, WarmupBehavior,
};

use super::reader::Reader;
use super::{Errors, compaction};
use crate::form::Form;

/// Largest quota, in MiB (16 TiB).
const QUOTA_MIB_MAX: u64 = 1 << 24;
const MIB: u64 = 1 << 20;
/// Most replicas that a bucket can ask for.
pub(super) const REPLICAS_MAX: u64 = 3;
/// Longest time to live, in seconds: what fits 31 bits.
const TTL_SECS_MAX: u64 = i32::MAX as u64;

/// The levels of `durabilityMinLevel`; the place of each is its number on the wire.
pub(crate) const DURABILITY_LEVELS: [&str; 4] = [
    "none",
    "majority",
    "majorityAndPersistActive",
    "persistToMajority",
];

/// Fields that Kedge has nothing for; what they may be all the same, and what is said otherwise.
const ELSEWHERE: [(&str, &[&str], &str); 7] = [
    (
        "historyRetentionCollectionDefault",
        &["", "0", "false"],
        "History Retention can only used with Magma",
    ),
    (
        "historyRetentionBytes",
        &["", "0"],
        "History Retention can only used with Magma",
    ),
    (
        "historyRetentionSeconds",
        &["", "0"],
        "History Retention can only used with Magma",
    ),
    (
        "magmaSeqTreeDataBlockSize",
        &[""],
        "magmaSeqTreeDataBlockSize can only be used with Magma.",
    ),
    (
        "encryptionAtRestKeyId",
        &["", "-1"],
        "Encryption at rest is not supported.",
    ),
    (
        "enableCrossClusterVersioning",
        &["", "0", "false"],
        "Cross cluster versioning is not supported.",
    ),
    (
        "continuousBackupEnabled",
        &["", "0", "false"],
        "Continuous backup is not supported.",
    ),
];

/// The form's fields; `None` for one that was not given or is wrong.
#[derive(Debug, Default)]
pub(super) struct Fields {
    quota_mib: Option<u64>,
    flush_enabled: Option<bool>,
    replicas: Option<u8>,
    compression: Option<CompressionMode>,
    min_compression_ratio: Option<MinRatio>,
    eviction_policy: Option<EvictionPolicy>,
    durability_min_level: Option<u8>,
    durability_fallback: Option<DurabilityFallback>,
    max_ttl_secs: Option<u32>,
    pub(super) conflict_resolution: Option<ConflictResolution>,
    pub(super) vbuckets: Option<u16>,
    high_wat_percent: Option<u8>,
    low_wat_percent: Option<u8>,
    warmup_behavior: Option<WarmupBehavior>,
    access_scanner_enabled: Option<bool>,
    compaction: CompactionChange,
}

impl Fields {
    pub(super) fn read(form: &Form, errors: &mut Errors) -> Self {
        let mut reader = Reader { form, errors };
        let reader = &mut reader;
        foreign_kinds(reader);
        for (field, nothing, says) in ELSEWHERE {
            reader.only(field, nothing, says);
        }
        without_effect(reader);
        let mut fields = Self {
            quota_mib: quota_mib(reader),
            flush_enabled: reader.boolean("flushEnabled"),
            replicas: replicas(reader),
            conflict_resolution: reader.choice(
                "conflictResolutionType",
                &[
                    ("seqno", ConflictResolution::Seqno),
                    ("lww", ConflictResolution::Lww),
                ],
            ),
            vbuckets: narrow(reader.number("numVBuckets", 1..=u64::from(u16::MAX))),
            max_ttl_secs: narrow(reader.number_or(
                "maxTTL",
                0..=TTL_SECS_MAX,
                &format!("Max TTL must be an integer between 0 and {TTL_SECS_MAX}"),
            )),
            compaction: compaction::read(reader),
            ..Self::default()
        };
        fields.read_values(reader);
        fields.read_durability(reader);
        fields.read_memory(reader);
        fields
    }

    fn read_values(&mut self, reader: &mut Reader<'_>) {
        self.compression = reader.choice_or(
            "compressionMode",
            &[
                ("off", CompressionMode::Off),
                ("passive", CompressionMode::Passive),
                ("active", CompressionMode::Active),
            ],
            "compressionMode can be set to 'off', 'passive' or 'active'",
        );
        self.min_compression_ratio = min_ratio(reader);
    }

    fn read_durability(&mut self, reader: &mut Reader<'_>) {
        self.durability_min_level = reader.choice(
            "durabilityMinLevel",
            &[
                (DURABILITY_LEVELS[0], 0),
                (DURABILITY_LEVELS[1], 1),
                (DURABILITY_LEVELS[2], 2),
                (DURABILITY_LEVELS[3], 3),
            ],
        );
        self.durability_fallback = reader.choice(
            "durabilityImpossibleFallback",
            &[
                ("disabled", DurabilityFallback::Disabled),
                ("fallbackToActiveAck", DurabilityFallback::ActiveAck),
            ],
        );
    }

    fn read_memory(&mut self, reader: &mut Reader<'_>) {
        self.eviction_policy = reader.choice(
            "evictionPolicy",
            &[
                ("valueOnly", EvictionPolicy::ValueOnly),
                ("fullEviction", EvictionPolicy::FullEviction),
            ],
        );
        self.low_wat_percent = narrow(reader.number("memoryLowWatermark", 50..=89));
        self.high_wat_percent = narrow(reader.number("memoryHighWatermark", 51..=90));
        self.warmup_behavior = reader.choice(
            "warmupBehavior",
            &[
                ("background", WarmupBehavior::Background),
                ("blocking", WarmupBehavior::Blocking),
            ],
        );
        self.access_scanner_enabled = reader.boolean("accessScannerEnabled");
    }

    /// The change of settings that they ask for.
    pub(super) fn change(&self) -> BucketChange {
        BucketChange {
            quota_bytes: self.quota_mib.map(|mib| mib * MIB),
            flush_enabled: self.flush_enabled,
            compression: self.compression,
            min_compression_ratio: self.min_compression_ratio,
            max_ttl_secs: self.max_ttl_secs,
            durability_min_level: self.durability_min_level,
            durability_impossible_fallback: self.durability_fallback,
            replicas: self.replicas,
            eviction_policy: self.eviction_policy,
            compaction: self.compaction,
            memory: MemoryChange {
                high_wat_percent: self.high_wat_percent,
                low_wat_percent: self.low_wat_percent,
                warmup_behavior: self.warmup_behavior,
                access_scanner_enabled: self.access_scanner_enabled,
                ..MemoryChange::default()
            },
            ..BucketChange::default()
        }
    }
}

/// The range was checked, so the number fits.
fn narrow<T: TryFrom<u64>>(number: Option<u64>) -> Option<T> {
    number.and_then(|number| T::try_from(number).ok())
}

/// The field's newer name goes before the older one, which SDKs send.
fn quota_mib(reader: &mut Reader<'_>) -> Option<u64> {
    let range = 1..=QUOTA_MIB_MAX;
    let older = reader.number("ramQuotaMB", range.clone());
    reader.number("ramQuota", range).or(older)
}

fn replicas(reader: &mut Reader<'_>) -> Option<u8> {
    const FIELD: &str = "replicaNumber";
    let text = reader.form.get(FIELD)?;
    if text.parse::<u64>().is_ok_and(|asked| asked > REPLICAS_MAX) {
        let says = format!("Replica number larger than {REPLICAS_MAX} is not supported.");
        reader.wrong(FIELD, says);
        return None;
    }
    narrow(reader.number(FIELD, 0..=REPLICAS_MAX))
}

fn min_ratio(reader: &mut Reader<'_>) -> Option<MinRatio> {
    const FIELD: &str = "minCompressionRatio";
    let text = reader.form.get(FIELD)?;
    let ratio = text.parse().ok().and_then(MinRatio::new);
    if ratio.is_none() {
        reader.wrong(FIELD, format!("{FIELD} must be a number from 1 to 1000."));
    }
    ratio
}

/// Kinds of buckets that there are not.
fn foreign_kinds(reader: &mut Reader<'_>) {
    match reader.form.get("bucketType") {
        None | Some("couchbase" | "membase") => {}
        Some(kind @ ("ephemeral" | "memcached")) => {
            let says = format!("Buckets of type {kind} are not supported.");
            reader.wrong("bucketType", says);
        }
        Some(_) => reader.wrong("bucketType", "invalid bucket type"),
    }
    match reader.form.get("storageBackend") {
        None | Some("couchstore" | "undefined") => {}
        Some("magma") => reader.wrong("storageBackend", "Magma is not supported."),
        Some(_) => reader.wrong("storageBackend", "storage backend must be couchstore"),
    }
}

/// Fields that ask for nothing that could be noticed: there are no views, threads are those of all buckets, buckets do
/// not wait for each other when vBuckets move, an eviction policy needs no restart, and all documents are looked at each
/// minute for those that have expired.
fn without_effect(reader: &mut Reader<'_>) {
    let flags = [("0", ()), ("1", ()), ("false", ()), ("true", ())];
    reader.choice_or(
        "replicaIndex",
        &flags[..2],
        "replicaIndex can only be 1 or 0",
    );
    reader.choice("noRestart", &flags);
    reader.number("threadsNumber", 0..=8);
    reader.number("rank", 0..=1_000);
    reader.number("expiryPagerSleepTime", 1..=u64::from(u32::MAX));
    reader.number("versionPruningWindowHrs", 1..=u64::from(u32::MAX));
}
