//! What a bucket is told about compaction.

use super::when::CompactionHours;
use kedge_storage::ThrottleConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Settings of compaction. All can be changed while the bucket runs, and hold from the next compaction on; the throttle
/// from the next bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompactionConfig {
    /// Whose threads compact.
    pub pool: CompactionPool,
    /// Most files that are compacted at once; 0 is as many as half the threads that write, one at least, and leaves a
    /// thread of the pool `auxio` to others.
    pub max_concurrent: u16,
    /// A file is compacted when so much of it is garbage, in percent; 100 is never.
    pub fragmentation_percent: u8,
    /// A file with less garbage than this is left alone, in bytes.
    pub min_bytes: u64,
    /// So much garbage all files of the bucket may have together, in bytes, `None` for any: a file is compacted also when
    /// it has more than its part of it, shared among as many as the bucket has vBuckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage_bytes: Option<u64>,
    /// When files are compacted without anyone's asking; `None`: at any time. What a dropped collection leaves does not
    /// wait for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<CompactionHours>,
    /// Tombstones older than this are left out, in seconds.
    pub purge_age_secs: u32,
    /// How fast it goes.
    #[serde(alias = "pace")]
    pub throttle: CompactionRate,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            pool: CompactionPool::default(),
            max_concurrent: 0,
            fragmentation_percent: Self::FRAGMENTATION_PERCENT_DEFAULT,
            min_bytes: Self::MIN_BYTES_DEFAULT,
            garbage_bytes: None,
            hours: None,
            purge_age_secs: Self::PURGE_AGE_SECS_DEFAULT,
            throttle: CompactionRate::default(),
        }
    }
}

impl CompactionConfig {
    /// Default of `fragmentation_percent`.
    pub const FRAGMENTATION_PERCENT_DEFAULT: u8 = 30;
    /// Default of `min_bytes`: 1 MiB.
    pub const MIN_BYTES_DEFAULT: u64 = 1 << 20;
    /// Default of `purge_age_secs`: three days.
    pub const PURGE_AGE_SECS_DEFAULT: u32 = 3 * 24 * 3_600;
    /// The most that `max_concurrent` may ask for.
    pub const MAX_CONCURRENT: u16 = 128;

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.fragmentation_percent == 0 || self.fragmentation_percent > 100 {
            return Err(format!(
                "compaction_fragmentation_percent {} is not 1 to 100",
                self.fragmentation_percent
            ));
        }
        if self.max_concurrent > Self::MAX_CONCURRENT {
            return Err(format!(
                "compaction_max_concurrent {} is not 0 to {}",
                self.max_concurrent,
                Self::MAX_CONCURRENT
            ));
        }
        self.hours.map_or(Ok(()), CompactionHours::check)
    }
}

/// A change of [`CompactionConfig`]; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionChange {
    /// Whose threads compact.
    pub pool: Option<CompactionPool>,
    /// Most files that are compacted at once.
    pub max_concurrent: Option<u16>,
    /// How much garbage a file may have, in percent.
    pub fragmentation_percent: Option<u8>,
    /// How much garbage a file may have in any case, in bytes.
    pub min_bytes: Option<u64>,
    /// How much garbage all files may have together, in bytes; `Some(None)`: any.
    pub garbage_bytes: Option<Option<u64>>,
    /// At what time of the day files are compacted; `Some(None)`: at any.
    pub hours: Option<Option<CompactionHours>>,
    /// How long tombstones are kept, in seconds.
    pub purge_age_secs: Option<u32>,
    /// How fast it goes.
    pub throttle: Option<CompactionRate>,
}

