//! Warmup: documents come from the files into memory, while commands run already or before.
//!
//! What has to be known before anything can be answered is read by `recover`. Here come the documents, as far as they
//! fit below the low watermark. If all of them will fit, one look at each file brings them. If not, and keys stay in
//! memory, first the keys of all files come; then the nodes of the files' trees that tell where documents are, as far as
//! there is memory for them; then the documents that were asked for most, as the access log says; then the others in the
//! order of the files. What is not in memory yet is fetched when a command asks for it.
//!
//! Invariants:
//! * A vBucket is told once that its file was read to the end, by the job that did so. Until then any miss may be on
//!   disk, and no key leaves memory; after a failure it stays so.
//! * A job is done by one worker, a part at a time; nothing is locked while a file is read.

mod job;
mod progress;

use crate::residency::Residency;
use crate::tasks::WARMUP_DOCUMENTS;
use job::{Job, Running};
use kedge_bucket_core::BucketError;
use kedge_bucket_core::EvictionPolicy;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::WarmupBehavior;
use kedge_bucket_core::{add_task, share_out};
use kedge_executor::Next;
use kedge_sync::{
    RankedMutex,
    ranks::{Vbucket, WarmupJobs},
};
use kedge_types::VbId;
use kedge_vbucket::{ITEM_OVERHEAD_BYTES, VBucket};
use progress::Progress;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// So many vBuckets are read at a time.
const WORKERS: usize = 4;
/// A run of a worker; then other work of its pool has its turn.
const SLICE: Duration = Duration::from_millis(25);
/// Another worker finds out what there is to do, or has to end first; so long until the next look.
const WAITING: Duration = Duration::from_millis(5);
/// A document's slot in a hash table that grows by doubling takes about so many bytes.
const SLOT_BYTES_LIKELY: u64 = 16;
/// A compressed value is likely to grow by this when it is read.
const GROWTH: u64 = 2;

/// Where warmup is, by the names that operators of this kind of server know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Initialise = 0,
    KeyDump = 1,
    LoadingAccessLog = 2,
    LoadingKvPairs = 3,
    LoadingData = 4,
    Done = 5,
}

impl Stage {
    const ALL: [Self; 6] = [
        Self::Initialise,
        Self::KeyDump,
        Self::LoadingAccessLog,
        Self::LoadingKvPairs,
        Self::LoadingData,
        Self::Done,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Initialise => "initialize",
            Self::KeyDump => "loading keys",
            Self::LoadingAccessLog => "loading access log",
            Self::LoadingKvPairs => "loading k/v pairs",
            Self::LoadingData => "loading data",
            Self::Done => "done",
        }
    }
}

/// What warmup has done, and what is left of it.
#[derive(Debug, Default)]
pub(crate) struct Warmup {
    /// `None` until someone has found out what there is to do.
    jobs: RankedMutex<WarmupJobs, Option<Jobs>>,
    stage: AtomicU8,
    /// Workers that have not ended.
    workers: AtomicUsize,
    began_ns: AtomicU64,
    keys_us: AtomicU64,
    took_us: AtomicU64,
    /// Documents of the files and of the log.
    pub(super) estimated: AtomicU64,
    /// Bytes that are being put into memory.
    pub(super) reserved: AtomicU64,
    pub(super) keys: AtomicU64,
    pub(super) values: AtomicU64,
    /// Documents of the access log that were loaded.
    pub(super) hot: AtomicU64,
    failures: AtomicU64,
    /// Documents of the access log that are to be loaded.
    hot_planned: AtomicU64,
    progress: Progress,
}

/// What there is to do: rounds, each of which begins when the one before it has ended.
#[derive(Debug, Default)]
struct Jobs {
    rounds: VecDeque<VecDeque<Job>>,
    /// Jobs of the first round that are being done.
    running: usize,
}

/// What a worker does next.
enum Turn {
    Job(Job),
    /// Others have to end first.
    Wait,
    Nothing,
}

