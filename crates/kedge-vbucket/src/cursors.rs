//! Cursors of streams: they read the queue of changes beside the log.
//!
//! A stream begins behind some seqno. If the queue has all changes behind it, the stream reads nothing else; otherwise
//! the vBucket's file has what the queue lacks, and the cursor stands where the queue begins.
//!
//! Invariants:
//! * From where a cursor stands, the queue has every change; what the log has read already stays for it.
//! * A cursor that was dropped is never taken for another: its place is given away under another generation.
//! * A vBucket without cursors pays for them with a comparison for each step.

use crate::checkpoint::{Change, Checkpoints, QueuedChange};
use crate::state::VbState;
use kedge_types::{Seqno, VbUuid};

/// Nobody waits.
const NOBODY: u64 = u64::MAX;

/// Names a stream's cursor of one vBucket, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCursor {
    slot: u32,
    generation: u32,
}

/// Where a cursor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorOpening {
    /// The queue has every change behind the seqno that was asked for.
    InMemory(StreamCursor),
    /// It has only those behind a later one; those up to there are in the vBucket's file, or on their way to it.
    OnDisk {
        /// Stands at the first change that the queue has.
        cursor: StreamCursor,
        /// The seqno before that change.
        behind: Seqno,
    },
}

/// The cursor was dropped, as it kept too much in memory: the stream has to begin anew behind what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorGone;

/// Changes that no cursor needs any more. Dropping them takes a while, so it is not to be done under a lock.
#[derive(Debug, Default)]
pub struct ReleasedChanges(Vec<QueuedChange>);

impl ReleasedChanges {
    /// The number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// State and history of a vBucket when a stream of it began. When these have changed, the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbIdentity {
    /// Its state on its node.
    pub state: VbState,
    /// The branch that is written now.
    pub uuid: VbUuid,
    /// See [`VBucket::history`].
    pub history: u32,
}

/// Events for the streams of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEvents {
    /// There are changes, and a stream waits for some.
    pub changes: bool,
    /// The vBucket may have another [`VbIdentity`].
    pub state: bool,
}

#[derive(Debug, Default)]
struct CursorSlot {
    generation: u32,
    /// Position of what is read next; `None`: the place is free.
    at: Option<u64>,
}

/// The cursors of a queue.
#[derive(Debug)]
pub(crate) struct StreamCursors {
    slots: Vec<CursorSlot>,
    /// Bytes of entries that the log has read, and a cursor has not.
    pub(crate) kept_bytes: usize,
    /// Entries before this position are counted in it.
    pub(crate) counted_to: u64,
    /// A stream waits for what comes at this position; [`NOBODY`]: none waits.
    wanted_at: u64,
    /// A change of the state came.
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
    /// Position of the slowest cursor; without one, none holds anything up.
    pub(crate) fn slowest(&self) -> u64 {
        self.positions().min().unwrap_or(u64::MAX)
    }

    pub(crate) fn note_state(&mut self) {
        self.state = true;
    }

    /// Positions of the cursors.
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

    /// Drops cursors that `drops` says, by their position.
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
    /// Opens a cursor for what lies behind `after`; `high` is the vBucket's last seqno.
    pub(crate) fn open_reader(&mut self, after: Seqno, high: Seqno) -> CursorOpening {
        // What lies before a reset or rollback is of another history.
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
        // The first entry behind `after`: seqnos grow, entries without one count with what follows them.
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

    /// The seqno of the first entry from this index on that has one.
    pub(crate) fn seqno_from(&self, index: usize) -> Option<Seqno> {
        let mut entries = self.entries.range(index..);
        entries.find_map(|entry| entry.change.seqno())
    }
}

impl Checkpoints {
    /// See [`crate::ChangeQueue::read_cursor`].
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
