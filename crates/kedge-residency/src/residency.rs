//! The memory of a bucket: it wires the components, and is their interface for commands.

use crate::access_log::AccessScanner;
use crate::access_log::reader::remove_access_log_of_another_key;
use crate::fetch::BackgroundFetcher;
use crate::memory_admission::MemoryAdmission;
use crate::pager::ItemPager;
use crate::parked::{Admission, Op, PendingOp, WaitFor};
use crate::pending_state::PendingStateQueue;
use crate::signals::{MemorySignals, ResidencyEvents};
use crate::sweeper::Sweeper;
use crate::warmup::Warmup;
use kedge_bucket_core::{BucketCore, Ctx, DiskWriters, Outcome, Read};
use kedge_types::Status;
use std::sync::{Arc, Weak};

/// The memory of a bucket.
#[derive(Debug)]
pub struct Residency {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) signals: Arc<MemorySignals>,
    pub(crate) fetcher: Arc<BackgroundFetcher>,
    pub(crate) admission: Arc<MemoryAdmission>,
    pending_state: PendingStateQueue,
    pub(crate) pager: Arc<ItemPager>,
    pub(crate) sweeper: Arc<Sweeper>,
    warmup: Arc<Warmup>,
    pub(crate) access_scanner: Arc<AccessScanner>,
}

impl Residency {
    /// Returns the components of a bucket that has not been loaded.
    #[must_use]
    pub fn new(
        core: Arc<BucketCore>,
        signals: Arc<MemorySignals>,
        writers: &Arc<dyn DiskWriters>,
    ) -> Self {
        let pager = Arc::new(ItemPager::new(&core, &signals, writers));
        let fetcher = Arc::new(BackgroundFetcher::new(&core, writers, &pager));
        let admission = MemoryAdmission::new(&core, &signals, writers, &pager, &fetcher);
        let warmup = Arc::new(Warmup::new(&core));
        Self {
            pending_state: PendingStateQueue::new(&core, &fetcher),
            admission: Arc::new(admission),
            sweeper: Arc::new(Sweeper::new(&core, &signals)),
            access_scanner: Arc::new(AccessScanner::new(&core, &warmup)),
            warmup,
            fetcher,
            pager,
            signals,
            core,
        }
    }

    /// Sets the receiver of events, once, before the bucket is loaded.
    pub fn set_events(&self, events: Weak<dyn ResidencyEvents>) {
        self.pager.set_events(events);
    }

    /// Returns the background fetches.
    #[must_use]
    pub fn fetcher(&self) -> &BackgroundFetcher {
        &self.fetcher
    }

    /// Returns the queue of operations that wait for a vBucket to become active.
    #[must_use]
    pub fn pending_state(&self) -> &PendingStateQueue {
        &self.pending_state
    }

    /// Returns the item pager.
    #[must_use]
    pub fn pager(&self) -> &ItemPager {
        &self.pager
    }

    /// Returns the warmup.
    #[must_use]
    pub fn warmup(&self) -> &Arc<Warmup> {
        &self.warmup
    }

    /// Decides whether a write of `bytes` goes on: there is room for it, and none waits.
    ///
    /// # Errors
    /// `NoMemory` when it could never fit, `TemporaryFailure` when waiting would not help.
    pub fn admit(&self, bytes: usize) -> Result<Admission, Status> {
        self.admission.admit(bytes)
    }

    /// Parks an operation.
    ///
    /// # Errors
    /// `NotMyVbucket`; `TemporaryFailure` when too many wait, the bucket is not open, or the vBucket is not pending any
    /// more.
    pub fn park<R>(
        &self,
        ctx: Ctx,
        op: PendingOp,
        wait_for: WaitFor,
    ) -> Result<Outcome<R>, Status> {
        match wait_for {
            WaitFor::Disk => self.fetcher.park(op),
            WaitFor::Memory(bytes) => self.admission.park(ctx, op, bytes),
            WaitFor::VbucketState => self.pending_state.park(op),
        }
        .map(|()| Outcome::Parked)
    }

    /// Parks a read whose step says that it needs the disk.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the bucket ends.
    pub fn fetch<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: impl Into<Op>,
    ) -> Result<Outcome<R>, Status> {
        self.fetcher.fetch(ctx, PendingOp::read(ctx, wanted, op))?;
        Ok(Outcome::Parked)
    }

    /// Parks a read that was refused with `status`, if its vBucket is pending.
    ///
    /// # Errors
    /// `status` if it is not; as [`Self::park`].
    pub fn park_if_pending<R>(
        &self,
        ctx: Ctx,
        wanted: &Read<'_>,
        op: impl Into<Op>,
        status: Status,
    ) -> Result<Outcome<R>, Status> {
        if status != Status::NotMyVbucket || !self.pending_state.is_pending(wanted.vb) {
            return Err(status);
        }
        let op = PendingOp::read(ctx, wanted, op);
        self.park(ctx, op, WaitFor::VbucketState)
    }

    /// Has the tasks look at settings that have changed.
    pub fn on_config(&self) {
        self.signals.on_memory(&self.core);
        self.access_scanner.on_config();
        self.sweeper.on_config();
    }

    /// Writes the access log, as the bucket ends.
    pub fn write_access_log(&self) {
        self.access_scanner.write_at_end();
    }

    /// Removes an access log that is not encrypted like new data. The next one is.
    pub fn remove_access_log_of_another_key(&self) {
        remove_access_log_of_another_key(&self.core);
    }

    /// Fails all operations that are parked, as the bucket ends and its tasks have.
    pub fn close(&self) {
        self.pending_state.close();
        self.admission.close();
        self.fetcher.close();
    }

    /// Returns the statistics that are numbers and no counters.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let waiting = [
            ("ep_bg_remaining_items", self.fetcher.waiting()),
            ("ep_waiting_for_memory", self.signals.writes.waiting()),
            ("ep_waiting_for_active", self.pending_state.waiting()),
        ];
        let waiting = waiting.map(|(name, count)| (name, count as u64));
        waiting.into_iter().chain(self.warmup.figures()).collect()
    }

    /// Sets the statistics that are no counters to 0.
    pub fn reset_stats(&self) {
        self.pager.reset_evicted();
    }
}