impl Jobs {
    fn new(rounds: impl IntoIterator<Item = VecDeque<Job>>) -> Self {
        let rounds = rounds.into_iter().filter(|round| !round.is_empty());
        Self {
            rounds: rounds.collect(),
            running: 0,
        }
    }

    fn take(&mut self) -> Turn {
        while let Some(round) = self.rounds.front_mut() {
            if let Some(job) = round.pop_front() {
                self.running += 1;
                return Turn::Job(job);
            }
            if self.running > 0 {
                return Turn::Wait;
            }
            self.rounds.pop_front();
        }
        Turn::Nothing
    }
}

/// The access log goes through the vBuckets once for each band. What is asked for most is not to miss its place in memory
/// because a worker was slow: so each band is a round.
fn hot_rounds(blocks: impl Iterator<Item = (VbId, Vec<Box<[u8]>>)>) -> Vec<VecDeque<Job>> {
    let mut rounds: Vec<VecDeque<Job>> = Vec::new();
    let mut last = None;
    for (vb, keys) in blocks {
        if last.is_none_or(|last| vb < last) {
            rounds.push(VecDeque::new());
        }
        last = Some(vb);
        if let Some(round) = rounds.last_mut() {
            round.push_back(Job::Hot(vb, keys));
        }
    }
    rounds
}

/// What came of a part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    Wait,
    Nothing,
}

impl Warmup {
    /// A job was done, or given up.
    fn end_job(&self) {
        if let Some(jobs) = &mut *self.jobs.lock() {
            jobs.running -= 1;
        }
    }

    fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed)).min(Stage::ALL.len() - 1)]
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stage() == Stage::Done
    }
}

/// The task: one of several that share the work.
#[derive(Debug, Default)]
pub(crate) struct LoadDocuments {
    running: Option<Running>,
}

