//! The rows of the table, one for each setting.
//!
//! A row is all that a setting needs but for the code that uses it: the fields of [`BucketConfig`] and [`BucketChange`],
//! its key and default in `bucket.json`, its check, its option of `kedge serve`, its flag of `kedge bucket`, its field of
//! the management's form and document, and its entry in `docs/reference/bucket-settings.md` come from it. See
//! `docs/guides/contributing-setting.md`.

use super::form::{FieldFormat, Flag, KeyId, Mib, MinLevel, Number, Ratio, Replicas, Said, Words};
use super::hours::{CompactionHours, MaybeHours};
use super::table::{
    BucketSetting, FixedSetting, FormField, ShownAs, check_keys, check_range, first,
    form_of_values, key, part, settings, shown,
};
use super::values::{
    CompactionPool, CompactionRate, CompressionMode, ConflictResolution, DurabilityFallback,
    EvictionPolicy, MaybeBytes, Millis, Secs, Secs32, WarmupBehavior,
};
use kedge_types::setting::{Bytes, SettingValue};
use kedge_vbucket::MinRatio;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A ratio is kept as the number that it is.
mod ratio {
    use kedge_vbucket::MinRatio;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    pub(super) fn serialize<S: Serializer>(ratio: &MinRatio, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(ratio.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MinRatio, D::Error> {
        let number = f64::deserialize(from)?;
        let error = || D::Error::custom(format!("min_compression_ratio {number} is not 1 to 1000"));
        MinRatio::new(number).ok_or_else(error)
    }
}

/// The default of `file_copy_min_bytes`.
const FILE_COPY_MIN_BYTES: u64 = 4 << 20;

/// Returns whether the setting is left out, so that the release before this one reads the settings of a bucket.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_usual_file_copy(bytes: &u64) -> bool {
    *bytes == FILE_COPY_MIN_BYTES
}

settings! {
    /// The settings of one bucket, kept as `bucket.json` in its directory.
    BucketConfig,
    /// A change of settings while the bucket runs; `None` leaves one as it is.
    BucketChange, [];
    required ["name", "uuid", "vbuckets", "quota_bytes", "flush_enabled"]
    fixed {
        /// Its name.
        name: String = String::new();
        /// Its identity, 32 hexadecimal digits. A bucket that is dropped and created again is another one.
        uuid: String = String::new();
        /// Number of vBuckets, 1 to 65,535.
        vbuckets: u16 = 0;
        /// Comparison of writes with metadata of their own: `seqno`, by revision, or `lww`, by CAS.
        conflict_resolution: ConflictResolution = ConflictResolution::default();
    }

    /// Memory for the bucket's documents. A write that does not fit waits until documents are evicted.
    quota_bytes: u64 as Bytes = 0, "bucket_quota",
        note "half of the machine's memory", serve "First start",
        rest "ramQuotaMB" or "ramQuota": Mib(1..=1 << 24);
    /// Permission for clients to empty the bucket. Those of the memcached port need `memcached_flush_all`, too.
    flush_enabled: bool = false, "flush_enabled", serve "First start", rest "flushEnabled": Flag { hidden: true };
    /// Values that are kept compressed with Snappy. `off`: none. `passive`: those that clients send compressed. `active`:
    /// also those that the bucket compresses itself, in memory, some time after they were written; it takes at most a
    /// twelfth of a core for that. Clients that do not know Snappy get all of them inflated.
    compression: CompressionMode = CompressionMode::Passive, "compression", serve "First start",
        rest "compressionMode": Said(Words, "compressionMode can be set to 'off', 'passive' or 'active'");
    /// Ratio by which compression has to make a value smaller for it to be kept compressed. A change holds for values that
    /// come from then on.
    #[serde(with = "ratio")]
    min_compression_ratio: MinRatio = MinRatio::DEFAULT, "min_compression_ratio", serve "First start",
        rest "minCompressionRatio": Ratio;
    /// Longest time to live of documents, in seconds. 0: no limit.
    max_ttl_secs: u32 = 0, "max_ttl",
        rest "maxTTL": Said(Number(0..=i32::MAX as u64), "Max TTL must be an integer between 0 and 2147483647");
    /// Minimum durability of every write, as the number of the level on the wire. 0: none.
    durability_min_level: u8 = 0, "durability_min_level", in 0..=3, rest "durabilityMinLevel": MinLevel;
    /// Treatment of SyncWrites when a vBucket has too few nodes for a majority, as after a failover. `disabled`: they are
    /// refused (DurabilityImpossible), and those under way wait until a node comes back. `active_ack`: the active alone is
    /// enough; what it then acknowledges is lost with it, and counted as not durable.
    durability_impossible_fallback: DurabilityFallback = DurabilityFallback::Disabled, "durability_impossible_fallback",
        serve "Durability", rest "durabilityImpossibleFallback": Words;
    /// Number of replicas. One node keeps none.
    replicas: u8 = 0, "replicas", rest "replicaNumber": Replicas;
    /// Part of documents that is evicted when memory runs short. `value_only`: values; keys and metadata stay.
    /// `full_eviction`: whole documents, so that memory limits neither.
    eviction_policy: EvictionPolicy = EvictionPolicy::ValueOnly, "eviction_policy", serve "Memory",
        rest "evictionPolicy": Words;
    /// Largest number of changes that one sync of the log, or one commit of a vBucket's file, covers. Without a commit log a
    /// commit has 4,096 at most, unless the bucket ends. Commits of one file may share their syncs.
    flusher_batch_max_items: usize = BucketConfig::BATCH_ITEMS_DEFAULT, "flusher_batch_max_items", in 1..=usize::MAX, serve "Durability";
    /// Largest number of bytes that one sync of the log, or one commit of a vBucket's file, covers. A larger document is
    /// still written. Without a commit log a commit has 4 MiB at most, unless the bucket ends. Where a vBucket has more and
    /// nobody waits, another commit of its file shares the syncs, until they have made the file so many bytes longer.
    flush_batch_max_bytes: usize as Bytes = BucketConfig::BATCH_BYTES_DEFAULT, "flush_batch_max_bytes", in 1..=usize::MAX, serve "Durability";
    /// Longest time for which a change may be in memory only, if no client waits for the disk or the level is `majority`.
    log_interval_ms: u64 as Millis = 20, "log_interval", serve "Durability";
    /// Writes are made durable by one log for all vBuckets, and go into the vBuckets' files later. Without it
    /// each write waits for a commit of its vBucket's file, as in Couchbase.
    commit_log: bool = true, "commit_log", serve "Storage", at start;
    /// Longest time for which a change stays in the log before it is applied to its vBucket's file. A document that changes
    /// often is written once in that time.
    #[alias = "settle_age_ms"]
    apply_max_lag_ms: u64 as Millis = 30_000, "apply_max_lag", serve "Storage";
    /// Size below which the log is to stay: changes are applied to the files earlier when it is reached.
    log_bytes_max: u64 as Bytes = 1 << 30, "log_bytes_max", serve "Storage";
    /// Size of a vBucket's file from which on a new copy on this node is filled with the file of the active, instead of
    /// one change after the other. 0: never.
    #[serde(skip_serializing_if = "is_usual_file_copy")]
    file_copy_min_bytes: u64 as Bytes = FILE_COPY_MIN_BYTES, "file_copy_min_bytes", note "4MiB", serve "Storage";
    /// Files of vBuckets stay open between two uses.
    keep_files_open: bool = true, "keep_files_open", serve "Storage", at start;
    /// Largest number of files that stay open. All buckets together keep no more than a quarter of the files that the process
    /// may open.
    max_open_files: u32 = 1_024, "max_open_files", in 1..=u32::MAX, serve "Storage", at start;
    /// Number of parts of the vBuckets, 1 to 128, each of which writes its files by itself. 0: one for each core.
    num_shards: u16 = 0, "num_shards", in 0..=BucketConfig::SHARDS_MAX, note "one for each core", serve "Storage", at start;

    groups {
        /// Compaction of the files.
        compaction: CompactionConfig, CompactionChange;
        /// Documents in memory: how many there are, and how many come back after a start.
        memory: MemoryConfig, MemoryChange;
        /// Encryption at rest.
        #[serde(skip_serializing_if = "EncryptionConfig::is_default")]
        encryption: EncryptionConfig, EncryptionChange;
    }
}

settings! {
    /// Settings of compaction. All can be changed while the bucket runs, and hold from the next compaction on; the throttle
    /// from the next bytes on.
    CompactionConfig,
    /// A change of [`CompactionConfig`]; `None` leaves a setting as it is.
    CompactionChange, [compaction];
    required []
    fixed {}

    /// Threads that compact the vBuckets' files. `auxio`: those for long work, beside commits, at the throttle of
    /// `compaction_throttle`. `writer`: those that commit, unthrottled; that delays commits, and is there for comparison.
    pool: CompactionPool = CompactionPool::Auxio, "compaction_pool", serve "Compaction";
    /// Largest number of files that are compacted at once. 0: half as many as there are threads that write, one at least,
    /// so that a thread of the pool `auxio` is left to others.
    max_concurrent: u16 = 0, "compaction_max_concurrent", in 0..=128, note "half of the writer threads", serve "Compaction";
    /// Share of garbage at which a file is compacted, in percent. 100: only on request.
    fragmentation_percent: u8 = 30, "compaction_fragmentation_percent", in 1..=100, serve "Compaction",
        compaction "databaseFragmentationThreshold[percentage]";
    /// Garbage below which a file is not compacted.
    min_bytes: u64 as Bytes = 1 << 20, "compaction_min_bytes", serve "Compaction";
    /// Garbage that all files of the bucket may have together. A file is compacted also when it has more than its part of it,
    /// shared among as many files as the bucket has vBuckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    garbage_bytes: Option<u64> as MaybeBytes = None, "compaction_garbage_bytes",
        compaction "databaseFragmentationThreshold[size]";
    /// Time of the day at which files are compacted without a request. Documents of dropped collections do not wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hours: Option<CompactionHours> as MaybeHours = None, "compaction_hours", compaction "allowedTimePeriod[...]";
    /// Age from which on compactions leave out tombstones.
    purge_age_secs: u32 as Secs32 = 3 * 24 * 3_600, "purge_age", serve "Compaction", compaction "purgeInterval";
    /// Rate at which all compactions and all new copies together, those for other nodes and those from them, read and write files.
    /// `auto`: the highest that delays neither commits, nor reads of evicted documents, nor threads of clients that wait for a
    /// processor, which is measured while it is needed; where garbage outgrows that, higher. `off`: no limit.
    #[alias = "pace"]
    throttle: CompactionRate = CompactionRate::Auto, "compaction_throttle", serve "Compaction";

    groups {}
}

settings! {
    /// Settings of the documents in memory: how many there are, and how many come back after a start.
    MemoryConfig,
    /// A change of [`MemoryConfig`]; `None` leaves a setting as it is.
    MemoryChange, [memory];
    required []
    fixed {}

    /// Part of the quota, in percent, above which documents that are seldom used are evicted.
    high_wat_percent: u8 = 85, "mem_high_wat_percent", in 1..=MemoryConfig::MUTATION_PERCENT, serve "Memory",
        rest "memoryHighWatermark": Number(51..=90);
    /// Part of the quota, in percent, down to which documents are evicted, and up to which they are read into memory after a
    /// start.
    low_wat_percent: u8 = 75, "mem_low_wat_percent", in 1..=MemoryConfig::MUTATION_PERCENT, serve "Memory",
        rest "memoryLowWatermark": Number(50..=89);
    /// Moment from which commands run after a start. `background`: at once, and documents that are not in memory yet are read
    /// when commands need them. `blocking`: when all documents that fit are in memory.
    warmup_behavior: WarmupBehavior = WarmupBehavior::Background, "warmup_behavior", serve "Memory", at start,
        rest "warmupBehavior": Words;
    /// Permission to write the keys of the documents in memory to the access log, so that the next start reads the documents
    /// first that are used most.
    access_scanner_enabled: bool = true, "access_scanner_enabled", serve "Memory",
        rest "accessScannerEnabled": Flag { hidden: false };
    /// Interval of the access log.
    access_scanner_interval_secs: u64 as Secs = 86_400, "access_scanner_interval", in 1..=u64::MAX, serve "Memory";
    /// Permission to move documents within memory while few of the blocks around them are in use, so that memory can be given
    /// back to the system.
    defragmenter_enabled: bool = true, "defragmenter_enabled", serve "Memory";
    /// Least time from the first change to a visit of the documents by the defragmenter, and between two of them.
    defragmenter_interval_secs: u64 as Secs = 10, "defragmenter_interval", in 1..=u64::MAX, serve "Memory";
    /// Bytes that the streams of one DCP connection may have read from files and not sent yet.
    dcp_backfill_bytes_max: u64 as Bytes = 20 << 20, "dcp_backfill_bytes_max", in 1..=u64::MAX, serve "Memory";
    /// Part of the quota, in percent, for changes that are on disk and stay in memory only for DCP streams.
    /// Above it the slowest streams are read from the files.
    dcp_cursor_percent: u8 = 10, "dcp_cursor_percent", in 0..=50, serve "Memory";

    groups {}
}

settings! {
    /// Settings of encryption at rest.
    EncryptionConfig,
    /// A change of [`EncryptionConfig`]; `None` leaves a setting as it is.
    EncryptionChange, [encryption];
    required []
    fixed {}

    /// Encryption of everything that the bucket keeps on the disk, with data keys that the master key of the server wraps
    /// (`encryption_master_key`), without which it cannot be switched on. Data that is there already is written again in the
    /// background, as it is when encryption is switched off.
    enabled: bool = false, "encryption_at_rest", serve "Encryption at rest", rest "encryptionAtRestKeyId": KeyId;
    /// Age of a data key from which on new data gets a new one. 0: never. Data that is there keeps its key until
    /// `encryption_key_lifetime`, or `kedge encryption rotate`.
    rotation_interval_secs: u64 as Secs = 30 * 86_400, "encryption_key_rotation_interval", serve "Encryption at rest",
        rest "encryptionAtRestDekRotationInterval": Number(0..=u32::MAX.into());
    /// Age of a data key from which on the data that it protects is written again with the newest one. 0: no limit.
    key_lifetime_secs: u64 as Secs = 365 * 86_400, "encryption_key_lifetime", serve "Encryption at rest",
        rest "encryptionAtRestDekLifetime": Number(0..=u32::MAX.into());

    groups {}
}

impl EncryptionConfig {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
