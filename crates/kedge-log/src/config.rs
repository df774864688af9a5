//! How a log is laid out, and how strict its recovery is.

use crate::segment::segment_bytes_for;

/// Sizes and counts of a log. Sizes are rounded up to pages of 4 KiB, and raised to two pages.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Bytes of a new log's first segment; those after it grow fourfold up to `segment_bytes`.
    /// Small, so that an empty bucket costs little time and disk.
    pub first_segment_bytes: u64,
    /// Bytes of a segment once the log has grown.
    pub segment_bytes: u64,
    /// How many segments that were released are kept to be used again; the others are removed.
    pub max_spares: usize,
    /// A number that nobody outside can guess, new at each open. It is mixed into the checksums
    /// of batch headers, so that a document that imitates a batch is not taken for one when the
    /// batch around it is torn. Zero is fine for tests.
    pub salt: u64,
}

impl LogConfig {
    /// The sizes as they are used.
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
        }
    }
}

/// What recovery does about damage in the middle of the log. A torn tail, which every power loss
/// may leave, is cut in both modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecoveryMode {
    /// Refuse, with the place and what is wrong there.
    #[default]
    Strict,
    /// Skip what is damaged, count it, and go on. The damaged bytes are kept until they are
    /// released, and later opens in the strict mode accept them as known.
    Salvage,
}