impl TaskBody<Residency> for LoadDocuments {
    fn run(&mut self, residency: &Residency, _: Duration) -> Next {
        let warmup = &residency.warmup;
        if let Some(mut jobs) = warmup.jobs.try_lock() {
            if jobs.is_none() {
                *jobs = Some(residency.plan_warmup());
            }
        } else {
            return Next::Snooze(WAITING);
        }
        let now_ns = || residency.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        loop {
            match residency.warm_step(&mut self.running) {
                Ok(Step::More) => {}
                Ok(Step::Wait) => return Next::Snooze(WAITING),
                Ok(Step::Nothing) => {
                    residency.end_worker();
                    return Next::Done;
                }
                Err((vb, error)) => residency.on_warmup_failed(vb, &error),
            }
            if now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl Residency {
    /// Reads documents into memory before the bucket opens, if it is to wait for that.
    pub fn load_documents(self: &Arc<Self>) -> Result<(), BucketError> {
        let now_ns = self.core.setup.clock.now().mono_ns;
        self.warmup.began_ns.store(now_ns, Ordering::Relaxed);
        if self.core.config().memory.warmup_behavior != WarmupBehavior::Blocking {
            return Ok(());
        }
        let jobs = self.plan_warmup();
        let rounds: Vec<usize> = jobs.rounds.iter().map(VecDeque::len).collect();
        *self.warmup.jobs.lock() = Some(jobs);
        for jobs in rounds {
            share_out(self, jobs, |residency, _| residency.do_a_job())?;
        }
        self.end_warmup();
        Ok(())
    }

    /// Does one job to its end. What cannot be read is left to who asks for it.
    fn do_a_job(&self) -> Result<(), BucketError> {
        let mut running = None;
        loop {
            if let Err((vb, error)) = self.warm_step(&mut running) {
                self.on_warmup_failed(vb, &error);
            }
            if running.is_none() {
                return Ok(());
            }
            self.core.check_loading()?;
        }
    }

    /// Begins to read documents into memory beside the commands, unless that was done.
    pub fn begin_warmup(self: &Arc<Self>) {
        if self.warmup.is_done() {
            return;
        }
        let workers = WORKERS.min(self.core.vbuckets.len());
        self.warmup.workers.store(workers, Ordering::SeqCst);
        for _ in 0..workers {
            let does = "reads documents from the vBuckets' files into memory";
            match add_task(self, &WARMUP_DOCUMENTS, does, LoadDocuments::default()) {
                Ok(task) => {
                    self.core.setup.executor.wake(task);
                }
                // It ends just now, or has too many tasks: the others do the work.
                Err(error) => {
                    tracing::warn!(bucket = self.core.name(), %error, "a task of the warmup was refused");
                    self.end_worker();
                }
            }
        }
    }

    /// Whether documents are still being read into memory.
    #[must_use]
    pub fn is_warming(&self) -> bool {
        !self.warmup.is_done()
    }

    /// A part of a job.
    fn warm_step(&self, running: &mut Option<Running>) -> Result<Step, (VbId, BucketError)> {
        let warmup = &self.warmup;
        if running.is_none() {
            let turn = warmup
                .jobs
                .lock()
                .as_mut()
                .map_or(Turn::Nothing, Jobs::take);
            let next = match turn {
                Turn::Job(next) => next,
                Turn::Wait => return Ok(Step::Wait),
                Turn::Nothing => return Ok(Step::Nothing),
            };
            self.note_stage(&next);
            let vb = next.vb();
            let begun = self.begin_job(next);
            if !matches!(begun, Ok(Some(_))) {
                warmup.end_job();
            }
            *running = begun.map_err(|error| (vb, error))?;
        }
        let Some(current) = running else {
            return Ok(Step::More);
        };
        let vb = current.vb();
        let stepped = current.step(self);
        if !matches!(stepped, Ok(true)) {
            *running = None;
            warmup.end_job();
        }
        stepped.map_err(|error| (vb, error))?;
        self.say_progress();
        Ok(Step::More)
    }

    /// Finds out what there is to do.
    fn plan_warmup(&self) -> Jobs {
        let readable = |vb: &VbId| !self.is_quarantined(*vb);
        let vbuckets = || (0..self.core.vbucket_count()).map(VbId).filter(readable);
        let each = |job: fn(VbId) -> Job| vbuckets().map(job).collect();
        let (documents, bytes) = self.estimate();
        self.warmup.estimated.store(documents, Ordering::Relaxed);
        // What the log has brought is in memory already.
        let from_log =
            vbuckets().map(|vb| self.core.vbuckets[vb.index()].lock().table().documents());
        let from_log = from_log.sum::<usize>() as u64;
        self.warmup.keys.store(from_log, Ordering::Relaxed);
        self.warmup.values.store(from_log, Ordering::Relaxed);
        let fits = self.core.quota.below_low() / (bytes / documents.max(1)).max(1);
        // There is a log if not all was in memory the last time.
        let hot = self.read_access_log(fits);
        if hot.is_empty() && bytes <= self.core.quota.below_low() {
            return Jobs::new([each(Job::Documents)]);
        }
        let hot: Vec<_> = hot.into_iter().filter(|(vb, _)| readable(vb)).collect();
        let keys_of_log = hot.iter().map(|(_, keys)| keys.len() as u64).sum();
        self.warmup
            .hot_planned
            .store(keys_of_log, Ordering::Relaxed);
        let hot = hot_rounds(hot.into_iter());
        let (keys, rest) = match self.core.config().eviction_policy {
            EvictionPolicy::ValueOnly => (each(Job::Keys), each(Job::Values)),
            EvictionPolicy::FullEviction => (VecDeque::new(), each(Job::Documents)),
        };
        let first = [keys, each(Job::Places)].into_iter();
        Jobs::new(first.chain(hot).chain([rest]))
    }

    /// Documents of the files, and bytes that they are likely to take in memory.
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

    fn note_stage(&self, job: &Job) {
        let stage = match job {
            Job::Places(_) => Stage::Initialise,
            Job::Keys(_) => Stage::KeyDump,
            Job::Hot(..) => Stage::LoadingAccessLog,
            Job::Documents(_) => Stage::LoadingKvPairs,
            Job::Values(_) => Stage::LoadingData,
        };
        let warmup = &self.warmup;
        let before = warmup.stage.fetch_max(stage as u8, Ordering::Relaxed);
        if before >= stage as u8 {
            return;
        }
        if before == Stage::KeyDump as u8 {
            warmup.keys_us.store(self.warming_us(), Ordering::Relaxed);
        }
        self.begin_stage(stage);
        tracing::info!(
            bucket = self.core.name(),
            stage = stage.name(),
            documents = warmup.estimated.load(Ordering::Relaxed),
            "documents are being read into memory"
        );
    }

    /// vBuckets of whose files not all was looked at: a command for what is not in memory looks there.
    fn count_cold(&self) -> usize {
        let is_cold = |vbucket: &&RankedMutex<Vbucket, VBucket>| {
            let vbucket = vbucket.lock();
            !vbucket.documents().is_warm() && !vbucket.is_quarantined()
        };
        self.core.vbuckets.iter().filter(is_cold).count()
    }

    /// "running" or "complete", as operators of this kind of server know it.
    pub fn warmup_thread(&self) -> &'static str {
        if self.core.is_loading() || self.is_warming() {
            "running"
        } else {
            "complete"
        }
    }

    fn warming_us(&self) -> u64 {
        let began_ns = self.warmup.began_ns.load(Ordering::Relaxed);
        let now_ns = self.core.setup.clock.now().mono_ns;
        now_ns.saturating_sub(began_ns) / 1_000
    }

    fn on_warmup_failed(&self, vb: VbId, error: &BucketError) {
        self.warmup.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            bucket = self.core.name(),
            vbucket = %vb,
            %error,
            "documents of the vBucket are not read into memory; those that are asked for will be fetched"
        );
    }

    fn end_worker(&self) {
        if self.warmup.workers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_warmup();
        }
    }

