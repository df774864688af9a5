//! What a bucket is told to be.

use crate::compaction::{CompactionChange, CompactionConfig};
use crate::memory::{MemoryChange, MemoryConfig};
use crate::writer::RUN_ITEMS_MAX;
use kedge_types::DurabilityLevel;
use kedge_vbucket::{DurabilityRules, MinRatio};
use serde::{Deserialize, Serialize};

/// The settings of one bucket, kept as `bucket.json` in its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// Its name.
    pub name: String,
    /// Its identity; a bucket that is dropped and made again is another one. 32 hexadecimal digits.
    pub uuid: String,
    /// Number of vBuckets, 1 to 65,535. Cannot be changed.
    pub vbuckets: u16,
    /// Memory for documents, in bytes.
    pub quota_bytes: u64,
    /// Whether clients may empty it.
    pub flush_enabled: bool,
    /// What is done with compressed values.
    #[serde(default)]
    pub compression: CompressionMode,
    /// How much smaller compression has to make a value for it to be kept compressed.
    #[serde(default = "default_min_ratio", with = "ratio")]
    pub min_compression_ratio: MinRatio,
    /// Longest time to live of its documents, in seconds; 0 is no limit.
    #[serde(default)]
    pub max_ttl_secs: u32,
    /// Every write is at least this durable: 0 none, else the number of the level on the wire.
    #[serde(default)]
    pub durability_min_level: u8,
    /// What becomes of SyncWrites when a chain has too few nodes.
    #[serde(default)]
    pub durability_impossible_fallback: DurabilityFallback,
    /// Replicas wished for. One node keeps none.
    #[serde(default)]
    pub replicas: u8,
    /// What leaves memory when it runs short.
    #[serde(default)]
    pub eviction_policy: EvictionPolicy,
    /// How writes with metadata of their own are compared.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// Most changes that one sync of the log, or one commit of a file, covers.
    #[serde(default = "default_batch_items")]
    pub flusher_batch_max_items: usize,
    /// Most bytes that one sync of the log, or one commit of a file, covers; one larger document is still written.
    #[serde(default = "default_batch_bytes")]
    pub flush_batch_max_bytes: usize,
    /// How long a change may stay in memory only of which nobody waits for the disk, in milliseconds.
    #[serde(default = "default_log_interval_ms")]
    pub log_interval_ms: u64,
    /// Whether writes are made durable by a log in front of the vBuckets' files, or by the files alone. A change holds
    /// from the next start on.
    #[serde(default = "default_true")]
    pub commit_log: bool,
    /// How long a change may be in the log before it goes into its vBucket's file, in milliseconds.
    #[serde(default = "default_apply_max_lag_ms", alias = "settle_age_ms")]
    pub apply_max_lag_ms: u64,
    /// Bytes of the log above which changes go into the files earlier.
    #[serde(default = "default_log_bytes_max")]
    pub log_bytes_max: u64,
    /// Whether files stay open between two uses. A change holds from the next start on.
    #[serde(default = "default_true")]
    pub keep_files_open: bool,
    /// Most files that stay open. A change holds from the next start on.
    #[serde(default = "default_max_open_files")]
    pub max_open_files: u32,
    /// Parts of the vBuckets, each of which writes its files by itself; 0 is one for each core. A change holds from the
    /// next start on.
    #[serde(default)]
    pub num_shards: u16,
    /// When and how files are compacted.
    #[serde(default)]
    pub compaction: CompactionConfig,
    /// How much is in memory, and what comes back into it after a start.
    #[serde(default)]
    pub memory: MemoryConfig,
}

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

fn default_min_ratio() -> MinRatio {
    MinRatio::DEFAULT
}

fn default_true() -> bool {
    true
}

fn default_apply_max_lag_ms() -> u64 {
    BucketConfig::APPLY_MAX_LAG_MS_DEFAULT
}

fn default_log_bytes_max() -> u64 {
    BucketConfig::LOG_BYTES_MAX_DEFAULT
}

fn default_max_open_files() -> u32 {
    BucketConfig::MAX_OPEN_FILES_DEFAULT
}

fn default_batch_items() -> usize {
    BucketConfig::BATCH_ITEMS_DEFAULT
}

fn default_batch_bytes() -> usize {
    BucketConfig::BATCH_BYTES_DEFAULT
}

fn default_log_interval_ms() -> u64 {
    BucketConfig::LOG_INTERVAL_MS_DEFAULT
}

