//! Backfills of DCP streams, and the task that executes the backfills of a connection in turns.
//!
//! A backfill waits until the vBucket's file contains the changes that the checkpoints lack. It then reads the file in
//! seqno order into the buffer of the stream, and hands over to the cursor that it opened at the beginning. It reads a
//! snapshot of the file, which later commits do not affect.
//!
//! A stream of some collections may be read in key order (OSO snapshot), which skips the other collections in the file.
//! Only streams that start at seqno 0 use it, if it costs less ([`super::order`]): the receiver has no seqno to resume
//! from in the middle of such a snapshot. Streams with SyncWrites do not use it, because prepares, commits and aborts
//! need their order.
//!
//! A backfill that builds a new copy, for a node that is not in the vBucket's topology yet, is throttled together with the
//! compactions, and by the limit of the receiver ([`Dcp::copy_pause`]). Nothing else waits for the throttle: SyncWrites need the
//! replicas of the topology, and clients wait for a takeover.
//!
//! Invariants:
//! * The cursor is opened before the required seqno of the file is determined, so no change is missed between the two.
//! * The buffers of a connection's streams are bounded: the number of active backfills is limited, and each stops reading
//!   when its share of `dcp_backfill_bytes_max` is used up.

use super::connection::{BackfillQueue, filtered_high};
use super::copy_pace::CopyPace;
use super::order::{count_items, is_key_order_cheaper, key_order};
use super::stream::{BackfillEnd, StreamShared};
use crate::dcp::component::Dcp;
use crate::file_readers::{FileDelivery, FileRequest};
use kedge_bucket_core::{BucketError, TaskBody, Total};
use kedge_executor::Next;
use kedge_replication::{EndReason, Filter, StreamFlags, StreamItem, StreamRequest, Values};
use kedge_storage::{FileRecord, FileRecordKind, FileView, RecordScan};
use kedge_types::{CollectionId, Seqno, VbId};
use kedge_vbucket::{
    Change, CursorOpening, DcpSnapshot, Item, NodeName, SnapshotKind, StreamCursor,
};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of active backfills of a connection.
const ACTIVE_BACKFILLS_MAX: usize = 8;
/// The maximum number of changes that one step of a backfill reads.
const STEP_ITEMS: usize = 1_024;
/// The maximum number of bytes of changes that one step of a backfill reads.
const STEP_BYTES: usize = 1 << 20;
/// The maximum numbers of changes, and of their bytes, that one step of a throttled backfill reads. They are small, so that the
/// receiver gets an even stream.
const THROTTLED_STEP: (usize, usize) = (64, 64 << 10);
/// The bytes that a change of a new copy counts beyond its size, for the processor time that it costs the sender and the receiver.
pub const COPY_CHANGE_COST_BYTES: u64 = 512;
/// The maximum duration of one run of the task.
const SLICE: Duration = Duration::from_millis(25);

/// A backfill of one stream.
#[derive(Debug)]
pub(super) struct Backfill {
    stream: Arc<StreamShared>,
    /// The last seqno that the receiver has.
    after: Seqno,
    /// The lowest seqno at which the snapshot may end.
    partial_end: Seqno,
    /// The end seqno of the stream.
    end: Seqno,
    /// The start seqno of the first snapshot, until it has been announced.
    first_start: Option<Seqno>,
    /// The purge seqno that the receiver knows.
    purge_seen: Option<Seqno>,
    ignore_purged: bool,
    disk_only: bool,
    filter: Filter,
    /// The collections to read in key order, if that costs less than reading the whole file in seqno order.
    key_order: Option<Vec<CollectionId>>,
    /// The name of the receiver in chains, if it gave one.
    consumer: Option<NodeName>,
    /// The time until which the throttle delays the next step.
    paused_until_ns: u64,
    phase: BackfillPhase,
}

/// The phase of a backfill.
#[derive(Debug)]
enum BackfillPhase {
    New,
    /// The file has not reached the required seqno.
    WaitingForFile {
        cursor: Option<StreamCursor>,
        pending: Arc<FileRequest>,
    },
    Reading {
        cursor: Option<StreamCursor>,
        scan: Box<RecordScan>,
        /// The last seqno up to which all prepares have been committed or aborted.
        completed: Seqno,
        /// The last seqno of the snapshot.
        upto: Seqno,
        /// The last seqno that was read.
        last: Seqno,
        /// The last visible seqno of the snapshot.
        visible: Seqno,
    },
    /// The whole snapshot is in the buffer, and the reader of the stream drains it.
    Drained,
}

/// The result of one step of a backfill.
enum BackfillProgress {
    /// The backfill can continue at once.
    Advanced,
    /// The backfill waits for the file or for room in the buffer.
    Waiting,
    /// The throttle delays the backfill for this time, in nanoseconds.
    Paused(u64),
    /// The backfill has ended.
    Finished,
}

