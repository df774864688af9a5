//! The timing of commits: immediately if a command waits, otherwise after an interval, with an end marker when the log
//! is idle.
//!
//! A bucket with a commit log has one writer. A bucket without one has a writer for each shard of the vBuckets, which
//! commits their files. Each writer is a task. Usually the task commits. A front-end thread commits itself if that
//! delays no other connection of the thread (see [`Writers::request_flush`]), because two wake-ups of threads take
//! about as long as the sync.
//!
//! Invariants:
//! * The task sets `state` to the event that it waits for, and reads the lists afterwards. A thread that adds to a list
//!   reads `state` afterwards. So one of the two sees the other.
//! * While `state` is `RUNNING`, a run is in progress or scheduled and will read all lists, so no thread wakes the
//!   task.

use crate::commit::CommitLog;
use crate::flusher::{CommitOutcome, FileFlusher};
use crate::shared::SharedState;
use kedge_bucket_core::{BucketCore, BucketError, Component};
use std::sync::Arc;
use std::time::Duration;

/// The writers of a bucket: that of the log, or those of the files.
pub struct Writers {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) flusher: Arc<FileFlusher>,
}

impl Component for Writers {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Writers {
    /// Requests a commit for parked commands, at the end of a front-end cycle in which a command was parked. With
    /// `lead`, which requires that no other connection of the thread is delayed, this thread commits itself if the log
    /// is idle. Completions are delivered to the sink. If this thread commits, that happens before the call returns.
    pub fn request_flush(&self, lead: bool) {
        // Commands that wait for a read, or for the memory of other nodes only, do not wait for the log.
        if self.core.is_direct() || self.shared.queues.writers[0].take_waiters() {
            self.write_now(lead);
        }
    }

    /// Requests a commit of all changes so far.
    pub fn write_now(&self, lead: bool) {
        if self.core.is_direct() {
            return self.flusher.request(lead);
        }
        if lead
            && let Some(committer) = self.log.committer.get()
            && let Some(mut committer) = committer.try_lock()
        {
            let result = self.log.commit_batch(&mut committer);
            let (more, was_full) = (committer.has_work(), committer.was_full());
            self.shared.on_commit_result(&result);
            drop(committer);
            if was_full {
                // A command may wait for a change that is left.
                self.shared.queues.on_urgent(&self.core, 0);
            } else if more {
                self.shared.queues.start_interval(&self.core, 0);
            }
            return;
        }
        self.shared.queues.on_urgent(&self.core, 0);
    }

    /// Commits one batch of a writer.
    pub(crate) fn write_batch(&self, lane: usize) -> Result<CommitOutcome, BucketError> {
        if self.core.is_direct() {
            return self.flusher.flush_next(lane);
        }
        let mut committer = self.log.committer()?.lock();
        let result = self.log.commit_batch(&mut committer);
        let more = committer.was_full();
        self.shared.on_commit_result(&result);
        result.map(|items| CommitOutcome { items, more })
    }

    /// Returns the time until the next commit of a writer is due, or `None` if it has no changes.
    pub(crate) fn time_to_next_write(&self, lane: usize) -> Option<Duration> {
        if self.core.is_direct() {
            return self.flusher.time_to_next_flush(lane);
        }
        let queued = self
            .log
            .committer
            .get()
            .is_some_and(|committer| committer.lock().has_work());
        (queued || !self.shared.queues.dirty.is_empty())
            .then(|| Duration::from_millis(self.core.config().log_interval_ms))
    }

    /// Makes all changes so far durable, and returns when they are.
    ///
    /// # Errors
    /// Errors of the log, or of the files in a bucket without a log.
    pub fn sync(&self) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.core.storage()?;
            return self.flusher.flush_all();
        }
        self.log.commit_all(&mut self.log.committer()?.lock())
    }
}
