//! The ordered queue of a vBucket's changes, read by cursors.
//!
//! Invariants:
//! * Entries are in seqno order. The log and the durability monitor use the same order.
//! * An entry stays until every cursor has passed it: the cursor of the log, and those of streams (see `cursors`).
//! * A cursor moves only forward, and only past entries that its reader has processed. A reader that failed reads the
//!   same entries again.
//!
//! The queue is divided into checkpoints: sequences of entries that end at a consistent point. A checkpoint is not
//! de-duplicated. A reader that needs only the newest version of each key, such as a flush into a file, de-duplicates
//! its own batch.

mod figures;

pub use figures::{CheckpointFigures, CursorFigures};

use crate::catch_up::NewBranch;
use crate::cursors::StreamCursors;
use crate::failover::FailoverTable;
use crate::item::Item;
use crate::snapshot::DcpSnapshot;
use crate::state::VbState;
use kedge_types::Seqno;
use std::collections::VecDeque;

/// The number of entries at which a checkpoint is closed.
const CHECKPOINT_ENTRIES_MAX: u64 = 10_000;
/// The number of entries for which a queue always has room.
const SPARE_ENTRIES_MIN: usize = 32;
/// The capacity, in entries, above which an empty queue releases its memory.
const IDLE_CAPACITY: usize = 32;

/// A change of a vBucket.
#[derive(Clone, Debug)]
pub enum Change {
    /// A document or tombstone written without a durability level.
    Document(Item),
    /// A prepare of a SyncWrite.
    Prepare(Item),
    /// The commit of a prepare.
    Commit {
        /// The committed document or tombstone.
        item: Item,
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// The abort of a prepare.
    Abort {
        /// A tombstone with the key and the seqno of the abort.
        item: Item,
        /// The seqno of the prepare.
        prepared: Seqno,
    },
    /// A change of collections or scopes; see [`crate::SystemEvent`].
    System(Item),
    /// A new failover table, a new state, or both.
    State(Box<FailoverTable>, VbState),
    /// The removal of all earlier changes, and the start of a new history.
    Reset(Box<NewBranch>, VbState),
    /// The removal of all changes after a seqno, and the start of a branch there.
    Rollback {
        /// The last seqno that is kept.
        to: Seqno,
        /// The branch.
        branch: Box<NewBranch>,
    },
    /// The deletion of the vBucket.
    Delete,
    /// The start of a received snapshot. The following changes up to its end belong to it. An active vBucket queues no
    /// snapshots.
    Snapshot(Box<DcpSnapshot>),
    /// An advance of the high seqno to this seqno without a change.
    Advance(Seqno),
}

impl Change {
    /// Returns the item, if the change has one.
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

    /// Returns the seqno, if the change has one.
    #[must_use]
    pub fn seqno(&self) -> Option<Seqno> {
        match self {
            Self::Advance(seqno) => Some(*seqno),
            other => other.item().map(Item::seqno),
        }
    }

    /// Returns whether streams end here, because the vBucket changes its state or its history.
    pub(crate) fn ends_streams(&self) -> bool {
        matches!(self, Self::State(..)) || self.begins_history()
    }

    /// Returns whether the change discards earlier changes.
    #[must_use]
    pub fn begins_history(&self) -> bool {
        matches!(self, Self::Reset(..) | Self::Rollback { .. } | Self::Delete)
    }
}

/// A queued change.
#[derive(Debug)]
pub(crate) struct QueuedChange {
    pub(crate) change: Change,
    /// The seqno of the document or tombstone that the change replaced in the hash table, or 0.
    replaced: Seqno,
}

impl QueuedChange {
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.change.item().map_or(64, Item::heap_bytes)
    }
}

/// The id of a cursor of one vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorId(usize);

#[cfg(test)]
impl CursorId {
    /// The cursor of the log, which is the first one.
    pub(crate) const LOG: Self = Self(0);
}

/// A position in the queue: the number of entries that were ever queued before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// The checkpoints of a vBucket.
#[derive(Debug, Default)]
pub struct Checkpoints {
    pub(crate) entries: VecDeque<QueuedChange>,
    /// The position of the first entry.
    pub(crate) first: u64,
    cursors: Vec<u64>,
    bytes: usize,
    open_id: u64,
    open_from: u64,
    /// The position after the last reset or rollback. Earlier entries belong to another history.
    pub(crate) reset_at: u64,
    /// The cursors of streams.
    pub(crate) readers: StreamCursors,
}

impl Checkpoints {
    /// Returns an empty queue with an open first checkpoint.
    #[must_use]
    pub fn new() -> Self {
        Self {
            open_id: 1,
            ..Self::default()
        }
    }

