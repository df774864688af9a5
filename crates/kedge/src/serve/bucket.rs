//! The bucket that the settings name.

use std::time::Duration;

use kedge_bucket::{
    BucketChange, BucketConfig, CompactionChange, CompactionConfig, MemoryChange, MemoryConfig,
};
use kedge_disk::Disk;
use kedge_node::registry::{RegistryError, change_stored, stored_config};

use crate::settings::{Effective, Settings};

/// What the bucket is made like when it is not there.
pub(super) fn config(settings: &Settings) -> BucketConfig {
    BucketConfig {
        flush_enabled: settings.flush_enabled,
        compression: settings.compression,
        min_compression_ratio: settings.min_compression_ratio,
        durability_impossible_fallback: settings.durability_impossible_fallback,
        flusher_batch_max_items: settings.flusher_batch_max_items as usize,
        flush_batch_max_bytes: usize::try_from(settings.flush_batch_max_bytes.0)
            .unwrap_or(usize::MAX),
        log_interval_ms: millis(settings.log_interval),
        commit_log: settings.commit_log,
        apply_max_lag_ms: millis(settings.apply_max_lag),
        log_bytes_max: settings.log_bytes_max.0,
        keep_files_open: settings.keep_files_open,
        max_open_files: settings.max_open_files,
        num_shards: settings.num_shards,
        eviction_policy: settings.eviction_policy,
        memory: MemoryConfig {
            // What is too much for the type makes no sense either.
            high_wat_percent: u8::try_from(settings.mem_high_wat_percent).unwrap_or(u8::MAX),
            low_wat_percent: u8::try_from(settings.mem_low_wat_percent).unwrap_or(u8::MAX),
            warmup_behavior: settings.warmup_behavior,
            access_scanner_enabled: settings.access_scanner_enabled,
            access_scanner_interval_secs: settings.access_scanner_interval.as_secs(),
            dcp_backfill_bytes_max: settings.dcp_backfill_bytes_max.0,
            dcp_cursor_percent: u8::try_from(settings.dcp_cursor_percent).unwrap_or(u8::MAX),
        },
        compaction: CompactionConfig {
            pool: settings.compaction_pool,
            max_concurrent: settings.compaction_max_concurrent,
            // What is too much for the type makes no sense either.
            fragmentation_percent: u8::try_from(settings.compaction_fragmentation_percent)
                .unwrap_or(u8::MAX),
            min_bytes: settings.compaction_min_bytes.0,
            garbage_bytes: None,
            hours: None,
            purge_age_secs: u32::try_from(settings.purge_age.as_secs()).unwrap_or(u32::MAX),
            throttle: settings.compaction_throttle,
        },
        ..BucketConfig::new(&settings.bucket, settings.vbuckets, settings.bucket_quota.0)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Gives a bucket that was there before what is asked for now, before it is opened. Only what was given explicitly
/// counts: a default must not undo what was changed while the server ran.
pub(super) fn apply_given(disk: &dyn Disk, effective: &Effective) -> Result<(), RegistryError> {
    let asked = config(&effective.settings);
    let data_dir = &effective.settings.data_dir;
    let Some(is) = stored_config(disk, data_dir, &asked.name)? else {
        return Ok(());
    };
    let change = change(&is, &asked, |name| effective.is_given(name));
    if change != BucketChange::default() {
        tracing::info!(bucket = is.name, ?change, "the bucket gets other settings");
        match change_stored(disk, data_dir, &is, &change) {
            Err(error) if error.is_no_space() => {
                tracing::error!(
                    bucket = is.name,
                    %error,
                    "the disk is full: the bucket keeps its settings; give them again when there is room"
                );
            }
            changed => changed?,
        }
    }
    if effective.is_given("vbuckets") && is.vbuckets != asked.vbuckets {
        tracing::warn!(
            bucket = is.name,
            asked = asked.vbuckets,
            keeps = is.vbuckets,
            "the number of vBuckets is chosen when a bucket is made and cannot be changed"
        );
    }
    Ok(())
}

/// A setting that was given and is another.
fn other<T: PartialEq>(given: bool, is: &T, asked: T) -> Option<T> {
    (given && *is != asked).then_some(asked)
}

fn change_of_compaction(
    is: &CompactionConfig,
    asked: &CompactionConfig,
    given: impl Fn(&str) -> bool,
) -> CompactionChange {
    CompactionChange {
        pool: other(given("compaction_pool"), &is.pool, asked.pool),
        max_concurrent: other(
            given("compaction_max_concurrent"),
            &is.max_concurrent,
            asked.max_concurrent,
        ),
        fragmentation_percent: other(
            given("compaction_fragmentation_percent"),
            &is.fragmentation_percent,
            asked.fragmentation_percent,
        ),
        min_bytes: other(
            given("compaction_min_bytes"),
            &is.min_bytes,
            asked.min_bytes,
        ),
        // A start says nothing of these: they are changed while the server runs.
        garbage_bytes: None,
        hours: None,
        purge_age_secs: other(given("purge_age"), &is.purge_age_secs, asked.purge_age_secs),
        throttle: other(given("compaction_throttle"), &is.throttle, asked.throttle),
    }
}

fn change_of_memory(
    is: &MemoryConfig,
    asked: &MemoryConfig,
    given: impl Fn(&str) -> bool,
) -> MemoryChange {
    MemoryChange {
        high_wat_percent: other(
            given("mem_high_wat_percent"),
            &is.high_wat_percent,
            asked.high_wat_percent,
        ),
        low_wat_percent: other(
            given("mem_low_wat_percent"),
            &is.low_wat_percent,
            asked.low_wat_percent,
        ),
        warmup_behavior: other(
            given("warmup_behavior"),
            &is.warmup_behavior,
            asked.warmup_behavior,
        ),
        access_scanner_enabled: other(
            given("access_scanner_enabled"),
            &is.access_scanner_enabled,
            asked.access_scanner_enabled,
        ),
        access_scanner_interval_secs: other(
            given("access_scanner_interval"),
            &is.access_scanner_interval_secs,
            asked.access_scanner_interval_secs,
        ),
        dcp_backfill_bytes_max: other(
            given("dcp_backfill_bytes_max"),
            &is.dcp_backfill_bytes_max,
            asked.dcp_backfill_bytes_max,
        ),
        dcp_cursor_percent: other(
            given("dcp_cursor_percent"),
            &is.dcp_cursor_percent,
            asked.dcp_cursor_percent,
        ),
    }
}

fn change(is: &BucketConfig, asked: &BucketConfig, given: impl Fn(&str) -> bool) -> BucketChange {
    BucketChange {
        quota_bytes: other(given("bucket_quota"), &is.quota_bytes, asked.quota_bytes),
        flush_enabled: other(
            given("flush_enabled"),
            &is.flush_enabled,
            asked.flush_enabled,
        ),
        compression: other(given("compression"), &is.compression, asked.compression),
        min_compression_ratio: other(
            given("min_compression_ratio"),
            &is.min_compression_ratio,
            asked.min_compression_ratio,
        ),
        durability_impossible_fallback: other(
            given("durability_impossible_fallback"),
            &is.durability_impossible_fallback,
            asked.durability_impossible_fallback,
        ),
        flusher_batch_max_items: other(
            given("flusher_batch_max_items"),
            &is.flusher_batch_max_items,
            asked.flusher_batch_max_items,
        ),
        flush_batch_max_bytes: other(
            given("flush_batch_max_bytes"),
            &is.flush_batch_max_bytes,
            asked.flush_batch_max_bytes,
        ),
        log_interval_ms: other(
            given("log_interval"),
            &is.log_interval_ms,
            asked.log_interval_ms,
        ),
        commit_log: other(given("commit_log"), &is.commit_log, asked.commit_log),
        apply_max_lag_ms: other(
            given("apply_max_lag"),
            &is.apply_max_lag_ms,
            asked.apply_max_lag_ms,
        ),
        log_bytes_max: other(
            given("log_bytes_max"),
            &is.log_bytes_max,
            asked.log_bytes_max,
        ),
        keep_files_open: other(
            given("keep_files_open"),
            &is.keep_files_open,
            asked.keep_files_open,
        ),
        max_open_files: other(
            given("max_open_files"),
            &is.max_open_files,
            asked.max_open_files,
        ),
        num_shards: other(given("num_shards"), &is.num_shards, asked.num_shards),
        eviction_policy: other(
            given("eviction_policy"),
            &is.eviction_policy,
            asked.eviction_policy,
        ),
        memory: change_of_memory(&is.memory, &asked.memory, &given),
        compaction: change_of_compaction(&is.compaction, &asked.compaction, &given),
        ..BucketChange::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_and_differs_is_changed() {
        let is = BucketConfig::new("b", 16, 1 << 20);
        let asked = BucketConfig {
            flush_enabled: true,
            log_interval_ms: 5,
            ..BucketConfig::new("b", 16, 2 << 20)
        };
        assert_eq!(change(&is, &asked, |_| false), BucketChange::default());
        assert_eq!(change(&is, &is, |_| true), BucketChange::default());
        let quota = change(&is, &asked, |name| name == "bucket_quota");
        let expected = BucketChange {
            quota_bytes: Some(2 << 20),
            ..BucketChange::default()
        };
        assert_eq!(quota, expected);
        assert_eq!(change(&is, &asked, |_| true).apply(&is).log_interval_ms, 5);
        let mut asked = is.clone();
        asked.compaction.max_concurrent = 3;
        asked.compaction.min_bytes = 7;
        let concurrent = change(&is, &asked, |name| name == "compaction_max_concurrent");
        let expected = CompactionChange {
            max_concurrent: Some(3),
            ..CompactionChange::default()
        };
        assert_eq!(concurrent.compaction, expected);
    }
}
