//! Execution of a RANGE_SCAN_CREATE.

use super::failure::ScanFailure;
use super::job::{PART_RECORDS, ScanProgress};
use super::position::{ScanPosition, is_live};
use super::sample::SampleSelector;
use super::{OpenScan, ScanId, ScanLane, ScanRequest, ScanSelection};
use crate::file_readers::{FileDelivery, FileRequest};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::Total;
use kedge_storage::{FileView, KeyScan};
use kedge_types::limits::RANGE_SCANS_MAX;
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{Completion, Cookie};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Interval in nanoseconds of checks whether the file has reached the required seqno.
const RECHECK_NS: u64 = 100_000_000;

/// A RANGE_SCAN_CREATE that is being executed.
#[derive(Debug)]
pub(super) struct CreateScan {
    pub(super) vb: VbId,
    uuid: VbUuid,
    /// The history of the vBucket that the file must belong to.
    history: u32,
    request: ScanRequest,
    /// The seqno that the file must have reached.
    target: Seqno,
    pub(super) cookie: Cookie,
    pub(super) deadline_ns: u64,
    /// The time of the next check whether the file has reached the seqno.
    pub(super) recheck_ns: u64,
    phase: CreatePhase,
}

#[derive(Debug)]
enum CreatePhase {
    New,
    /// The file has not reached the required seqno.
    WaitingForFile(Arc<FileRequest>),
    /// The live documents are counted, from which the sample is selected.
    Counting {
        view: Arc<FileView>,
        scan: Box<KeyScan>,
        count: u64,
    },
}

impl CreateScan {
    pub(super) fn new(
        vb: VbId,
        (uuid, history): (VbUuid, u32),
        request: ScanRequest,
        target: Seqno,
        cookie: Cookie,
        deadline_ns: u64,
    ) -> Self {
        Self {
            vb,
            uuid,
            history,
            request,
            target,
            cookie,
            deadline_ns,
            recheck_ns: 0,
            phase: CreatePhase::New,
        }
    }

    pub(super) fn advance(
        &mut self,
        scanner: &RangeScanner,
        lane: &ScanLane,
    ) -> Result<ScanProgress, ScanFailure> {
        match &mut self.phase {
            CreatePhase::New => {
                let pending =
                    scanner
                        .files
                        .request_file(self.vb, self.history, self.target, &lane.parker)?;
                self.recheck_ns = scanner.core.setup.clock.now().mono_ns + RECHECK_NS;
                self.phase = CreatePhase::WaitingForFile(pending);
                Ok(ScanProgress::Advanced(None))
            }
            CreatePhase::WaitingForFile(pending) => {
                match pending.take() {
                    Some(FileDelivery::File(view)) => return self.open(scanner, view),
                    Some(FileDelivery::HistoryEnded) => return Err(Status::NotMyVbucket.into()),
                    None => {}
                }
                let now_ns = scanner.core.setup.clock.now().mono_ns;
                if now_ns >= self.deadline_ns {
                    return Err(Status::TemporaryFailure.into());
                }
                if now_ns < self.recheck_ns {
                    return Ok(ScanProgress::Waiting);
                }
                self.recheck_ns = now_ns + RECHECK_NS;
                // No file contains a seqno without a change, so the applied seqno counts too.
                let vbucket = scanner.core.vbuckets[self.vb.index()].lock();
                let (history, applied) = (vbucket.history_id(), vbucket.applied_seqno());
                drop(vbucket);
                if history != self.history {
                    return Err(Status::NotMyVbucket.into());
                }
                let view = match applied >= self.target {
                    true => scanner.files.view_at(self.vb, history, Seqno(0))?,
                    false => None,
                };
                let Some(view) = view else {
                    return Ok(ScanProgress::Waiting);
                };
                pending.abandon();
                self.open(scanner, view)
            }
            CreatePhase::Counting { scan, count, .. } => {
                let secs = scanner.core.setup.clock.now().unix_secs();
                for _ in 0..PART_RECORDS {
                    let Some(record) = scan.next() else {
                        return self.register(scanner);
                    };
                    *count += u64::from(is_live(&record?, secs));
                }
                Ok(ScanProgress::Advanced(None))
            }
        }
    }

