//! One stream: what it has sent, and what of it the consumer is to see.
//!
//! Invariants:
//! * Every change that is sent lies in the snapshot whose marker was sent last, or in one that has no order: such a one
//!   begins and ends with DCP_OSO_SNAPSHOT, and nothing else stands in it.
//! * A snapshot that the source gave wholly is sent up to its end: when the consumer may not see its last change,
//!   SEQNO_ADVANCED says that nothing more comes, if the consumer knows that message.
//! * A consumer without SyncWrites hears of seqnos that clients may see only: its snapshots end at the last of those.

use super::compose;
use super::format::{Format, Unordered};
use super::value::{Shaper, Unsendable};
use crate::filter::Filter;
use crate::source::{SourceState, StreamItem};
use kedge_protocol::binary::commands::dcp::{Head, OsoSnapshot, SeqnoAdvanced, SetVbucketState};
use kedge_types::Seqno;
use kedge_vbucket::{Change, Snapshot, SnapshotKind, VbState};
use std::collections::VecDeque;

/// What of a snapshot was sent.
#[derive(Clone, Copy, Debug)]
struct OpenSnapshot {
    end: Seqno,
    is_disk: bool,
}

/// What was sent of a snapshot that is not in the order of seqnos.
#[derive(Clone, Copy, Debug)]
struct OpenUnordered {
    /// The highest seqno in it.
    highest: Seqno,
    /// Nothing that comes behind it is for the consumer.
    is_last: bool,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) head: Head,
    filter: Filter,
    /// It began at the beginning, and only its first snapshots come from the disk.
    skips_deletes: bool,
    snapshot: Option<OpenSnapshot>,
    unordered: Option<OpenUnordered>,
    /// The snapshot as the source gave it, until its end is reached.
    whole: Option<Snapshot>,
    /// Whether it stands in the list of streams that may have something.
    pub(super) queued: bool,
    /// What was read and could not be sent yet, and what is to be done behind it.
    pub(super) rest: VecDeque<StreamItem>,
    pub(super) after: SourceState,
    /// The state that the consumer has yet to answer.
    pub(super) waits_for: Option<VbState>,
    pub(super) figures: StreamFigures,
}

/// What a stream has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFigures {
    /// The last seqno that the consumer knows of.
    pub last_seqno: Seqno,
    /// End of the last snapshot.
    pub snapshot_end: Seqno,
    /// Changes that were sent.
    pub items: u64,
    /// Bytes of all messages.
    pub bytes: u64,
}

/// What came of sending a step.
pub(super) enum Sent {
    Next,
    /// The consumer has to answer first.
    Waits,
    /// Nothing that comes will be for the consumer.
    Last,
}

impl Stream {
    pub(super) fn new(head: Head, filter: Filter, start: Seqno, skips_deletes: bool) -> Self {
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
            figures: StreamFigures {
                last_seqno: start,
                ..StreamFigures::default()
            },
        }
    }

    /// Appends the messages of one step.
    pub(super) fn send(
        &mut self,
        item: &StreamItem,
        format: &Format,
        shaper: &mut Shaper,
        out: &mut Vec<u8>,
    ) -> Result<Sent, Unsendable> {
        match item {
            StreamItem::Marker(snapshot) => self.begin_snapshot(snapshot, format, out),
            StreamItem::SeqnoAdvanced(seqno) => self.reach(*seqno, format, out),
            StreamItem::UnorderedBegin => {
                OsoSnapshot::Start.encode(&self.head, out);
                (self.snapshot, self.whole) = (None, None);
                self.unordered = Some(OpenUnordered {
                    highest: self.figures.last_seqno,
                    is_last: false,
                });
            }
            StreamItem::UnorderedEnd(upto) => return Ok(self.end_unordered(*upto, format, out)),
            StreamItem::Change(change) => {
                self.change(change, format, shaper, out)?;
                if matches!(change, Change::System(item) if self.filter.is_empty_after(item)) {
                    // The consumer is at no consistent point before the end of what has no order.
                    let Some(unordered) = &mut self.unordered else {
                        return Ok(Sent::Last);
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
                return Ok(Sent::Waits);
            }
        }
        Ok(Sent::Next)
    }

    fn begin_snapshot(&mut self, snapshot: &Snapshot, format: &Format, out: &mut Vec<u8>) {
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

    fn announce(&mut self, snapshot: &Snapshot, end: Seqno, format: &Format, out: &mut Vec<u8>) {
        compose::marker(format, &self.head, snapshot, end, out);
        let is_disk = snapshot.kind == SnapshotKind::Disk;
        self.snapshot = Some(OpenSnapshot { end, is_disk });
        self.figures.snapshot_end = end;
    }

    fn end_unordered(&mut self, upto: Seqno, format: &Format, out: &mut Vec<u8>) -> Sent {
        let Some(OpenUnordered { highest, is_last }) = self.unordered.take() else {
            return Sent::Next;
        };
        self.figures.last_seqno = highest;
        if format.unordered == Unordered::WithSeqnoAdvanced && highest < upto {
            SeqnoAdvanced { seqno: upto }.encode(&self.head, out);
            self.figures.last_seqno = upto;
        }
        self.figures.snapshot_end = self.figures.last_seqno;
        OsoSnapshot::End.encode(&self.head, out);
        if is_last { Sent::Last } else { Sent::Next }
    }

    /// A change that the consumer is to see is in a snapshot that was announced. If more of a snapshot turns out to be
    /// visible than the source said, as it did not know, the rest is announced too.
    fn be_in_snapshot(
        &mut self,
        seqno: Seqno,
        format: &Format,
        out: &mut Vec<u8>,
    ) -> Result<(), Unsendable> {
        if self.snapshot.is_some_and(|snapshot| seqno <= snapshot.end) {
            return Ok(());
        }
        let whole = self.whole.filter(|whole| seqno <= whole.end);
        let whole = whole.ok_or(Unsendable)?;
        let rest = Snapshot {
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
        format: &Format,
        shaper: &mut Shaper,
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

    /// A change with this seqno is the next one.
    fn make_place(
        &mut self,
        seqno: Seqno,
        format: &Format,
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

    /// Nothing up to `seqno` is to come: if the snapshot ends there, the consumer hears so.
    fn reach(&mut self, seqno: Seqno, format: &Format, out: &mut Vec<u8>) {
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

    /// Whether what is sent comes from the disk.
    pub(super) fn is_backfilling(&self) -> bool {
        self.unordered.is_some() || self.snapshot.is_some_and(|snapshot| snapshot.is_disk)
    }
}
