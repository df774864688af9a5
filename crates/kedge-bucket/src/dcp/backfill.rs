//! What streams need from files: the task that reads it, some streams of a connection in turns.
//!
//! A backfill waits until its vBucket's file has what the queue of changes lacks, reads the file in the order of seqnos
//! into the stream's buffer, and hands over to the cursor that was opened in the beginning. The file is read as one commit
//! left it, whatever becomes of it meanwhile.
//!
//! A stream of some collections may take another order. Then these are read by key, and the rest of the file is not. That is
//! for streams that begin, where it pays ([`super::order`]): in the middle of it nobody is at any seqno. Streams with SyncWrites are out of it, as prepares
//! and their ends mean nothing without their order.
//!
//! Invariants:
//! * The cursor is opened before it is known what the file has to have: between the two nothing is missed.
//! * What streams of a connection have in their buffers is bounded: so many backfills are begun at once, and each reads no
//!   further when its part of `dcp_backfill_bytes_max` is full.

use super::connection::{Queue, filtered_high};
use super::order::{by_key, items_of, pays_by_key};
use super::stream::{Filled, Shared};
use crate::dcp::component::Dcp;
use crate::file_readers::{Arrival, Arrived};
use kedge_bucket_core::BucketError;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Total;
use kedge_executor::Next;
use kedge_replication::{EndReason, Filter, StreamFlags, StreamItem, StreamRequest, Values};
use kedge_storage::{FileRecord, FileRecordKind, FileView, RecordScan};
use kedge_types::{CollectionId, Seqno};
use kedge_vbucket::{Change, CursorOpening, Item, Snapshot, SnapshotKind, StreamCursor};
use std::sync::Arc;
use std::time::Duration;

/// Backfills of a connection that are begun at once.
const BEGUN_MAX: usize = 8;
/// A turn of one stream: so many changes, or bytes of them.
const PIECE_ITEMS: usize = 1_024;
const PIECE_BYTES: usize = 1 << 20;
/// A run of the task; others may run before the next.
const SLICE: Duration = Duration::from_millis(25);

/// One stream's backfill.
#[derive(Debug)]
pub(super) struct Backfill {
    stream: Arc<Shared>,
    /// The receiver has everything up to here.
    after: Seqno,
    /// The snapshot has to reach at least so far.
    torn: Seqno,
    /// The stream ends here.
    end: Seqno,
    first_start: Option<Seqno>,
    /// The purge seqno that the receiver knows.
    purge_seen: Option<Seqno>,
    ignore_purged: bool,
    disk_only: bool,
    filter: Filter,
    /// What is read by key instead of all by seqno, if that pays.
    by_key: Option<Vec<CollectionId>>,
    place: Place,
}

/// How far it is.
#[derive(Debug)]
enum Place {
    New,
    /// Until the file has what is needed.
    Waits {
        cursor: Option<StreamCursor>,
        arrival: Arc<Arrival>,
    },
    Reads {
        cursor: Option<StreamCursor>,
        scan: Box<RecordScan>,
        /// Prepares up to here have ended.
        completed: Seqno,
        /// The last seqno of the snapshot.
        upto: Seqno,
        /// The last that was read.
        last: Seqno,
        /// The last in the snapshot that clients may see.
        visible: Seqno,
    },
    /// Everything is in the buffer, from where it is given out.
    Read,
}

/// What came of a turn.
enum Turn {
    /// It goes on at once.
    Worked,
    /// It has to wait for something.
    Waits,
    /// It has come to its end.
    Over,
}

impl Backfill {
    pub(super) fn new(
        stream: Arc<Shared>,
        request: &StreamRequest,
        after: Seqno,
        torn: Seqno,
        first_start: Option<Seqno>,
    ) -> Self {
        Self {
            stream,
            after,
            torn,
            end: request.end,
            first_start,
            purge_seen: request.purge_seen,
            ignore_purged: request
                .flags
                .contains(StreamFlags::IGNORE_PURGED_TOMBSTONES),
            disk_only: request.flags.contains(StreamFlags::DISK_ONLY),
            filter: request.filter.clone(),
            by_key: by_key(request, after),
            place: Place::New,
        }
    }

