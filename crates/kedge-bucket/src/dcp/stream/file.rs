//! Reading of the items that a backfill has put into the buffer of a stream.

use super::shared::{BackfillEnd, bytes_of};
use super::{StreamSource, VbStream};
use crate::dcp::backfill::Backfill;
use crate::dcp::counters::StreamState;
use kedge_replication::{EndReason, SourceState, StreamItem};
use kedge_vbucket::Item;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl VbStream {
    pub(super) fn read_file(
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
                    let seqno = seqno.filter(|_| !self.unordered);
                    self.last = seqno.unwrap_or(self.last);
                    self.shared
                        .counters
                        .backfilled
                        .fetch_add(1, Ordering::Relaxed);
                }
                StreamItem::SeqnoAdvanced(seqno) => self.last = *seqno,
                StreamItem::UnorderedBegin => self.unordered = true,
                StreamItem::UnorderedEnd(seqno) => {
                    self.unordered = false;
                    self.last = *seqno;
                }
                StreamItem::State(_) => {}
            }
            out.push(item);
        }
        state.bytes -= bytes;
        let left = state.bytes;
        if items == 0 {
            let Some(backfill_end) = state.backfill_end.take() else {
                self.shared.idle.store(true, Ordering::SeqCst);
                return SourceState::Idle;
            };
            drop(state);
            return self.end_backfill(&backfill_end, max_items, max_bytes, out);
        }
        drop(state);
        self.record_progress();
        let enough = self.dcp.backfill_bytes_per_stream() / 2;
        if before >= enough && left < enough {
            self.connection.wake_backfills(&self.dcp);
        }
        SourceState::More
    }

    fn end_backfill(
        &mut self,
        backfill_end: &BackfillEnd,
        max_items: usize,
        max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        self.last = self.last.max(backfill_end.upto);
        self.visible = self.last;
        self.partial_end = self.partial_end.min(self.last);
        self.first_start = None;
        self.record_progress();
        // The task may activate the next backfill.
        self.connection.wake_backfills(&self.dcp);
        let Some(cursor) = backfill_end.cursor else {
            return self.end(EndReason::Ok);
        };
        self.source = StreamSource::Checkpoints(cursor);
        self.shared.counters.set_state(StreamState::InMemory);
        self.read_queue(cursor, max_items, max_bytes, out)
    }

    pub(super) fn begin_backfill(&mut self) {
        self.source = StreamSource::File;
        self.shared.counters.set_state(StreamState::Backfilling);
        let backfill = Backfill::new(
            Arc::clone(&self.shared),
            &self.request,
            self.last,
            self.partial_end,
            self.first_start,
        );
        self.connection.begin_backfill(&self.dcp, backfill);
    }
}
