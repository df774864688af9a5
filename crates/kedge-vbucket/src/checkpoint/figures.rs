//! Statistics of the queue of changes.

use super::{CHECKPOINT_ENTRIES_MAX, Checkpoints, CursorId};
use kedge_types::Seqno;

/// The position of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorFigures {
    /// The id of the checkpoint that it reads.
    pub checkpoint: u64,
    /// The seqno up to which it has read every change.
    pub seqno: Seqno,
    /// The number of changes that it has not read.
    pub remaining: u64,
}

/// Statistics of the queue of changes. Changes that no cursor needs are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFigures {
    /// The id of the open checkpoint.
    pub open_id: u64,
    /// The number of checkpoints that have entries, including the open one.
    pub count: u64,
    /// The number of changes in all checkpoints.
    pub items: u64,
    /// The number of changes in the open checkpoint.
    pub open_items: u64,
    /// The bytes of all changes.
    pub bytes: usize,
    /// The cursor of the log, or of the file without a log.
    pub persistence: CursorFigures,
    /// The cursors of streams.
    pub streams: Vec<CursorFigures>,
}

impl Checkpoints {
    /// Returns the id of the checkpoint at a position. All closed checkpoints were full.
    fn checkpoint_at(&self, position: u64) -> u64 {
        let before = self.open_from.saturating_sub(position);
        self.open_id
            .saturating_sub(before.div_ceil(CHECKPOINT_ENTRIES_MAX))
    }

    fn cursor_at(&self, position: u64, high: Seqno) -> CursorFigures {
        let index = (position - self.first) as usize;
        let next = self.seqno_from(index);
        CursorFigures {
            checkpoint: self.checkpoint_at(position),
            seqno: next.map_or(high, |next| Seqno(next.get().saturating_sub(1))),
            remaining: self.end() - position,
        }
    }

    /// Returns statistics. `log` is the cursor of the log, `high` the high seqno.
    #[must_use]
    pub fn figures(&self, log: CursorId, high: Seqno) -> CheckpointFigures {
        let streams = self.readers.positions();
        CheckpointFigures {
            open_id: self.open_id,
            count: self.open_id - self.checkpoint_at(self.first) + 1,
            items: self.entries.len() as u64,
            open_items: self.end() - self.open_from.max(self.first),
            bytes: self.bytes,
            persistence: self.cursor_at(self.cursors[log.0], high),
            streams: streams.map(|at| self.cursor_at(at, high)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Change;

    #[test]
    fn figures_show_the_checkpoint_of_each_cursor() {
        let mut queue = Checkpoints::new();
        let (log, other) = (queue.add_cursor(), queue.add_cursor());
        let count = CHECKPOINT_ENTRIES_MAX * 2 + 5;
        (1..=count).for_each(|seqno| queue.push(Change::Advance(Seqno(seqno))));
        let figures = queue.figures(log, Seqno(count));
        assert_eq!((figures.open_id, figures.count), (3, 3));
        assert_eq!((figures.items, figures.open_items), (count, 5));
        assert_eq!(figures.bytes, queue.bytes());
        let at = figures.persistence;
        assert_eq!(
            (at.checkpoint, at.seqno, at.remaining),
            (1, Seqno(0), count)
        );
        for (steps, checkpoint) in [(CHECKPOINT_ENTRIES_MAX - 1, 1), (1, 2), (1, 2)] {
            let to = queue.until(log, steps as usize, usize::MAX);
            queue.advance(log, to);
            let at = queue.figures(log, Seqno(count)).persistence;
            assert_eq!(at.checkpoint, checkpoint);
            assert_eq!(at.seqno.get() + at.remaining, count);
        }
        assert_eq!(queue.figures(log, Seqno(count)).count, 3, "one is behind");
        for cursor in [log, other] {
            let to = queue.until(cursor, usize::MAX, usize::MAX);
            queue.advance(cursor, to);
        }
        let figures = queue.figures(log, Seqno(count));
        assert_eq!((figures.open_id, figures.count, figures.items), (3, 1, 0));
        assert_eq!((figures.open_items, figures.bytes), (0, 0));
        let at = figures.persistence;
        assert_eq!(
            (at.checkpoint, at.seqno, at.remaining),
            (3, Seqno(count), 0)
        );
    }
}