impl Backfill {
    pub(super) fn new(
        stream: Arc<StreamShared>,
        request: &StreamRequest,
        after: Seqno,
        partial_end: Seqno,
        first_start: Option<Seqno>,
    ) -> Self {
        Self {
            stream,
            after,
            partial_end,
            end: request.end,
            first_start,
            purge_seen: request.purge_seen,
            ignore_purged: request
                .flags
                .contains(StreamFlags::IGNORE_PURGED_TOMBSTONES),
            disk_only: request.flags.contains(StreamFlags::DISK_ONLY),
            filter: request.filter.clone(),
            key_order: key_order(request, after),
            consumer: request.consumer.clone(),
            paused_until_ns: 0,
            phase: BackfillPhase::New,
        }
    }

    fn advance(&mut self, dcp: &Dcp, queue: &BackfillQueue) -> BackfillProgress {
        if self.stream.is_over() {
            self.abandon(dcp);
            return BackfillProgress::Finished;
        }
        let progress = match &mut self.phase {
            BackfillPhase::New => self.begin(dcp, queue),
            BackfillPhase::WaitingForFile { cursor, pending } => {
                let cursor = *cursor;
                match pending.take() {
                    Some(FileDelivery::File(view)) => self.open(dcp, cursor, &view),
                    // The stream ends by itself when its vBucket has changed.
                    Some(FileDelivery::HistoryEnded) | None => Ok(BackfillProgress::Waiting),
                }
            }
            BackfillPhase::Reading { .. } => self.read(dcp, &queue.copy_pace),
            BackfillPhase::Drained if self.stream.buffered_bytes() == 0 => {
                Ok(BackfillProgress::Finished)
            }
            BackfillPhase::Drained => Ok(BackfillProgress::Waiting),
        };
        progress.unwrap_or_else(|error| {
            let vb = self.stream.vb;
            tracing::error!(bucket = dcp.core.name(), vbucket = %vb, %error, "the file of a vBucket could not be read for a DCP stream");
            dcp.core.totals.add(Total::BackfillFailures, 1);
            self.stream.end(EndReason::BackfillFailed);
            self.abandon(dcp);
            BackfillProgress::Finished
        })
    }

    fn begin(&mut self, dcp: &Dcp, queue: &BackfillQueue) -> Result<BackfillProgress, BucketError> {
        let vb = self.stream.vb;
        let mut vbucket = dcp.core.vbuckets[vb.index()].lock();
        if vbucket.identity() != self.stream.identity() {
            // The stream ends by itself when its vBucket has changed.
            return Ok(BackfillProgress::Waiting);
        }
        let history = vbucket.history_id();
        let (cursor, behind) = if self.disk_only {
            (None, self.end)
        } else {
            let (opened, _) = dcp
                .core
                .measure(&mut vbucket, |it| it.open_cursor(self.after));
            match opened {
                CursorOpening::InMemory(cursor) => {
                    drop(vbucket);
                    return Ok(self.hand_over(dcp, Some(cursor), self.after));
                }
                CursorOpening::OnDisk { cursor, behind } => (Some(cursor), behind),
            }
        };
        drop(vbucket);
        dcp.core.totals.add(Total::Backfills, 1);
        if behind <= self.after {
            return Ok(self.hand_over(dcp, cursor, self.after));
        }
        let target = behind.max(self.partial_end);
        let pending = Arc::default();
        self.phase = BackfillPhase::WaitingForFile { cursor, pending };
        let pending = dcp.files.request_file(vb, history, target, &queue.parker)?;
        self.phase = BackfillPhase::WaitingForFile { cursor, pending };
        Ok(BackfillProgress::Advanced)
    }

