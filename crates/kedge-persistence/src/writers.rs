//! When changes are made durable: at once when someone waits, else after an interval, and a mark when all is quiet.
//!
//! With a commit log there is one writer, that of the log; without one, each part of the vBuckets has one, which commits
//! their files. A writer is a task. Usually it commits; a front-end thread does so itself when nobody else of its
//! connections would be held up (see [`Writers::request_flush`]), because waking another thread and being woken by it costs about
//! as much as the sync.
//!
//! Invariants:
//! * `state` says how the task rests, and is set before the lists are looked at; who fills a list looks at the state
//!   after. So one of the two sees the other.
//! * While `state` is `RUNNING` a run is under way or on its way, and looks at everything: nobody wakes the task.

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
    /// To be called at the end of a turn in which a command was parked. With `lead` this thread may commit itself if
    /// the log is idle; it does so when no other connection of the thread would be held up. Completions come through
    /// the sink, before this returns when it led.
    pub fn request_flush(&self, lead: bool) {
        // Who waits for a document to be read, or only for the memory of other nodes, does not wait for the log.
        if self.core.is_direct() || self.shared.queues.writers[0].take_waiters() {
            self.write_now(lead);
        }
    }

    /// Someone waits for what was written by now.
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
                // What is left may be what someone waits for.
                self.shared.queues.on_urgent(&self.core, 0);
            } else if more {
                self.shared.queues.start_interval(&self.core, 0);
            }
            return;
        }
        self.shared.queues.on_urgent(&self.core, 0);
    }

    /// One batch of a writer.
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

    /// How long what waits for a writer may still wait; None when nothing does.
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

    /// Makes everything that was written so far durable before it returns.
    ///
    /// # Errors
    /// Those of the log, or of the files without one.
    pub fn sync(&self) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.core.storage()?;
            return self.flusher.flush_all();
        }
        self.log.commit_all(&mut self.log.committer()?.lock())
    }
}
