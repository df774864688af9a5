//! The beginning of the tasks of residency.

use crate::access_log::WriteAccessLog;
use crate::fetch::ReadForLane;
use crate::kinds::{
    ACCESS_SCANNER, BG_FETCH, DEFRAGMENTER, DROPPED_SWEEP, EXPIRY_SWEEP, ITEM_COMPRESSOR,
    ITEM_PAGER, MEMORY_ADMISSION,
};
use crate::memory_admission::AdmitWrites;
use crate::pager::PageOutTask;
use crate::residency::Residency;
use crate::sweeper::{Defragmenter, DroppedSweep, ExpirySweep, ItemCompressor};
use kedge_bucket_core::{BucketError, Component, Parker, TaskBody, add_task};
use kedge_executor::TaskKind;
use std::sync::Arc;

impl Residency {
    /// Begins the tasks that bring documents into memory when commands need them, and those that have them leave it.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn begin_tasks(&self) -> Result<(), BucketError> {
        let signals = &self.signals;
        for (lane, parker) in self.fetcher.parkers().iter().enumerate() {
            let does = "reads documents that commands wait for";
            let body = ReadForLane::new(lane);
            begin(&self.fetcher, parker, &BG_FETCH, does, body)?;
        }
        let does = "resumes writes that waited for memory";
        let (admission, parker) = (&self.admission, &signals.admission);
        begin(admission, parker, &MEMORY_ADMISSION, does, AdmitWrites)?;
        let does = "evicts documents that are seldom used when memory is short";
        let body = PageOutTask::default();
        begin(&self.pager, &signals.pager, &ITEM_PAGER, does, body)?;
        let (sweeper, parker) = (&self.sweeper, &signals.compressor);
        let does = "compresses values in memory";
        let body = ItemCompressor::default();
        begin(sweeper, parker, &ITEM_COMPRESSOR, does, body)?;
        let does = "moves documents so that memory can be given back";
        let body = Defragmenter::default();
        begin(sweeper, &signals.defragmenter, &DEFRAGMENTER, does, body)?;
        let does = "deletes expired documents and old tombstones";
        let body = ExpirySweep::default();
        begin(sweeper, &signals.expiry_sweep, &EXPIRY_SWEEP, does, body)?;
        let does = "evicts documents of dropped collections";
        let body = DroppedSweep::default();
        begin(sweeper, &signals.dropped_sweep, &DROPPED_SWEEP, does, body)?;
        let (scanner, parker) = (&self.access_scanner, &self.access_scanner.parker);
        let does = "writes the keys in memory to the access log";
        let body = WriteAccessLog::default();
        begin(scanner, parker, &ACCESS_SCANNER, does, body)
    }
}

fn begin<C: Component>(
    component: &Arc<C>,
    parker: &Parker,
    kind: &'static TaskKind,
    does: &'static str,
    body: impl TaskBody<C>,
) -> Result<(), BucketError> {
    let task = add_task(component, kind, does, body)?;
    parker.set_task(task);
    component.core().setup.executor.wake(task);
    Ok(())
}
