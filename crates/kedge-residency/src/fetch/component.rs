//! The component that brings documents into memory when operations need them.

use super::located::Fetch;
use crate::pager::ItemPager;
use crate::parked::{ParkedOperations, PendingOp, Resumption};
use kedge_bucket_core::{BucketCore, Component, Ctx, DiskWriters, Parker, Total};
use kedge_sync::{RankedMutex, ranks::FetchesLocated};
use kedge_types::{Status, VbId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of tasks that read, each for its part of the vBuckets. They wait for the disk, which serves many reads at
/// once: with so many lanes, each thread of Reader finds a task to run although operations gather in some lanes.
const LANES: u16 = 64;
/// Least time between two failures that are logged; all are counted.
const LOG_INTERVAL_NS: u64 = 1_000_000_000;

/// The background fetches of a bucket.
#[derive(Debug)]
pub struct BackgroundFetcher {
    pub(super) core: Arc<BucketCore>,
    pub(super) writers: Arc<dyn DiskWriters>,
    pub(super) pager: Arc<ItemPager>,
    pub(super) parked: ParkedOperations<VbId>,
    /// The tasks of the lanes.
    pub(super) parkers: Box<[Parker]>,
    /// The reads that each front-end thread is to do itself.
    pub(super) located: Box<[RankedMutex<FetchesLocated, Vec<Fetch>>]>,
    /// When a failure was logged last.
    failure_logged_ns: AtomicU64,
}

impl Component for BackgroundFetcher {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl BackgroundFetcher {
    pub(crate) fn new(
        core: &Arc<BucketCore>,
        writers: &Arc<dyn DiskWriters>,
        pager: &Arc<ItemPager>,
    ) -> Self {
        let lanes = usize::from(LANES.min(core.vbucket_count()));
        Self {
            core: Arc::clone(core),
            writers: Arc::clone(writers),
            pager: Arc::clone(pager),
            parked: ParkedOperations::new(lanes),
            parkers: (0..lanes).map(|_| Parker::default()).collect(),
            located: (0..core.setup.threads)
                .map(|_| RankedMutex::default())
                .collect(),
            failure_logged_ns: AtomicU64::new(0),
        }
    }

    /// Returns the number of waiting operations.
    pub(crate) fn waiting(&self) -> usize {
        self.parked.waiting()
    }

    /// The parkers of the tasks, one for each lane.
    pub(crate) fn parkers(&self) -> &[Parker] {
        &self.parkers
    }

    /// Parks a read whose step says that it needs the disk.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the bucket ends.
    pub(crate) fn fetch(&self, ctx: Ctx, op: PendingOp) -> Result<(), Status> {
        self.parked.admit(&op, self.core.quota.limit())?;
        match self.locate(ctx.thread, op) {
            None => Ok(()),
            Some(op) => self.queue(op),
        }
    }

    /// Parks an operation that needs the disk.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the bucket ends.
    pub(crate) fn park(&self, op: PendingOp) -> Result<(), Status> {
        self.parked.admit(&op, self.core.quota.limit())?;
        self.queue(op)
    }

    /// Parks an operation that was parked for something else, and needs the disk now. Adds its failure to `resumption` if
    /// that is refused.
    pub(crate) fn park_or_fail(&self, op: PendingOp, resumption: &mut Resumption) {
        let (cookie, failed) = (op.cookie, op.op.failed(Status::TemporaryFailure));
        if self.park(op).is_err() {
            resumption.add(cookie, failed);
        }
    }

    /// Hands an operation, which counts as waiting already, to the task of its lane.
    fn queue(&self, op: PendingOp) -> Result<(), Status> {
        let (vb, lane) = (op.vb, op.vb.index() % self.parked.lanes());
        drop(self.parked.push(lane, vb, op)?);
        self.core.wake_parked(&self.parkers[lane]);
        Ok(())
    }

    /// As [`Self::queue`]; completes the operation if that is refused.
    pub(super) fn queue_or_fail(&self, op: PendingOp) {
        let (cookie, failed) = (op.cookie, op.op.failed(Status::TemporaryFailure));
        if self.queue(op).is_err() {
            let mut resumption = Resumption::default();
            resumption.add(cookie, failed);
            resumption.hand_over(&self.core);
        }
    }

    /// Counts a document that could not be read, and logs that now and then.
    pub fn on_read_failed(&self, vb: VbId, error: &str) {
        self.core.totals.add(Total::FetchFailures, 1);
        let now_ns = self.core.setup.clock.now().mono_ns;
        let last_ns = self.failure_logged_ns.load(Ordering::Relaxed);
        if last_ns == 0 || now_ns.saturating_sub(last_ns) >= LOG_INTERVAL_NS {
            self.failure_logged_ns.store(now_ns, Ordering::Relaxed);
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                error,
                "a document cannot be read from the vBucket's file"
            );
        }
    }

    /// Fails all operations that wait, as the bucket ends and its tasks have.
    pub(crate) fn close(&self) {
        let mut own = Vec::new();
        for of_thread in &self.located {
            own.extend(of_thread.lock().drain(..).map(Fetch::into_op));
        }
        self.parked.close(&self.core, own);
    }
}
