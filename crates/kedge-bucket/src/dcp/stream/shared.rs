//! The state that the reader of a stream shares with its backfill and with the threads that notify it.

use crate::dcp::counters::StreamCounters;
use crate::dcp::signals::StreamNotify;
use kedge_replication::{EndReason, StreamItem, Values};
use kedge_sync::{RankedMutex, ranks::StreamStateRank};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Item, StreamCursor, VbIdentity, VbState};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size in bytes of a buffered item without its document.
const ITEM_BYTES: usize = size_of::<StreamItem>();

/// The state that the reader of a stream shares with its backfill and with the threads that notify it.
pub(crate) struct StreamShared {
    pub(in crate::dcp) vb: VbId,
    /// The name of the connection in statistics.
    pub(in crate::dcp) connection: String,
    pub(super) notify: Arc<dyn StreamNotify>,
    /// True if the reader has drained the stream and waits for a notification.
    pub(super) idle: AtomicBool,
    pub(super) takeover: bool,
    /// The part of values that the reader needs.
    pub(in crate::dcp) values: Values,
    pub(in crate::dcp) counters: StreamCounters,
    pub(super) state: RankedMutex<StreamStateRank, SharedStreamState>,
}

impl std::fmt::Debug for StreamShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamShared")
            .field("vb", &self.vb)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct SharedStreamState {
    pub(super) identity: VbIdentity,
    /// The items that the backfill has read and the stream has not sent.
    pub(super) items: VecDeque<StreamItem>,
    pub(super) bytes: usize,
    /// The end of the backfill, once it has read everything.
    pub(super) backfill_end: Option<BackfillEnd>,
    pub(super) ended: Option<EndReason>,
    /// True if the reader has closed the stream.
    pub(super) closed: bool,
    /// True if the vBucket has become dead for the takeover.
    pub(super) handed_over: bool,
}

/// The result of a completed backfill.
#[derive(Debug)]
pub(in crate::dcp) struct BackfillEnd {
    /// The cursor that continues in the checkpoints; `None` if the stream ends.
    pub(in crate::dcp) cursor: Option<StreamCursor>,
    /// The seqno up to which the backfill has read.
    pub(in crate::dcp) upto: Seqno,
}

impl StreamShared {
    /// Notifies the reader if the stream is idle.
    pub(in crate::dcp) fn wake(&self) {
        if self.idle.swap(false, Ordering::SeqCst) {
            self.notify.ready(self.vb);
        }
    }

    /// Ends the stream with `reason`, unless it has ended.
    pub(in crate::dcp) fn end(&self, reason: EndReason) {
        self.state.lock().ended.get_or_insert(reason);
        self.wake();
    }

    /// Ends the stream if the vBucket's identity `is` no longer matches. The active that becomes dead in a takeover matches.
    pub(in crate::dcp) fn check_identity(&self, is: VbIdentity) {
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
        self.end(end_reason(was, is));
    }

    pub(in crate::dcp) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.ended.is_some()
    }

    pub(in crate::dcp) fn identity(&self) -> VbIdentity {
        self.state.lock().identity
    }

    pub(in crate::dcp) fn buffered_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Appends items of a backfill to the buffer.
    pub(in crate::dcp) fn push(&self, items: impl Iterator<Item = StreamItem>) {
        let mut state = self.state.lock();
        for item in items {
            state.bytes += bytes_of(&item);
            state.items.push_back(item);
        }
        drop(state);
        self.wake();
    }

    /// Records the end of the backfill. Returns the cursor if the stream has ended or was closed; the caller closes it.
    pub(in crate::dcp) fn finish_backfill(
        &self,
        backfill_end: BackfillEnd,
    ) -> Option<StreamCursor> {
        let mut state = self.state.lock();
        if state.closed || state.ended.is_some() {
            return backfill_end.cursor;
        }
        state.backfill_end = Some(backfill_end);
        drop(state);
        self.wake();
        None
    }
}

pub(super) fn bytes_of(item: &StreamItem) -> usize {
    let item = match item {
        StreamItem::Change(change) => change.item(),
        _ => None,
    };
    ITEM_BYTES + item.map_or(0, Item::heap_bytes)
}

/// Returns the end reason of a stream whose vBucket has changed its identity.
fn end_reason(was: VbIdentity, is: VbIdentity) -> EndReason {
    if was.state == is.state && was.history != is.history {
        EndReason::Rollback
    } else {
        EndReason::StateChanged
    }
}
