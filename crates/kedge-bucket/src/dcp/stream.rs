//! A stream out of the bucket, as its reader has it.
//!
//! Invariants:
//! * `last` is the last seqno that was given out, or that is known to hold nothing for the receiver. It only grows.
//! * No change is given out behind the end of the snapshot that was announced last.
//! * Behind `last` and up to `torn` the receiver may lack versions that newer ones replaced, as it was in the middle of
//!   a snapshot. What it gets up to there is announced as coming from a disk, so that it takes nothing in between for a
//!   consistent point, and commits come as the documents that they are: their prepares may be among what it lacks.

use super::StreamNotify;
use super::backfill::Backfill;
use super::connection::Connection;
use super::figures::{Counts, StreamState};
use super::news::reason;
use crate::bucket::{Bucket, Phase};
use crate::counters::Total;
use crate::tasks::VBUCKET_STATE;
use kedge_replication::{EndReason, SourceState, StreamFlags, StreamItem, StreamRequest};
use kedge_types::{Seqno, Status, VbId};
use kedge_vbucket::{
    Change, CursorGone, CursorOpening, Identity, Item, Snapshot, SnapshotKind, StreamCursor,
    VBucket, VbState,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of an item in a buffer beside its document.
const ITEM_BYTES: usize = size_of::<StreamItem>();

/// What the reader of a stream shares with those who tell it something.
pub(crate) struct Shared {
    pub(super) vb: VbId,
    /// Of whose connection it is, in statistics.
    pub(super) connection: String,
    notify: Arc<dyn StreamNotify>,
    /// It was read to its end, and the reader waits.
    idle: AtomicBool,
    takeover: bool,
    /// Whether the reader wants values.
    pub(super) values: bool,
    pub(super) counts: Counts,
    state: Mutex<State>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("vb", &self.vb)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    identity: Identity,
    /// Read from the file, not given out yet.
    items: VecDeque<StreamItem>,
    bytes: usize,
    /// The file has nothing more.
    filled: Option<Filled>,
    ended: Option<EndReason>,
    /// Nobody reads it any more.
    closed: bool,
    /// The vBucket is dead now, for the receiver to take over.
    handed_over: bool,
}

/// The end of a backfill.
#[derive(Debug)]
pub(super) struct Filled {
    /// Where the queue goes on; `None` when the stream ends.
    pub(super) cursor: Option<StreamCursor>,
    /// Everything up to here was given.
    pub(super) upto: Seqno,
}

impl Shared {
    /// Calls the reader if it waits.
    pub(super) fn wake(&self) {
        if self.idle.swap(false, Ordering::SeqCst) {
            self.notify.ready(self.vb);
        }
    }

    /// The stream ends, unless it has.
    pub(super) fn end(&self, reason: EndReason) {
        self.state.lock().ended.get_or_insert(reason);
        self.wake();
    }

    /// The vBucket is this now.
    pub(super) fn check_identity(&self, is: Identity) {
        let mut state = self.state.lock();
        let was = state.identity;
        if was == is {
            return;
        }
        if self.takeover && is.state == VbState::Dead && was.history == is.history {
            state.identity = is;
            return;
        }
        drop(state);
        self.end(reason(was, is));
    }

    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.ended.is_some()
    }

    pub(super) fn identity(&self) -> Identity {
        self.state.lock().identity
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// A backfill has read these.
    pub(super) fn push(&self, items: impl Iterator<Item = StreamItem>) {
        let mut state = self.state.lock();
        for item in items {
            state.bytes += bytes_of(&item);
            state.items.push_back(item);
        }
        drop(state);
        self.wake();
    }

    /// A backfill has come to its end. Gives the cursor back when nobody reads the stream any more.
    pub(super) fn fill(&self, filled: Filled) -> Option<StreamCursor> {
        let mut state = self.state.lock();
        if state.closed || state.ended.is_some() {
            return filled.cursor;
        }
        state.filled = Some(filled);
        drop(state);
        self.wake();
        None
    }
}

fn bytes_of(item: &StreamItem) -> usize {
    let item = match item {
        StreamItem::Change(change) => change.item(),
        _ => None,
    };
    ITEM_BYTES + item.map_or(0, Item::heap_bytes)
}

/// Where the next changes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// A backfill is under way.
    File,
    /// The queue of changes.
    Queue(StreamCursor),
    /// Nothing comes any more.
    Nowhere(EndReason),
}

