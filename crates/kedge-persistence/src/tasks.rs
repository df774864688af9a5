//! The tasks of persistence.

use crate::applier::ApplyTask;
use crate::commit_task::CommitTask;
use crate::compaction::CompactionLook;
use crate::kinds::{APPLY, COMPACTION_LOOK, FLUSH, LOG_COMMIT, LOG_SEGMENT};
use crate::persistence::Persistence;
use crate::segments::LogSegment;
use kedge_bucket_core::{BucketError, add_task};
use std::sync::Arc;

impl Persistence {
    /// Begins the tasks that make changes durable, and those that apply them to the files.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn begin_writers(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        let (kind, does) = if self.core.is_direct() {
            (&FLUSH, "commits what waits for the vBuckets' files")
        } else {
            (&LOG_COMMIT, "appends what waits for the log, and syncs")
        };
        for (lane, writer) in self.shared.queues.writers.iter().enumerate() {
            let task = add_task(&self.writers, kind, does, CommitTask::new(lane))?;
            writer.set_task(task);
            executor.wake(task);
        }
        if self.core.is_direct() {
            return Ok(());
        }
        for (shard, applier) in self.shared.apply_queues.shards.iter().enumerate() {
            let does = "applies the log to the vBuckets' files";
            let task = add_task(&self.applier, &APPLY, does, ApplyTask::new(shard))?;
            applier.parker.set_task(task);
            executor.wake(task);
        }
        Ok(())
    }

    /// Begins the tasks that keep log and files in shape.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn begin_maintenance(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        if !self.core.is_direct() {
            let does = "makes the next log segment ready";
            let task = add_task(&self.writers.log, &LOG_SEGMENT, does, LogSegment)?;
            self.shared.log_space.parker.set_task(task);
            executor.snooze(task, LogSegment::FIRST_LOOK);
        }
        let does = "looks at files that changed for what a compaction would give back";
        let task = add_task(&self.compactions, &COMPACTION_LOOK, does, CompactionLook)?;
        self.shared.changed_files.parker.set_task(task);
        self.shared.changed_files.mark_all();
        executor.snooze(task, CompactionLook::FIRST);
        self.make_durable_behind();
        Ok(())
    }
}
