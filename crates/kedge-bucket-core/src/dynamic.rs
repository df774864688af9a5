//! Settings that every write reads.

use crate::settings::{BucketConfig, CompressionMode};
use kedge_types::{Durability, DurabilityLevel, Expiry};
use kedge_vbucket::MinRatio;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Copies of some settings, which are read without a lock. They are independent, so no order between them is needed.
#[derive(Debug)]
pub struct DynamicSettings {
    /// See [`MinRatio::hundredths`].
    min_ratio: AtomicU32,
    compresses: AtomicBool,
    min_level: AtomicU8,
    max_ttl_secs: AtomicU32,
    /// True if a collection has a longest time to live of its own.
    has_collection_ttls: AtomicBool,
}

impl DynamicSettings {
    /// Returns copies of the settings.
    pub fn new(config: &BucketConfig) -> Self {
        let settings = Self {
            min_ratio: AtomicU32::new(0),
            compresses: AtomicBool::new(false),
            min_level: AtomicU8::new(0),
            max_ttl_secs: AtomicU32::new(0),
            has_collection_ttls: AtomicBool::new(false),
        };
        settings.set(config);
        settings
    }

    /// Copies the settings.
    pub fn set(&self, config: &BucketConfig) {
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

    /// Returns the ratio by which compression has to make a value smaller for it to be kept compressed.
    pub fn min_ratio(&self) -> MinRatio {
        MinRatio::from_hundredths(self.min_ratio.load(Ordering::Relaxed))
    }

    /// Returns whether the bucket compresses values by itself.
    pub fn compresses(&self) -> bool {
        self.compresses.load(Ordering::SeqCst)
    }

    /// Returns the requested durability, raised to the bucket's minimum.
    pub fn durability(&self, requested: Option<Durability>) -> Option<Durability> {
        let Some(min) = DurabilityLevel::from_wire(self.min_level.load(Ordering::Relaxed)) else {
            return requested;
        };
        let requested = requested.unwrap_or(Durability {
            level: min,
            timeout_ms: None,
        });
        Some(Durability {
            level: requested.level.max(min),
            ..requested
        })
    }

    /// Returns whether a collection has a longest time to live of its own.
    pub fn has_collection_ttls(&self) -> bool {
        self.has_collection_ttls.load(Ordering::SeqCst)
    }

    /// Sets whether a collection has a longest time to live of its own.
    pub fn set_collection_ttls(&self, any: bool) {
        self.has_collection_ttls.store(any, Ordering::SeqCst);
    }

    /// Returns `expiry`, limited by the longest time to live: that of the collection if it has one, otherwise that of the
    /// bucket. 0 is no limit.
    pub fn limited(&self, expiry: Expiry, collection: Option<u32>, unix_secs: u64) -> Expiry {
        let of_bucket = || self.max_ttl_secs.load(Ordering::Relaxed);
        let max_ttl = collection.unwrap_or_else(of_bucket);
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
