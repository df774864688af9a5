//! The workers of warmup.

use super::component::{Warmup, WarmupStage};
use super::jobs::{NextJob, WarmupJob, WarmupPlan, hot_rounds};
use super::running::RunningJob;
use crate::access_log::reader::read_access_log;
use crate::kinds::WARMUP_DOCUMENTS;
use kedge_bucket_core::{
    BucketError, EvictionPolicy, TaskBody, WarmupBehavior, add_task, share_out,
};
use kedge_executor::Next;
use kedge_types::VbId;
use kedge_vbucket::ITEM_OVERHEAD_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// vBuckets that are read at a time.
const WORKERS: usize = 4;
/// Longest time of a run of a worker, after which other tasks of the pool run.
pub(super) const SLICE: Duration = Duration::from_millis(25);
/// Time until the next attempt while another worker plans the jobs, or has to end first.
const WAITING: Duration = Duration::from_millis(5);
/// Bytes that a document's slot in a hash table is likely to take.
const SLOT_BYTES_LIKELY: u64 = 16;
/// Factor by which a compressed value is likely to grow when it is read.
const GROWTH: u64 = 2;

/// The outcome of a part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerStep {
    More,
    Wait,
    Nothing,
}

/// The task: one of several that share the work.
#[derive(Debug, Default)]
struct LoadDocuments {
    running: Option<RunningJob>,
}

