//! The task that makes scans and continues them.

use super::sample::Sample;
use super::{OpenScan, Place, ScanId, ScanLane, ScanLimits, ScanOf, ScanWanted};
use crate::bucket::Bucket;
use crate::counters::Total;
use crate::dcp::Arrival;
use crate::error::BucketError;
use crate::tasks::Work;
use kedge_executor::Next;
use kedge_storage::{FileView, KeyScan, Record};
use kedge_types::limits::{RANGE_SCAN_CONTINUE_BYTES_MAX, RANGE_SCANS_MAX};
use kedge_types::{CollectionId, Seqno, Status, VbId, VbUuid};
use kedge_vbucket::{Completion, Cookie, Item, ScanEnd, ScanFound, ScanPart};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A part of a continue, and a turn of one: so many bytes, or documents that were looked at.
const PART_BYTES: usize = 256 << 10;
const PART_RECORDS: usize = 4_096;
/// Files are waited for; so often it is looked whether one will not be handed out.
const LOOK_NS: u64 = 100_000_000;
/// A run of the task; others may run before the next.
const SLICE: Duration = Duration::from_millis(25);

/// A command that a task has in its queue.
#[derive(Debug)]
pub(super) enum Job {
    Create(Box<Creating>),
    Continue(Continuing),
}

/// A scan that is being made.
#[derive(Debug)]
pub(super) struct Creating {
    vb: VbId,
    uuid: VbUuid,
    wanted: ScanWanted,
    /// The file has to have everything up to here.
    target: Seqno,
    cookie: Cookie,
    deadline_ns: u64,
    /// When to look again whether the file has come so far.
    look_ns: u64,
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

/// A continue.
#[derive(Debug)]
pub(super) struct Continuing {
    scan: Arc<OpenScan>,
    limits: ScanLimits,
    cookie: Cookie,
    began_ns: u64,
    items: u32,
    bytes: u64,
}

/// What came of a turn.
enum Turn {
    /// It goes on at once; a part of the answer.
    Worked(Option<(Cookie, Completion)>),
    /// It has to wait for the file.
    Waits,
    /// It has ended.
    Over((Cookie, Completion)),
}

/// A command ends like this.
enum Failed {
    As(Status),
    /// The file cannot be read.
    Disk(BucketError),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::As(status)
    }
}

impl From<BucketError> for Failed {
    fn from(error: BucketError) -> Self {
        Self::Disk(error)
    }
}

impl From<kedge_storage::StorageError> for Failed {
    fn from(error: kedge_storage::StorageError) -> Self {
        Self::Disk(error.into())
    }
}

impl Job {
    fn vb(&self) -> VbId {
        match self {
            Self::Create(creating) => creating.vb,
            Self::Continue(continuing) => continuing.scan.vb,
        }
    }

    pub(super) fn failed(&self, status: Status) -> (Cookie, Completion) {
        let result = status;
        match self {
            Self::Create(creating) => (
                creating.cookie,
                Completion::ScanMade {
                    result: Err(result),
                },
            ),
            Self::Continue(continuing) => (
                continuing.cookie,
                Completion::Scanned {
                    result: Err(result),
                },
            ),
        }
    }

    /// When it has to be looked at without being woken.
    fn deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Create(creating) => Some(creating.deadline_ns.min(creating.look_ns)),
            Self::Continue(_) => None,
        }
    }

    fn turn(&mut self, bucket: &Bucket, lane: &ScanLane) -> Turn {
        let turn = match self {
            Self::Create(creating) => creating.turn(bucket, lane),
            Self::Continue(continuing) => continuing.turn(bucket),
        };
        turn.unwrap_or_else(|failed| {
            let status = match failed {
                Failed::As(status) => status,
                Failed::Disk(error) => {
                    bucket.on_fetch_failed(self.vb(), &error.to_string());
                    Status::Internal
                }
            };
            match self {
                Self::Create(creating) => creating.give_up(),
                Self::Continue(continuing) => drop(bucket.scans.remove(&continuing.scan.id)),
            }
            Turn::Over(self.failed(status))
        })
    }
}

impl Creating {
    pub(super) fn new(
        vb: VbId,
        uuid: VbUuid,
        wanted: ScanWanted,
        target: Seqno,
        cookie: Cookie,
        deadline_ns: u64,
    ) -> Self {
        Self {
            vb,
            uuid,
            wanted,
            target,
            cookie,
            deadline_ns,
            look_ns: 0,
            stage: Stage::New,
        }
    }

