//! An outbound stream as its reader sees it.
//!
//! Invariants:
//! * `last` is the last seqno that was sent, or that is known to contain nothing for the receiver. It never decreases. It
//!   does not change within an OSO snapshot.
//! * No change is sent after the end of the last announced snapshot.
//! * After `last` and up to `partial_end`, the receiver may lack versions that newer ones replaced, because its previous
//!   stream ended within a snapshot. Changes up to `partial_end` are announced as a disk snapshot, so that the receiver
//!   takes no point within for consistent. Commits are sent as documents, because the receiver may lack their prepares.

mod file;
mod queue;
pub(in crate::dcp) mod shared;
mod takeover;

pub(in crate::dcp) use shared::BackfillEnd;
pub(crate) use shared::StreamShared;

use super::connection::Connection;
use super::counters::{StreamCounters, StreamState};
use crate::dcp::component::Dcp;
use kedge_replication::{EndReason, SourceState, StreamFlags, StreamItem, StreamRequest, Values};
use kedge_sync::RankedMutex;
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Change, CursorOpening, StreamCursor, VBucket};
use shared::SharedStreamState;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use takeover::TakeoverPhase;

/// The source of the next changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamSource {
    /// The buffer of a backfill.
    File,
    /// The checkpoints in memory.
    Checkpoints(StreamCursor),
    /// The stream has ended.
    Ended(EndReason),
}

/// An outbound stream of one vBucket. It is closed when it is dropped.
pub struct VbStream {
    dcp: Arc<Dcp>,
    connection: Arc<Connection>,
    shared: Arc<StreamShared>,
    request: StreamRequest,
    source: StreamSource,
    last: Seqno,
    /// The end of the last announced snapshot.
    announced: Seqno,
    /// The seqno of the last visible change that was sent from the checkpoints.
    visible: Seqno,
    /// The end of the snapshot of which the receiver has only a part; up to it the receiver may lack replaced versions.
    partial_end: Seqno,
    /// The start seqno of the first snapshot, until it has been announced.
    first_start: Option<Seqno>,
    takeover: TakeoverPhase,
    /// True if the stream is within an OSO snapshot, in which `last` does not change.
    unordered: bool,
    changes: Vec<Change>,
}

impl std::fmt::Debug for VbStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VbStream")
            .field("vb", &self.shared.vb)
            .field("source", &self.source)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl VbStream {
    /// Creates a stream for a checked request, under the lock of the vBucket. The caller then calls [`VbStream::begin`]
    /// without the lock, which starts the backfill.
    pub(in crate::dcp) fn new(
        dcp: &Arc<Dcp>,
        connection: &Arc<Connection>,
        request: StreamRequest,
        values: Values,
        vbucket: &mut VBucket,
    ) -> Self {
        let shared = Arc::new(StreamShared {
            vb: request.vb,
            connection: connection.name.clone(),
            notify: Arc::clone(&connection.notify),
            idle: AtomicBool::new(false),
            takeover: request.flags.contains(StreamFlags::TAKEOVER),
            values,
            counters: StreamCounters::default(),
            state: RankedMutex::new(SharedStreamState {
                identity: vbucket.identity(),
                items: VecDeque::new(),
                bytes: 0,
                backfill_end: None,
                ended: None,
                closed: false,
                handed_over: false,
            }),
        });
        let disk_only = request.flags.contains(StreamFlags::DISK_ONLY);
        let opened = (!disk_only).then(|| vbucket.open_cursor(request.start));
        let source = match opened {
            Some(CursorOpening::InMemory(cursor)) => StreamSource::Checkpoints(cursor),
            // The backfill opens the cursor again when it starts, so that the cursor keeps no memory until then.
            Some(CursorOpening::OnDisk { cursor, .. }) => {
                drop(vbucket.changes_mut().close_cursor(cursor));
                StreamSource::File
            }
            None => StreamSource::File,
        };
        dcp.signals.open[request.vb.index()]
            .lock()
            .push(Arc::clone(&shared));
        // A receiver at the start of a snapshot has no part of it.
        let partial_end = if request.start == request.snap_start {
            request.start
        } else {
            request.snap_end
        };
        Self {
            dcp: Arc::clone(dcp),
            connection: Arc::clone(connection),
            shared,
            source,
            last: request.start,
            announced: request.start,
            visible: request.start.min(vbucket.history().visible_seqno()),
            partial_end,
            first_start: Some(request.snap_start),
            request,
            takeover: TakeoverPhase::NotStarted,
            unordered: false,
            changes: Vec::new(),
        }
    }

    pub(in crate::dcp) fn begin(&mut self) {
        self.shared
            .counters
            .last_sent
            .store(self.last.get(), Ordering::Relaxed);
        match self.source {
            StreamSource::File => self.begin_backfill(),
            _ => self.shared.counters.set_state(StreamState::InMemory),
        }
    }

    /// Returns the vBucket.
    #[must_use]
    pub fn vb(&self) -> VbId {
        self.shared.vb
    }

    /// Appends the next items to `out`: at most `max_items` changes with `max_bytes` in total, and the markers of their
    /// snapshots. The first change may exceed `max_bytes`. Nothing is appended if the result is [`SourceState::Ended`].
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
        match self.source {
            StreamSource::File => self.read_file(max_items, max_bytes, out),
            StreamSource::Checkpoints(cursor) => self.read_queue(cursor, max_items, max_bytes, out),
            StreamSource::Ended(reason) => SourceState::Ended(reason),
        }
    }

    fn record_progress(&self) {
        let last = self.last.get();
        let last_sent = &self.shared.counters.last_sent;
        last_sent.store(last, Ordering::Relaxed);
    }

    fn end(&mut self, reason: EndReason) -> SourceState {
        self.release();
        self.source = StreamSource::Ended(reason);
        self.shared.counters.set_state(StreamState::Dead);
        SourceState::Ended(reason)
    }

    /// Releases the buffer and the cursor.
    fn release(&mut self) {
        self.cancel_handover();
        let mut state = self.shared.state.lock();
        state.closed = true;
        let items = std::mem::take(&mut state.items);
        state.bytes = 0;
        let backfill_end = state.backfill_end.take();
        drop(state);
        drop(items);
        let cursor = match self.source {
            StreamSource::Checkpoints(cursor) => Some(cursor),
            _ => backfill_end.and_then(|backfill_end| backfill_end.cursor),
        };
        if let Some(cursor) = cursor {
            self.dcp.close_cursor(self.shared.vb, cursor);
        }
        if self.source == StreamSource::File {
            self.connection.wake_backfills(&self.dcp);
        }
        self.dcp.signals.open[self.shared.vb.index()]
            .lock()
            .retain(|stream| !Arc::ptr_eq(stream, &self.shared));
    }
}

impl Drop for VbStream {
    fn drop(&mut self) {
        if !matches!(self.source, StreamSource::Ended(_)) {
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
        // This may free many changes, so it happens after the lock is released.
        drop(forgotten);
    }
}
