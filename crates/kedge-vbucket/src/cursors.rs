//! Cursors of streams, which read the queue of changes beside the log.
//!
//! A stream starts after a seqno. If the queue has all later changes, the stream reads only from the queue. Otherwise
//! the file has the missing changes, and the cursor starts at the beginning of the queue.
//!
//! Invariants:
//! * The queue has every change after a cursor. Changes that the log has read stay for slower cursors.
//! * A dropped cursor is never mistaken for another: its slot is reused under a new generation.
//! * Without cursors, each step of a vBucket pays one comparison.

use crate::checkpoint::{Change, Checkpoints, QueuedChange};
use crate::state::VbState;
use kedge_types::{Seqno, VbUuid};

/// The value for no waiting stream.
const NOBODY: u64 = u64::MAX;

/// The id of a stream cursor of one vBucket, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCursor {
    slot: u32,
    generation: u32,
}

/// The start of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorOpening {
    /// The queue has every change after the requested seqno.
    InMemory(StreamCursor),
    /// The queue has only changes after a later seqno. Earlier ones are in the file of the vBucket, or will be applied
    /// to it.
    OnDisk {
        /// The cursor, at the first change in the queue.
        cursor: StreamCursor,
        /// The seqno before that change.
        behind: Seqno,
    },
}

/// The error for a cursor that was dropped because it kept too many changes in memory. The stream must restart after
/// the last change that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorGone;

/// Changes that no cursor needs any more. Dropping them takes time, so it must not happen under a lock.
#[derive(Debug, Default)]
pub struct ReleasedChanges(Vec<QueuedChange>);

impl ReleasedChanges {
    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The state and the history of a vBucket at the start of a stream. The stream ends when they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbIdentity {
    /// The state on this node.
    pub state: VbState,
    /// The vBucket UUID of the current branch.
    pub uuid: VbUuid,
    /// The history id, see [`crate::VBucket::history_id`].
    pub history: u32,
}

/// Events for the streams of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEvents {
    /// True if there are new changes and a stream waits for some.
    pub changes: bool,
    /// True if the [`VbIdentity`] may have changed.
    pub state: bool,
}

#[derive(Debug, Default)]
struct CursorSlot {
    generation: u32,
    /// The position of the next read, or `None` for a free slot.
    at: Option<u64>,
}

/// The stream cursors of a queue.
#[derive(Debug)]
pub(crate) struct StreamCursors {
    slots: Vec<CursorSlot>,
    /// The bytes of entries that the log has read and a stream cursor has not.
    pub(crate) kept_bytes: usize,
    /// The position up to which entries are counted in `kept_bytes`.
    pub(crate) counted_to: u64,
    /// The position that a stream waits for, or [`NOBODY`].
    wanted_at: u64,
    /// True if the state has changed.
    state: bool,
}

impl Default for StreamCursors {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            kept_bytes: 0,
            counted_to: 0,
            wanted_at: NOBODY,
            state: false,
        }
    }
}

impl StreamCursors {
    /// Returns the position of the slowest cursor, or the maximum without cursors.
    pub(crate) fn slowest(&self) -> u64 {
        self.positions().min().unwrap_or(u64::MAX)
    }

    pub(crate) fn note_state(&mut self) {
        self.state = true;
    }