    fn turn(&mut self, bucket: &Bucket, lane: &ScanLane) -> Result<Turn, Failed> {
        match &mut self.stage {
            Stage::New => {
                let arrival = bucket.want_file(self.vb, self.target, &lane.sleeper)?;
                self.look_ns = bucket.setup.clock.now().mono_ns + LOOK_NS;
                self.stage = Stage::Waits(arrival);
                Ok(Turn::Worked(None))
            }
            Stage::Waits(arrival) => {
                if let Some(view) = arrival.take() {
                    return self.open(bucket, view);
                }
                let now_ns = bucket.setup.clock.now().mono_ns;
                if now_ns >= self.deadline_ns {
                    return Err(Status::TemporaryFailure.into());
                }
                if now_ns < self.look_ns {
                    return Ok(Turn::Waits);
                }
                self.look_ns = now_ns + LOOK_NS;
                // A seqno that no change has is in no file: then it counts what was brought there.
                let settled = bucket.vbuckets[self.vb.index()].lock().settled_seqno();
                let view = match settled >= self.target {
                    true => bucket.view_at(self.vb, Seqno(0))?,
                    false => None,
                };
                let Some(view) = view else {
                    return Ok(Turn::Waits);
                };
                arrival.give_up();
                self.open(bucket, view)
            }
            Stage::Counts { scan, count, .. } => {
                let secs = bucket.setup.clock.now().unix_secs();
                for _ in 0..PART_RECORDS {
                    let Some(record) = scan.next() else {
                        return self.make(bucket);
                    };
                    *count += u64::from(is_live(&record?, secs));
                }
                Ok(Turn::Worked(None))
            }
        }
    }

    /// The file has what is needed.
    fn open(&mut self, bucket: &Bucket, view: Arc<FileView>) -> Result<Turn, Failed> {
        if let Some(needs) = self.wanted.needs.filter(|needs| needs.seqno_exists) {
            let mut found = bucket
                .storage()?
                .scan_view(&view, needs.seqno..=needs.seqno, false)?;
            found.next().ok_or(Status::NotStored)??;
        }
        let scan = Box::new(self.scan(bucket, &view)?);
        self.stage = Stage::Counts {
            view,
            scan,
            count: 0,
        };
        match self.wanted.of {
            ScanOf::Range { .. } => self.make(bucket),
            ScanOf::Sample { .. } => Ok(Turn::Worked(None)),
        }
    }

    fn scan(&self, bucket: &Bucket, view: &FileView) -> Result<KeyScan, Failed> {
        let range = Range::of(&self.wanted);
        Ok(bucket.storage()?.scan_keys(view, range.bounds())?)
    }

