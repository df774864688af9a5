//! One stream: its progress, and the part of the changes that its consumer sees.
//!
//! Invariants:
//! * Every sent change lies in the snapshot of the last sent marker, or in an out-of-order snapshot. Such a snapshot
//!   begins and ends with DCP_OSO_SNAPSHOT, and contains nothing else.
//! * A snapshot that the source gave completely is sent up to its end: if the consumer does not see its last change,
//!   SEQNO_ADVANCED completes the snapshot, provided that the consumer knows that message.
//! * A consumer without SyncWrites gets only seqnos that clients see: its snapshots end at the last of those.

use super::compose;
use super::format::{MessageFormat, OsoSupport};
use super::value::{Unsendable, ValueEncoder};
use crate::filter::Filter;
use crate::source::{SourceState, StreamItem};
use kedge_protocol::binary::commands::dcp::{
    DcpHeader, OsoSnapshot, SeqnoAdvanced, SetVbucketState,
};
use kedge_types::Seqno;
use kedge_vbucket::{Change, DcpSnapshot, SnapshotKind, VbState};
use std::collections::VecDeque;

/// The progress of an open snapshot.
#[derive(Clone, Copy, Debug)]
struct OpenSnapshot {
    end: Seqno,
    is_disk: bool,
}

/// The progress of an open out-of-order snapshot.
#[derive(Clone, Copy, Debug)]
struct OpenOsoSnapshot {
    /// The highest seqno in the snapshot.
    highest: Seqno,
    /// True if no later change is for the consumer.
    is_last: bool,
}

#[derive(Debug)]
pub(super) struct ProducerStream {
    pub(super) head: DcpHeader,
    filter: Filter,
    /// True if the stream began at seqno 0, and only its first snapshots come from disk.
    skips_deletes: bool,
    snapshot: Option<OpenSnapshot>,
    unordered: Option<OpenOsoSnapshot>,
    /// The snapshot as the source gave it, until its end is reached.
    whole: Option<DcpSnapshot>,
    /// True if the stream is in the list of ready streams.
    pub(super) queued: bool,
    /// Items that were read but not yet sent, and actions that follow them.
    pub(super) rest: VecDeque<StreamItem>,
    pub(super) after: SourceState,
    /// The state for which the consumer's reply is outstanding.
    pub(super) waits_for: Option<VbState>,
    pub(super) figures: ProducerStreamFigures,
}

/// Figures of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerStreamFigures {
    /// The last seqno that the consumer knows.
    pub last_seqno: Seqno,
    /// The end of the last snapshot.
    pub snapshot_end: Seqno,
    /// The number of sent changes.
    pub items: u64,
    /// The number of bytes of all messages.
    pub bytes: u64,
}

/// The outcome of sending a step.
pub(super) enum SendResult {
    Next,
    /// The consumer has to reply first.
    Waits,
    /// No later change will be for the consumer.
    Last,
}

impl ProducerStream {
    pub(super) fn new(head: DcpHeader, filter: Filter, start: Seqno, skips_deletes: bool) -> Self {
        Self {
            head,
            filter,
            skips_deletes: skips_deletes && start == Seqno(0),
            snapshot: None,
            unordered: None,
            whole: None,
            queued: false,
            rest: VecDeque::new(),
            after: SourceState::More,
            waits_for: None,
            figures: ProducerStreamFigures {
                last_seqno: start,
                ..ProducerStreamFigures::default()
            },
        }
    }

    /// Appends the messages of one step.
    pub(super) fn send(
        &mut self,
        item: &StreamItem,
        format: &MessageFormat,
        shaper: &mut ValueEncoder,
        out: &mut Vec<u8>,
    ) -> Result<SendResult, Unsendable> {
        match item {
            StreamItem::Marker(snapshot) => self.begin_snapshot(snapshot, format, out),
            StreamItem::SeqnoAdvanced(seqno) => self.reach(*seqno, format, out),
            StreamItem::UnorderedBegin => {
                OsoSnapshot::Start.encode(&self.head, out);
                (self.snapshot, self.whole) = (None, None);
                self.unordered = Some(OpenOsoSnapshot {
                    highest: self.figures.last_seqno,
                    is_last: false,
                });
            }
            StreamItem::UnorderedEnd(upto) => return Ok(self.end_unordered(*upto, format, out)),
            StreamItem::Change(change) => {
                self.change(change, format, shaper, out)?;
                if matches!(change, Change::System(item) if self.filter.is_empty_after(item)) {
                    // The consumer has no consistent state before the end of an out-of-order snapshot.
                    let Some(unordered) = &mut self.unordered else {
                        return Ok(SendResult::Last);
                    };
                    unordered.is_last = true;
                }
            }
            StreamItem::State(state) => {
                SetVbucketState {
                    state: *state as u8,
                }
                .encode(&self.head, out);
                self.waits_for = Some(*state);
                return Ok(SendResult::Waits);
            }
        }
        Ok(SendResult::Next)
    }

