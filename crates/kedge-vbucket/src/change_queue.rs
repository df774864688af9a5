//! The queue of a vBucket's changes, and its readers: the log and streams.
//!
//! Invariant: if changes wait for the log, the log was notified or is notified by the effects of a step. Commits that
//! no client waits for are the exception; see [`AfterLog::CommitsOnly`].

use crate::checkpoint::{Change, CheckpointFigures, Checkpoints, CursorId, Position};
use crate::cursors::{CursorGone, CursorOpening, ReleasedChanges, StreamCursor, StreamEvents};
use kedge_types::Seqno;

/// The changes that still wait for the log after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLog {
    /// No changes.
    Nothing,
    /// Only commits of the changes that were just written. No client waits for these. They are written with the next
    /// change of the vBucket, or after a delay.
    CommitsOnly,
    /// Changes that arrived during the write. The vBucket stays queued.
    More,
}

/// The checkpoints of a vBucket and their cursors.
#[derive(Debug)]
pub struct ChangeQueue {
    pub(crate) checkpoints: Checkpoints,
    log_cursor: CursorId,
    queued_for_log: bool,
    /// The position up to which only commits without a waiting client are queued for the log.
    lazy_upto: Position,
}

impl ChangeQueue {
    pub(crate) fn new() -> Self {
        let mut checkpoints = Checkpoints::new();
        let log_cursor = checkpoints.add_cursor();
        Self {
            checkpoints,
            log_cursor,
            queued_for_log: false,
            lazy_upto: Position::default(),
        }
    }

    pub(crate) fn log_cursor(&self) -> CursorId {
        self.log_cursor
    }

    /// Queues a change that replaced nothing.
    pub(crate) fn push(&mut self, change: Change) {
        self.checkpoints.push(change);
    }

    /// Queues a change that replaced the document or tombstone at `replaced`, or none if that is 0.
    pub(crate) fn push_over(&mut self, change: Change, replaced: Seqno) {
        self.checkpoints.push_over(change, replaced);
    }

    /// Returns the number of changes that wait for the log.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.checkpoints.unread(self.log_cursor)
    }

    /// Returns the id of the open checkpoint.
    #[must_use]
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoints.open_id()
    }

    /// Returns statistics of the checkpoints and cursors. `high` is the high seqno of the vBucket.
    #[must_use]
    pub fn figures(&self, high: Seqno) -> CheckpointFigures {
        self.checkpoints.figures(self.log_cursor, high)
    }

    /// Copies changes that are not in the log yet to `out`, in seqno order and bounded as in [`Checkpoints::peek`].
    /// Returns the position of their end.
    pub fn for_log(&self, max: usize, max_bytes: usize, out: &mut Vec<Change>) -> Position {
        self.checkpoints.peek(self.log_cursor, max, max_bytes, out)
    }

    /// Returns true once each time the queue becomes non-empty, and marks the vBucket as queued for the log.
    pub fn take_newly_queued(&mut self) -> bool {
        !self.queued_for_log && self.has_more() && {
            self.queued_for_log = true;
            true
        }
    }

    /// Returns whether the log has to be notified. Commits that no client waits for are no reason.
    pub(crate) fn take_newly_dirty(&mut self) -> bool {
        !self.queued_for_log
            && self.checkpoints.end_position() > self.lazy_upto
            && self.take_newly_queued()
    }

    /// Records that a client waits for the queued changes.
    pub(crate) fn request_log(&mut self) {
        self.lazy_upto = Position::default();
    }

    pub(crate) fn has_more(&self) -> bool {
        self.checkpoints.has_more(self.log_cursor)
    }

    /// Records that the log has written changes. `more` is true if others were waiting before the commits of the
    /// written changes were queued.
    pub(crate) fn after_log(&mut self, more: bool) -> AfterLog {
        self.queued_for_log = more;
        match (more, self.has_more()) {
            (true, _) => AfterLog::More,
            (false, true) => {
                self.lazy_upto = self.checkpoints.end_position();
                AfterLog::CommitsOnly
            }
            (false, false) => AfterLog::Nothing,
        }
    }

    /// Returns whether the log has the last reset or rollback.
    pub(crate) fn is_in_last_history(&self) -> bool {
        self.checkpoints.is_in_last_history(self.log_cursor)
    }

    /// Opens a stream cursor after the seqno `after`. `high` is the high seqno of the vBucket.
    pub(crate) fn open_cursor(&mut self, after: Seqno, high: Seqno) -> CursorOpening {
        self.checkpoints.open_reader(after, high)
    }

    /// Copies the next changes to `out` and advances the cursor past them. Copies at most `max` changes and `max_bytes`
    /// bytes, but always one change. Changes that the log has not read stay in the queue. Returns the bytes of the
    /// copied changes.
    ///
    /// # Errors
    /// [`CursorGone`] if the cursor was dropped.
    pub fn read_cursor(
        &mut self,
        cursor: StreamCursor,
        max: usize,
        max_bytes: usize,
        out: &mut Vec<Change>,
    ) -> Result<usize, CursorGone> {
        self.checkpoints.read(cursor, max, max_bytes, out)
    }

    /// Returns the number of changes that the cursor has not read, or 0 if it was dropped.
    #[must_use]
    pub fn cursor_remaining(&self, cursor: StreamCursor) -> usize {
        self.checkpoints.remaining(cursor)
    }

    /// Closes a cursor. Has no effect if the cursor was dropped.
    pub fn close_cursor(&mut self, cursor: StreamCursor) -> ReleasedChanges {
        self.checkpoints.close_reader(cursor)
    }

    /// Returns the bytes of changes that only stream cursors keep in memory.
    #[must_use]
    pub fn cursor_bytes(&self) -> usize {
        self.checkpoints.bytes_for_streams()
    }

    /// Drops the slowest cursors, if they keep changes in memory.
    pub fn drop_slowest_cursors(&mut self) -> ReleasedChanges {
        if self.cursor_bytes() == 0 {
            return ReleasedChanges::default();
        }
        self.checkpoints.drop_slowest_readers()
    }

    /// Requests a stream event with the effects of the step that queues the next change.
    pub fn wait_for_changes(&mut self) {
        self.checkpoints.await_more();
    }

    /// Requests a stream event without a change.
    pub(crate) fn wake_streams(&mut self) {
        self.checkpoints.wake_streams();
    }

    /// Returns the stream events since the last call.
    pub(crate) fn take_stream_events(&mut self) -> StreamEvents {
        self.checkpoints.take_stream_events()
    }
}
