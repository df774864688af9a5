//! The writers of a bucket, as seen by commands that wait for them.

use crate::core::BucketCore;
use kedge_types::VbId;

/// The writers that make changes durable.
pub trait DiskWriters: std::fmt::Debug + Send + Sync {
    /// Reports that a command that waits for the disk was parked in this vBucket. The next request for a flush includes it.
    fn on_waiting(&self, vb: VbId);

    /// Wakes the writers that parked commands wait for, if any do.
    fn request_flush(&self, core: &BucketCore);

    /// Wakes all writers.
    fn write_all_soon(&self, core: &BucketCore);
}
