//! Settings that every write looks at.

use crate::config::{BucketConfig, CompressionMode};
use kedge_types::{Durability, DurabilityLevel, Expiry};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Copies of some settings, read without a lock. Each stands for itself, so no order between them is needed.
#[derive(Debug)]
pub(crate) struct Hot {
    compress: AtomicU8,
    min_level: AtomicU8,
    max_ttl_secs: AtomicU32,
}

impl Hot {
    pub(crate) fn new(config: &BucketConfig) -> Self {
        let hot = Self {
            compress: AtomicU8::new(0),
            min_level: AtomicU8::new(0),
            max_ttl_secs: AtomicU32::new(0),
        };
        hot.set(config);
        hot
    }

    pub(crate) fn set(&self, config: &BucketConfig) {
        let passive = config.compression == CompressionMode::Passive;
        self.compress.store(u8::from(passive), Ordering::Relaxed);
        self.min_level
            .store(config.durability_min_level, Ordering::Relaxed);
        self.max_ttl_secs
            .store(config.max_ttl_secs, Ordering::Relaxed);
    }

    pub(crate) fn compression(&self) -> kedge_vbucket::CompressionMode {
        match self.compress.load(Ordering::Relaxed) {
            0 => kedge_vbucket::CompressionMode::Off,
            _ => kedge_vbucket::CompressionMode::Passive,
        }
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
        let expiry = Expiry::from_wire(wire, unix_secs);
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
