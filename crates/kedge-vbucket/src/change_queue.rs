//! The changes of a vBucket in their order, and who reads them: the log and streams.
//!
//! Invariant: while changes wait that the log has not written, it was told, or is told with the effects of a step. Commits
//! that nobody waits for are the exception: [`AfterLog::CommitsOnly`] says so once.

use crate::checkpoint::{Change, CheckpointFigures, Checkpoints, CursorId, Position};
use crate::cursors::{CursorGone, CursorOpening, ReleasedChanges, StreamCursor, StreamEvents};
use kedge_types::Seqno;

/// The changes that still wait for the log when a part of them was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLog {
    /// None.
    Nothing,
    /// Only commits of what was just written. Nobody waits for these: they go with the next change of the vBucket,
    /// which is one of its [`crate::StepEffects`], or after a while by themselves.
    CommitsOnly,
    /// Changes that came meanwhile: the vBucket stays queued.
    More,
}

/// Checkpoints and cursors of a vBucket.
#[derive(Debug)]
pub struct ChangeQueue {
    pub(crate) checkpoints: Checkpoints,
    log_cursor: CursorId,
    queued_for_log: bool,
    /// Up to here only commits wait for the log, and nobody waits for them.
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

    /// Queues a change that replaced the document or tombstone at `replaced`; 0: none.
    pub(crate) fn push_over(&mut self, change: Change, replaced: Seqno) {
        self.checkpoints.push_over(change, replaced);
    }

    /// The number of changes that wait for the log.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.checkpoints.unread(self.log_cursor)
    }

    /// Number of the open checkpoint.
    #[must_use]
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoints.open_id()
    }

    /// The checkpoints, and how far they were read; `high` is the vBucket's last seqno.
    #[must_use]
    pub fn figures(&self, high: Seqno) -> CheckpointFigures {
        self.checkpoints.figures(self.log_cursor, high)
    }

    /// Copies changes that the log has not written yet to `out`, in seqno order. Returns where they end; bounded as in
    /// [`Checkpoints::peek`].
    pub fn for_log(&self, max: usize, max_bytes: usize, out: &mut Vec<Change>) -> Position {
        self.checkpoints.peek(self.log_cursor, max, max_bytes, out)
    }

    /// Returns whether changes wait that the log was not told of, which it is now: true once for every time the queue
    /// fills.
    pub fn take_newly_queued(&mut self) -> bool {
        !self.queued_for_log && self.has_more() && {
            self.queued_for_log = true;
            true
        }
    }

    /// Returns whether the log has to be told that changes wait. Commits that nobody waits for are no reason.
    pub(crate) fn take_newly_dirty(&mut self) -> bool {
        !self.queued_for_log
            && self.checkpoints.end_position() > self.lazy_upto
            && self.take_newly_queued()
    }

    /// Someone waits for what is queued for the log.
    pub(crate) fn expect_log(&mut self) {
        self.lazy_upto = Position::default();
    }

    pub(crate) fn has_more(&self) -> bool {
        self.checkpoints.has_more(self.log_cursor)
    }

    /// The log has written a part. `more`: others waited already before commits of what was written came.
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

    /// Opens a stream's cursor for the changes behind `after`; `high` is the vBucket's last seqno.
    pub(crate) fn open_cursor(&mut self, after: Seqno, high: Seqno) -> CursorOpening {
        self.checkpoints.open_reader(after, high)
    }

    /// Copies the next changes to `out`, and moves the cursor behind them: at most `max`, and no more than `max_bytes`
    /// unless the first alone is larger. Changes that the log has not read yet stay for the log. Returns their bytes.
    ///
    /// # Errors
    /// [`CursorGone`] when it was dropped.
    pub fn read_cursor(
        &mut self,
        cursor: StreamCursor,
        max: usize,
        max_bytes: usize,
        out: &mut Vec<Change>,
    ) -> Result<usize, CursorGone> {
        self.checkpoints.read(cursor, max, max_bytes, out)
    }

    /// The number of changes that the cursor has not read; 0 when it was dropped.
    #[must_use]
    pub fn cursor_remaining(&self, cursor: StreamCursor) -> usize {
        self.checkpoints.remaining(cursor)
    }

    /// The stream needs no cursor any more. Nothing happens when it was dropped already.
    pub fn close_cursor(&mut self, cursor: StreamCursor) -> ReleasedChanges {
        self.checkpoints.close_reader(cursor)
    }

    /// Bytes of changes that only cursors of streams keep in memory.
    #[must_use]
    pub fn cursor_bytes(&self) -> usize {
        self.checkpoints.bytes_for_streams()
    }

    /// Drops the cursors that are behind all others, if they keep changes in memory.
    pub fn drop_slowest_cursors(&mut self) -> ReleasedChanges {
        if self.cursor_bytes() == 0 {
            return ReleasedChanges::default();
        }
        self.checkpoints.drop_slowest_readers()
    }

    /// A stream has read all there is: the effects of a step are to say when more comes.
    pub fn wait_for_changes(&mut self) {
        self.checkpoints.await_more();
    }

    /// The events for streams since the last call.
    pub(crate) fn take_stream_events(&mut self) -> StreamEvents {
        self.checkpoints.take_stream_events()
    }
}
