//! The ordered queue of a vBucket's changes, read by cursors.
//!
//! Invariants:
//! * Entries stand in seqno order, which is the order of the log and of the durability monitor.
//! * An entry stays until every cursor has passed it: the log's, and those of streams (see `cursors`).
//! * A cursor moves only forward, and only to where its reader says that the work is done; a reader that failed reads
//!   the same entries again.
//!
//! The queue is cut into checkpoints: runs of entries whose end is a consistent point. Nothing is de-duplicated within
//! one; who wants only the newest of each key (a flush into a file) does so on the batch that it takes.

mod figures;

pub use figures::{CheckpointFigures, CursorFigures};

use crate::cursors::StreamCursors;
use crate::failover::FailoverTable;
use crate::item::Item;
use crate::snapshot::Snapshot;
use crate::state::VbState;
use kedge_types::Seqno;
use std::collections::VecDeque;

/// A checkpoint is closed when it holds this many entries.
const CHECKPOINT_ENTRIES_MAX: u64 = 10_000;
/// An empty queue gives its memory back when it had room for more than this many entries.
const IDLE_CAPACITY: usize = 32;

/// One change of a vBucket.
#[derive(Clone, Debug)]
pub enum Change {
    /// A document or tombstone written without a durability level.
    Document(Item),
    /// A SyncWrite that waits for its level.
    Prepare(Item),
    /// The prepare of this key was committed as this item.
    Commit {
        /// The committed document or tombstone.
        item: Item,
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// The prepare of this key was given up.
    Abort {
        /// A tombstone with key and seqno of the abort.
        item: Item,
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// Collections or scopes came or went, see [`crate::SystemEvent`].
    System(Item),
    /// The history or the state changed: a new branch began, or the vBucket is something else to its node.
    State(Box<FailoverTable>, VbState),
    /// Everything before was thrown away; the history begins anew.
    Reset(Box<FailoverTable>, VbState),
    /// Everything behind a seqno was thrown away; a new branch begins there.
    Rollback {
        /// The last seqno that stays.
        to: Seqno,
        /// The history with the new branch.
        table: Box<FailoverTable>,
    },
    /// The vBucket was deleted, with everything before.
    Delete,
    /// The following changes are of this snapshot, up to its end. Of a vBucket that follows another; what an active
    /// writes is in no snapshot.
    Snapshot(Box<Snapshot>),
    /// Nothing stands at the seqnos up to this one.
    Advance(Seqno),
}

impl Change {
    /// The item, of a change that has one.
    #[must_use]
    pub fn item(&self) -> Option<&Item> {
        match self {
            Self::Document(item)
            | Self::Prepare(item)
            | Self::System(item)
            | Self::Commit { item, .. }
            | Self::Abort { item, .. } => Some(item),
            Self::State(..)
            | Self::Reset(..)
            | Self::Rollback { .. }
            | Self::Delete
            | Self::Snapshot(_)
            | Self::Advance(_) => None,
        }
    }

    /// Its seqno, of a change that has one.
    #[must_use]
    pub fn seqno(&self) -> Option<Seqno> {
        match self {
            Self::Advance(seqno) => Some(*seqno),
            other => other.item().map(Item::seqno),
        }
    }

    /// Returns whether the vBucket is something else from then on, or has another history: streams of it end.
    pub(crate) fn ends_streams(&self) -> bool {
        matches!(self, Self::State(..)) || self.begins_history()
    }

    /// Returns whether it throws away what came before.
    #[must_use]
    pub fn begins_history(&self) -> bool {
        matches!(self, Self::Reset(..) | Self::Rollback { .. } | Self::Delete)
    }
}

/// A change, and what it took the place of.
#[derive(Debug)]
pub(crate) struct QueuedChange {
    pub(crate) change: Change,
    /// The seqno of the document or tombstone that it replaced in the hash table; 0 when there was none.
    replaced: Seqno,
}

impl QueuedChange {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.change.item().map_or(64, Item::heap_bytes)
    }
}

/// Names a cursor of one vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorId(usize);

#[cfg(test)]
impl CursorId {
    /// That of a vBucket's log: it is the first.
    pub(crate) const LOG: Self = Self(0);
}

/// A place in the queue: how many entries were ever queued before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// The checkpoints of a vBucket.
#[derive(Debug, Default)]
pub struct Checkpoints {
    pub(crate) entries: VecDeque<QueuedChange>,
    /// Position of the first entry.
    pub(crate) first: u64,
    cursors: Vec<u64>,
    bytes: usize,
    open_id: u64,
    open_from: u64,
    /// Position behind the last reset or rollback: what was read before it says nothing of the history after it.
    pub(crate) reset_at: u64,
    /// Cursors of streams.
    pub(crate) readers: StreamCursors,
}

impl Checkpoints {
    /// An empty queue with the first checkpoint open.
    #[must_use]
    pub fn new() -> Self {
        Self {
            open_id: 1,
            ..Self::default()
        }
    }

