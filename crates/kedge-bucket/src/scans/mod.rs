//! Range scans: documents of a vBucket in the order of their keys, or a sample of them, as one commit of its file has
//! them.
//!
//! A scan is made when the file has what was written before, and what its client says it needs; so it sees the vBucket as
//! it was at a moment, whatever is written, evicted or compacted meanwhile. It is read by tasks, a piece at a time. Each
//! continue gives several parts, until a limit of the client or of this module is met.
//!
//! Invariants:
//! * A scan is in the table from its making until it is complete, cancelled, failed, or was idle for too long. So it is
//!   bounded how many files are kept.
//! * One continue of a scan is under way at a time. What it needs stands in one queue, or in the hands of its task.
//! * Each command ends once: in the task, or when the bucket ends. Once closed, a queue takes no more.

mod component;
mod continuing;
mod creating;
mod job;
mod place;
mod sample;
mod task;

pub use component::RangeScanner;
use continuing::Continuing;
use creating::Creating;
use job::Job;
use kedge_bucket_core::Ctx;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Parker;
use kedge_bucket_core::Total;
use kedge_sync::{
    RankedMutex,
    ranks::{ScanPlace, ScanQueue, ScansOpen},
};
use kedge_types::limits::{RANGE_SCAN_IDLE_SECS, RANGE_SCAN_WAIT_MS_MAX, RANGE_SCANS_MAX};
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::Cookie;
use place::Place;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Tasks that read for scans at the same time.
const LANES: u16 = 2;

/// Names a scan.
pub type ScanId = [u8; 16];

/// One end of a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanBound {
    /// The key, without collection prefix.
    pub key: Vec<u8>,
    /// Whether the key itself is left out.
    pub exclusive: bool,
}

/// Which documents a scan gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanOf {
    /// From one key to another.
    Range {
        /// The lower end.
        start: ScanBound,
        /// The upper end.
        end: ScanBound,
    },
    /// So many of them, chosen at random; all, if there are fewer.
    Sample {
        /// The same seed chooses the same of the same.
        seed: u64,
        /// How many.
        count: u64,
    },
}

/// What the vBucket must have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanNeeds {
    /// Its branch.
    pub uuid: VbUuid,
    /// A seqno that is persisted.
    pub seqno: Seqno,
    /// Whether the change with just this seqno must still be there.
    pub seqno_exists: bool,
    /// How long to wait for the seqno, in milliseconds; `None`: not at all.
    pub timeout_ms: Option<u64>,
}

/// A scan that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanWanted {
    /// The collection.
    pub collection: CollectionId,
    /// Which documents.
    pub of: ScanOf,
    /// Keys only.
    pub key_only: bool,
    /// Values with their extended attributes.
    pub with_xattrs: bool,
    /// What the vBucket must have reached.
    pub needs: Option<ScanNeeds>,
    /// A name for statistics.
    pub name: String,
}

/// Where a continue ends; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanLimits {
    /// So many documents.
    pub items: u32,
    /// So long after it began, in milliseconds.
    pub ms: u32,
    /// So many bytes of keys and values.
    pub bytes: u32,
}

/// What is known of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanFigures {
    /// Its id.
    pub id: ScanId,
    /// Its vBucket.
    pub vb: VbId,
    /// What was wanted.
    pub wanted: ScanWanted,
    /// Whether it is being continued.
    pub is_busy: bool,
    /// Documents that it gave.
    pub items: u64,
    /// Bytes of keys and values that it gave.
    pub bytes: u64,
    /// How long ago it was made or continued, in milliseconds.
    pub idle_ms: u64,
}

/// A scan that is open.
#[derive(Debug)]
pub(crate) struct OpenScan {
    id: ScanId,
    vb: VbId,
    uuid: VbUuid,
    wanted: ScanWanted,
    /// Only the task of the continue that is under way has it.
    place: RankedMutex<ScanPlace, Place>,
    is_busy: AtomicBool,
    is_cancelled: AtomicBool,
    /// When it was made, or a continue ended.
    used_ns: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
}

