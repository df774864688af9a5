//! The kinds of tasks of a bucket, and their beginning.

use crate::bucket::Bucket;
use kedge_bucket_core::BucketError;
use kedge_executor::{Pool, Priority, TaskKind};
use std::sync::Arc;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Files and log read at the start. Long, but all clients wait for it, and the threads for long work stand back.
pub(crate) static WARMUP: TaskKind =
    TaskKind::new("warmup", Pool::Reader, Priority::High, ms(60_000));
/// A vBucket was deleted: the log hears of it, its documents and its file go.
pub(crate) static VBUCKET_DELETION: TaskKind =
    TaskKind::new("vbucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The bucket is emptied. A run is all of it.
pub(crate) static BUCKET_FLUSH: TaskKind =
    TaskKind::new("bucket_flush", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The directory of a bucket that was dropped goes. A run is all of it.
pub(crate) static BUCKET_DELETION: TaskKind =
    TaskKind::new("bucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// A vBucket is given another state. A run is a sync.
pub(crate) static VBUCKET_STATE: TaskKind =
    TaskKind::new("vbucket_state", Pool::Writer, Priority::Normal, ms(500));
/// Files are read for streams of a connection. A run is a slice.
pub(crate) static DCP_BACKFILL: TaskKind =
    TaskKind::new("dcp_backfill", Pool::AuxIo, Priority::Normal, ms(500));
/// Files are read for range scans. A run is a slice.
pub(crate) static RANGE_SCAN: TaskKind =
    TaskKind::new("range_scan", Pool::Reader, Priority::Normal, ms(500));
/// The slowest cursors of streams are dropped.
pub(crate) static DCP_CURSORS: TaskKind =
    TaskKind::new("dcp_cursors", Pool::NonIo, Priority::Normal, ms(100));

impl Bucket {
    /// Begins the tasks that last as long as the bucket is open.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        self.persistence.start_writers()?;
        self.residency.begin_tasks()?;
        self.core.begin_timeouts()?;
        self.scans.begin_tasks()?;
        self.dcp.begin_tasks()?;
        self.persistence.start_maintenance()
    }
}
