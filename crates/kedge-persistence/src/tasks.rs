//! The tasks of persistence.

use crate::applier::ApplyTask;
use crate::compaction::CompactionLook;
use crate::persistence::Persistence;
use crate::segments::LogSegment;
use crate::writer::CommitTask;
use kedge_bucket_core::{BucketError, add_task};
use kedge_executor::{Pool, Priority, TaskKind};
use std::sync::Arc;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Group commit. A run is one append and one sync.
pub(crate) static LOG_COMMIT: TaskKind =
    TaskKind::new("log_commit", Pool::Writer, Priority::High, ms(500));
/// Without a log: commits of vBuckets' files. A run is as many as commands wait for.
pub(crate) static FLUSH: TaskKind = TaskKind::new("flush", Pool::Writer, Priority::High, ms(500));
/// The log is applied to the vBuckets' files. A run is one commit.
pub(crate) static APPLY: TaskKind =
    TaskKind::new("log_apply", Pool::Writer, Priority::Normal, ms(500));
/// A log segment made ready, or removed. A run is a step.
pub(crate) static LOG_SEGMENT: TaskKind =
    TaskKind::new("log_segment", Pool::AuxIo, Priority::Normal, ms(500));
/// Files that the process before wrote are made durable.
pub(crate) static MAKE_DURABLE: TaskKind =
    TaskKind::new("make_durable", Pool::AuxIo, Priority::Normal, ms(5_000));
/// A vBucket goes back to an earlier seqno. A run is all of it.
pub(crate) static ROLLBACK: TaskKind =
    TaskKind::new("rollback", Pool::AuxIo, Priority::Normal, ms(60_000));
/// A vBucket's file is compacted. A run is all of it.
pub(crate) static COMPACTION: TaskKind =
    TaskKind::new("compaction", Pool::AuxIo, Priority::Low, ms(600_000));
/// The same where commits are made.
pub(crate) static COMPACTION_ON_WRITER: TaskKind = TaskKind::new(
    "compaction_on_writer",
    Pool::Writer,
    Priority::Low,
    ms(600_000),
);
/// A look at files that changed.
pub(crate) static COMPACTION_LOOK: TaskKind =
    TaskKind::new("compaction_look", Pool::AuxIo, Priority::Normal, ms(1_000));

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
        for (lane, writer) in self.queues.writers.iter().enumerate() {
            let task = add_task(self, kind, does, CommitTask::new(lane))?;
            writer.set_task(task);
            executor.wake(task);
        }
        if self.core.is_direct() {
            return Ok(());
        }
        for (shard, applier) in self.appliers.iter().enumerate() {
            let does = "applies the log to the vBuckets' files";
            let task = add_task(self, &APPLY, does, ApplyTask::new(shard))?;
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
            let task = add_task(self, &LOG_SEGMENT, does, LogSegment)?;
            self.segments.set_task(task);
            executor.snooze(task, LogSegment::FIRST_LOOK);
        }
        self.compactions.set_persistence(self);
        let does = "looks at files that changed for what a compaction would give back";
        let task = add_task(self, &COMPACTION_LOOK, does, CompactionLook)?;
        self.compactions.parker.set_task(task);
        self.mark_all_files();
        executor.snooze(task, CompactionLook::FIRST);
        self.make_durable_behind();
        Ok(())
    }
}