/// The commands of one task.
#[derive(Debug, Default)]
pub(crate) struct ScanLane {
    queue: RankedMutex<ScanQueue, Queue>,
    pub(crate) parker: Arc<Parker>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// The scans of a scanner.
#[derive(Debug)]
pub(crate) struct Scans {
    open: RankedMutex<ScansOpen, HashMap<ScanId, Arc<OpenScan>>>,
    lanes: Box<[ScanLane]>,
}

impl Scans {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            open: RankedMutex::default(),
            lanes: (0..LANES.min(vbuckets))
                .map(|_| ScanLane::default())
                .collect(),
        }
    }

    pub(crate) fn lanes(&self) -> &[ScanLane] {
        &self.lanes
    }

    fn lane_of(&self, vb: VbId) -> &ScanLane {
        &self.lanes[vb.index() % self.lanes.len()]
    }

    fn remove(&self, id: &ScanId) -> Option<Arc<OpenScan>> {
        self.open.lock().remove(id)
    }

    fn find(&self, vb: VbId, id: &ScanId) -> Result<Arc<OpenScan>, Status> {
        let open = self.open.lock();
        let scan = open.get(id).filter(|scan| scan.vb == vb);
        scan.cloned().ok_or(Status::KeyNotFound)
    }

    /// Scans that are open.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }
}

impl OpenScan {
    /// When it is given up, unless it is continued.
    fn idle_at_ns(&self) -> Option<u64> {
        let idle_ns = RANGE_SCAN_IDLE_SECS * 1_000_000_000;
        let is_idle = !self.is_busy.load(Ordering::SeqCst);
        is_idle.then(|| self.used_ns.load(Ordering::Relaxed) + idle_ns)
    }
}

impl RangeScanner {
    /// Makes a range scan of an active vBucket; [`kedge_vbucket::Completion::ScanMade`] has its id, or `KeyNotFound` when
    /// it would give nothing, `TemporaryFailure` when its vBucket's file is not so far in time, `NotStored` when the change
    /// that is to be there is not.
    ///
    /// # Errors
    /// `UnknownCollection`; `NotMyVbucket`; `VbUuidNotEqual`; `Busy` when [`RANGE_SCANS_MAX`] are open; `TemporaryFailure` while loading, or when
    /// the seqno is not persisted and that is not to be waited for.
    pub fn create_scan(
        &self,
        ctx: Ctx,
        vb: VbId,
        wanted: ScanWanted,
        cookie: Cookie,
    ) -> Result<Outcome<ScanId>, Status> {
        self.check_scanned(wanted.collection)?;
        let (branch, high, persisted) = self.core.step(ctx.now, vb, |vbucket| {
            let branch = (vbucket.failover().uuid(), vbucket.history_id());
            (branch, vbucket.high_seqno(), vbucket.persisted_seqno())
        })?;
        let mut target = high;
        let mut wait_ms = RANGE_SCAN_WAIT_MS_MAX;
        if let Some(needs) = &wanted.needs {
            if needs.uuid != branch.0 {
                return Err(Status::VbUuidNotEqual);
            }
            if needs.seqno > persisted {
                wait_ms = needs.timeout_ms.ok_or(Status::TemporaryFailure)?;
            }
            target = target.max(needs.seqno);
        }
        if target == Seqno(0) {
            // There never was anything, and no file needs to be.
            return Err(Status::KeyNotFound);
        }
        if self.scans.count() >= RANGE_SCANS_MAX {
            return Err(Status::Busy);
        }
        let wait_ns = wait_ms.min(RANGE_SCAN_WAIT_MS_MAX) * 1_000_000;
        let deadline_ns = ctx.now.mono_ns + wait_ns;
        let creating = Creating::new(vb, branch, wanted, target, cookie, deadline_ns);
        self.queue_scan(vb, Job::Create(Box::new(creating)))?;
        Ok(Outcome::Parked)
    }