    /// Returns the positions of the cursors.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter_map(|slot| slot.at)
    }

    fn open(&mut self, at: u64) -> StreamCursor {
        let free = self.slots.iter().position(|slot| slot.at.is_none());
        let index = free.unwrap_or_else(|| {
            self.slots.push(CursorSlot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.at = Some(at);
        StreamCursor {
            slot: u32::try_from(index).expect("a vBucket has few streams"),
            generation: slot.generation,
        }
    }

    fn find(&mut self, cursor: StreamCursor) -> Option<&mut u64> {
        let slot = self.slots.get_mut(cursor.slot as usize)?;
        let at = slot.at.as_mut()?;
        (slot.generation == cursor.generation).then_some(at)
    }

    /// Drops the cursors whose position satisfies `drops`.
    fn drop_if(&mut self, drops: impl Fn(u64) -> bool) {
        for slot in &mut self.slots {
            if slot.at.is_some_and(&drops) {
                slot.at = None;
                slot.generation = slot.generation.wrapping_add(1);
            }
        }
    }

    fn close(&mut self, cursor: StreamCursor) -> bool {
        if self.find(cursor).is_none() {
            return false;
        }
        let slot = &mut self.slots[cursor.slot as usize];
        slot.at = None;
        slot.generation = slot.generation.wrapping_add(1);
        true
    }
}

impl Checkpoints {
    /// Opens a cursor after the seqno `after`. `high` is the high seqno of the vBucket.
    pub(crate) fn open_reader(&mut self, after: Seqno, high: Seqno) -> CursorOpening {
        // Entries before a reset or rollback belong to another history.
        let first = self.reset_at.max(self.first) - self.first;
        let first = first as usize;
        let before = match self.seqno_from(first) {
            Some(seqno) => Seqno(seqno.get() - 1),
            None => high,
        };
        if after < before {
            let cursor = self.readers.open(self.first + first as u64);
            return CursorOpening::OnDisk {
                cursor,
                behind: before,
            };
        }
        // Binary search for the first entry after `after`. Seqnos ascend. An entry without a seqno counts with the next
        // one.
        let (mut low, mut end) = (first, self.entries.len());
        while low < end {
            let middle = usize::midpoint(low, end);
            match self.seqno_from(middle) {
                Some(seqno) if seqno <= after => low = middle + 1,
                _ => end = middle,
            }
        }
        CursorOpening::InMemory(self.readers.open(self.first + low as u64))
    }

    /// Returns the first seqno at this index or later.
    pub(crate) fn seqno_from(&self, index: usize) -> Option<Seqno> {
        let mut entries = self.entries.range(index..);
        entries.find_map(|entry| entry.change.seqno())
    }
}

impl Checkpoints {
    /// Copies the next changes to `out`, see [`crate::ChangeQueue::read_cursor`].
    pub(crate) fn read(
        &mut self,
        cursor: StreamCursor,
        max: usize,
        max_bytes: usize,
        out: &mut Vec<Change>,
    ) -> Result<usize, CursorGone> {
        let first = self.first;
        let at = self.readers.find(cursor).ok_or(CursorGone)?;
        let mut bytes = 0;
        for entry in self.entries.range((*at - first) as usize..).take(max) {
            let entry_bytes = entry.bytes();
            if bytes > 0 && bytes + entry_bytes > max_bytes {
                break;
            }
            bytes += entry_bytes;
            out.push(entry.change.clone());
            *at += 1;
        }
        if bytes > 0 {
            self.forget();
        }
        Ok(bytes)
    }

    pub(crate) fn remaining(&self, cursor: StreamCursor) -> usize {
        let slot = self.readers.slots.get(cursor.slot as usize);
        let slot = slot.filter(|slot| slot.generation == cursor.generation);
        let at = slot.and_then(|slot| slot.at);
        at.map_or(0, |at| (self.end() - at) as usize)
    }

    pub(crate) fn close_reader(&mut self, cursor: StreamCursor) -> ReleasedChanges {
        if self.readers.close(cursor) {
            self.forget_later()
        } else {
            ReleasedChanges::default()
        }
    }

    pub(crate) fn drop_slowest_readers(&mut self) -> ReleasedChanges {
        let slowest = self.readers.slowest();
        self.readers.drop_if(|at| at == slowest);
        self.forget_later()
    }

    fn forget_later(&mut self) -> ReleasedChanges {
        let mut forgotten = Vec::new();
        self.forget_with(|entry| forgotten.push(entry));
        ReleasedChanges(forgotten)
    }

    pub(crate) fn await_more(&mut self) {
        let end = self.end();
        let wanted_at = &mut self.readers.wanted_at;
        *wanted_at = end.min(*wanted_at);
    }

    /// Requests a stream event without a change.
    pub(crate) fn wake_streams(&mut self) {
        self.readers.wanted_at = 0;
    }

    pub(crate) fn take_stream_events(&mut self) -> StreamEvents {
        let end = self.end();
        let readers = &mut self.readers;
        let changes = end > readers.wanted_at;
        if changes {
            readers.wanted_at = NOBODY;
        }
        StreamEvents {
            changes,
            state: std::mem::take(&mut readers.state),
        }
    }
}

#[cfg(test)]
mod tests;