    /// It is known what there is to give.
    fn make(&mut self, bucket: &Bucket) -> Result<Turn, Failed> {
        let Stage::Counts { view, count, .. } = &self.stage else {
            return Ok(Turn::Worked(None));
        };
        let now = bucket.setup.clock.now();
        let sample = match self.wanted.of {
            ScanOf::Range { .. } => None,
            ScanOf::Sample {
                seed,
                count: wanted,
            } => Some(Sample::new(seed, wanted, *count)),
        };
        let mut place = Place {
            scan: self.scan(bucket, view)?,
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
            place: place.into(),
            is_busy: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            used_ns: AtomicU64::new(now.mono_ns),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        bucket.check_scan(&scan)?;
        let mut open = bucket.scans.open.lock();
        if open.len() >= RANGE_SCANS_MAX {
            return Err(Status::Busy.into());
        }
        open.insert(id, Arc::new(scan));
        drop(open);
        bucket.totals.add(Total::RangeScans, 1);
        Ok(Turn::Over((
            self.cookie,
            Completion::ScanMade { result: Ok(id) },
        )))
    }

    fn give_up(&self) {
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

/// What has expired is not shown, whether or not the vBucket has let go of it.
fn is_live(record: &Record, unix_secs: u64) -> bool {
    !record.meta().expiry.has_passed(unix_secs)
}

impl Place {
    /// Looks at the next document of the file. `None`: `next` is known, as one was found or none is left.
    fn advance(&mut self, unix_secs: u64) -> Result<Option<()>, Failed> {
        if self.next.is_some() || self.sample.as_ref().is_some_and(Sample::is_over) {
            return Ok(None);
        }
        let Some(record) = self.scan.next() else {
            return Ok(None);
        };
        let record = record?;
        let is_chosen =
            is_live(&record, unix_secs) && self.sample.as_mut().is_none_or(Sample::chooses);
        self.next = is_chosen.then_some(record);
        Ok(Some(()))
    }
}

impl Continuing {
    pub(super) fn new(
        scan: &Arc<OpenScan>,
        limits: ScanLimits,
        cookie: Cookie,
        began_ns: u64,
    ) -> Self {
        Self {
            scan: Arc::clone(scan),
            limits,
            cookie,
            began_ns,
            items: 0,
            bytes: 0,
        }
    }

    /// Whether it has given what it may.
    fn is_full(&self, now_ns: u64) -> bool {
        let ScanLimits { items, ms, bytes } = self.limits;
        let took_ms = now_ns.saturating_sub(self.began_ns) / 1_000_000;
        self.items > 0
            && ((items > 0 && self.items >= items)
                || (ms > 0 && took_ms >= u64::from(ms))
                || (bytes > 0 && self.bytes >= u64::from(bytes))
                || self.bytes >= RANGE_SCAN_CONTINUE_BYTES_MAX)
    }

    fn turn(&mut self, bucket: &Bucket) -> Result<Turn, Failed> {
        let scan = Arc::clone(&self.scan);
        bucket.check_scan(&scan)?;
        if scan.is_cancelled.load(Ordering::SeqCst) {
            return Err(Status::RangeScanCancelled.into());
        }
        let mut place = scan.place.lock();
        let (mut keys, mut documents) = (Vec::new(), Vec::new());
        let (items_before, bytes_before) = (self.items, self.bytes);
        let mut looked_at = 0;
        let end = loop {
            let now = bucket.setup.clock.now();
            let part_bytes = (self.bytes - bytes_before) as usize;
            let is_known = place.advance(now.unix_secs())?.is_none();
            if is_known && place.next.is_none() {
                break Some(ScanEnd::Complete);
            }
            if self.is_full(now.mono_ns) && place.next.is_some() {
                break Some(ScanEnd::More);
            }
            looked_at += 1;
            if part_bytes >= PART_BYTES || looked_at > PART_RECORDS {
                break None;
            }
            let Some(record) = place.next.take() else {
                continue;
            };
            self.items += 1;
            if scan.wanted.key_only {
                self.bytes += record.key().len() as u64;
                keys.push(record.key().into());
            } else {
                let item: Item = place.scan.item(&record)?;
                self.bytes += (record.key().len() + item.value().len()) as u64;
                documents.push(item);
            }
        };
        drop(place);
        let items = u64::from(self.items - items_before);
        let bytes = self.bytes - bytes_before;
        scan.items.fetch_add(items, Ordering::Relaxed);
        scan.bytes.fetch_add(bytes, Ordering::Relaxed);
        bucket.totals.add(Total::RangeScanItems, items);
        bucket.totals.add(Total::RangeScanBytes, bytes);
        if end.is_none() && items == 0 {
            return Ok(Turn::Worked(None));
        }
        let found = if scan.wanted.key_only {
            ScanFound::Keys(keys)
        } else {
            ScanFound::Documents {
                items: documents,
                with_xattrs: scan.wanted.with_xattrs,
            }
        };
        let part = Completion::Scanned {
            result: Ok(ScanPart { found, end }),
        };
        Ok(match end {
            None => Turn::Worked(Some((self.cookie, part))),
            Some(end) => {
                self.end(bucket, end);
                Turn::Over((self.cookie, part))
            }
        })
    }

    fn end(&self, bucket: &Bucket, end: ScanEnd) {
        match end {
            ScanEnd::Complete => drop(bucket.scans.remove(&self.scan.id)),
            ScanEnd::More => {
                let now_ns = bucket.setup.clock.now().mono_ns;
                self.scan.used_ns.store(now_ns, Ordering::Relaxed);
                self.scan.is_busy.store(false, Ordering::SeqCst);
            }
        }
    }
}

/// The task: one for each lane.
#[derive(Debug)]
pub(crate) struct RangeScans {
    lane: usize,
}

impl RangeScans {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane }
    }

    /// Gives each command its turn. Whether any went on.
    fn round(bucket: &Bucket, lane: &ScanLane) -> bool {
        let mut worked = false;
        let count = lane.queue.lock().jobs.len();
        for _ in 0..count {
            let Some(mut job) = lane.queue.lock().jobs.pop_front() else {
                break;
            };
            let turn = job.turn(bucket, lane);
            let is_over = matches!(turn, Turn::Over(_));
            worked |= !matches!(turn, Turn::Waits);
            if !is_over {
                lane.queue.lock().jobs.push_back(job);
            }
            if let Turn::Worked(Some(part)) | Turn::Over(part) = turn {
                bucket.setup.completions.complete(&mut vec![part]);
            }
        }
        worked
    }

    /// Ends the lane's scans that were idle for too long. When the next thing is to be looked at.
    fn end_idle(&self, bucket: &Bucket, lane: &ScanLane) -> Option<u64> {
        let now_ns = bucket.setup.clock.now().mono_ns;
        let lanes = bucket.scans.lanes().len();
        let mut next = None;
        let mut open = bucket.scans.open.lock();
        open.retain(|_, scan| {
            let Some(at) = scan
                .idle_at_ns()
                .filter(|_| scan.vb.index() % lanes == self.lane)
            else {
                return true;
            };
            if at <= now_ns {
                bucket.totals.add(Total::RangeScansIdle, 1);
                return false;
            }
            next = Some(next.map_or(at, |next: u64| next.min(at)));
            true
        });
        drop(open);
        let queue = lane.queue.lock();
        let deadlines = queue.jobs.iter().filter_map(Job::deadline_ns);
        deadlines.chain(next).min()
    }
}

impl Work for RangeScans {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let lane = &bucket.scans.lanes()[self.lane];
        lane.sleeper.get_up();
        let now_ns = || bucket.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        let mut lies = false;
        loop {
            let went_on = Self::round(bucket, lane);
            if !went_on && lies {
                let next = self.end_idle(bucket, lane);
                return next.map_or(Next::Sleep, |at| {
                    Next::Snooze(Duration::from_nanos(at.saturating_sub(now_ns())))
                });
            }
            if went_on {
                lane.sleeper.get_up();
            } else {
                lane.sleeper.lie_down();
            }
            lies = !went_on;
            if went_on && now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}
