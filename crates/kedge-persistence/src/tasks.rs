//! The tasks of persistence.

use crate::applier::ApplyTask;
use crate::commit_task::CommitTask;
use crate::compaction::CompactionCheck;
use crate::encryption::EncryptionTask;
use crate::kinds::{APPLY, COMPACTION_CHECK, ENCRYPTION_KEYS, FLUSH, LOG_COMMIT, LOG_SEGMENT};
use crate::persistence::Persistence;
use crate::segments::LogSegmentTask;
use kedge_bucket_core::{BucketError, add_task};
use std::sync::Arc;

impl Persistence {
    /// Starts the tasks that make changes durable, and those that apply the log to the files.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn start_writers(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        let (kind, description) = if self.core.is_direct() {
            (&FLUSH, "flushes changes to the vBuckets' files")
        } else {
            (&LOG_COMMIT, "appends changes to the log, and syncs it")
        };
        for (lane, writer) in self.shared.queues.writers.iter().enumerate() {
            let task = add_task(&self.writers, kind, description, CommitTask::new(lane))?;
            writer.set_task(task);
            executor.wake(task);
        }
        if self.core.is_direct() {
            return Ok(());
        }
        for (shard, applier) in self.shared.apply_queues.shards.iter().enumerate() {
            let description = "applies the log to the vBuckets' files";
            let task = add_task(&self.applier, &APPLY, description, ApplyTask::new(shard))?;
            applier.parker.set_task(task);
            executor.wake(task);
        }
        Ok(())
    }

    /// Starts the tasks that maintain the log and the files.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn start_maintenance(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.core.setup.executor;
        if !self.core.is_direct() {
            let description = "preallocates log segments";
            let task = add_task(&self.writers.log, &LOG_SEGMENT, description, LogSegmentTask)?;
            self.shared.log_space.parker.set_task(task);
            executor.snooze(task, LogSegmentTask::FIRST_RUN);
        }
        let description = "checks changed files for garbage";
        let task = add_task(
            &self.compactions,
            &COMPACTION_CHECK,
            description,
            CompactionCheck,
        )?;
        self.shared.changed_files.parker.set_task(task);
        self.shared.changed_files.add_all();
        executor.snooze(task, CompactionCheck::FIRST_RUN);
        if self.core.setup.keyring.is_some() {
            let description = "renews the keys of encryption, and what they protect";
            let body = EncryptionTask::default();
            let task = add_task(&self.encryption, &ENCRYPTION_KEYS, description, body)?;
            self.shared.encryption.parker.set_task(task);
            executor.wake(task);
        }
        self.make_durable_in_background();
        Ok(())
    }
}