    /// Continues a scan: [`kedge_vbucket::Completion::Scanned`] has what it finds, once for each part, the last of which
    /// says so; or `NotMyVbucket`, `RangeScanCancelled`, `Internal`, and the scan is gone then.
    ///
    /// # Errors
    /// `KeyNotFound` when there is no such scan; `Busy` when it is being continued; `NotMyVbucket`, and the scan is gone;
    /// `TemporaryFailure` while loading.
    pub fn continue_scan(
        &self,
        ctx: Ctx,
        vb: VbId,
        id: &ScanId,
        limits: ScanLimits,
        cookie: Cookie,
    ) -> Result<Outcome<ScanId>, Status> {
        let scan = self.scans.find(vb, id)?;
        if scan.is_busy.swap(true, Ordering::SeqCst) {
            return Err(Status::Busy);
        }
        let continuing = Continuing::new(&scan, limits, cookie, ctx.now.mono_ns);
        let queued = self
            .check_scan(&scan)
            .and_then(|()| self.queue_scan(vb, Job::Continue(continuing)));
        if let Err(status) = queued {
            self.scans.remove(id);
            return Err(status);
        }
        Ok(Outcome::Parked)
    }

    /// Ends a scan. A continue of it that is under way ends as cancelled.
    ///
    /// # Errors
    /// `KeyNotFound` when there is no such scan.
    pub fn cancel_scan(&self, vb: VbId, id: &ScanId) -> Result<(), Status> {
        let scan = self.scans.find(vb, id)?;
        scan.is_cancelled.store(true, Ordering::SeqCst);
        self.scans.remove(id);
        self.core.totals.add(Total::RangeScansCancelled, 1);
        Ok(())
    }

    /// The scans that are open, in the order of their vBuckets.
    #[must_use]
    pub fn scan_figures(&self) -> Vec<ScanFigures> {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let open = self.scans.open.lock();
        let figures = open.values().map(|scan| ScanFigures {
            id: scan.id,
            vb: scan.vb,
            wanted: scan.wanted.clone(),
            is_busy: scan.is_busy.load(Ordering::SeqCst),
            items: scan.items.load(Ordering::Relaxed),
            bytes: scan.bytes.load(Ordering::Relaxed),
            idle_ms: now_ns.saturating_sub(scan.used_ns.load(Ordering::Relaxed)) / 1_000_000,
        });
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by_key(|scan| (scan.vb, scan.id));
        figures
    }

    fn check_scanned(&self, collection: CollectionId) -> Result<(), Status> {
        let found = self.core.manifest().collection(collection).map(|_| ());
        found.ok_or(Status::UnknownCollection)
    }

    /// Whether a scan may go on: its vBucket is the same, and active, and its collection is there.
    fn check_scan(&self, scan: &OpenScan) -> Result<(), Status> {
        self.check_scanned(scan.wanted.collection)?;
        let now = self.core.setup.clock.now();
        let uuid = self
            .core
            .step(now, scan.vb, |vbucket| vbucket.failover().uuid())?;
        if uuid == scan.uuid {
            Ok(())
        } else {
            Err(Status::NotMyVbucket)
        }
    }

    fn queue_scan(&self, vb: VbId, job: Job) -> Result<(), Status> {
        let lane = self.scans.lane_of(vb);
        let mut queue = lane.queue.lock();
        if queue.closed {
            return Err(Status::TemporaryFailure);
        }
        queue.jobs.push_back(job);
        drop(queue);
        if let Some(task) = lane.parker.unpark() {
            self.core.setup.executor.wake(task);
        }
        Ok(())
    }

    /// The bucket ends, and its tasks have: who still waits is told.
    pub(crate) fn end_scans(&self) {
        let mut completions = Vec::new();
        for lane in self.scans.lanes() {
            let mut queue = lane.queue.lock();
            queue.closed = true;
            let ended = queue.jobs.drain(..);
            completions.extend(ended.map(|job| job.failed(Status::TemporaryFailure)));
        }
        self.scans.open.lock().clear();
        if !completions.is_empty() {
            self.core.setup.completions.complete(&mut completions);
        }
    }
}