impl BucketConfig {
    /// Default of `flusher_batch_max_items`.
    pub const BATCH_ITEMS_DEFAULT: usize = 20_000;
    /// Default of `flush_batch_max_bytes`: 16 MiB.
    pub const BATCH_BYTES_DEFAULT: usize = 16 << 20;
    /// Without a commit log, most changes of one commit, whatever `flusher_batch_max_items` says: a flusher's run is to be
    /// short.
    pub const DIRECT_BATCH_ITEMS_MAX: usize = RUN_ITEMS_MAX;
    /// Without a commit log, most bytes of one commit, whatever `flush_batch_max_bytes` says: 4 MiB.
    pub const DIRECT_BATCH_BYTES_MAX: usize = 4 << 20;
    /// Most parts that `num_shards` may ask for.
    pub const SHARDS_MAX: u16 = 128;
    /// Default of `log_interval_ms`.
    pub const LOG_INTERVAL_MS_DEFAULT: u64 = 20;
    /// Default of `apply_max_lag_ms`: 30 s.
    pub const APPLY_MAX_LAG_MS_DEFAULT: u64 = 30_000;
    /// Default of `log_bytes_max`: 1 GiB.
    pub const LOG_BYTES_MAX_DEFAULT: u64 = 1 << 30;
    /// Default of `max_open_files`.
    pub const MAX_OPEN_FILES_DEFAULT: u32 = 1_024;

    /// A bucket with a new identity and default settings.
    #[must_use]
    pub fn new(name: &str, vbuckets: u16, quota_bytes: u64) -> Self {
        let mut uuid = [0; 16];
        getrandom::fill(&mut uuid).expect("the system has random bytes");
        Self {
            name: name.to_owned(),
            uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            vbuckets,
            quota_bytes,
            flush_enabled: false,
            compression: CompressionMode::default(),
            min_compression_ratio: MinRatio::DEFAULT,
            max_ttl_secs: 0,
            durability_min_level: 0,
            durability_impossible_fallback: DurabilityFallback::default(),
            replicas: 0,
            eviction_policy: EvictionPolicy::default(),
            conflict_resolution: ConflictResolution::default(),
            flusher_batch_max_items: Self::BATCH_ITEMS_DEFAULT,
            flush_batch_max_bytes: Self::BATCH_BYTES_DEFAULT,
            log_interval_ms: Self::LOG_INTERVAL_MS_DEFAULT,
            commit_log: true,
            apply_max_lag_ms: Self::APPLY_MAX_LAG_MS_DEFAULT,
            log_bytes_max: Self::LOG_BYTES_MAX_DEFAULT,
            keep_files_open: true,
            max_open_files: Self::MAX_OPEN_FILES_DEFAULT,
            num_shards: 0,
            compaction: CompactionConfig::default(),
            memory: MemoryConfig::default(),
        }
    }

    /// Parts of the vBuckets that write their files by themselves.
    #[must_use]
    pub fn shards(&self) -> u16 {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = match self.num_shards {
            0 => u16::try_from(cores()).unwrap_or(Self::SHARDS_MAX),
            number => number,
        };
        wanted.clamp(1, Self::SHARDS_MAX.min(self.vbuckets.max(1)))
    }

    /// The least durable level of its writes.
    #[must_use]
    pub fn min_level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_wire(self.durability_min_level)
    }

    /// Its identity as bytes; `None` when the text is not 32 hexadecimal digits.
    #[must_use]
    pub fn uuid_bytes(&self) -> Option<[u8; 16]> {
        let number = u128::from_str_radix(&self.uuid, 16)
            .ok()
            .filter(|_| self.uuid.len() == 32)?;
        Some(number.to_be_bytes())
    }

    /// What makes the settings unusable, if anything does.
    ///
    /// # Errors
    /// A sentence that names the setting.
    pub fn check(&self) -> Result<(), String> {
        if self.vbuckets == 0 {
            return Err("vbuckets must be at least 1".to_owned());
        }
        if self.uuid_bytes().is_none() {
            return Err(format!(
                "uuid must be 32 hexadecimal digits, not {:?}",
                self.uuid
            ));
        }
        if self.durability_min_level != 0 && self.min_level().is_none() {
            return Err(format!(
                "durability_min_level {} is not 0 to 3",
                self.durability_min_level
            ));
        }
        if self.flusher_batch_max_items == 0 || self.flush_batch_max_bytes == 0 {
            return Err(
                "flusher_batch_max_items and flush_batch_max_bytes must be at least 1".to_owned(),
            );
        }
        self.memory.check()?;
        if self.max_open_files == 0 {
            return Err("max_open_files must be at least 1".to_owned());
        }
        if self.num_shards > Self::SHARDS_MAX {
            return Err(format!(
                "num_shards {} is not 0 to {}",
                self.num_shards,
                Self::SHARDS_MAX
            ));
        }
        self.compaction.check()
    }
}

