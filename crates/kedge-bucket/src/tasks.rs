//! The kinds of tasks of a bucket, and their beginning.

use crate::access_log::AccessScanner;
use crate::bucket::Bucket;
use crate::compressor::ItemCompressor;
use crate::dcp::CursorMemory;
use crate::dropped::DroppedSweep;
use crate::fetch::Fetcher;
use crate::memory_queue::AdmitWrites;
use crate::pager::ItemPager;
use crate::scans::RangeScans;
use crate::sweep::ExpirySweep;
use kedge_bucket_core::{BucketError, add_task};
use kedge_executor::{Kind, Pool, Priority};
use std::sync::Arc;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Documents that expired, and tombstones that are old enough.
pub(crate) static EXPIRY_SWEEP: Kind =
    Kind::new("expiry_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents of dropped collections leave memory.
pub(crate) static DROPPED_SWEEP: Kind =
    Kind::new("dropped_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Files and log read at the start. Long, but all clients wait for it, and the threads for long work stand back.
pub(crate) static WARMUP: Kind = Kind::new("warmup", Pool::Reader, Priority::High, ms(60_000));
/// Documents that commands wait for are read. A run is at least one look at a file.
pub(crate) static BG_FETCH: Kind = Kind::new("bg_fetch", Pool::Reader, Priority::High, ms(250));
/// Writes that waited for memory go on.
pub(crate) static MEMORY_ADMISSION: Kind =
    Kind::new("memory_admission", Pool::NonIo, Priority::High, ms(100));
/// What is seldom asked for leaves memory.
pub(crate) static ITEM_PAGER: Kind =
    Kind::new("item_pager", Pool::NonIo, Priority::Normal, ms(100));
/// Values are compressed in memory. A run is a chunk.
pub(crate) static ITEM_COMPRESSOR: Kind =
    Kind::new("item_compressor", Pool::NonIo, Priority::Low, ms(100));
/// What is in memory is written down for the next start. A run is a slice.
pub(crate) static ACCESS_SCANNER: Kind =
    Kind::new("access_scanner", Pool::AuxIo, Priority::Low, ms(500));
/// Documents are read into memory beside the commands. A run is a slice.
pub(crate) static WARMUP_DOCUMENTS: Kind =
    Kind::new("warmup_documents", Pool::AuxIo, Priority::Normal, ms(500));
/// A vBucket was deleted: the log hears of it, its documents and its file go.
pub(crate) static VBUCKET_DELETION: Kind =
    Kind::new("vbucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The bucket is emptied. A run is all of it.
pub(crate) static BUCKET_FLUSH: Kind =
    Kind::new("bucket_flush", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The directory of a bucket that was dropped goes. A run is all of it.
pub(crate) static BUCKET_DELETION: Kind =
    Kind::new("bucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// A vBucket is given another state. A run is a sync.
pub(crate) static VBUCKET_STATE: Kind =
    Kind::new("vbucket_state", Pool::Writer, Priority::Normal, ms(500));
/// Files are read for streams of a connection. A run is a slice.
pub(crate) static DCP_BACKFILL: Kind =
    Kind::new("dcp_backfill", Pool::AuxIo, Priority::Normal, ms(500));
/// Files are read for range scans. A run is a slice.
pub(crate) static RANGE_SCAN: Kind =
    Kind::new("range_scan", Pool::Reader, Priority::Normal, ms(500));
/// The slowest cursors of streams are dropped.
pub(crate) static DCP_CURSORS: Kind =
    Kind::new("dcp_cursors", Pool::NonIo, Priority::Normal, ms(100));

impl Bucket {
    /// Begins the tasks that last as long as the bucket is open.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        self.persistence.begin_writers()?;
        self.begin_residency()?;
        self.core.begin_timeouts()?;
        let does = "lets go of expired documents and old tombstones";
        let task = add_task(self, &EXPIRY_SWEEP, does, ExpirySweep::default())?;
        self.signals.sweeper.set_task(task);
        executor.wake(task);
        let does = "lets go of documents of dropped collections";
        let task = add_task(self, &DROPPED_SWEEP, does, DroppedSweep::default())?;
        self.signals.dropped.set_task(task);
        executor.wake(task);
        self.persistence.begin_maintenance()
    }

    /// Begins the tasks that bring documents into memory when they are asked for, and let them go.
    fn begin_residency(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        for (number, lane) in self.signals.fetches.lanes().iter().enumerate() {
            let does = "reads documents that commands wait for";
            let task = add_task(self, &BG_FETCH, does, Fetcher::new(number))?;
            lane.parker.set_task(task);
            executor.wake(task);
        }
        for (number, lane) in self.scans.lanes().iter().enumerate() {
            let does = "reads files for range scans";
            let task = add_task(self, &RANGE_SCAN, does, RangeScans::new(number))?;
            lane.parker.set_task(task);
            executor.wake(task);
        }
        let does = "lets writes go on that waited for memory";
        let task = add_task(self, &MEMORY_ADMISSION, does, AdmitWrites)?;
        self.signals.memory_queue.parker.set_task(task);
        executor.wake(task);
        let does = "lets go of what is seldom asked for when memory is short";
        let task = add_task(self, &ITEM_PAGER, does, ItemPager::default())?;
        self.signals.pager.parker.set_task(task);
        executor.wake(task);
        let does = "bounds what streams keep in memory";
        let task = add_task(self, &DCP_CURSORS, does, CursorMemory)?;
        self.signals.dcp.cursors.set_task(task);
        executor.wake(task);
        let does = "compresses values in memory";
        let task = add_task(self, &ITEM_COMPRESSOR, does, ItemCompressor::default())?;
        self.signals.compressor.set_task(task);
        executor.wake(task);
        let does = "writes down which keys are in memory";
        let task = add_task(self, &ACCESS_SCANNER, does, AccessScanner::default())?;
        self.access_scanner.set_task(task);
        executor.wake(task);
        Ok(())
    }
}
