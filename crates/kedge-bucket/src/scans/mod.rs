//! Range scans: the documents of a vBucket in key order, or a random sample of them, from one commit of its file.
//!
//! A scan is created when the file has reached both the current high seqno and the seqno that the client requires. It
//! reads a snapshot, which later writes, evictions and compactions do not affect. Tasks read it in steps. Each
//! RANGE_SCAN_CONTINUE returns several parts, until a limit of the client or of this module is reached.
//!
//! Invariants:
//! * A scan is in the table from its creation until it completes, fails, is cancelled, or exceeds the idle timeout. This
//!   bounds the number of files that scans keep open.
//! * At most one continue of a scan is in progress. It is either in one queue or held by its task.
//! * Each command completes once: in the task, or at shutdown of the bucket. A closed queue accepts no commands.

mod component;
mod continue_scan;
mod create;
mod failure;
mod job;
mod position;
mod sample;
mod task;

pub use component::RangeScanner;
use continue_scan::ContinueScan;
use create::CreateScan;
use job::ScanJob;
use kedge_bucket_core::{Ctx, Outcome, Parker, Total};
use kedge_sync::{
    RankedMutex,
    ranks::{ScanPositionRank, ScanQueue, ScansOpen},
};
use kedge_types::limits::{RANGE_SCAN_IDLE_SECS, RANGE_SCAN_WAIT_MS_MAX, RANGE_SCANS_MAX};
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::Cookie;
use position::ScanPosition;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of tasks that read files for scans.
const LANES: u16 = 2;

/// The unique identifier of a scan.
pub type ScanId = [u8; 16];

/// One end of a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanBound {
    /// The key, without the collection prefix.
    pub key: Vec<u8>,
    /// True if the range excludes the key itself.
    pub exclusive: bool,
}

/// The selection of documents that a scan returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanSelection {
    /// All documents in a range of keys.
    Range {
        /// The lower end.
        start: ScanBound,
        /// The upper end.
        end: ScanBound,
    },
    /// A random sample.
    Sample {
        /// The seed. Scans of the same documents with the same seed select the same sample.
        seed: u64,
        /// The size of the sample. If there are fewer documents, the scan returns all.
        count: u64,
    },
}

/// The state that the vBucket must have reached before the scan (`snapshot_requirements` of the request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequirements {
    /// The UUID of the vBucket's branch.
    pub uuid: VbUuid,
    /// The seqno that must be persisted.
    pub seqno: Seqno,
    /// True if the file must still contain the change with exactly this seqno.
    pub seqno_exists: bool,
    /// The maximum wait for the seqno, in milliseconds; `None` fails at once if it is not persisted.
    pub timeout_ms: Option<u64>,
}

/// The arguments of RANGE_SCAN_CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// The collection.
    pub collection: CollectionId,
    /// The selection of documents.
    pub selection: ScanSelection,
    /// True if the scan returns keys without values.
    pub key_only: bool,
    /// True if values include their extended attributes.
    pub with_xattrs: bool,
    /// The state that the vBucket must have reached.
    pub requirements: Option<ScanRequirements>,
    /// The name of the scan in statistics.
    pub name: String,
}

/// The limits of one continue. The value 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanLimits {
    /// The maximum number of documents.
    pub items: u32,
    /// The maximum duration, in milliseconds.
    pub ms: u32,
    /// The maximum number of bytes of keys and values.
    pub bytes: u32,
}

/// Statistics of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanFigures {
    /// The identifier of the scan.
    pub id: ScanId,
    /// The vBucket.
    pub vb: VbId,
    /// The arguments of the scan's creation.
    pub request: ScanRequest,
    /// True if a continue is in progress.
    pub is_busy: bool,
    /// The number of documents that the scan has returned.
    pub items: u64,
    /// The number of bytes of keys and values that the scan has returned.
    pub bytes: u64,
    /// The time since the creation or the end of the last continue, in milliseconds.
    pub idle_ms: u64,
}

/// An open scan.
#[derive(Debug)]
pub(crate) struct OpenScan {
    id: ScanId,
    vb: VbId,
    uuid: VbUuid,
    request: ScanRequest,
    /// The position in the file. Only the task that executes a continue locks it.
    position: RankedMutex<ScanPositionRank, ScanPosition>,
    is_busy: AtomicBool,
    is_cancelled: AtomicBool,
    /// The time of the creation or of the end of the last continue, in nanoseconds.
    used_ns: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
}

/// The queue of one task. A vBucket's commands are always in the same lane.
#[derive(Debug, Default)]
pub(crate) struct ScanLane {
    queue: RankedMutex<ScanQueue, ScanJobs>,
    pub(crate) parker: Arc<Parker>,
}

#[derive(Debug, Default)]
struct ScanJobs {
    jobs: VecDeque<ScanJob>,
    closed: bool,
}

/// The open scans of a bucket, and the queues of scan commands.
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

    /// Returns the number of open scans.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }
}

impl OpenScan {
    /// Returns the time at which the scan exceeds its idle timeout, or `None` while a continue is in progress.
    fn idle_deadline_ns(&self) -> Option<u64> {
        let idle_ns = RANGE_SCAN_IDLE_SECS * 1_000_000_000;
        let is_idle = !self.is_busy.load(Ordering::SeqCst);
        is_idle.then(|| self.used_ns.load(Ordering::Relaxed) + idle_ns)
    }
}

