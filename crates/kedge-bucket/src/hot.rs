//! Settings that every write looks at.

use crate::config::{BucketConfig, CompressionMode};
use kedge_types::{Durability, DurabilityLevel, Expiry};
use kedge_vbucket::MinRatio;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Copies of some settings, read without a lock. Each stands for itself, so no order between them is needed.
#[derive(Debug)]
pub(crate) struct Hot {
    /// See [`MinRatio::hundredths`].
    min_ratio: AtomicU32,
    compresses: AtomicBool,
    min_level: AtomicU8,
    max_ttl_secs: AtomicU32,
}

impl Hot {
    pub(crate) fn new(config: &BucketConfig) -> Self {
        let hot = Self {
            min_ratio: AtomicU32::new(0),
            compresses: AtomicBool::new(false),
            min_level: AtomicU8::new(0),
            max_ttl_secs: AtomicU32::new(0),
        };
        hot.set(config);
        hot
    }

    pub(crate) fn set(&self, config: &BucketConfig) {
        let min_ratio = match config.compression {
            CompressionMode::Off => MinRatio::NEVER,
            CompressionMode::Passive | CompressionMode::Active => config.min_compression_ratio,
        };
        self.min_ratio
            .store(min_ratio.hundredths(), Ordering::Relaxed);
        let active = config.compression == CompressionMode::Active;
        self.compresses.store(active, Ordering::SeqCst);
        self.min_level
            .store(config.durability_min_level, Ordering::Relaxed);
        self.max_ttl_secs
            .store(config.max_ttl_secs, Ordering::Relaxed);
    }

    /// What compression has to save at least for a value to be kept compressed.
    pub(crate) fn min_ratio(&self) -> MinRatio {
        MinRatio::from_hundredths(self.min_ratio.load(Ordering::Relaxed))
    }

    /// Whether the bucket compresses values by itself.
    pub(crate) fn compresses(&self) -> bool {
        self.compresses.load(Ordering::SeqCst)
    }

    /// What was asked for, raised to the bucket's minimum.
    pub(crate) fn durability(&self, asked: Option<Durability>) -> Option<Durability> {
        let Some(min) = DurabilityLevel::from_wire(self.min_level.load(Ordering::Relaxed)) else {
            return asked;
        };
        let asked = asked.unwrap_or(Durability {
            level: min,
            timeout_ms: None,
        });
        Some(Durability {
            level: asked.level.max(min),
            ..asked
        })
    }

    /// The expiry that the number of the wire means, no later than the longest time to live allows.
    pub(crate) fn expiry(&self, wire: u32, unix_secs: u64) -> Expiry {
        self.limited(Expiry::from_wire(wire, unix_secs), unix_secs)
    }

    /// `expiry`, or what the longest time to live allows.
    pub(crate) fn limited(&self, expiry: Expiry, unix_secs: u64) -> Expiry {
        let max_ttl = self.max_ttl_secs.load(Ordering::Relaxed);
        if max_ttl == 0 {
            return expiry;
        }
        let latest = Expiry(u32::try_from(unix_secs + u64::from(max_ttl)).unwrap_or(u32::MAX));
        if expiry == Expiry::NEVER {
            latest
        } else {
            expiry.min(latest)
        }
    }
}
