//! The tasks of residency.

use crate::access_log::AccessScanner;
use crate::compressor::ItemCompressor;
use crate::dropped::DroppedSweep;
use crate::fetch::Fetcher;
use crate::memory_queue::AdmitWrites;
use crate::pager::ItemPager;
use crate::residency::Residency;
use crate::sweep::ExpirySweep;
use kedge_bucket_core::{BucketError, Parker, TaskBody, add_task};
use kedge_executor::{Pool, Priority, TaskKind};
use std::sync::Arc;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Documents that expired, and tombstones that are old enough.
pub(crate) static EXPIRY_SWEEP: TaskKind =
    TaskKind::new("expiry_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents of dropped collections leave memory.
pub(crate) static DROPPED_SWEEP: TaskKind =
    TaskKind::new("dropped_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents that commands wait for are read. A run is at least one look at a file.
pub(crate) static BG_FETCH: TaskKind =
    TaskKind::new("bg_fetch", Pool::Reader, Priority::High, ms(250));
/// Writes that waited for memory go on.
pub(crate) static MEMORY_ADMISSION: TaskKind =
    TaskKind::new("memory_admission", Pool::NonIo, Priority::High, ms(100));
/// Documents that are seldom asked for leave memory.
pub(crate) static ITEM_PAGER: TaskKind =
    TaskKind::new("item_pager", Pool::NonIo, Priority::Normal, ms(100));
/// Values are compressed in memory. A run is a chunk.
pub(crate) static ITEM_COMPRESSOR: TaskKind =
    TaskKind::new("item_compressor", Pool::NonIo, Priority::Low, ms(100));
/// The keys in memory are written down for the next start. A run is a slice.
pub(crate) static ACCESS_SCANNER: TaskKind =
    TaskKind::new("access_scanner", Pool::AuxIo, Priority::Low, ms(500));
/// Documents are read into memory beside the commands. A run is a slice.
pub(crate) static WARMUP_DOCUMENTS: TaskKind =
    TaskKind::new("warmup_documents", Pool::AuxIo, Priority::Normal, ms(500));

impl Residency {
    /// Begins the tasks that bring documents into memory when commands need them, and those that have them leave it.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        let signals = &self.signals;
        for (number, lane) in signals.fetches.lanes().iter().enumerate() {
            let does = "reads documents that commands wait for";
            self.begin(&lane.parker, &BG_FETCH, does, Fetcher::new(number))?;
        }
        let does = "lets writes go on that waited for memory";
        let parker = &signals.memory_queue.parker;
        self.begin(parker, &MEMORY_ADMISSION, does, AdmitWrites)?;
        let does = "lets go of what is seldom asked for when memory is short";
        self.begin(
            &signals.pager.parker,
            &ITEM_PAGER,
            does,
            ItemPager::default(),
        )?;
        let does = "compresses values in memory";
        let body = ItemCompressor::default();
        self.begin(&signals.compressor, &ITEM_COMPRESSOR, does, body)?;
        let does = "writes down which keys are in memory";
        let body = AccessScanner::default();
        self.begin(&self.access_scanner, &ACCESS_SCANNER, does, body)?;
        let does = "lets go of expired documents and old tombstones";
        self.begin(
            &signals.sweeper,
            &EXPIRY_SWEEP,
            does,
            ExpirySweep::default(),
        )?;
        let does = "lets go of documents of dropped collections";
        self.begin(
            &signals.dropped,
            &DROPPED_SWEEP,
            does,
            DroppedSweep::default(),
        )
    }

    fn begin(
        self: &Arc<Self>,
        parker: &Parker,
        kind: &'static TaskKind,
        does: &'static str,
        body: impl TaskBody<Self>,
    ) -> Result<(), BucketError> {
        let task = add_task(self, kind, does, body)?;
        parker.set_task(task);
        self.core.setup.executor.wake(task);
        Ok(())
    }
}