    /// Starts reading the file, which has reached the required seqno.
    fn open(
        &mut self,
        dcp: &Dcp,
        cursor: Option<StreamCursor>,
        view: &FileView,
    ) -> Result<BackfillProgress, BucketError> {
        let state = view.state();
        let purged = self.after > Seqno(0)
            && self.after < state.purge
            && self.purge_seen != Some(state.purge)
            && !self.ignore_purged
            && !self.is_unchanged(dcp);
        if purged {
            self.stream.end(EndReason::Rollback);
            self.abandon(dcp);
            return Ok(BackfillProgress::Finished);
        }
        let upto = view.high_seqno().min(self.end);
        let visible = state.visible.min(upto);
        let (after, values) = (self.after, self.stream.values);
        let (storage, whole) = (dcp.core.storage()?, values == Values::Whole);
        self.key_order.take_if(|collections| {
            let vbucket = dcp.core.vbuckets[self.stream.vb.index()].lock();
            let items = count_items(&vbucket, collections);
            !is_key_order_cheaper(items, vbucket.documents().count() as u64)
        });
        let (scan, begin) = if let Some(collections) = &self.key_order {
            dcp.core.totals.add(Total::UnorderedBackfills, 1);
            let scan = storage.scan_collections(view, collections, whole)?;
            (scan, StreamItem::UnorderedBegin)
        } else {
            let scan = storage.scan_view(view, after.next()..=upto, whole)?;
            let start = self.first_start.unwrap_or(after.next());
            let marker = DcpSnapshot {
                max_visible: Some(visible),
                high_completed: Some(state.completed),
                high_prepared: Some(state.prepared),
                purge: Some(state.purge),
                checkpoint: true,
                ..DcpSnapshot::new(SnapshotKind::Disk, start, upto)
            };
            (scan, StreamItem::Marker(marker))
        };
        let scan = match values {
            Values::Xattrs => scan.with_xattrs(),
            Values::Whole | Values::None => scan,
        };
        self.phase = BackfillPhase::Reading {
            cursor,
            scan: Box::new(scan),
            completed: state.completed,
            upto,
            last: after,
            visible,
        };
        self.stream.push(std::iter::once(begin));
        Ok(BackfillProgress::Advanced)
    }

    /// Returns whether the stream's collections have not changed since `after`, so that the receiver misses no tombstone.
    fn is_unchanged(&self, dcp: &Dcp) -> bool {
        let vbucket = dcp.core.vbuckets[self.stream.vb.index()].lock();
        filtered_high(&vbucket, &self.filter).is_some_and(|high| high <= self.after)
    }

    /// Reads changes into the buffer, up to the limits of one step.
    fn read(&mut self, dcp: &Dcp, pace: &CopyPace) -> Result<BackfillProgress, BucketError> {
        let BackfillPhase::Reading {
            cursor,
            scan,
            completed,
            upto,
            last,
            visible,
        } = &mut self.phase
        else {
            return Ok(BackfillProgress::Waiting);
        };
        let buffered = self.stream.buffered_bytes();
        let room = dcp.backfill_bytes_per_stream().saturating_sub(buffered);
        if room == 0 {
            return Ok(BackfillProgress::Waiting);
        }
        let builds_copy = dcp.is_new_copy(self.stream.vb, self.consumer.as_ref());
        let now_ns = dcp.core.setup.clock.now().mono_ns;
        if builds_copy && now_ns < self.paused_until_ns {
            return Ok(BackfillProgress::Paused(self.paused_until_ns - now_ns));
        }
        let (items_max, bytes_max) = match builds_copy {
            true => THROTTLED_STEP,
            false => (STEP_ITEMS, STEP_BYTES),
        };
        let bytes_max = room.min(bytes_max);
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut is_end = false;
        while items.len() < items_max && bytes < bytes_max {
            let Some(record) = scan.next() else {
                is_end = true;
                break;
            };
            let record = record?;
            // Key order also finds changes after the end of the stream.
            if record.meta().seqno > *upto {
                continue;
            }
            if let Some(change) = to_change(&record, *completed) {
                *last = record.meta().seqno;
                bytes += change.item().map_or(0, Item::heap_bytes);
                items.push(StreamItem::Change(change));
            }
        }
        dcp.core
            .totals
            .add(Total::BackfilledItems, items.len() as u64);
        if builds_copy {
            let cost = bytes as u64 + items.len() as u64 * COPY_CHANGE_COST_BYTES;
            let pause_ns = dcp.copy_pause(cost, now_ns, pace);
            self.paused_until_ns = now_ns.saturating_add(pause_ns);
        }
        if is_end && self.key_order.is_some() {
            items.push(StreamItem::UnorderedEnd(*visible));
        } else if is_end && *last < *upto {
            items.push(StreamItem::SeqnoAdvanced(*upto));
        }
        let (cursor, upto) = (*cursor, *upto);
        self.stream.push(items.into_iter());
        Ok(if is_end {
            self.hand_over(dcp, cursor, upto)
        } else {
            BackfillProgress::Advanced
        })
    }

    /// Ends the backfill. The stream continues with `cursor` after it has drained the buffer.
    fn hand_over(
        &mut self,
        dcp: &Dcp,
        cursor: Option<StreamCursor>,
        upto: Seqno,
    ) -> BackfillProgress {
        self.phase = BackfillPhase::Drained;
        if let Some(cursor) = self.stream.finish_backfill(BackfillEnd { cursor, upto }) {
            dcp.close_cursor(self.stream.vb, cursor);
        }
        BackfillProgress::Advanced
    }