    /// Adds a cursor at the end of the queue.
    pub fn add_cursor(&mut self) -> CursorId {
        self.cursors.push(self.end());
        CursorId(self.cursors.len() - 1)
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns the position of the next change.
    pub(crate) fn end_position(&self) -> Position {
        Position(self.end())
    }

    /// Queues a change that replaced nothing.
    pub fn push(&mut self, change: Change) {
        self.push_over(change, Seqno(0));
    }

    /// Queues a change that replaced the document or tombstone at `replaced`, or none if that is 0.
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

    /// Returns memory that the queue had for more entries than it has now.
    pub(crate) fn return_memory(&mut self) {
        if self.entries.capacity() > SPARE_ENTRIES_MIN.max(self.entries.len() * 4) {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// Returns whether the cursor has entries to read.
    #[must_use]
    pub fn has_more(&self, cursor: CursorId) -> bool {
        self.cursors[cursor.0] < self.end()
    }

    /// Copies the entries after the cursor to `out`, at most `max_entries` and `max_bytes` but always one. Does not
    /// move the cursor. Returns the position of their end.
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

    /// Returns the end of the entries after the cursor, bounded as in [`Checkpoints::peek`].
    #[must_use]
    pub fn until(&self, cursor: CursorId, max_entries: usize, max_bytes: usize) -> Position {
        self.until_from(self.position(cursor), max_entries, max_bytes)
    }

    /// Returns the position of the cursor.
    pub(crate) fn position(&self, cursor: CursorId) -> Position {
        Position(self.cursors[cursor.0])
    }

    /// Returns the end of the entries after `from`, bounded as in [`Checkpoints::until`]. The cursor has not passed
    /// `from`.
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

    /// Returns whether `at` is after the last reset or rollback.
    #[must_use]
    pub fn is_behind_last_reset(&self, at: Position) -> bool {
        at.0 >= self.reset_at
    }

    /// Returns the changes of the current history between the cursor and `to`, with the seqnos of the versions that
    /// they replaced.
    pub fn passing(
        &self,
        cursor: CursorId,
        to: Position,
    ) -> impl Iterator<Item = (&Change, Seqno)> {
        self.between(self.position(cursor), to)
    }

    /// Returns the changes of the current history between two positions, as [`Checkpoints::passing`].
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

    /// Returns the seqno of the last change between the cursor and `to`. After a reset or rollback, it is the seqno
    /// where the new history starts. Returns `None` if a reset or rollback is still to come, or if no change before
    /// `to` has a seqno.
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

    /// Moves the cursor to `to`, after its reader has processed the entries before, and removes entries that no cursor
    /// needs.
    ///
    /// # Panics
    /// If the cursor would move back or past the end of the queue.
    pub fn advance(&mut self, cursor: CursorId, to: Position) {
        let at = &mut self.cursors[cursor.0];
        assert!(
            *at <= to.0 && to.0 <= self.first + self.entries.len() as u64,
            "a cursor only moves forward"
        );
        *at = to.0;
        self.forget();
    }

    /// Removes entries that no cursor needs.
    pub(crate) fn forget(&mut self) {
        self.forget_with(drop);
    }

    /// Removes entries that no cursor needs, and passes each to `with`.
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

    /// Returns the number of entries that the cursor has not passed.
    #[must_use]
    pub fn unread(&self, cursor: CursorId) -> usize {
        (self.end() - self.cursors[cursor.0]) as usize
    }

    /// Returns the number of queued entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes of the queued entries. Items that are also in the hash table are included: the figure shows
    /// what the queue keeps alive.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of entries that the log has and only streams have not read.
    #[must_use]
    pub fn bytes_for_streams(&self) -> usize {
        self.readers.kept_bytes
    }

    /// Returns the id of the open checkpoint.
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
    fn queue_returns_memory_of_entries_that_are_gone() {
        let mut queue = Checkpoints::new();
        let cursor = queue.add_cursor();
        for seqno in 1..=1_000 {
            queue.push(change(seqno));
        }
        queue.return_memory();
        assert!(queue.entries.capacity() >= 1_000, "all are needed");
        let end = queue.until(cursor, 990, usize::MAX);
        queue.advance(cursor, end);
        queue.return_memory();
        assert_eq!(queue.entries.len(), 10);
        assert!(queue.entries.capacity() <= SPARE_ENTRIES_MIN);
    }

    #[test]
    fn entry_stays_until_the_slowest_cursor_has_passed() {
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
    fn failed_reader_reads_the_same_entries_again() {
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
    fn reset_hides_earlier_seqnos() {
        let table = FailoverTable::new(kedge_types::VbUuid(1));
        let reset = || Change::Reset(Box::new(table.clone().into()), VbState::Active);
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
    fn batch_is_bounded_by_bytes_but_never_empty() {
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
    fn cursor_does_not_move_back() {
        let mut queue = Checkpoints::new();
        let log = queue.add_cursor();
        queue.push(change(1));
        let to = queue.peek(log, 1, usize::MAX, &mut Vec::new());
        queue.advance(log, to);
        queue.advance(log, Position(0));
    }
}
