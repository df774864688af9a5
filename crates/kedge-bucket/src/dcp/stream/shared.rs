//! What the reader of a stream shares with those who tell it something: whoever reads the file for it, and whoever sees that
//! its vBucket has changed.

use crate::dcp::StreamNotify;
use crate::dcp::figures::Counts;
use crate::dcp::news::reason;
use kedge_replication::{EndReason, StreamItem, Values};
use kedge_sync::{RankedMutex, ranks::StreamStateRank};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{Item, StreamCursor, VbIdentity, VbState};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of an item in a buffer beside its document.
const ITEM_BYTES: usize = size_of::<StreamItem>();

/// What the reader of a stream shares with those who tell it something.
pub(crate) struct Shared {
    pub(in crate::dcp) vb: VbId,
    /// Of whose connection it is, in statistics.
    pub(in crate::dcp) connection: String,
    pub(super) notify: Arc<dyn StreamNotify>,
    /// It was read to its end, and the reader waits.
    pub(super) idle: AtomicBool,
    pub(super) takeover: bool,
    /// What of values the reader wants.
    pub(in crate::dcp) values: Values,
    pub(in crate::dcp) counts: Counts,
    pub(super) state: RankedMutex<StreamStateRank, State>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("vb", &self.vb)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) identity: VbIdentity,
    /// Read from the file, not given out yet.
    pub(super) items: VecDeque<StreamItem>,
    pub(super) bytes: usize,
    /// The file has nothing more.
    pub(super) filled: Option<Filled>,
    pub(super) ended: Option<EndReason>,
    /// Nobody reads it any more.
    pub(super) closed: bool,
    /// The vBucket is dead now, for the receiver to take over.
    pub(super) handed_over: bool,
}

/// The end of a backfill.
#[derive(Debug)]
pub(in crate::dcp) struct Filled {
    /// Where the queue goes on; `None` when the stream ends.
    pub(in crate::dcp) cursor: Option<StreamCursor>,
    /// Everything up to here was given.
    pub(in crate::dcp) upto: Seqno,
}

impl Shared {
    /// Calls the reader if it waits.
    pub(in crate::dcp) fn wake(&self) {
        if self.idle.swap(false, Ordering::SeqCst) {
            self.notify.ready(self.vb);
        }
    }

    /// The stream ends, unless it has.
    pub(in crate::dcp) fn end(&self, reason: EndReason) {
        self.state.lock().ended.get_or_insert(reason);
        self.wake();
    }

    /// The vBucket is this now.
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
        self.end(reason(was, is));
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

    /// A backfill has read these.
    pub(in crate::dcp) fn push(&self, items: impl Iterator<Item = StreamItem>) {
        let mut state = self.state.lock();
        for item in items {
            state.bytes += bytes_of(&item);
            state.items.push_back(item);
        }
        drop(state);
        self.wake();
    }

    /// A backfill has come to its end. Gives the cursor back when nobody reads the stream any more.
    pub(in crate::dcp) fn fill(&self, filled: Filled) -> Option<StreamCursor> {
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

pub(super) fn bytes_of(item: &StreamItem) -> usize {
    let item = match item {
        StreamItem::Change(change) => change.item(),
        _ => None,
    };
    ITEM_BYTES + item.map_or(0, Item::heap_bytes)
}