impl CompactionChange {
    pub(crate) fn apply(&self, config: &CompactionConfig) -> CompactionConfig {
        CompactionConfig {
            pool: self.pool.unwrap_or(config.pool),
            max_concurrent: self.max_concurrent.unwrap_or(config.max_concurrent),
            fragmentation_percent: self
                .fragmentation_percent
                .unwrap_or(config.fragmentation_percent),
            min_bytes: self.min_bytes.unwrap_or(config.min_bytes),
            garbage_bytes: self.garbage_bytes.unwrap_or(config.garbage_bytes),
            hours: self.hours.unwrap_or(config.hours),
            purge_age_secs: self.purge_age_secs.unwrap_or(config.purge_age_secs),
            throttle: self.throttle.unwrap_or(config.throttle),
        }
    }
}

/// Whose threads compact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompactionPool {
    /// Those for long work. Commits go on beside it, and it is slowed down for them.
    #[default]
    Auxio,
    /// Those that commit, as long as one is free, and as fast as it goes: a compaction takes a hundred commits' time,
    /// in which its thread commits nothing. Here to be compared with.
    Writer,
}

/// How fast compactions read and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CompactionRate {
    /// As fast as commits do not feel it, which is measured all the time.
    #[default]
    Auto,
    /// As fast as the disk lets them.
    Off,
    /// So many bytes a second, all compactions together, read and written ones.
    BytesPerSec(u64),
}

impl CompactionRate {
    /// The bounds of a throttle, unless there is to be none.
    pub(super) fn bounds(self) -> Option<ThrottleConfig> {
        match self {
            Self::Auto => Some(ThrottleConfig::default()),
            Self::Off => None,
            Self::BytesPerSec(rate) => Some(ThrottleConfig {
                bytes_per_sec_min: rate,
                bytes_per_sec_max: rate,
                ..ThrottleConfig::default()
            }),
        }
    }
}

impl fmt::Display for CompactionRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::BytesPerSec(rate) => write!(f, "{rate}"),
        }
    }
}

impl FromStr for CompactionRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let rate = text.parse().ok().filter(|rate| *rate > 0);
        rate.map(Self::BytesPerSec).ok_or_else(|| {
            format!(
                "compaction_throttle {text:?} is neither auto nor off nor a number of bytes a second"
            )
        })
    }
}

impl TryFrom<String> for CompactionRate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CompactionRate> for String {
    fn from(throttle: CompactionRate) -> Self {
        throttle.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_kept_as_text_that_people_can_write() {
        let text = r#"{"pool":"writer","max_concurrent":2,"fragmentation_percent":50,"min_bytes":7,"purge_age_secs":60,"throttle":"1000"}"#;
        let config: CompactionConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.pool, CompactionPool::Writer);
        assert_eq!(config.throttle, CompactionRate::BytesPerSec(1_000));
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        let text =
            r#"{"garbage_bytes":9,"hours":{"from_minute":60,"to_minute":0,"abort_outside":true}}"#;
        let config: CompactionConfig = serde_json::from_str(text).unwrap();
        assert_eq!(
            (config.garbage_bytes, config.hours.unwrap().from_minute),
            (Some(9), 60)
        );
        let again = serde_json::to_string(&config).unwrap();
        assert_eq!(
            serde_json::from_str::<CompactionConfig>(&again).unwrap(),
            config
        );
        let left_out: CompactionConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(left_out, CompactionConfig::default());
        for throttle in ["auto", "off", "4194304"] {
            assert_eq!(
                throttle.parse::<CompactionRate>().unwrap().to_string(),
                throttle
            );
        }
        for wrong in ["0", "-1", "fast", ""] {
            assert!(wrong.parse::<CompactionRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let percent = CompactionConfig {
            fragmentation_percent: 0,
            ..CompactionConfig::default()
        };
        let why = percent.check().unwrap_err();
        assert!(why.contains("compaction_fragmentation_percent"), "{why}");
        let concurrent = CompactionConfig {
            max_concurrent: 129,
            ..CompactionConfig::default()
        };
        let why = concurrent.check().unwrap_err();
        assert!(why.contains("compaction_max_concurrent"), "{why}");
        assert_eq!(CompactionConfig::default().check(), Ok(()));
    }
}
