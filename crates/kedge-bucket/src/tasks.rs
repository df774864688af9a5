//! The bucket's work on the executor: its kinds of tasks, and what all of them share.
//!
//! Invariants:
//! * All tasks of a bucket belong to its owner: [`Bucket::shutdown`] unregisters it, and none is left.
//! * A task that panics ends the bucket: one that goes on without its log writer would acknowledge nothing and say
//!   nothing.

use crate::access_log::AccessScanner;
use crate::applier::ApplyTask;
use crate::bucket::{Bucket, Phase};
use crate::compaction::CompactionLook;
use crate::compressor::ItemCompressor;
use crate::dcp::CursorMemory;
use crate::dropped::DroppedSweep;
use crate::error::BucketError;
use crate::fetch::Fetcher;
use crate::memory_queue::AdmitWrites;
use crate::pager::ItemPager;
use crate::scans::RangeScans;
use crate::segments::LogSegment;
use crate::sweep::ExpirySweep;
use crate::timeouts::DurabilityTimeout;
use crate::writer::CommitTask;
use kedge_executor::{Context, Kind, Next, Pool, Priority, Task, TaskId, TaskSpec};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Group commit. A run is one append and one sync.
pub(crate) static LOG_COMMIT: Kind = Kind::new("log_commit", Pool::Writer, Priority::High, ms(500));
/// Without a log: commits of vBuckets' files. A run is as many as someone waits for.
pub(crate) static FLUSH: Kind = Kind::new("flush", Pool::Writer, Priority::High, ms(500));
/// What the log has goes into the vBuckets' files. A run is one commit.
pub(crate) static APPLY: Kind = Kind::new("log_apply", Pool::Writer, Priority::Normal, ms(500));
/// Time-outs of parked commands.
pub(crate) static DURABILITY_TIMEOUT: Kind =
    Kind::new("durability_timeout", Pool::NonIo, Priority::High, ms(100));