/// How far a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    /// There is none, or the receiver has to catch up first.
    No,
    /// The receiver was told to be pending, and has not answered.
    Pending,
    /// The vBucket becomes dead here.
    Dying,
    /// It is dead: what is left is sent, and then the receiver is told to be active.
    Last,
    /// The receiver was told, and has not answered.
    Active,
}

/// A stream out of the bucket. It ends when it is dropped.
pub struct VbStream {
    bucket: Arc<Bucket>,
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    request: StreamRequest,
    from: From,
    last: Seqno,
    /// End of the snapshot that was announced last.
    announced: Seqno,
    /// The last document that was given out of the queue.
    visible: Seqno,
    /// Up to here the receiver may lack what newer versions replaced.
    torn: Seqno,
    /// Where the first snapshot starts, until it was announced.
    first_start: Option<Seqno>,
    takeover: Takeover,
    changes: Vec<Change>,
}

impl std::fmt::Debug for VbStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VbStream")
            .field("vb", &self.shared.vb)
            .field("from", &self.from)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl VbStream {
    /// Opens a stream that was found to be possible, under the vBucket's lock. What has to come from the file is asked
    /// for with [`VbStream::begin`], without the lock.
    pub(super) fn new(
        bucket: &Arc<Bucket>,
        connection: &Arc<Connection>,
        request: StreamRequest,
        values: bool,
        vbucket: &mut VBucket,
    ) -> Self {
        let shared = Arc::new(Shared {
            vb: request.vb,
            connection: connection.name.clone(),
            notify: Arc::clone(&connection.notify),
            idle: AtomicBool::new(false),
            takeover: request.flags.contains(StreamFlags::TAKEOVER),
            values,
            counts: Counts::default(),
            state: Mutex::new(State {
                identity: vbucket.identity(),
                items: VecDeque::new(),
                bytes: 0,
                filled: None,
                ended: None,
                closed: false,
                handed_over: false,
            }),
        });
        let disk_only = request.flags.contains(StreamFlags::DISK_ONLY);
        let opened = (!disk_only).then(|| vbucket.open_cursor(request.start));
        let from = match opened {
            Some(CursorOpening::InMemory(cursor)) => From::Queue(cursor),
            // It is opened again when it is the backfill's turn, so that it keeps nothing until then.
            Some(CursorOpening::OnDisk { cursor, .. }) => {
                drop(vbucket.close_cursor(cursor));
                From::File
            }
            None => From::File,
        };
        bucket.dcp.open[request.vb.index()]
            .lock()
            .push(Arc::clone(&shared));
        // It has nothing of a snapshot that starts where it is.
        let torn = if request.start == request.snap_start {
            request.start
        } else {
            request.snap_end
        };
        Self {
            bucket: Arc::clone(bucket),
            connection: Arc::clone(connection),
            shared,
            from,
            last: request.start,
            announced: request.start,
            visible: request.start.min(vbucket.visible_seqno()),
            torn,
            first_start: Some(request.snap_start),
            request,
            takeover: Takeover::No,
            changes: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.shared
            .counts
            .last_sent
            .store(self.last.get(), Ordering::Relaxed);
        match self.from {
            From::File => self.begin_backfill(),
            _ => self.shared.counts.set_state(StreamState::InMemory),
        }
    }

    /// Its vBucket.
    #[must_use]
    pub fn vb(&self) -> VbId {
        self.shared.vb
    }

    /// Copies what comes next to `out`: at most `max_items` changes of `max_bytes` together, unless the first alone is
    /// larger, and the markers of their snapshots. With [`SourceState::Ended`] nothing is given.
    pub fn read(
        &mut self,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        self.shared.idle.store(false, Ordering::SeqCst);
        let ended = self.shared.state.lock().ended;
        if let Some(reason) = ended {
            return self.end(reason);
        }
        match self.from {
            From::File => self.read_file(max_items, max_bytes, out),
            From::Queue(cursor) => self.read_queue(cursor, max_items, max_bytes, out),
            From::Nowhere(reason) => SourceState::Ended(reason),
        }
    }

    /// The receiver has answered [`StreamItem::State`]: its vBucket has that state.
    pub fn state_answered(&mut self) {
        match self.takeover {
            Takeover::Pending => {
                self.takeover = Takeover::Dying;
                let shared = Arc::clone(&self.shared);
                let asking = Arc::clone(&shared);
                // The task may come late: when the stream is gone, the vBucket may be active by a later map.
                let still = move |vbucket: &VBucket| {
                    !asking.is_over() && vbucket.identity() == asking.identity()
                };
                let vb = shared.vb;
                let die = move |bucket: &Bucket| bucket.set_vbucket_if(vb, VbState::Dead, still);
                let done = move |done: Result<(), Status>| match done {
                    Ok(()) => {
                        shared.state.lock().handed_over = true;
                        shared.wake();
                    }
                    Err(_) => shared.end(EndReason::StateChanged),
                };
                self.bucket.begin_change(&VBUCKET_STATE, die, done);
            }
            Takeover::Active => {
                self.shared.end(EndReason::Ok);
            }
            Takeover::No | Takeover::Dying | Takeover::Last => {}
        }
    }

    fn read_file(
        &mut self,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        let mut state = self.shared.state.lock();
        let before = state.bytes;
        let (mut items, mut bytes) = (0, 0);
        while items < max_items {
            let Some(next) = state.items.front().map(bytes_of) else {
                break;
            };
            if items > 0 && bytes + next > max_bytes {
                break;
            }
            let Some(item) = state.items.pop_front() else {
                break;
            };
            (items, bytes) = (items + 1, bytes + next);
            match &item {
                StreamItem::Marker(snapshot) => self.announced = snapshot.end,
                StreamItem::Change(change) => {
                    let seqno = change.item().map(Item::seqno);
                    self.last = seqno.unwrap_or(self.last);
                    self.shared
                        .counts
                        .backfilled
                        .fetch_add(1, Ordering::Relaxed);
                }
                StreamItem::SeqnoAdvanced(seqno) => self.last = *seqno,
                StreamItem::State(_) => {}
            }
            out.push(item);
        }
        state.bytes -= bytes;
        let left = state.bytes;
        if items == 0 {
            let Some(filled) = state.filled.take() else {
                self.shared.idle.store(true, Ordering::SeqCst);
                return SourceState::Idle;
            };
            drop(state);
            return self.end_backfill(&filled, max_items, max_bytes, out);
        }
        drop(state);
        self.note_sent();
        let enough = self.bucket.backfill_bytes_per_stream() / 2;
        if before >= enough && left < enough {
            self.connection.wake_backfills(&self.bucket);
        }
        SourceState::More
    }

    fn end_backfill(
        &mut self,
        filled: &Filled,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        self.last = self.last.max(filled.upto);
        self.visible = self.last;
        self.torn = self.torn.min(self.last);
        self.first_start = None;
        self.note_sent();
        // The next backfill may begin.
        self.connection.wake_backfills(&self.bucket);
        let Some(cursor) = filled.cursor else {
            return self.end(EndReason::Ok);
        };
        self.from = From::Queue(cursor);
        self.shared.counts.set_state(StreamState::InMemory);
        self.read_queue(cursor, max_items, max_bytes, out)
    }

    fn begin_backfill(&mut self) {
        self.from = From::File;
        self.shared.counts.set_state(StreamState::Backfilling);
        let backfill = Backfill::new(
            Arc::clone(&self.shared),
            &self.request,
            self.last,
            self.torn,
            self.first_start,
        );
        self.connection.begin_backfill(&self.bucket, backfill);
    }

    fn read_queue(
        &mut self,
        cursor: StreamCursor,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        if self.last >= self.request.end {
            return self.end(EndReason::Ok);
        }
        if self.bucket.phase() != Phase::Open {
            return self.end(EndReason::Disconnected);
        }
        let bucket = Arc::clone(&self.bucket);
        let mut changes = std::mem::take(&mut self.changes);
        let mut vbucket = bucket.vbuckets[self.shared.vb.index()].lock();
        self.shared.check_identity(vbucket.identity());
        let ended = self.shared.state.lock().ended;
        if let Some(reason) = ended {
            drop(vbucket);
            return self.end(reason);
        }
        let (read, _) = bucket.measure(&mut vbucket, |vbucket| {
            vbucket.read_cursor(cursor, max_items, max_bytes, &mut changes)
        });
        let state = match read {
            Err(CursorGone) => {
                drop(vbucket);
                bucket.totals.add(Total::StreamsBackToFile, 1);
                let drops = &self.shared.counts.cursor_drops;
                drops.fetch_add(1, Ordering::Relaxed);
                self.begin_backfill();
                self.shared.idle.store(true, Ordering::SeqCst);
                SourceState::Idle
            }
            Ok(_) if changes.is_empty() => {
                self.shared.idle.store(true, Ordering::SeqCst);
                vbucket.wait_for_changes();
                drop(vbucket);
                self.rest(out)
            }
            Ok(_) => {
                let bounds = Bounds::of(&vbucket, &changes);
                drop(vbucket);
                self.give(&mut changes, &bounds, out);
                SourceState::More
            }
        };
        changes.clear();
        self.changes = changes;
        state
    }

    /// Gives changes out of the queue, with the markers that they need.
    fn give(&mut self, changes: &mut Vec<Change>, bounds: &Bounds, out: &mut Vec<StreamItem>) {
        let mut count = 0;
        for change in changes.drain(..) {
            let Some(seqno) = change.seqno() else {
                continue;
            };
            // What the file had already.
            if seqno <= self.last {
                continue;
            }
            if seqno > self.request.end {
                self.last = self.request.end;
                break;
            }
            if seqno > self.announced {
                self.announce(bounds, out);
            }
            self.last = seqno;
            if is_visible(&change) {
                self.visible = seqno;
            }
            count += 1;
            out.push(match change {
                Change::Advance(seqno) => StreamItem::SeqnoAdvanced(seqno),
                Change::Commit { item, .. } if seqno <= self.torn => {
                    StreamItem::Change(Change::Document(item))
                }
                change => StreamItem::Change(change),
            });
        }
        let counts = &self.shared.counts;
        counts.from_memory.fetch_add(count, Ordering::Relaxed);
        self.note_sent();
    }

    /// Announces what was read as a snapshot: an active was like this after each change. Behind a snapshot that the
    /// receiver has in part, or of a vBucket that follows another, all that the queue has.
    fn announce(&mut self, bounds: &Bounds, out: &mut Vec<StreamItem>) {
        let is_disk = bounds.is_disk || self.last < self.torn;
        let end = if is_disk {
            bounds.end.max(self.torn)
        } else {
            bounds.read
        };
        let end = end.min(self.request.end);
        if is_disk {
            self.torn = end;
        }
        let visible = if is_disk {
            bounds.visible
        } else {
            bounds.read_visible.unwrap_or(self.visible)
        };
        let start = self.first_start.take();
        let start = start.unwrap_or(Seqno(self.last.get() + 1));
        let kind = if is_disk {
            SnapshotKind::Disk
        } else {
            SnapshotKind::Memory
        };
        self.announced = end;
        out.push(StreamItem::Marker(Snapshot {
            max_visible: Some(visible.min(end)),
            high_completed: is_disk.then_some(bounds.completed),
            high_prepared: is_disk.then_some(bounds.prepared),
            purge: is_disk.then_some(bounds.purge),
            checkpoint: is_disk || start != Seqno(self.last.get() + 1),
            ..Snapshot::new(kind, start, end)
        }));
    }

    /// The stream has given all there is.
    fn rest(&mut self, out: &mut Vec<StreamItem>) -> SourceState {
        if !self.shared.takeover {
            return SourceState::Idle;
        }
        match self.takeover {
            Takeover::No => {
                self.shared.counts.set_state(StreamState::TakingOver);
                self.takeover = Takeover::Pending;
                out.push(StreamItem::State(VbState::Pending));
            }
            Takeover::Dying if self.shared.state.lock().handed_over => {
                // What was written before the vBucket died may have come since the last look.
                self.takeover = Takeover::Last;
                return SourceState::More;
            }
            Takeover::Last => {
                self.takeover = Takeover::Active;
                out.push(StreamItem::State(VbState::Active));
            }
            Takeover::Pending | Takeover::Dying | Takeover::Active => {}
        }
        SourceState::Idle
    }

    fn note_sent(&self) {
        let last = self.last.get();
        let last_sent = &self.shared.counts.last_sent;
        last_sent.store(last, Ordering::Relaxed);
    }

    fn end(&mut self, reason: EndReason) -> SourceState {
        self.release();
        self.from = From::Nowhere(reason);
        self.shared.counts.set_state(StreamState::Dead);
        SourceState::Ended(reason)
    }

    /// Lets go of what keeps memory.
    fn release(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let items = std::mem::take(&mut state.items);
        state.bytes = 0;
        let filled = state.filled.take();
        drop(state);
        drop(items);
        let cursor = match self.from {
            From::Queue(cursor) => Some(cursor),
            _ => filled.and_then(|filled| filled.cursor),
        };
        if let Some(cursor) = cursor {
            self.bucket.close_cursor(self.shared.vb, cursor);
        }
        if self.from == From::File {
            self.connection.wake_backfills(&self.bucket);
        }
        self.bucket.dcp.open[self.shared.vb.index()]
            .lock()
            .retain(|stream| !Arc::ptr_eq(stream, &self.shared));
    }
}

impl Drop for VbStream {
    fn drop(&mut self) {
        if !matches!(self.from, From::Nowhere(_)) {
            self.release();
        }
    }
}

impl Bucket {
    pub(super) fn close_cursor(&self, vb: VbId, cursor: StreamCursor) {
        let mut vbucket = self.vbuckets[vb.index()].lock();
        let (forgotten, _) = self.measure(&mut vbucket, |vbucket| vbucket.close_cursor(cursor));
        drop(vbucket);
        // Many changes may go with these: not under the lock.
        drop(forgotten);
    }
}

/// Whether clients without SyncWrites hear of it.
fn is_visible(change: &Change) -> bool {
    matches!(
        change,
        Change::Document(_) | Change::Commit { .. } | Change::System(_)
    )
}

/// What snapshots are told with.
struct Bounds {
    /// The last seqno that was read.
    read: Seqno,
    /// The last document among that.
    read_visible: Option<Seqno>,
    /// The vBucket follows another, whose snapshots may have come from a disk.
    is_disk: bool,
    /// The next consistent point of all that the queue has, and what there is up to there.
    end: Seqno,
    visible: Seqno,
    completed: Seqno,
    prepared: Seqno,
    purge: Seqno,
}

impl Bounds {
    fn of(vbucket: &VBucket, read: &[Change]) -> Self {
        let mut seqnos = read.iter().rev().filter_map(Change::seqno);
        let read_visible = read.iter().rev().find(|change| is_visible(change));
        Self {
            read: seqnos.next().unwrap_or_default(),
            read_visible: read_visible.and_then(Change::seqno),
            is_disk: vbucket.state() != VbState::Active,
            end: vbucket.resume_point().snap_end.max(vbucket.high_seqno()),
            visible: vbucket.visible_seqno(),
            completed: vbucket.high_completed_seqno(),
            prepared: vbucket.high_prepared_seqno(),
            purge: vbucket.purge_seqno(),
        }
    }
}