    fn begin_snapshot(
        &mut self,
        snapshot: &DcpSnapshot,
        format: &MessageFormat,
        out: &mut Vec<u8>,
    ) {
        let is_disk = snapshot.kind == SnapshotKind::Disk;
        self.skips_deletes &= is_disk;
        self.whole = Some(*snapshot);
        self.snapshot = None;
        let end = match snapshot.max_visible {
            Some(visible) if !format.sync_writes => visible.min(snapshot.end),
            _ => snapshot.end,
        };
        // Otherwise nothing in it is for this consumer.
        if end >= snapshot.start && end > self.figures.last_seqno {
            self.announce(snapshot, end, format, out);
        }
    }

    fn announce(
        &mut self,
        snapshot: &DcpSnapshot,
        end: Seqno,
        format: &MessageFormat,
        out: &mut Vec<u8>,
    ) {
        compose::marker(format, &self.head, snapshot, end, out);
        let is_disk = snapshot.kind == SnapshotKind::Disk;
        self.snapshot = Some(OpenSnapshot { end, is_disk });
        self.figures.snapshot_end = end;
    }

    fn end_unordered(
        &mut self,
        upto: Seqno,
        format: &MessageFormat,
        out: &mut Vec<u8>,
    ) -> SendResult {
        let Some(OpenOsoSnapshot { highest, is_last }) = self.unordered.take() else {
            return SendResult::Next;
        };
        self.figures.last_seqno = highest;
        if format.unordered == OsoSupport::WithSeqnoAdvanced && highest < upto {
            SeqnoAdvanced { seqno: upto }.encode(&self.head, out);
            self.figures.last_seqno = upto;
        }
        self.figures.snapshot_end = self.figures.last_seqno;
        OsoSnapshot::End.encode(&self.head, out);
        if is_last {
            SendResult::Last
        } else {
            SendResult::Next
        }
    }

    /// Announces the snapshot of a change that the consumer sees, if no sent marker covers the change. If more of a
    /// snapshot turns out to be visible than the source knew, the rest is announced too.
    fn be_in_snapshot(
        &mut self,
        seqno: Seqno,
        format: &MessageFormat,
        out: &mut Vec<u8>,
    ) -> Result<(), Unsendable> {
        if self.snapshot.is_some_and(|snapshot| seqno <= snapshot.end) {
            return Ok(());
        }
        let whole = self.whole.filter(|whole| seqno <= whole.end);
        let whole = whole.ok_or(Unsendable)?;
        let rest = DcpSnapshot {
            start: whole.start.max(self.figures.last_seqno.next()),
            max_visible: None,
            checkpoint: false,
            ..whole
        };
        self.announce(&rest, whole.end, format, out);
        Ok(())
    }

    fn change(
        &mut self,
        change: &Change,
        format: &MessageFormat,
        shaper: &mut ValueEncoder,
        out: &mut Vec<u8>,
    ) -> Result<(), Unsendable> {
        let Some(item) = change.item() else {
            if let Change::Advance(seqno) = change {
                self.reach(*seqno, format, out);
            }
            return Ok(());
        };
        let seqno = item.seqno();
        let is_event = matches!(change, Change::System(_));
        let skipped = self.skips_deletes && item.is_deleted() && !is_event;
        let is_wanted = self.filter.admits(item);
        if !skipped && is_wanted && compose::sees(format, change) {
            self.make_place(seqno, format, out)?;
            compose::change(format, shaper, &self.head, change, out)?;
            self.figures.items += 1;
        }
        if self.unordered.is_none() {
            self.reach(seqno, format, out);
        }
        Ok(())
    }

    /// Prepares for a change with this seqno as the next one.
    fn make_place(
        &mut self,
        seqno: Seqno,
        format: &MessageFormat,
        out: &mut Vec<u8>,
    ) -> Result<(), Unsendable> {
        if let Some(unordered) = &mut self.unordered {
            unordered.highest = unordered.highest.max(seqno);
            return Ok(());
        }
        self.be_in_snapshot(seqno, format, out)?;
        if seqno <= self.figures.last_seqno {
            return Err(Unsendable);
        }
        self.figures.last_seqno = seqno;
        Ok(())
    }

    /// Notes that no change up to `seqno` follows. If the snapshot ends there, the consumer is told.
    fn reach(&mut self, seqno: Seqno, format: &MessageFormat, out: &mut Vec<u8>) {
        self.whole.take_if(|whole| whole.end <= seqno);
        let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.end <= seqno) else {
            return;
        };
        if self.figures.last_seqno < snapshot.end && format.knows_seqno_advanced() {
            SeqnoAdvanced {
                seqno: snapshot.end,
            }
            .encode(&self.head, out);
            self.figures.last_seqno = snapshot.end;
        }
    }

    /// Returns whether the stream sends from disk.
    pub(super) fn is_backfilling(&self) -> bool {
        self.unordered.is_some() || self.snapshot.is_some_and(|snapshot| snapshot.is_disk)
    }
}
