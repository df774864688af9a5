//! Settings of what is in memory: how much, and what comes back after a start.

use serde::{Deserialize, Serialize};

/// How much is in memory, and what comes back into it after a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Part of the quota, in percent, above which documents leave memory.
    pub high_wat_percent: u8,
    /// Part of the quota, in percent, down to which they do.
    pub low_wat_percent: u8,
    /// Whether a start waits until documents are in memory. A change holds from the next start on.
    pub warmup_behavior: WarmupBehavior,
    /// Whether keys that are in memory are written down, so that a start reads the most wanted first.
    pub access_scanner_enabled: bool,
    /// How often, in seconds.
    pub access_scanner_interval_secs: u64,
    /// What streams of one connection may have read from files and not sent, in bytes.
    pub dcp_backfill_bytes_max: u64,
    /// Part of the quota, in percent, that changes may hold which only streams have still to send.
    pub dcp_cursor_percent: u8,
}

impl MemoryConfig {
    /// Default of `dcp_backfill_bytes_max`: 20 MiB.
    pub const DCP_BACKFILL_BYTES_MAX_DEFAULT: u64 = 20 << 20;
    /// Default of `dcp_cursor_percent`.
    pub const DCP_CURSOR_PERCENT_DEFAULT: u8 = 10;
    /// Default of `high_wat_percent`.
    pub const HIGH_WAT_PERCENT_DEFAULT: u8 = 85;
    /// Default of `low_wat_percent`.
    pub const LOW_WAT_PERCENT_DEFAULT: u8 = 75;
    /// Default of `access_scanner_interval_secs`: a day.
    pub const ACCESS_SCANNER_INTERVAL_SECS_DEFAULT: u64 = 86_400;
    /// Writes are refused above this part of the quota.
    pub(crate) const MUTATION_PERCENT: u8 = 93;

    /// What makes the settings unusable, if anything does.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (low, high) = (self.low_wat_percent, self.high_wat_percent);
        if low == 0 || low >= high || high > Self::MUTATION_PERCENT {
            return Err(format!(
                "mem_low_wat_percent {low} must be at least 1 and below mem_high_wat_percent {high}, which must be at most {}",
                Self::MUTATION_PERCENT
            ));
        }
        if self.access_scanner_interval_secs == 0 {
            return Err("access_scanner_interval_secs must be at least 1".to_owned());
        }
        if self.dcp_backfill_bytes_max == 0 {
            return Err("dcp_backfill_bytes_max must be at least 1".to_owned());
        }
        if self.dcp_cursor_percent > 50 {
            return Err(format!(
                "dcp_cursor_percent {} is not 0 to 50",
                self.dcp_cursor_percent
            ));
        }
        Ok(())
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            high_wat_percent: Self::HIGH_WAT_PERCENT_DEFAULT,
            low_wat_percent: Self::LOW_WAT_PERCENT_DEFAULT,
            warmup_behavior: WarmupBehavior::default(),
            access_scanner_enabled: true,
            access_scanner_interval_secs: Self::ACCESS_SCANNER_INTERVAL_SECS_DEFAULT,
            dcp_backfill_bytes_max: Self::DCP_BACKFILL_BYTES_MAX_DEFAULT,
            dcp_cursor_percent: Self::DCP_CURSOR_PERCENT_DEFAULT,
        }
    }
}

/// Whether a start waits until documents are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmupBehavior {
    /// Commands run as soon as it is known what there is; documents that are not in memory yet are fetched.
    #[default]
    Background,
    /// Commands wait until all that fits is in memory.
    Blocking,
}

impl WarmupBehavior {
    /// Its name in settings and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Blocking => "blocking",
        }
    }
}

/// A change of [`MemoryConfig`]; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryChange {
    /// Part of the quota above which documents leave memory.
    pub high_wat_percent: Option<u8>,
    /// Part of the quota down to which they do.
    pub low_wat_percent: Option<u8>,
    /// Whether a start waits until documents are in memory.
    pub warmup_behavior: Option<WarmupBehavior>,
    /// Whether keys that are in memory are written down.
    pub access_scanner_enabled: Option<bool>,
    /// How often, in seconds.
    pub access_scanner_interval_secs: Option<u64>,
    /// What streams of one connection may have read from files and not sent.
    pub dcp_backfill_bytes_max: Option<u64>,
    /// Part of the quota that changes may hold which only streams have still to send.
    pub dcp_cursor_percent: Option<u8>,
}

impl MemoryChange {
    pub(crate) fn apply(&self, config: &MemoryConfig) -> MemoryConfig {
        let was = config.clone();
        MemoryConfig {
            high_wat_percent: self.high_wat_percent.unwrap_or(was.high_wat_percent),
            low_wat_percent: self.low_wat_percent.unwrap_or(was.low_wat_percent),
            warmup_behavior: self.warmup_behavior.unwrap_or(was.warmup_behavior),
            access_scanner_enabled: self
                .access_scanner_enabled
                .unwrap_or(was.access_scanner_enabled),
            access_scanner_interval_secs: self
                .access_scanner_interval_secs
                .unwrap_or(was.access_scanner_interval_secs),
            dcp_backfill_bytes_max: self
                .dcp_backfill_bytes_max
                .unwrap_or(was.dcp_backfill_bytes_max),
            dcp_cursor_percent: self.dcp_cursor_percent.unwrap_or(was.dcp_cursor_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_that_make_no_sense_are_refused() {
        let check = |low_wat_percent, high_wat_percent| {
            let change = MemoryChange {
                low_wat_percent: Some(low_wat_percent),
                high_wat_percent: Some(high_wat_percent),
                ..MemoryChange::default()
            };
            change.apply(&MemoryConfig::default()).check().is_ok()
        };
        assert!(MemoryConfig::default().check().is_ok());
        assert!(check(1, 2) && check(92, 93));
        assert!(!check(0, 85) && !check(85, 85) && !check(86, 85) && !check(75, 94));
    }
}
