//! The settings of a bucket: one table, from which all code and documentation of them is derived.
//!
//! [`rows`] has a row for each setting. The structs of settings and of their changes, the keys of `bucket.json`, defaults,
//! checks, the options of `kedge serve`, the flags of `kedge bucket`, the fields of the management's form and document, and
//! `docs/reference/bucket-settings.md` come from the rows.

mod document;
mod form;
mod hours;
mod rows;
mod table;
mod values;

pub use document::markdown;
pub use form::{FieldKind, MASTER_KEY_ID};
pub use hours::CompactionHours;
pub use rows::{
    BucketChange, BucketConfig, CompactionChange, CompactionConfig, EncryptionChange,
    EncryptionConfig, MemoryChange, MemoryConfig,
};
pub use table::{BucketSetting, FixedSetting, FormField};
pub use values::{
    CompactionPool, CompactionRate, CompressionMode, ConflictResolution, DurabilityFallback,
    EvictionPolicy, WarmupBehavior,
};

use kedge_types::DurabilityLevel;

/// The levels of `durability_min_level` as the management names them; the place of each is its number on the wire.
pub const DURABILITY_LEVELS: [&str; 4] = [
    "none",
    "majority",
    "majorityAndPersistActive",
    "persistToMajority",
];

impl BucketConfig {
    /// Default of `flusher_batch_max_items`.
    pub const BATCH_ITEMS_DEFAULT: usize = 20_000;
    /// Default of `flush_batch_max_bytes`: 16 MiB.
    pub const BATCH_BYTES_DEFAULT: usize = 16 << 20;
    /// Without a commit log, largest number of changes of one commit, whatever `flusher_batch_max_items` is: a flusher's run
    /// is to be short.
    pub const DIRECT_BATCH_ITEMS_MAX: usize = 4_096;
    /// Without a commit log, largest number of bytes of one commit, whatever `flush_batch_max_bytes` is: 4 MiB.
    pub const DIRECT_BATCH_BYTES_MAX: usize = 4 << 20;
    /// Largest number of parts that `num_shards` may ask for.
    pub const SHARDS_MAX: u16 = 128;
    /// Largest number of replicas that a form may ask for.
    pub const REPLICAS_MAX: u8 = 3;

    /// Returns the settings of a bucket with a new identity, and defaults.
    #[must_use]
    pub fn new(name: &str, vbuckets: u16, quota_bytes: u64) -> Self {
        let mut uuid = [0; 16];
        getrandom::fill(&mut uuid).expect("the system has random bytes");
        Self {
            name: name.to_owned(),
            uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            vbuckets,
            quota_bytes,
            ..Self::default()
        }
    }

    /// Returns all settings that can change while the bucket runs.
    pub fn table() -> impl Iterator<Item = &'static BucketSetting> {
        let parts = [
            Self::ROWS,
            MemoryConfig::ROWS,
            CompactionConfig::ROWS,
            EncryptionConfig::ROWS,
        ];
        parts.into_iter().flatten()
    }

    /// Returns the number of parts of the vBuckets that write their files by themselves.
    #[must_use]
    pub fn shards(&self) -> u16 {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = match self.num_shards {
            0 => u16::try_from(cores()).unwrap_or(Self::SHARDS_MAX),
            number => number,
        };
        wanted.clamp(1, Self::SHARDS_MAX.min(self.vbuckets.max(1)))
    }

    /// Returns the minimum durability of its writes.
    #[must_use]
    pub fn min_level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_wire(self.durability_min_level)
    }

    /// Returns its identity as bytes; `None` when the text is not 32 hexadecimal digits.
    #[must_use]
    pub fn uuid_bytes(&self) -> Option<[u8; 16]> {
        let number = u128::from_str_radix(&self.uuid, 16)
            .ok()
            .filter(|_| self.uuid.len() == 32)?;
        Some(number.to_be_bytes())
    }

    /// Checks each setting, and the settings that depend on each other.
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
        for row in Self::table() {
            (row.check)(self)?;
        }
        let (low, high) = (self.memory.low_wat_percent, self.memory.high_wat_percent);
        if low >= high {
            return Err(format!(
                "mem_low_wat_percent {low} must be below mem_high_wat_percent {high}"
            ));
        }
        self.compaction.hours.map_or(Ok(()), CompactionHours::check)
    }
}