    fn abandon(&mut self, dcp: &Dcp) {
        let cursor = match std::mem::replace(&mut self.phase, BackfillPhase::Drained) {
            BackfillPhase::WaitingForFile { cursor, pending } => {
                pending.abandon();
                cursor
            }
            BackfillPhase::Reading { cursor, .. } => cursor,
            BackfillPhase::New | BackfillPhase::Drained => None,
        };
        if let Some(cursor) = cursor {
            dcp.close_cursor(self.stream.vb, cursor);
        }
    }
}

/// Converts a record of the file into a change of the stream. A commit becomes the document that it wrote. A completed
/// prepare yields `None`. A value that was not read is empty.
fn to_change(record: &FileRecord, completed: Seqno) -> Option<Change> {
    let bare = || Item::new(record.meta(), record.key(), &[]);
    let item = record.item().unwrap_or_else(bare);
    match record.kind() {
        FileRecordKind::Document => Some(Change::Document(item)),
        FileRecordKind::SystemEvent => Some(Change::System(item)),
        FileRecordKind::Prepare if item.seqno() > completed => Some(Change::Prepare(item)),
        FileRecordKind::Prepare => None,
        FileRecordKind::Abort { prepared } => Some(Change::Abort { item, prepared }),
    }
}

/// The task that executes the backfills of one connection.
#[derive(Debug)]
pub(super) struct BackfillTask {
    queue: Arc<BackfillQueue>,
    active: Vec<Backfill>,
}

impl BackfillTask {
    pub(super) fn new(queue: &Arc<BackfillQueue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            active: Vec::new(),
        }
    }

    /// Activates queued backfills up to the limit. Returns whether there were any.
    fn fetch(&mut self) -> bool {
        let mut new = self.queue.new.lock();
        let room = ACTIVE_BACKFILLS_MAX - self.active.len();
        let count = room.min(new.len());
        self.active.extend(new.drain(..count));
        count > 0
    }

    /// Runs one step of each active backfill. Returns whether any of them advanced, and the shortest pause of the others.
    fn round(&mut self, dcp: &Dcp) -> (bool, Option<Duration>) {
        let queue = &self.queue;
        let mut advanced = false;
        let mut pause_ns = None;
        self.active
            .retain_mut(|backfill| match backfill.advance(dcp, queue) {
                BackfillProgress::Advanced => {
                    advanced = true;
                    true
                }
                BackfillProgress::Waiting => true,
                BackfillProgress::Paused(ns) => {
                    pause_ns = Some(pause_ns.map_or(ns, |shortest: u64| shortest.min(ns)));
                    true
                }
                BackfillProgress::Finished => {
                    advanced = true;
                    false
                }
            });
        (advanced, pause_ns.map(Duration::from_nanos))
    }
}

impl TaskBody<Dcp> for BackfillTask {
    fn run(&mut self, dcp: &Dcp, _: Duration) -> Next {
        let queue = Arc::clone(&self.queue);
        queue.parker.clear();
        let began_ns = dcp.core.setup.clock.now().mono_ns;
        let mut is_parked = false;
        loop {
            let fetched = self.fetch();
            let (advanced, pause) = self.round(dcp);
            let advanced = fetched || advanced;
            if !advanced && is_parked {
                return pause.map_or(Next::Sleep, Next::Snooze);
            }
            if advanced {
                queue.parker.clear();
            } else {
                queue.parker.park();
            }
            is_parked = !advanced;
            let took_ns = dcp.core.setup.clock.now().mono_ns.saturating_sub(began_ns);
            if advanced && took_ns >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl Dcp {
    /// Returns whether a stream to that node builds a new copy: the node is no replica of the vBucket's topology yet.
    fn is_new_copy(&self, vb: VbId, consumer: Option<&NodeName>) -> bool {
        let Some(consumer) = consumer.filter(|_| self.core.setup.topology.is_none()) else {
            // A server that runs alone has no copies elsewhere.
            return false;
        };
        let vbucket = self.core.vbuckets[vb.index()].lock();
        let topology = vbucket.durability().topology();
        topology.is_some_and(|topology| !topology.has_replica(consumer))
    }

    /// Returns the pause after reading that many bytes for a new copy, in nanoseconds: the longer one of this node's throttle and
    /// of the receiver's limit.
    fn copy_pause(&self, bytes: u64, now_ns: u64, pace: &CopyPace) -> u64 {
        let here_ns = self.persistence.compactions().copy_pause(bytes, now_ns);
        let pause_ns = here_ns.max(pace.pause_ns(bytes, now_ns));
        let totals = &self.core.totals;
        totals.add(Total::CopiesPausedUs, pause_ns / 1_000);
        pause_ns
    }

    /// Returns the maximum size in bytes of the buffer of one backfill.
    pub(super) fn backfill_bytes_per_stream(&self) -> usize {
        let all = self.core.config().memory.dcp_backfill_bytes_max;
        usize::try_from(all / ACTIVE_BACKFILLS_MAX as u64).unwrap_or(usize::MAX)
    }
}
