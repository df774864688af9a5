//! A scan that is being made.

use super::job::{Failed, PART_RECORDS, Turn};
use super::place::{Place, is_live};
use super::sample::Sample;
use super::{OpenScan, ScanId, ScanLane, ScanOf, ScanWanted};
use crate::file_readers::{Arrival, Arrived};
use crate::scans::component::RangeScanner;
use kedge_bucket_core::Total;
use kedge_storage::{FileView, KeyScan};
use kedge_types::limits::RANGE_SCANS_MAX;
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{Completion, Cookie};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Files are waited for; so often it is looked whether one will not be handed out.
const LOOK_NS: u64 = 100_000_000;

/// A scan that is being made.
#[derive(Debug)]
pub(super) struct Creating {
    pub(super) vb: VbId,
    uuid: VbUuid,
    /// The vBucket's history that the file has to be of.
    history: u32,
    wanted: ScanWanted,
    /// The file has to have everything up to here.
    target: Seqno,
    pub(super) cookie: Cookie,
    pub(super) deadline_ns: u64,
    /// When to look again whether the file has come so far.
    pub(super) look_ns: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New,
    /// Until the file has come so far.
    Waits(Arc<Arrival>),
    /// Of a sample: how many there are to choose from.
    Counts {
        view: Arc<FileView>,
        scan: Box<KeyScan>,
        count: u64,
    },
}

impl Creating {
    pub(super) fn new(
        vb: VbId,
        (uuid, history): (VbUuid, u32),
        wanted: ScanWanted,
        target: Seqno,
        cookie: Cookie,
        deadline_ns: u64,
    ) -> Self {
        Self {
            vb,
            uuid,
            history,
            wanted,
            target,
            cookie,
            deadline_ns,
            look_ns: 0,
            stage: Stage::New,
        }
    }

    pub(super) fn turn(&mut self, scanner: &RangeScanner, lane: &ScanLane) -> Result<Turn, Failed> {
        match &mut self.stage {
            Stage::New => {
                let arrival =
                    scanner
                        .files
                        .want_file(self.vb, self.history, self.target, &lane.parker)?;
                self.look_ns = scanner.core.setup.clock.now().mono_ns + LOOK_NS;
                self.stage = Stage::Waits(arrival);
                Ok(Turn::Worked(None))
            }
            Stage::Waits(arrival) => {
                match arrival.take() {
                    Some(Arrived::File(view)) => return self.open(scanner, view),
                    Some(Arrived::HistoryEnded) => return Err(Status::NotMyVbucket.into()),
                    None => {}
                }
                let now_ns = scanner.core.setup.clock.now().mono_ns;
                if now_ns >= self.deadline_ns {
                    return Err(Status::TemporaryFailure.into());
                }
                if now_ns < self.look_ns {
                    return Ok(Turn::Waits);
                }
                self.look_ns = now_ns + LOOK_NS;
                // A seqno that no change has is in no file: then it counts what was brought there.
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
                    return Ok(Turn::Waits);
                };
                arrival.give_up();
                self.open(scanner, view)
            }
            Stage::Counts { scan, count, .. } => {
                let secs = scanner.core.setup.clock.now().unix_secs();
                for _ in 0..PART_RECORDS {
                    let Some(record) = scan.next() else {
                        return self.make(scanner);
                    };
                    *count += u64::from(is_live(&record?, secs));
                }
                Ok(Turn::Worked(None))
            }
        }
    }

    /// The file has what is needed.
    fn open(&mut self, scanner: &RangeScanner, view: Arc<FileView>) -> Result<Turn, Failed> {
        if let Some(needs) = self.wanted.needs.filter(|needs| needs.seqno_exists) {
            let mut found =
                scanner
                    .core
                    .storage()?
                    .scan_view(&view, needs.seqno..=needs.seqno, false)?;
            found.next().ok_or(Status::NotStored)??;
        }
        let scan = Box::new(self.scan(scanner, &view)?);
        self.stage = Stage::Counts {
            view,
            scan,
            count: 0,
        };
        match self.wanted.of {
            ScanOf::Range { .. } => self.make(scanner),
            ScanOf::Sample { .. } => Ok(Turn::Worked(None)),
        }
    }

    fn scan(&self, scanner: &RangeScanner, view: &FileView) -> Result<KeyScan, Failed> {
        let range = Range::of(&self.wanted);
        Ok(scanner.core.storage()?.scan_keys(view, range.bounds())?)
    }

    /// It is known what there is to give.
    fn make(&mut self, scanner: &RangeScanner) -> Result<Turn, Failed> {
        let Stage::Counts { view, count, .. } = &self.stage else {
            return Ok(Turn::Worked(None));
        };
        let now = scanner.core.setup.clock.now();
        let sample = match self.wanted.of {
            ScanOf::Range { .. } => None,
            ScanOf::Sample {
                seed,
                count: wanted,
            } => Some(Sample::new(seed, wanted, *count)),
        };
        let mut place = Place {
            scan: self.scan(scanner, view)?,
            sample,
            next: None,
        };
        // One that gives nothing is not made. How much a sample has to choose from is known.
        while *count == 0 && place.advance(now.unix_secs())?.is_some() {}
        if *count == 0 && place.next.is_none() {
            return Err(Status::KeyNotFound.into());
        }
        let mut id: ScanId = [0; 16];
        getrandom::fill(&mut id).expect("the system has random bytes");
        let scan = OpenScan {
            id,
            vb: self.vb,
            uuid: self.uuid,
            wanted: self.wanted.clone(),
            place: kedge_sync::RankedMutex::new(place),
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
        Ok(Turn::Over((
            self.cookie,
            Completion::ScanMade { result: Ok(id) },
        )))
    }

    pub(super) fn give_up(&self) {
        if let Stage::Waits(arrival) = &self.stage {
            arrival.give_up();
        }
    }
}

/// The stored keys of a scan.
struct Range {
    start: (Vec<u8>, bool),
    end: (Vec<u8>, bool),
}

impl Range {
    fn of(wanted: &ScanWanted) -> Self {
        let prefix = |id: CollectionId| {
            let (bytes, len) = kedge_types::encode_leb128(id.get());
            bytes[..len].to_vec()
        };
        let key = |key: &[u8]| [&prefix(wanted.collection), key].concat();
        match &wanted.of {
            ScanOf::Range { start, end } => Self {
                start: (key(&start.key), start.exclusive),
                end: (key(&end.key), end.exclusive),
            },
            ScanOf::Sample { .. } => {
                // The last byte of a prefix is below 128: what comes behind it is one more.
                let mut behind = prefix(wanted.collection);
                if let Some(last) = behind.last_mut() {
                    *last += 1;
                }
                Self {
                    start: (prefix(wanted.collection), false),
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