    /// Opens the file, which has reached the required seqno.
    fn open(
        &mut self,
        scanner: &RangeScanner,
        view: Arc<FileView>,
    ) -> Result<ScanProgress, ScanFailure> {
        if let Some(needs) = self
            .request
            .requirements
            .filter(|required| required.seqno_exists)
        {
            let mut found =
                scanner
                    .core
                    .storage()?
                    .scan_view(&view, needs.seqno..=needs.seqno, false)?;
            found.next().ok_or(Status::NotStored)??;
        }
        let scan = Box::new(self.open_keys(scanner, &view)?);
        self.phase = CreatePhase::Counting {
            view,
            scan,
            count: 0,
        };
        match self.request.selection {
            ScanSelection::Range { .. } => self.register(scanner),
            ScanSelection::Sample { .. } => Ok(ScanProgress::Advanced(None)),
        }
    }

    fn open_keys(&self, scanner: &RangeScanner, view: &FileView) -> Result<KeyScan, ScanFailure> {
        let range = StoredKeyRange::of(&self.request);
        Ok(scanner.core.storage()?.scan_keys(view, range.bounds())?)
    }

    /// Registers the scan, unless it is empty. A sample knows the number of documents by now.
    fn register(&mut self, scanner: &RangeScanner) -> Result<ScanProgress, ScanFailure> {
        let CreatePhase::Counting { view, count, .. } = &self.phase else {
            return Ok(ScanProgress::Advanced(None));
        };
        let now = scanner.core.setup.clock.now();
        let sample = match self.request.selection {
            ScanSelection::Range { .. } => None,
            ScanSelection::Sample {
                seed,
                count: wanted,
            } => Some(SampleSelector::new(seed, wanted, *count)),
        };
        let mut position = ScanPosition {
            scan: self.open_keys(scanner, view)?,
            sample,
            next: None,
        };
        // An empty scan is not created. The count of a sample is known already.
        while *count == 0 && position.advance(now.unix_secs())?.is_some() {}
        if *count == 0 && position.next.is_none() {
            return Err(Status::KeyNotFound.into());
        }
        let mut id: ScanId = [0; 16];
        getrandom::fill(&mut id).expect("the system has random bytes");
        let scan = OpenScan {
            id,
            vb: self.vb,
            uuid: self.uuid,
            request: self.request.clone(),
            position: kedge_sync::RankedMutex::new(position),
            is_busy: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            used_ns: AtomicU64::new(now.mono_ns),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        scanner.check_scan(&scan)?;
        let mut open = scanner.scans.open.lock();
        if open.len() >= RANGE_SCANS_MAX {
            return Err(Status::Busy.into());
        }
        open.insert(id, Arc::new(scan));
        drop(open);
        scanner.core.totals.add(Total::RangeScans, 1);
        Ok(ScanProgress::Finished((
            self.cookie,
            Completion::ScanMade { result: Ok(id) },
        )))
    }

    pub(super) fn abandon(&self) {
        if let CreatePhase::WaitingForFile(pending) = &self.phase {
            pending.abandon();
        }
    }
}

/// The range of stored keys that a scan reads.
struct StoredKeyRange {
    start: (Vec<u8>, bool),
    end: (Vec<u8>, bool),
}

impl StoredKeyRange {
    fn of(request: &ScanRequest) -> Self {
        let prefix = |id: CollectionId| {
            let (bytes, len) = kedge_types::encode_leb128(id.get());
            bytes[..len].to_vec()
        };
        let key = |key: &[u8]| [&prefix(request.collection), key].concat();
        match &request.selection {
            ScanSelection::Range { start, end } => Self {
                start: (key(&start.key), start.exclusive),
                end: (key(&end.key), end.exclusive),
            },
            ScanSelection::Sample { .. } => {
                // The last byte of a prefix is below 128, so incrementing it yields the end of the collection.
                let mut behind = prefix(request.collection);
                if let Some(last) = behind.last_mut() {
                    *last += 1;
                }
                Self {
                    start: (prefix(request.collection), false),
                    end: (behind, true),
                }
            }
        }
    }

    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        fn bound((key, exclusive): &(Vec<u8>, bool)) -> Bound<&[u8]> {
            if *exclusive {
                Bound::Excluded(key)
            } else {
                Bound::Included(key)
            }
        }
        (bound(&self.start), bound(&self.end))
    }
}
