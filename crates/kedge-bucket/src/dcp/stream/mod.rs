//! A stream out of the bucket, as its reader has it.
//!
//! Invariants:
//! * `last` is the last seqno that was given out, or that is known to hold nothing for the receiver. It only grows, and in
//!   the middle of what has no order it stays.
//! * No change is given out behind the end of the snapshot that was announced last.
//! * Behind `last` and up to `torn` the receiver may lack versions that newer ones replaced, as it was in the middle of
//!   a snapshot. What it gets up to there is announced as coming from a disk, so that it takes nothing in between for a
//!   consistent point, and commits come as the documents that they are: their prepares may be among what it lacks.

mod file;
mod queue;
mod shared;
mod takeover;

pub(in crate::dcp) use shared::Filled;
pub(crate) use shared::Shared;

use super::connection::Connection;
use super::figures::{Counts, StreamState};
use crate::dcp::component::Dcp;
use kedge_replication::{EndReason, SourceState, StreamFlags, StreamItem, StreamRequest, Values};
use kedge_sync::RankedMutex;
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Change, CursorOpening, StreamCursor, VBucket};
use shared::State;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use takeover::Takeover;

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

/// A stream out of the dcp. It ends when it is dropped.
pub struct VbStream {
    dcp: Arc<Dcp>,
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
    /// What is given out has no order, so that `last` stays where it is.
    unordered: bool,
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
    pub(in crate::dcp) fn new(
        dcp: &Arc<Dcp>,
        connection: &Arc<Connection>,
        request: StreamRequest,
        values: Values,
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
            state: RankedMutex::new(State {
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
                drop(vbucket.changes_mut().close_cursor(cursor));
                From::File
            }
            None => From::File,
        };
        dcp.signals.open[request.vb.index()]
            .lock()
            .push(Arc::clone(&shared));
        // It has nothing of a snapshot that starts where it is.
        let torn = if request.start == request.snap_start {
            request.start
        } else {
            request.snap_end
        };
        Self {
            dcp: Arc::clone(dcp),
            connection: Arc::clone(connection),
            shared,
            from,
            last: request.start,
            announced: request.start,
            visible: request.start.min(vbucket.history().visible_seqno()),
            torn,
            first_start: Some(request.snap_start),
            request,
            takeover: Takeover::No,
            unordered: false,
            changes: Vec::new(),
        }
    }

    pub(in crate::dcp) fn begin(&mut self) {
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
            self.dcp.close_cursor(self.shared.vb, cursor);
        }
        if self.from == From::File {
            self.connection.wake_backfills(&self.dcp);
        }
        self.dcp.signals.open[self.shared.vb.index()]
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

impl Dcp {
    pub(in crate::dcp) fn close_cursor(&self, vb: VbId, cursor: StreamCursor) {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (forgotten, _) = self.core.measure(&mut vbucket, |vbucket| {
            vbucket.changes_mut().close_cursor(cursor)
        });
        drop(vbucket);
        // Many changes may go with these: not under the lock.
        drop(forgotten);
    }
}