impl TaskBody<Warmup> for LoadDocuments {
    fn run(&mut self, warmup: &Warmup, _: Duration) -> Next {
        if let Some(mut jobs) = warmup.jobs.try_lock() {
            if jobs.is_none() {
                *jobs = Some(warmup.plan());
            }
        } else {
            return Next::Snooze(WAITING);
        }
        let now_ns = || warmup.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        loop {
            match warmup.step(&mut self.running) {
                Ok(WorkerStep::More) => {}
                Ok(WorkerStep::Wait) => return Next::Snooze(WAITING),
                Ok(WorkerStep::Nothing) => {
                    warmup.end_worker();
                    return Next::Done;
                }
                Err((vb, error)) => warmup.on_failed(vb, &error),
            }
            if now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl Warmup {
    /// Reads documents into memory before the bucket opens, if the setting `warmup_behavior` is `blocking`.
    pub fn load_documents(self: &Arc<Self>) -> Result<(), BucketError> {
        let now_ns = self.core.setup.clock.now().mono_ns;
        self.began_ns.store(now_ns, Ordering::Relaxed);
        if self.core.config().memory.warmup_behavior != WarmupBehavior::Blocking {
            return Ok(());
        }
        let jobs = self.plan();
        let rounds: Vec<usize> = jobs.rounds.iter().map(VecDeque::len).collect();
        *self.jobs.lock() = Some(jobs);
        for jobs in rounds {
            share_out(self, jobs, |warmup, _| warmup.do_a_job())?;
        }
        self.end_warmup();
        Ok(())
    }

    /// Does one job to its end. A document that cannot be read is left to the commands that ask for it.
    fn do_a_job(&self) -> Result<(), BucketError> {
        let mut running = None;
        loop {
            if let Err((vb, error)) = self.step(&mut running) {
                self.on_failed(vb, &error);
            }
            if running.is_none() {
                return Ok(());
            }
            self.core.check_loading()?;
        }
    }

    /// Begins to read documents into memory while commands run, unless that was done.
    pub fn begin(self: &Arc<Self>) {
        if !self.is_warming() {
            return;
        }
        let workers = WORKERS.min(self.core.vbuckets.len());
        self.workers.store(workers, Ordering::SeqCst);
        for _ in 0..workers {
            let does = "reads documents from the vBuckets' files into memory";
            match add_task(self, &WARMUP_DOCUMENTS, does, LoadDocuments::default()) {
                Ok(task) => {
                    self.core.setup.executor.wake(task);
                }
                // The bucket ends, or has too many tasks: the other workers do the work.
                Err(error) => {
                    tracing::warn!(bucket = self.core.name(), %error, "a task of the warmup was refused");
                    self.end_worker();
                }
            }
        }
    }

    /// Does a part of a job.
    fn step(&self, running: &mut Option<RunningJob>) -> Result<WorkerStep, (VbId, BucketError)> {
        if running.is_none() {
            let next = self.jobs.lock().as_mut().map(WarmupPlan::take);
            let next = match next.unwrap_or(NextJob::Nothing) {
                NextJob::Begin(next) => next,
                NextJob::Wait => return Ok(WorkerStep::Wait),
                NextJob::Nothing => return Ok(WorkerStep::Nothing),
            };
            self.note_stage(&next);
            let vb = next.vb();
            let begun = self.begin_job(next);
            if !matches!(begun, Ok(Some(_))) {
                self.end_job();
            }
            *running = begun.map_err(|error| (vb, error))?;
        }
        let Some(current) = running else {
            return Ok(WorkerStep::More);
        };
        let vb = current.vb();
        let stepped = current.step(self);
        if !matches!(stepped, Ok(true)) {
            *running = None;
            self.end_job();
        }
        stepped.map_err(|error| (vb, error))?;
        self.log_progress();
        Ok(WorkerStep::More)
    }

    /// Plans the jobs.
    fn plan(&self) -> WarmupPlan {
        let readable = |vb: &VbId| !self.core.vbuckets[vb.index()].lock().is_quarantined();
        let vbuckets = || (0..self.core.vbucket_count()).map(VbId).filter(readable);
        let each = |job: fn(VbId) -> WarmupJob| vbuckets().map(job).collect();
        let (documents, bytes) = self.estimate();
        self.estimated.store(documents, Ordering::Relaxed);
        // Documents from the commit log are in memory already.
        let from_log =
            vbuckets().map(|vb| self.core.vbuckets[vb.index()].lock().table().documents());
        let from_log = from_log.sum::<usize>() as u64;
        self.keys.store(from_log, Ordering::Relaxed);
        self.values.store(from_log, Ordering::Relaxed);
        let fits = self.core.quota.below_low() / (bytes / documents.max(1)).max(1);
        // There is an access log if not all documents were in memory the last time.
        let hot = read_access_log(&self.core, fits);
        if hot.is_empty() && bytes <= self.core.quota.below_low() {
            return WarmupPlan::new([each(WarmupJob::Documents)]);
        }
        let hot: Vec<_> = hot.into_iter().filter(|(vb, _)| readable(vb)).collect();
        let keys_of_log = hot.iter().map(|(_, keys)| keys.len() as u64).sum();
        self.hot_planned.store(keys_of_log, Ordering::Relaxed);
        let hot = hot_rounds(hot.into_iter());
        let (keys, rest) = match self.core.config().eviction_policy {
            EvictionPolicy::ValueOnly => (each(WarmupJob::Keys), each(WarmupJob::Values)),
            EvictionPolicy::FullEviction => (VecDeque::new(), each(WarmupJob::Documents)),
        };
        let first = [keys, each(WarmupJob::Places)].into_iter();
        WarmupPlan::new(first.chain(hot).chain([rest]))
    }

    /// Returns the number of documents in the files, and the bytes that they are likely to take in memory.
    fn estimate(&self) -> (u64, u64) {
        let (mut documents, mut bytes) = (0, 0);
        for vb in (0..self.core.vbucket_count()).map(VbId) {
            documents += self.core.vbuckets[vb.index()].lock().documents().count() as u64;
            let figures = self.core.file_figures(vb).ok().flatten();
            bytes += figures.map_or(0, |figures| figures.data_bytes);
        }
        let overhead = ITEM_OVERHEAD_BYTES as u64 + SLOT_BYTES_LIKELY;
        (documents, bytes * GROWTH + documents * overhead)
    }

    fn note_stage(&self, job: &WarmupJob) {
        let stage = match job {
            WarmupJob::Places(_) => WarmupStage::Initialise,
            WarmupJob::Keys(_) => WarmupStage::KeyDump,
            WarmupJob::Hot(..) => WarmupStage::LoadingAccessLog,
            WarmupJob::Documents(_) => WarmupStage::LoadingKvPairs,
            WarmupJob::Values(_) => WarmupStage::LoadingData,
        };
        let before = self.stage.fetch_max(stage as u8, Ordering::Relaxed);
        if before >= stage as u8 {
            return;
        }
        if before == WarmupStage::KeyDump as u8 {
            self.keys_us.store(self.warming_us(), Ordering::Relaxed);
        }
        let expected = match stage {
            WarmupStage::LoadingAccessLog => &self.hot_planned,
            _ => &self.estimated,
        };
        let now_ns = self.core.setup.clock.now().mono_ns;
        self.progress
            .begin(expected.load(Ordering::Relaxed), now_ns);
        tracing::info!(
            bucket = self.core.name(),
            stage = stage.name(),
            documents = self.estimated.load(Ordering::Relaxed),
            "documents are being read into memory"
        );
    }

    pub(super) fn on_failed(&self, vb: VbId, error: &BucketError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            bucket = self.core.name(),
            vbucket = %vb,
            %error,
            "the documents of a vBucket cannot be read into memory; they are fetched when commands need them"
        );
    }

    /// Logs the progress of the stage, if that was not logged for a while.
    fn log_progress(&self) {
        let now_ns = self.core.setup.clock.now().mono_ns;
        if let Some((read, expected)) = self.progress.to_log(now_ns) {
            tracing::info!(
                bucket = self.core.name(),
                stage = self.stage().name(),
                read,
                of = expected,
                percent = (read * 100).checked_div(expected).unwrap_or(100).min(100),
                "documents are still being read into memory"
            );
        }
    }

    /// Counts a job that was done, or given up.
    fn end_job(&self) {
        if let Some(jobs) = &mut *self.jobs.lock() {
            jobs.end_job();
        }
    }

    fn end_worker(&self) {
        if self.workers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_warmup();
        }
    }

    fn end_warmup(&self) {
        let took_us = self.warming_us();
        self.took_us.store(took_us, Ordering::Relaxed);
        self.stage.store(WarmupStage::Done as u8, Ordering::Relaxed);
        tracing::info!(
            bucket = self.core.name(),
            keys = self.keys.load(Ordering::Relaxed),
            values = self.values.load(Ordering::Relaxed),
            failures = self.failures.load(Ordering::Relaxed),
            ms = took_us / 1_000,
            "warmup is complete"
        );
    }
}