    fn turn(&mut self, dcp: &Dcp, queue: &Queue) -> Turn {
        if self.stream.is_over() {
            self.give_up(dcp);
            return Turn::Over;
        }
        let turn = match &mut self.place {
            Place::New => self.begin(dcp, queue),
            Place::Waits { cursor, arrival } => {
                let cursor = *cursor;
                match arrival.take() {
                    Some(Arrived::File(view)) => self.open(dcp, cursor, &view),
                    // The stream hears of it.
                    Some(Arrived::HistoryEnded) | None => Ok(Turn::Waits),
                }
            }
            Place::Reads { .. } => self.read(dcp),
            Place::Read if self.stream.buffered_bytes() == 0 => Ok(Turn::Over),
            Place::Read => Ok(Turn::Waits),
        };
        turn.unwrap_or_else(|error| {
            let vb = self.stream.vb;
            tracing::error!(bucket = dcp.core.name(), vbucket = %vb, %error, "a file cannot be read for a stream");
            dcp.core.totals.add(Total::BackfillFailures, 1);
            self.stream.end(EndReason::BackfillFailed);
            self.give_up(dcp);
            Turn::Over
        })
    }

    fn begin(&mut self, dcp: &Dcp, queue: &Queue) -> Result<Turn, BucketError> {
        let vb = self.stream.vb;
        let mut vbucket = dcp.core.vbuckets[vb.index()].lock();
        if vbucket.identity() != self.stream.identity() {
            // The stream hears of it.
            return Ok(Turn::Waits);
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
        let target = behind.max(self.torn);
        let arrival = Arc::default();
        self.place = Place::Waits { cursor, arrival };
        let arrival = dcp.files.want_file(vb, history, target, &queue.parker)?;
        self.place = Place::Waits { cursor, arrival };
        Ok(Turn::Worked)
    }

    /// The file has what is needed.
    fn open(
        &mut self,
        dcp: &Dcp,
        cursor: Option<StreamCursor>,
        view: &FileView,
    ) -> Result<Turn, BucketError> {
        let state = view.state();
        let purged = self.after > Seqno(0)
            && self.after < state.purge
            && self.purge_seen != Some(state.purge)
            && !self.ignore_purged
            && !self.is_unchanged(dcp);
        if purged {
            self.stream.end(EndReason::Rollback);
            self.give_up(dcp);
            return Ok(Turn::Over);
        }
        let upto = view.high_seqno().min(self.end);
        let visible = state.visible.min(upto);
        let (after, values) = (self.after, self.stream.values);
        let (storage, whole) = (dcp.core.storage()?, values == Values::Whole);
        self.by_key.take_if(|collections| {
            let vbucket = dcp.core.vbuckets[self.stream.vb.index()].lock();
            let items = items_of(&vbucket, collections);
            !pays_by_key(items, vbucket.documents().count() as u64)
        });
        let (scan, begin) = if let Some(collections) = &self.by_key {
            dcp.core.totals.add(Total::UnorderedBackfills, 1);
            let scan = storage.scan_collections(view, collections, whole)?;
            (scan, StreamItem::UnorderedBegin)
        } else {
            let scan = storage.scan_view(view, after.next()..=upto, whole)?;
            let start = self.first_start.unwrap_or(after.next());
            let marker = Snapshot {
                max_visible: Some(visible),
                high_completed: Some(state.completed),
                high_prepared: Some(state.prepared),
                purge: Some(state.purge),
                checkpoint: true,
                ..Snapshot::new(SnapshotKind::Disk, start, upto)
            };
            (scan, StreamItem::Marker(marker))
        };
        let scan = match values {
            Values::Xattrs => scan.with_xattrs(),
            Values::Whole | Values::None => scan,
        };
        self.place = Place::Reads {
            cursor,
            scan: Box::new(scan),
            completed: state.completed,
            upto,
            last: after,
            visible,
        };
        self.stream.push(std::iter::once(begin));
        Ok(Turn::Worked)
    }

    /// Whether nothing of the stream's collections has changed since, so that it misses no tombstone.
    fn is_unchanged(&self, dcp: &Dcp) -> bool {
        let vbucket = dcp.core.vbuckets[self.stream.vb.index()].lock();
        filtered_high(&vbucket, &self.filter).is_some_and(|high| high <= self.after)
    }

    /// Reads a piece.
    fn read(&mut self, dcp: &Dcp) -> Result<Turn, BucketError> {
        let Place::Reads {
            cursor,
            scan,
            completed,
            upto,
            last,
            visible,
        } = &mut self.place
        else {
            return Ok(Turn::Waits);
        };
        let buffered = self.stream.buffered_bytes();
        let room = dcp.backfill_bytes_per_stream().saturating_sub(buffered);
        if room == 0 {
            return Ok(Turn::Waits);
        }
        let bytes_max = room.min(PIECE_BYTES);
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut is_end = false;
        while items.len() < PIECE_ITEMS && bytes < bytes_max {
            let Some(record) = scan.next() else {
                is_end = true;
                break;
            };
            let record = record?;
            // By key, also what is behind the end of the stream is found.
            if record.meta().seqno > *upto {
                continue;
            }
            if let Some(change) = change_of(&record, *completed) {
                *last = record.meta().seqno;
                bytes += change.item().map_or(0, Item::heap_bytes);
                items.push(StreamItem::Change(change));
            }
        }
        dcp.core
            .totals
            .add(Total::BackfilledItems, items.len() as u64);
        if is_end && self.by_key.is_some() {
            items.push(StreamItem::UnorderedEnd(*visible));
        } else if is_end && *last < *upto {
            items.push(StreamItem::SeqnoAdvanced(*upto));
        }
        let (cursor, upto) = (*cursor, *upto);
        self.stream.push(items.into_iter());
        Ok(if is_end {
            self.hand_over(dcp, cursor, upto)
        } else {
            Turn::Worked
        })
    }

    /// The file has nothing more for the stream.
    fn hand_over(&mut self, dcp: &Dcp, cursor: Option<StreamCursor>, upto: Seqno) -> Turn {
        self.place = Place::Read;
        if let Some(cursor) = self.stream.fill(Filled { cursor, upto }) {
            dcp.close_cursor(self.stream.vb, cursor);
        }
        Turn::Worked
    }

    fn give_up(&mut self, dcp: &Dcp) {
        let cursor = match std::mem::replace(&mut self.place, Place::Read) {
            Place::Waits { cursor, arrival } => {
                arrival.give_up();
                cursor
            }
            Place::Reads { cursor, .. } => cursor,
            Place::New | Place::Read => None,
        };
        if let Some(cursor) = cursor {
            dcp.close_cursor(self.stream.vb, cursor);
        }
    }
}

/// What a record of the file is to a stream: commits are the documents that they made, and prepares that have ended are
/// nothing. A value that was not read is empty.
fn change_of(record: &FileRecord, completed: Seqno) -> Option<Change> {
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

/// The task: one for each connection.
#[derive(Debug)]
pub(super) struct Backfills {
    queue: Arc<Queue>,
    begun: Vec<Backfill>,
}

impl Backfills {
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        Self {
            queue: Arc::clone(queue),
            begun: Vec::new(),
        }
    }

    /// Begins what there is room for. Whether something was begun.
    fn fetch(&mut self) -> bool {
        let mut new = self.queue.new.lock();
        let room = BEGUN_MAX - self.begun.len();
        let count = room.min(new.len());
        self.begun.extend(new.drain(..count));
        count > 0
    }

    /// Gives each its turn. Whether any went on.
    fn round(&mut self, dcp: &Dcp) -> bool {
        let queue = &self.queue;
        let mut worked = false;
        self.begun
            .retain_mut(|backfill| match backfill.turn(dcp, queue) {
                Turn::Worked => {
                    worked = true;
                    true
                }
                Turn::Waits => true,
                Turn::Over => {
                    worked = true;
                    false
                }
            });
        worked
    }
}

impl TaskBody<Dcp> for Backfills {
    fn run(&mut self, dcp: &Dcp, _: Duration) -> Next {
        let queue = Arc::clone(&self.queue);
        queue.parker.clear();
        let began_ns = dcp.core.setup.clock.now().mono_ns;
        let mut lies = false;
        loop {
            let went_on = self.fetch() | self.round(dcp);
            if !went_on && lies {
                return Next::Sleep;
            }
            if went_on {
                queue.parker.clear();
            } else {
                queue.parker.park();
            }
            lies = !went_on;
            let took_ns = dcp.core.setup.clock.now().mono_ns.saturating_sub(began_ns);
            if went_on && took_ns >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl Dcp {
    /// Bytes that one backfill may have in its buffer.
    pub(super) fn backfill_bytes_per_stream(&self) -> usize {
        let all = self.core.config().memory.dcp_backfill_bytes_max;
        usize::try_from(all / BEGUN_MAX as u64).unwrap_or(usize::MAX)
    }
}
