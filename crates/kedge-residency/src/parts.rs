//! The parts of all hash tables, which tasks visit one after the other.

use kedge_bucket_core::BucketCore;
use kedge_types::VbId;

/// Returns the number of parts: shards of the largest table, times vBuckets. A part may be a shard that a smaller table
/// does not have.
pub(crate) fn parts(core: &BucketCore) -> usize {
    core.vbuckets.len() * core.table_shards().max().unwrap_or(1)
}

/// Returns the vBucket and the shard of a part. Neighbours are of different vBuckets, so that one that is much used is not
/// locked many times in a row.
pub(crate) fn place_of(core: &BucketCore, part: usize) -> (VbId, usize) {
    let vbuckets = core.vbuckets.len();
    (VbId((part % vbuckets) as u16), part / vbuckets)
}