/// What is done with compressed values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressionMode {
    /// Values are kept inflated.
    Off,
    /// What a client sent compressed is kept so.
    #[default]
    Passive,
    /// So it is, and the bucket compresses what it keeps in memory.
    Active,
}

impl CompressionMode {
    /// Its name in settings and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Passive => "passive",
            Self::Active => "active",
        }
    }
}

/// What becomes of SyncWrites when a chain has too few nodes for a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityFallback {
    /// They are refused as impossible, and those under way wait for nodes.
    #[default]
    Disabled,
    /// The active alone is enough.
    ActiveAck,
}

impl DurabilityFallback {
    pub(crate) fn rules(self) -> DurabilityRules {
        DurabilityRules {
            active_is_enough: self == Self::ActiveAck,
        }
    }
}

/// What may be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictionPolicy {
    /// Values; keys and metadata stay.
    #[default]
    ValueOnly,
    /// Whole documents.
    FullEviction,
}

/// How writes with metadata of their own are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictResolution {
    /// By revision.
    #[default]
    Seqno,
    /// By CAS: the last write wins.
    Lww,
}

/// A change of settings while the bucket runs; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketChange {
    /// New quota in bytes.
    pub quota_bytes: Option<u64>,
    /// Whether clients may empty it.
    pub flush_enabled: Option<bool>,
    /// What is done with compressed values.
    pub compression: Option<CompressionMode>,
    /// How much smaller compression has to make a value.
    pub min_compression_ratio: Option<MinRatio>,
    /// Longest time to live.
    pub max_ttl_secs: Option<u32>,
    /// Least durable level, 0 to 3.
    pub durability_min_level: Option<u8>,
    /// What becomes of SyncWrites when a chain has too few nodes.
    pub durability_impossible_fallback: Option<DurabilityFallback>,
    /// Replicas wished for.
    pub replicas: Option<u8>,
    /// What may be evicted.
    pub eviction_policy: Option<EvictionPolicy>,
    /// Most changes that one sync of the log covers.
    pub flusher_batch_max_items: Option<usize>,
    /// Most bytes that one sync of the log covers.
    pub flush_batch_max_bytes: Option<usize>,
    /// How long a change may stay in memory only of which nobody waits for the disk.
    pub log_interval_ms: Option<u64>,
    /// Whether a log makes writes durable, from the next start on.
    pub commit_log: Option<bool>,
    /// How long a change may be in the log before it goes into its vBucket's file.
    pub apply_max_lag_ms: Option<u64>,
    /// Bytes of the log above which changes go into the files earlier.
    pub log_bytes_max: Option<u64>,
    /// Whether files stay open, from the next start on.
    pub keep_files_open: Option<bool>,
    /// Most files that stay open, from the next start on.
    pub max_open_files: Option<u32>,
    /// Parts of the vBuckets, from the next start on.
    pub num_shards: Option<u16>,
    /// When and how files are compacted.
    pub compaction: CompactionChange,
    /// How much is in memory, and what comes back into it after a start.
    pub memory: MemoryChange,
}

