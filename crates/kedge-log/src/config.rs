//! The layout of a log, and the strictness of its recovery.

use std::sync::Arc;

use crate::keys::{NoKeys, SegmentKeys};
use crate::segment::segment_bytes_for;

/// Sizes and counts of a log. Sizes are rounded up to pages of 4 KiB, and to at least two pages.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Size of the first segment of a new log, in bytes. The following segments grow fourfold up to `segment_bytes`. It
    /// is small, so that an empty bucket costs little time and disk space.
    pub first_segment_bytes: u64,
    /// Size of a segment of a grown log, in bytes.
    pub segment_bytes: u64,
    /// Largest number of released segments that are kept for reuse. Others are removed.
    pub max_spares: usize,
    /// A number that clients cannot guess, new at each open. It is part of the checksums of batch headers, so that a
    /// document with the bytes of a batch is not mistaken for one when the batch around it is torn. Tests may use zero.
    pub salt: u64,
    /// The keys of encrypted segments. By default there are none, and new segments are plain.
    pub keys: Arc<dyn SegmentKeys>,
}

impl LogConfig {
    /// Returns the configuration with its sizes rounded.
    pub(crate) fn rounded(mut self) -> Self {
        self.segment_bytes = segment_bytes_for(0, self.segment_bytes);
        self.first_segment_bytes =
            segment_bytes_for(0, self.first_segment_bytes).min(self.segment_bytes);
        self
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            first_segment_bytes: 1 << 20,
            segment_bytes: 64 << 20,
            max_spares: 2,
            salt: 0,
            keys: Arc::new(NoKeys),
        }
    }
}

/// The handling of damage in the middle of the log by recovery. Both modes cut off a torn tail, which every power loss
/// may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecoveryMode {
    /// Fail with the location and kind of the damage.
    #[default]
    Strict,
    /// Skip and count damaged ranges. Their bytes are kept until they are released, and later opens in the strict mode
    /// accept them as known damage.
    Salvage,
}