    /// A cursor that reads what is queued from now on.
    pub fn add_cursor(&mut self) -> CursorId {
        self.cursors.push(self.end());
        CursorId(self.cursors.len() - 1)
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Where the next change is queued.
    pub(crate) fn end_position(&self) -> Position {
        Position(self.end())
    }

    /// Queues a change that replaced nothing.
    pub fn push(&mut self, change: Change) {
        self.push_over(change, Seqno(0));
    }

    /// Queues a change that replaced the document or tombstone at `replaced`; 0: none.
    pub fn push_over(&mut self, change: Change, replaced: Seqno) {
        if self.end() - self.open_from >= CHECKPOINT_ENTRIES_MAX {
            self.open_id += 1;
            self.open_from = self.end();
        }
        let ends_streams = change.ends_streams();
        let resets = ends_streams && change.begins_history();
        let entry = QueuedChange { change, replaced };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        if ends_streams {
            self.readers.note_state();
        }
        if resets {
            self.reset_at = self.end();
        }
    }

    /// Returns whether the cursor has entries to read.
    #[must_use]
    pub fn has_more(&self, cursor: CursorId) -> bool {
        self.cursors[cursor.0] < self.end()
    }

    /// Copies entries from the cursor on to `out`, without moving it, and says where they end: at most `max_entries`,
    /// and no more than `max_bytes` unless the first alone is larger.
    pub fn peek(
        &self,
        cursor: CursorId,
        max_entries: usize,
        max_bytes: usize,
        out: &mut Vec<Change>,
    ) -> Position {
        let to = self.until(cursor, max_entries, max_bytes);
        let from = (self.cursors[cursor.0] - self.first) as usize;
        let entries = self.entries.range(from..(to.0 - self.first) as usize);
        out.extend(entries.map(|entry| entry.change.clone()));
        to
    }

    /// Where entries from the cursor on end that are bounded as in [`Checkpoints::peek`].
    #[must_use]
    pub fn until(&self, cursor: CursorId, max_entries: usize, max_bytes: usize) -> Position {
        self.until_from(self.position(cursor), max_entries, max_bytes)
    }

    /// Where the cursor is.
    pub(crate) fn position(&self, cursor: CursorId) -> Position {
        Position(self.cursors[cursor.0])
    }

    /// As [`Checkpoints::until`], from a place that the cursor has not passed.
    pub(crate) fn until_from(
        &self,
        from: Position,
        max_entries: usize,
        max_bytes: usize,
    ) -> Position {
        let Position(from) = from;
        let mut to = from;
        let mut bytes = 0;
        for entry in self
            .entries
            .range((from - self.first) as usize..)
            .take(max_entries)
        {
            bytes += entry.bytes();
            if bytes > max_bytes && to > from {
                break;
            }
            to += 1;
        }
        Position(to)
    }

    /// Returns whether the cursor has passed the last reset or rollback.
    #[must_use]
    pub fn is_in_last_history(&self, cursor: CursorId) -> bool {
        self.is_behind_last_reset(Position(self.cursors[cursor.0]))
    }

    /// Returns whether `at` lies behind the last reset or rollback.
    #[must_use]
    pub fn is_behind_last_reset(&self, at: Position) -> bool {
        at.0 >= self.reset_at
    }

    /// Returns the changes that the cursor passes on its way to `to`, as far as they belong to the history that is
    /// written now, and the seqnos of what it replaced.
    pub fn passing(
        &self,
        cursor: CursorId,
        to: Position,
    ) -> impl Iterator<Item = (&Change, Seqno)> {
        self.between(self.position(cursor), to)
    }

    /// As [`Checkpoints::passing`], from a place that the cursor has not passed.
    pub(crate) fn between(
        &self,
        from: Position,
        to: Position,
    ) -> impl Iterator<Item = (&Change, Seqno)> {
        let from = from.0.max(self.reset_at).min(to.0);
        self.entries
            .range((from - self.first) as usize..(to.0 - self.first) as usize)
            .map(|entry| (&entry.change, entry.replaced))
    }

    /// The seqno of the last change in front of `to` that has one, as far as the cursor has not moved past it: where
    /// the history goes on when a reset or rollback is the last, `None` when one is still to come or nothing in front
    /// of `to` has a seqno.
    #[must_use]
    pub fn seqno_before(&self, cursor: CursorId, to: Position) -> Option<Seqno> {
        if to.0 < self.reset_at {
            return None;
        }
        let from = (self.cursors[cursor.0] - self.first) as usize;
        let to = (to.0 - self.first) as usize;
        self.entries
            .range(from..to)
            .rev()
            .find_map(|entry| match &entry.change {
                Change::Reset(..) | Change::Delete => Some(Seqno(0)),
                Change::Rollback { to, .. } => Some(*to),
                other => other.seqno(),
            })
    }

    /// Moves the cursor to `to`, the work on what lies before it being done, and forgets what no cursor needs.
    ///
    /// # Panics
    /// If the cursor would move back or beyond the end: a reader lost count.
    pub fn advance(&mut self, cursor: CursorId, to: Position) {
        let at = &mut self.cursors[cursor.0];
        assert!(
            *at <= to.0 && to.0 <= self.first + self.entries.len() as u64,
            "a cursor only moves forward"
        );
        *at = to.0;
        self.forget();
    }

    /// Forgets what no cursor needs.
    pub(crate) fn forget(&mut self) {
        self.forget_with(drop);
    }

    /// As [`Checkpoints::forget`], of which `with` gets each entry.
    pub(crate) fn forget_with(&mut self, mut with: impl FnMut(QueuedChange)) {
        let logged = self.cursors.iter().copied().min().unwrap_or(self.first);
        let needless = logged.min(self.readers.slowest()) - self.first;
        for entry in self.entries.drain(..needless as usize) {
            self.bytes -= entry.bytes();
            if self.first < self.readers.counted_to {
                self.readers.kept_bytes -= entry.bytes();
            }
            self.first += 1;
            with(entry);
        }
        let counted = (self.readers.counted_to.max(self.first) - self.first) as usize;
        for entry in self.entries.range(counted..(logged - self.first) as usize) {
            self.readers.kept_bytes += entry.bytes();
        }
        self.readers.counted_to = logged;
        if self.entries.is_empty() && self.entries.capacity() > IDLE_CAPACITY {
            self.entries = VecDeque::new();
        }
    }

    /// Entries that the cursor has not passed.
    #[must_use]
    pub fn unread(&self, cursor: CursorId) -> usize {
        (self.end() - self.cursors[cursor.0]) as usize
    }

    /// Entries queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of what is queued. Items that are in the hash table too are counted here as well: the figure says what
    /// the queue keeps alive.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of what the log has already, and only streams have not read.
    #[must_use]
    pub fn bytes_for_streams(&self) -> usize {
        self.readers.kept_bytes
    }

    /// Number of the open checkpoint.
    #[must_use]
    pub fn open_id(&self) -> u64 {
        self.open_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemMeta;

    fn change(seqno: u64) -> Change {
        let meta = ItemMeta {
            seqno: Seqno(seqno),
            ..ItemMeta::default()
        };
        Change::Document(Item::new(&meta, b"key", &[b"value"]))
    }

    fn seqnos(changes: &[Change]) -> Vec<u64> {
        changes
            .iter()
            .map(|change| change.item().unwrap().seqno().get())
            .collect()
    }

    #[test]
    fn an_entry_stays_until_the_slowest_cursor_passed_it() {
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        let replica = queue.add_cursor();
        for seqno in 1..=5 {
            queue.push(change(seqno));
        }
        let mut batch = Vec::new();
        let to = queue.peek(log, 3, usize::MAX, &mut batch);
        assert_eq!(seqnos(&batch), [1, 2, 3]);
        queue.advance(log, to);
        assert_eq!(queue.len(), 5, "the replica has read nothing");
        let mut all = Vec::new();
        let to = queue.peek(replica, 100, usize::MAX, &mut all);
        assert_eq!(seqnos(&all), [1, 2, 3, 4, 5]);
        queue.advance(replica, to);
        assert_eq!(queue.len(), 2);
        assert!(queue.has_more(log) && !queue.has_more(replica));
    }

    #[test]
    fn a_failed_reader_reads_the_same_again() {
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        queue.push(change(1));
        queue.push(change(2));
        for _ in 0..3 {
            let mut batch = Vec::new();
            queue.peek(log, 10, usize::MAX, &mut batch);
            assert_eq!(seqnos(&batch), [1, 2]);
        }
        assert!(queue.bytes() > 0);
        let to = queue.peek(log, 10, usize::MAX, &mut Vec::new());
        queue.advance(log, to);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn a_reset_hides_the_seqnos_before_it() {
        let table = FailoverTable::new(kedge_types::VbUuid(1));
        let reset = || Change::Reset(Box::new(table.clone()), VbState::Active);
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        queue.push(change(7));
        let before = queue.peek(log, 10, usize::MAX, &mut Vec::new());
        assert_eq!(queue.seqno_before(log, before), Some(Seqno(7)));
        queue.push(reset());
        let at = queue.peek(log, 10, usize::MAX, &mut Vec::new());
        queue.push(change(1));
        let after = queue.peek(log, 10, usize::MAX, &mut Vec::new());
        assert_eq!(
            queue.seqno_before(log, before),
            None,
            "of a history that is gone"
        );
        assert_eq!(queue.seqno_before(log, at), Some(Seqno(0)));
        assert_eq!(queue.seqno_before(log, after), Some(Seqno(1)));
    }

    #[test]
    fn a_batch_is_bounded_by_bytes_but_never_empty() {
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        for seqno in 1..=3 {
            queue.push(change(seqno));
        }
        let change_bytes = queue.bytes() / 3;
        for (max_bytes, expected) in [(0, 1), (change_bytes * 2, 2), (usize::MAX, 3)] {
            let mut batch = Vec::new();
            queue.peek(log, 10, max_bytes, &mut batch);
            assert_eq!(batch.len(), expected, "{max_bytes}");
        }
    }

    #[test]
    fn checkpoints_close_when_full() {
        let mut queue = Checkpoints::new();
        for seqno in 0..=CHECKPOINT_ENTRIES_MAX {
            queue.push(change(seqno));
        }
        assert_eq!(queue.open_id(), 2);
    }

    #[test]
    #[should_panic(expected = "only moves forward")]
    fn a_cursor_does_not_move_back() {
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        queue.push(change(1));
        let to = queue.peek(log, 1, usize::MAX, &mut Vec::new());
        queue.advance(log, to);
        queue.advance(log, Position(0));
    }
}