/// Documents that expired, and tombstones that are old enough.
pub(crate) static EXPIRY_SWEEP: Kind =
    Kind::new("expiry_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents of dropped collections leave memory.
pub(crate) static DROPPED_SWEEP: Kind =
    Kind::new("dropped_sweep", Pool::NonIo, Priority::Low, ms(100));
/// A log segment made ready, or removed. A run is a step.
pub(crate) static LOG_SEGMENT: Kind =
    Kind::new("log_segment", Pool::AuxIo, Priority::Normal, ms(500));
/// Files and log read at the start. Long, but all clients wait for it, and the threads for long work stand back.
pub(crate) static WARMUP: Kind = Kind::new("warmup", Pool::Reader, Priority::High, ms(60_000));
/// Help with it.
pub(crate) static LOAD: Kind = Kind::new("load", Pool::Reader, Priority::High, ms(60_000));
/// Documents that commands wait for are read. A run is at least one look at a file.
pub(crate) static BG_FETCH: Kind = Kind::new("bg_fetch", Pool::Reader, Priority::High, ms(250));
/// Writes that waited for memory go on.
pub(crate) static HELD_WRITES: Kind =
    Kind::new("memory_admission", Pool::NonIo, Priority::High, ms(100));
/// What is seldom asked for leaves memory.
pub(crate) static ITEM_PAGER: Kind =
    Kind::new("item_pager", Pool::NonIo, Priority::Normal, ms(100));
/// Values are compressed in memory. A run is a chunk.
pub(crate) static ITEM_COMPRESSOR: Kind =
    Kind::new("item_compressor", Pool::NonIo, Priority::Low, ms(100));
/// What is in memory is written down for the next start. A run is a slice.
pub(crate) static ACCESS_SCANNER: Kind =
    Kind::new("access_scanner", Pool::AuxIo, Priority::Low, ms(500));
/// Documents are read into memory beside the commands. A run is a slice.
pub(crate) static WARMUP_DOCUMENTS: Kind =
    Kind::new("warmup_documents", Pool::AuxIo, Priority::Normal, ms(500));
/// What a process before has left in files is made durable.
pub(crate) static MAKE_DURABLE: Kind =
    Kind::new("make_durable", Pool::AuxIo, Priority::Normal, ms(5_000));

/// A vBucket goes back to an earlier seqno. A run is all of it.
pub(crate) static ROLLBACK: Kind = Kind::new("rollback", Pool::AuxIo, Priority::Normal, ms(60_000));
/// A vBucket was deleted: the log hears of it, its documents and its file go.
pub(crate) static VBUCKET_DELETION: Kind =
    Kind::new("vbucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The bucket is emptied. A run is all of it.
pub(crate) static BUCKET_FLUSH: Kind =
    Kind::new("bucket_flush", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The directory of a bucket that was dropped goes. A run is all of it.
pub(crate) static BUCKET_DELETION: Kind =
    Kind::new("bucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// A vBucket is given another state. A run is a sync.
pub(crate) static VBUCKET_STATE: Kind =
    Kind::new("vbucket_state", Pool::Writer, Priority::Normal, ms(500));

/// Files are read for streams of a connection. A run is a slice.
pub(crate) static DCP_BACKFILL: Kind =
    Kind::new("dcp_backfill", Pool::AuxIo, Priority::Normal, ms(500));
/// Files are read for range scans. A run is a slice.
pub(crate) static RANGE_SCAN: Kind =
    Kind::new("range_scan", Pool::Reader, Priority::Normal, ms(500));

/// The slowest cursors of streams are dropped.
pub(crate) static DCP_CURSORS: Kind =
    Kind::new("dcp_cursors", Pool::NonIo, Priority::Normal, ms(100));

/// A vBucket's file is compacted. A run is all of it.
pub(crate) static COMPACTION: Kind =
    Kind::new("compaction", Pool::AuxIo, Priority::Low, ms(600_000));
/// The same where commits are made.
pub(crate) static COMPACTION_ON_WRITER: Kind = Kind::new(
    "compaction_on_writer",
    Pool::Writer,
    Priority::Low,
    ms(600_000),
);
/// A look at files that changed.
pub(crate) static COMPACTION_LOOK: Kind =
    Kind::new("compaction_look", Pool::AuxIo, Priority::Normal, ms(1_000));

/// What one of the bucket's lasting tasks does in a run.
pub(crate) trait TaskBody: Send + 'static {
    /// Runs once, at `now` of the executor's clock.
    fn run(&mut self, bucket: &Bucket, now: Duration) -> Next;
}

/// [`TaskBody`] as a task: it ends with its bucket, and its panic ends the bucket.
struct BucketTask<W> {
    bucket: Arc<Bucket>,
    kind: &'static Kind,
    work: W,
}

impl<W: TaskBody> Task for BucketTask<W> {
    fn run(&mut self, context: &Context<'_>) -> Next {
        if !matches!(self.bucket.phase(), Phase::Loading | Phase::Open) {
            return Next::Done;
        }
        let run = AssertUnwindSafe(|| self.work.run(&self.bucket, context.now()));
        catch_unwind(run).unwrap_or_else(|panic| {
            self.bucket
                .fail(&format!("the task {} panicked", self.kind.name()));
            // The executor counts it, and drops the task.
            resume_unwind(panic)
        })
    }
}

/// The way to a task that sleeps until there is work for it.
///
/// Who makes work does so, and then calls [`Parker::unpark`]; the task calls [`Parker::park`], and then looks for
/// work once more. So one of the two sees the other, and no work is left lying.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    task: OnceLock<TaskId>,
    asleep: AtomicBool,
}

impl Parker {
    /// To be known before the task runs first.
    pub(crate) fn set_task(&self, task: TaskId) {
        // Tasks begin once.
        let _ = self.task.set(task);
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        self.task.get().copied()
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// The task, once for each time that it lay down: the caller makes it run.
    pub(crate) fn unpark(&self) -> Option<TaskId> {
        let was_asleep = self.is_asleep() && self.asleep.swap(false, Ordering::SeqCst);
        was_asleep.then(|| self.task()).flatten()
    }

    pub(crate) fn park(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// The task found work after it lay down, or its time to look has come.
    pub(crate) fn clear(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

impl Bucket {
    /// Begins the tasks that last as long as the bucket is open.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.setup.executor;
        self.begin_writers()?;
        self.begin_residency()?;
        let task = self.add(
            &DURABILITY_TIMEOUT,
            "ends parked commands whose time is up",
            DurabilityTimeout,
        )?;
        self.timeouts.set_task(task);
        executor.wake(task);
        let task = self.add(
            &EXPIRY_SWEEP,
            "lets go of expired documents and old tombstones",
            ExpirySweep::default(),
        )?;
        self.sweeper.set_task(task);
        executor.wake(task);
        let does = "lets go of documents of dropped collections";
        let task = self.add(&DROPPED_SWEEP, does, DroppedSweep::default())?;
        self.collections.sweeper.set_task(task);
        executor.wake(task);
        if !self.is_direct() {
            let task = self.add(&LOG_SEGMENT, "makes the next log segment ready", LogSegment)?;
            self.segments.set_task(task);
            executor.snooze(task, LogSegment::FIRST_LOOK);
        }
        self.compactions.set_bucket(self);
        let does = "looks at files that changed for what a compaction would give back";
        let task = self.add(&COMPACTION_LOOK, does, CompactionLook)?;
        self.compactions.parker.set_task(task);
        self.mark_all_files();
        executor.snooze(task, CompactionLook::FIRST);
        self.make_durable_behind();
        Ok(())
    }

    /// Begins the tasks that bring documents into memory when they are asked for, and let them go.
    fn begin_residency(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.setup.executor;
        for (number, lane) in self.fetches.lanes().iter().enumerate() {
            let does = "reads documents that commands wait for";
            let task = self.add(&BG_FETCH, does, Fetcher::new(number))?;
            lane.parker.set_task(task);
            executor.wake(task);
        }
        for (number, lane) in self.scans.lanes().iter().enumerate() {
            let does = "reads files for range scans";
            let task = self.add(&RANGE_SCAN, does, RangeScans::new(number))?;
            lane.parker.set_task(task);
            executor.wake(task);
        }
        let does = "lets writes go on that waited for memory";
        let task = self.add(&HELD_WRITES, does, AdmitWrites)?;
        self.memory_queue.parker.set_task(task);
        executor.wake(task);
        let does = "lets go of what is seldom asked for when memory is short";
        let task = self.add(&ITEM_PAGER, does, ItemPager::default())?;
        self.pager.parker.set_task(task);
        executor.wake(task);
        let does = "bounds what streams keep in memory";
        let task = self.add(&DCP_CURSORS, does, CursorMemory)?;
        self.dcp.cursors.set_task(task);
        executor.wake(task);
        let does = "compresses values in memory";
        let task = self.add(&ITEM_COMPRESSOR, does, ItemCompressor::default())?;
        self.compressor.set_task(task);
        executor.wake(task);
        let does = "writes down which keys are in memory";
        let task = self.add(&ACCESS_SCANNER, does, AccessScanner::default())?;
        self.access_scanner.set_task(task);
        executor.wake(task);
        Ok(())
    }

    /// Begins the tasks that make changes durable, and those that bring them into the files.
    fn begin_writers(self: &Arc<Self>) -> Result<(), BucketError> {
        let executor = &self.setup.executor;
        let (kind, does) = if self.is_direct() {
            (&FLUSH, "commits what waits for the vBuckets' files")
        } else {
            (&LOG_COMMIT, "appends what waits for the log, and syncs")
        };
        for (lane, writer) in self.writers.iter().enumerate() {
            let task = self.add(kind, does, CommitTask::new(lane))?;
            writer.set_task(task);
            executor.wake(task);
        }
        if self.is_direct() {
            return Ok(());
        }
        for (shard, applier) in self.appliers.iter().enumerate() {
            let does = "brings what the log has into the vBuckets' files";
            let task = self.add(&APPLY, does, ApplyTask::new(shard))?;
            applier.parker.set_task(task);
            executor.wake(task);
        }
        Ok(())
    }

    /// Adds a task that sleeps until it is woken: so its id is known before it runs.
    pub(crate) fn add(
        self: &Arc<Self>,
        kind: &'static Kind,
        description: &'static str,
        work: impl TaskBody,
    ) -> Result<TaskId, BucketError> {
        let spec = TaskSpec {
            description: description.into(),
            first_run: None,
            ..TaskSpec::new(kind, self.owner)
        };
        let task = BucketTask {
            bucket: Arc::clone(self),
            kind,
            work,
        };
        Ok(self.setup.executor.schedule(spec, task)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lies_down_is_roused_once() {
        let (executor, manual) = kedge_executor::Manual::new();
        let owner = executor.register("test").unwrap();
        let spec = TaskSpec {
            first_run: None,
            ..TaskSpec::new(&EXPIRY_SWEEP, owner)
        };
        let task = executor
            .schedule(spec, |_: &Context<'_>| Next::Sleep)
            .unwrap();
        let parker = Parker::default();
        parker.set_task(task);
        assert_eq!(parker.unpark(), None, "it is about to run");
        parker.park();
        assert_eq!(parker.unpark(), Some(task));
        assert_eq!(parker.unpark(), None);
        parker.park();
        parker.clear();
        assert_eq!(parker.unpark(), None);
        assert_eq!(manual.run_ready(), 0);
    }
}