impl RangeScanner {
    /// Creates a range scan of an active vBucket. The completion [`kedge_vbucket::Completion::ScanMade`] contains its id, or
    /// an error: `KeyNotFound` if the scan is empty, `TemporaryFailure` if the vBucket's file does not reach the required
    /// seqno in time, `NotStored` if the file does not contain the required change.
    ///
    /// # Errors
    /// `UnknownCollection`; `NotMyVbucket`; `VbUuidNotEqual`; `Busy` if [`RANGE_SCANS_MAX`] scans are open;
    /// `TemporaryFailure` while loading, or if the seqno is not persisted and the request has no timeout.
    pub fn create_scan(
        &self,
        ctx: Ctx,
        vb: VbId,
        request: ScanRequest,
        cookie: Cookie,
    ) -> Result<Outcome<ScanId>, Status> {
        self.check_collection(request.collection)?;
        let (branch, high, persisted) = self.core.step(ctx.now, vb, |vbucket| {
            let branch = (vbucket.failover().uuid(), vbucket.history_id());
            (branch, vbucket.high_seqno(), vbucket.persisted_seqno())
        })?;
        let mut target = high;
        let mut wait_ms = RANGE_SCAN_WAIT_MS_MAX;
        if let Some(needs) = &request.requirements {
            if needs.uuid != branch.0 {
                return Err(Status::VbUuidNotEqual);
            }
            if needs.seqno > persisted {
                wait_ms = needs.timeout_ms.ok_or(Status::TemporaryFailure)?;
            }
            target = target.max(needs.seqno);
        }
        if target == Seqno(0) {
            // The vBucket never had a document, so a file need not exist.
            return Err(Status::KeyNotFound);
        }
        if self.scans.count() >= RANGE_SCANS_MAX {
            return Err(Status::Busy);
        }
        let wait_ns = wait_ms.min(RANGE_SCAN_WAIT_MS_MAX) * 1_000_000;
        let deadline_ns = ctx.now.mono_ns + wait_ns;
        let create = CreateScan::new(vb, branch, request, target, cookie, deadline_ns);
        self.queue_scan(vb, ScanJob::Create(Box::new(create)))?;
        Ok(Outcome::Parked)
    }

    /// Continues a scan. Each completion [`kedge_vbucket::Completion::Scanned`] contains one part of the result; the last
    /// one says whether the scan is complete. If a completion contains `NotMyVbucket`, `RangeScanCancelled` or `Internal`,
    /// the scan has been closed.
    ///
    /// # Errors
    /// `KeyNotFound` if there is no such scan; `Busy` if a continue is in progress; `NotMyVbucket`, which closes the scan;
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
        let continue_scan = ContinueScan::new(&scan, limits, cookie, ctx.now.mono_ns);
        let queued = self
            .check_scan(&scan)
            .and_then(|()| self.queue_scan(vb, ScanJob::Continue(continue_scan)));
        if let Err(status) = queued {
            self.scans.remove(id);
            return Err(status);
        }
        Ok(Outcome::Parked)
    }

    /// Cancels a scan. A continue that is in progress fails with `RangeScanCancelled`.
    ///
    /// # Errors
    /// `KeyNotFound` if there is no such scan.
    pub fn cancel_scan(&self, vb: VbId, id: &ScanId) -> Result<(), Status> {
        let scan = self.scans.find(vb, id)?;
        scan.is_cancelled.store(true, Ordering::SeqCst);
        self.scans.remove(id);
        self.core.totals.add(Total::RangeScansCancelled, 1);
        Ok(())
    }

    /// Returns the statistics of the open scans, ordered by vBucket.
    #[must_use]
    pub fn scan_figures(&self) -> Vec<ScanFigures> {
        let now_ns = self.core.setup.clock.now().mono_ns;
        let open = self.scans.open.lock();
        let figures = open.values().map(|scan| ScanFigures {
            id: scan.id,
            vb: scan.vb,
            request: scan.request.clone(),
            is_busy: scan.is_busy.load(Ordering::SeqCst),
            items: scan.items.load(Ordering::Relaxed),
            bytes: scan.bytes.load(Ordering::Relaxed),
            idle_ms: now_ns.saturating_sub(scan.used_ns.load(Ordering::Relaxed)) / 1_000_000,
        });
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by_key(|scan| (scan.vb, scan.id));
        figures
    }

    fn check_collection(&self, collection: CollectionId) -> Result<(), Status> {
        let found = self.core.manifest().collection(collection).map(|_| ());
        found.ok_or(Status::UnknownCollection)
    }

    /// Checks that a scan may continue: its vBucket is active and on the same branch, and its collection exists.
    fn check_scan(&self, scan: &OpenScan) -> Result<(), Status> {
        self.check_collection(scan.request.collection)?;
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

    fn queue_scan(&self, vb: VbId, job: ScanJob) -> Result<(), Status> {
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

    /// Closes all scans at shutdown, after the tasks have ended. Queued commands complete with `TemporaryFailure`.
    pub(crate) fn close_all(&self) {
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