impl MemoryConfig {
    /// Writes are refused above this part of the quota.
    pub(crate) const MUTATION_PERCENT: u8 = 93;
}

impl Copy for CompactionConfig {}
impl Copy for CompactionChange {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl Fn(&mut BucketConfig)) -> String {
        let mut config = BucketConfig::new("b", 16, 1 << 20);
        assert_eq!(config.check(), Ok(()));
        change(&mut config);
        config.check().unwrap_err()
    }

    #[test]
    fn shards_default_to_one_for_each_core() {
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

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let percent = error(|it| it.compaction.fragmentation_percent = 0);
        assert_eq!(
            percent,
            "compaction_fragmentation_percent 0 is not 1 to 100"
        );
        let concurrent = error(|it| it.compaction.max_concurrent = 129);
        assert_eq!(concurrent, "compaction_max_concurrent 129 is not 0 to 128");
        let items = error(|it| it.flusher_batch_max_items = 0);
        assert_eq!(items, "flusher_batch_max_items must be at least 1");
        assert_eq!(
            error(|it| it.durability_min_level = 4),
            "durability_min_level 4 is not 0 to 3"
        );
        assert_eq!(
            error(|it| it.num_shards = 129),
            "num_shards 129 is not 0 to 128"
        );
        assert!(error(|it| it.vbuckets = 0).contains("vbuckets"));
        assert!(error(|it| it.uuid.clear()).contains("uuid"));
    }

    #[test]
    fn low_watermark_above_the_high_one_is_refused() {
        let check = |low_wat_percent, high_wat_percent| {
            let mut config = BucketConfig::new("b", 16, 1 << 20);
            config.memory.low_wat_percent = low_wat_percent;
            config.memory.high_wat_percent = high_wat_percent;
            config.check().is_ok()
        };
        assert!(check(1, 2) && check(92, 93));
        assert!(!check(0, 85) && !check(85, 85) && !check(86, 85) && !check(75, 94));
    }

    /// The form of `bucket.json` since its first version with all settings.
    const JSON: &str = r#"{"name":"b","uuid":"00112233445566778899aabbccddeeff","vbuckets":16,"conflict_resolution":"lww","quota_bytes":1048576,"flush_enabled":true,"compression":"active","min_compression_ratio":1.5,"max_ttl_secs":60,"durability_min_level":2,"durability_impossible_fallback":"active_ack","replicas":1,"eviction_policy":"full_eviction","flusher_batch_max_items":7,"flush_batch_max_bytes":8,"log_interval_ms":9,"commit_log":false,"apply_max_lag_ms":10,"log_bytes_max":11,"keep_files_open":false,"max_open_files":12,"num_shards":13,"compaction":{"pool":"writer","max_concurrent":2,"fragmentation_percent":50,"min_bytes":7,"garbage_bytes":9,"hours":{"from_minute":60,"to_minute":0,"abort_outside":true},"purge_age_secs":60,"throttle":"1000"},"memory":{"high_wat_percent":80,"low_wat_percent":70,"warmup_behavior":"blocking","access_scanner_enabled":false,"access_scanner_interval_secs":14,"defragmenter_enabled":false,"defragmenter_interval_secs":17,"dcp_backfill_bytes_max":15,"dcp_cursor_percent":16}}"#;

    #[test]
    fn settings_file_keeps_its_format_and_reads_old_names() {
        let config: BucketConfig = serde_json::from_str(JSON).unwrap();
        assert_eq!(serde_json::to_string(&config).unwrap(), JSON);
        assert_eq!(
            config.compaction.throttle,
            CompactionRate::BytesPerSec(1_000)
        );
        let older = JSON
            .replace("apply_max_lag_ms", "settle_age_ms")
            .replace("throttle", "pace");
        assert_eq!(
            serde_json::from_str::<BucketConfig>(&older).unwrap(),
            config
        );
        let later = JSON.replace(r#","keep"#, r#","file_copy_min_bytes":1,"keep"#);
        let config: BucketConfig = serde_json::from_str(&later).unwrap();
        assert_eq!(config.file_copy_min_bytes, 1);
        assert_eq!(serde_json::to_string(&config).unwrap(), later);
        let encrypted = r#""dcp_cursor_percent":16},"encryption":{"enabled":true,"rotation_interval_secs":1,"key_lifetime_secs":2}}"#;
        let encrypted = JSON.replace(r#""dcp_cursor_percent":16}}"#, encrypted);
        let config: BucketConfig = serde_json::from_str(&encrypted).unwrap();
        assert!(config.encryption.enabled && config.encryption.key_lifetime_secs == 2);
        assert_eq!(serde_json::to_string(&config).unwrap(), encrypted);
        let least = r#"{"name":"b","uuid":"0","vbuckets":1,"quota_bytes":2,"flush_enabled":false,"compaction":{}}"#;
        let least: BucketConfig = serde_json::from_str(least).unwrap();
        let expected = BucketConfig {
            uuid: "0".to_owned(),
            ..BucketConfig::new("b", 1, 2)
        };
        assert_eq!(least, expected);
    }

    #[test]
    fn unknown_and_missing_keys_are_named_in_errors() {
        for (from, to, says) in [
            (
                "log_interval_ms",
                "log_intervall_ms",
                "did you mean `log_interval_ms`?",
            ),
            (
                "min_bytes",
                "minbytes",
                "unknown setting `minbytes`; did you mean `min_bytes`? If a newer release wrote it, use that one",
            ),
            (
                "\"flush_enabled\":true,",
                "",
                "missing setting `flush_enabled`",
            ),
            ("\"lww\"", "\"lwww\"", "lwww"),
            ("1.5", "0.5", "min_compression_ratio 0.5 is not 1 to 1000"),
        ] {
            let error = serde_json::from_str::<BucketConfig>(&JSON.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn change_has_only_values_that_differ() {
        let is = BucketConfig::new("b", 16, 1 << 20);
        let mut asked = is.clone();
        asked.quota_bytes = 2 << 20;
        asked.compaction.max_concurrent = 3;
        asked.compaction.min_bytes = 7;
        let change = |given: fn(&str) -> bool| {
            let mut change = BucketChange::to(&asked);
            change.retain_new(&is, &given);
            change
        };
        assert!(change(|_| false).is_empty());
        assert_eq!(change(|_| true).apply(&is), asked);
        let expected = BucketChange {
            quota_bytes: Some(2 << 20),
            ..BucketChange::default()
        };
        assert_eq!(change(|name| name == "bucket_quota"), expected);
        let expected = BucketChange {
            compaction: CompactionChange {
                max_concurrent: Some(3),
                ..CompactionChange::default()
            },
            ..BucketChange::default()
        };
        assert_eq!(change(|name| name == "compaction_max_concurrent"), expected);
    }

    #[test]
    fn every_row_reads_the_value_that_it_shows() {
        let config: BucketConfig = serde_json::from_str(JSON).unwrap();
        let mut change = BucketChange::default();
        for row in BucketConfig::table() {
            (row.read)(&(row.show)(&config), &mut change).unwrap();
            assert!((row.read)("?", &mut change).is_err(), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
        // Text has no room for it.
        if let Some(Some(hours)) = &mut change.compaction.hours {
            hours.abort_outside = true;
        }
        assert_eq!(change, BucketChange::to(&config));
    }
}