    fn end_warmup(&self) {
        let warmup = &self.warmup;
        let took_us = self.warming_us();
        warmup.took_us.store(took_us, Ordering::Relaxed);
        warmup.stage.store(Stage::Done as u8, Ordering::Relaxed);
        tracing::info!(
            bucket = self.core.name(),
            keys = warmup.keys.load(Ordering::Relaxed),
            values = warmup.values.load(Ordering::Relaxed),
            failures = warmup.failures.load(Ordering::Relaxed),
            ms = took_us / 1_000,
            "the bucket is warm"
        );
    }

    /// Gives the statistics of the group `warmup` to `each`, a name and a value at a time.
    pub fn warmup_stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let warmup = &self.warmup;
        let stage = warmup.stage();
        each("ep_warmup", "enabled");
        each("ep_warmup_state", stage.name());
        each("ep_warmup_thread", self.warmup_thread());
        let behavior = self.core.config().memory.warmup_behavior.name();
        each("ep_warmup_behavior", behavior);
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
        for (name, count) in warmup.figures() {
            each(name, &count.to_string());
        }
        each("ep_warmup_access_log", &of(&warmup.hot));
        each("ep_warmup_estimated_value_count", &of(&warmup.estimated));
        each("ep_warmup_failures", &of(&warmup.failures));
        each("ep_warmup_cold_vbuckets", &self.count_cold().to_string());
        each("ep_warmup_keys_time", &of(&warmup.keys_us));
        let time_us = match stage {
            Stage::Done => warmup.took_us.load(Ordering::Relaxed),
            _ => self.warming_us(),
        };
        each("ep_warmup_time", &time_us.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_band_of_the_access_log_is_a_round() {
        let block = |vb| (VbId(vb), Vec::new());
        let of = |blocks: &[u16]| -> Vec<Vec<u16>> {
            let rounds = hot_rounds(blocks.iter().copied().map(block));
            let vbuckets = |round: &VecDeque<Job>| round.iter().map(|job| job.vb().get()).collect();
            rounds.iter().map(vbuckets).collect()
        };
        assert_eq!(of(&[]), Vec::<Vec<u16>>::new());
        // More than one block of a vBucket in a band, and bands without some vBuckets.
        let rounds = of(&[0, 1, 1, 3, 1, 2, 0]);
        assert_eq!(rounds, [vec![0, 1, 1, 3], vec![1, 2], vec![0]]);
    }
}