impl BucketChange {
    /// The change that makes any bucket what `config` says, but for what cannot change.
    #[must_use]
    pub fn to(config: &BucketConfig) -> Self {
        Self {
            quota_bytes: Some(config.quota_bytes),
            flush_enabled: Some(config.flush_enabled),
            compression: Some(config.compression),
            min_compression_ratio: Some(config.min_compression_ratio),
            max_ttl_secs: Some(config.max_ttl_secs),
            durability_min_level: Some(config.durability_min_level),
            durability_impossible_fallback: Some(config.durability_impossible_fallback),
            replicas: Some(config.replicas),
            eviction_policy: Some(config.eviction_policy),
            flusher_batch_max_items: Some(config.flusher_batch_max_items),
            flush_batch_max_bytes: Some(config.flush_batch_max_bytes),
            log_interval_ms: Some(config.log_interval_ms),
            commit_log: Some(config.commit_log),
            apply_max_lag_ms: Some(config.apply_max_lag_ms),
            log_bytes_max: Some(config.log_bytes_max),
            keep_files_open: Some(config.keep_files_open),
            max_open_files: Some(config.max_open_files),
            num_shards: Some(config.num_shards),
            compaction: CompactionChange {
                pool: Some(config.compaction.pool),
                max_concurrent: Some(config.compaction.max_concurrent),
                fragmentation_percent: Some(config.compaction.fragmentation_percent),
                min_bytes: Some(config.compaction.min_bytes),
                garbage_bytes: Some(config.compaction.garbage_bytes),
                hours: Some(config.compaction.hours),
                purge_age_secs: Some(config.compaction.purge_age_secs),
                throttle: Some(config.compaction.throttle),
            },
            memory: MemoryChange {
                high_wat_percent: Some(config.memory.high_wat_percent),
                low_wat_percent: Some(config.memory.low_wat_percent),
                warmup_behavior: Some(config.memory.warmup_behavior),
                access_scanner_enabled: Some(config.memory.access_scanner_enabled),
                access_scanner_interval_secs: Some(config.memory.access_scanner_interval_secs),
                dcp_backfill_bytes_max: Some(config.memory.dcp_backfill_bytes_max),
                dcp_cursor_percent: Some(config.memory.dcp_cursor_percent),
            },
        }
    }

    /// `config` with this change.
    #[must_use]
    pub fn apply(&self, config: &BucketConfig) -> BucketConfig {
        let mut config = config.clone();
        config.quota_bytes = self.quota_bytes.unwrap_or(config.quota_bytes);
        config.flush_enabled = self.flush_enabled.unwrap_or(config.flush_enabled);
        config.compression = self.compression.unwrap_or(config.compression);
        config.min_compression_ratio = self
            .min_compression_ratio
            .unwrap_or(config.min_compression_ratio);
        config.max_ttl_secs = self.max_ttl_secs.unwrap_or(config.max_ttl_secs);
        config.durability_min_level = self
            .durability_min_level
            .unwrap_or(config.durability_min_level);
        config.durability_impossible_fallback = self
            .durability_impossible_fallback
            .unwrap_or(config.durability_impossible_fallback);
        config.replicas = self.replicas.unwrap_or(config.replicas);
        config.eviction_policy = self.eviction_policy.unwrap_or(config.eviction_policy);
        config.flusher_batch_max_items = self
            .flusher_batch_max_items
            .unwrap_or(config.flusher_batch_max_items);
        config.flush_batch_max_bytes = self
            .flush_batch_max_bytes
            .unwrap_or(config.flush_batch_max_bytes);
        config.log_interval_ms = self.log_interval_ms.unwrap_or(config.log_interval_ms);
        config.commit_log = self.commit_log.unwrap_or(config.commit_log);
        config.apply_max_lag_ms = self.apply_max_lag_ms.unwrap_or(config.apply_max_lag_ms);
        config.log_bytes_max = self.log_bytes_max.unwrap_or(config.log_bytes_max);
        config.keep_files_open = self.keep_files_open.unwrap_or(config.keep_files_open);
        config.max_open_files = self.max_open_files.unwrap_or(config.max_open_files);
        config.num_shards = self.num_shards.unwrap_or(config.num_shards);
        config.compaction = self.compaction.apply(&config.compaction);
        config.memory = self.memory.apply(&config.memory);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_part_of_the_vbuckets_for_each_core_unless_told_otherwise() {
        let shards = |num_shards, vbuckets| {
            let config = BucketConfig {
                num_shards,
                ..BucketConfig::new("b", vbuckets, 1 << 20)
            };
            config.shards()
        };
        let cores = std::thread::available_parallelism().unwrap().get();
        let cores = u16::try_from(cores).unwrap();
        assert_eq!(shards(0, u16::MAX), cores.min(BucketConfig::SHARDS_MAX));
        assert_eq!(shards(0, 1), 1, "no more than there are vBuckets");
        assert_eq!((shards(1, 1_024), shards(3, 1_024)), (1, 3));
        assert_eq!((shards(3, 2), shards(3, 3)), (2, 3));
        assert_eq!(shards(u16::MAX, u16::MAX), BucketConfig::SHARDS_MAX);
    }
}
