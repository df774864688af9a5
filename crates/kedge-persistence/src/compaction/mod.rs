//! Compaction of the vBuckets' files, concurrent with all other work.
//!
//! Requests come from clients and from the check of changed files. Each puts a vBucket into a queue. A task compacts
//! one file, and then starts the next compaction. The settings choose the pool of new tasks: `auxio`, with the throttle
//! that protects commit latency, or `writer`, without a throttle, for comparison.
//!
//! Invariants:
//! * The number of concurrent compactions is at most the limit in the settings. Each has a task of its own.
//! * A compaction that failed, or was preempted by another operation on the file, is retried after a pause. A cancelled
//!   one is not. Tickets report a failure immediately.
//! * When [`Compactions::cancel_all`] returns, no compaction is queued, the tickets of the queued ones have their result,
//!   and the running ones have been told to stop.

pub(crate) mod changed;
mod check;
pub(crate) mod clients;
mod policy;
mod queue;
mod run;
pub(crate) mod throttle;
mod ticket;

pub(crate) use check::CompactionCheck;
pub use ticket::{CompactionReport, CompactionTicket};

use crate::applier::LogApplier;
use crate::kinds::{COMPACTION, COMPACTION_ON_WRITER};
use crate::reserve::CompactionReserve;
use crate::shared::SharedState;
use kedge_bucket_core::{
    BucketCore, BucketPhase, CompactionConfig, CompactionPool, Component, Total,
};
use kedge_executor::{Executor, Next, Pool, Task, TaskContext, TaskKind, TaskSpec};
use kedge_storage::{CompactionFigures, StorageError, ThrottleSignal};
use kedge_sync::{RankedMutex, ranks::CompactionQueue as CompactionQueueRank};
use kedge_types::{Seqno, Status, VbId};
use queue::{CompactionJob, CompactionQueue, PurgeOptions, QueuedCompaction};
use run::CompactionOutcome;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use ticket::TicketEvent;

/// A request for a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The vBuckets to compact, or `None` for all.
    pub vbuckets: Option<Vec<VbId>>,
    /// Tombstones of deletes before this Unix time, in seconds, are purged in addition to those that are older than the
    /// purge age.
    pub purge_before_secs: Option<u32>,
    /// Only tombstones up to this seqno are purged.
    pub purge_before_seqno: Option<Seqno>,
    /// All tombstones are purged.
    pub drop_deletes: bool,
}

/// The progress of the compaction of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionProgress {
    /// The vBucket.
    pub vb: VbId,
    /// True if the compaction has a task. Otherwise it is queued.
    pub is_running: bool,
    /// The figures of a compaction that has started to read the file.
    pub figures: Option<CompactionFigures>,
}

/// The task that compacts one file.
struct CompactionTask {
    compactions: Arc<Compactions>,
    /// The job, until it ends.
    job: Option<CompactionJob>,
    is_throttled: bool,
    began: bool,
}

impl Task for CompactionTask {
    fn run(&mut self, _: &TaskContext<'_>) -> Next {
        self.began = true;
        if let Some(job) = &self.job {
            let (vb, purge) = (job.vb, &job.request.purge);
            if job.request.is_automatic {
                self.compactions.note_backlog(vb);
            }
            let outcome = self
                .compactions
                .compact_file(vb, purge, &job.cancel, self.is_throttled);
            if let Some(job) = self.job.take() {
                self.compactions.end_compaction(job, &outcome);
            }
            self.compactions.begin_queued();
        }
        Next::Done
    }
}

impl Drop for CompactionTask {
    fn drop(&mut self) {
        // The task panicked, or the bucket closed before it ran. The tickets must not wait forever.
        let Some(job) = self.job.take() else {
            return;
        };
        if self.began {
            self.compactions
                .core
                .totals
                .add(Total::CompactionFailures, 1);
        }
        self.compactions
            .end_compaction(job, &CompactionOutcome::Cancelled);
    }
}

/// The compactions of a bucket's files.
pub struct Compactions {
    /// The component itself, which tasks keep and which is started by callers that only borrow it.
    this: Weak<Self>,
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    applier: Arc<LogApplier>,
    queue: RankedMutex<CompactionQueueRank, CompactionQueue>,
    reserve: CompactionReserve,
}

impl Component for Compactions {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Compactions {
    pub(crate) fn new(shared: &Arc<SharedState>, applier: &Arc<LogApplier>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            applier: Arc::clone(applier),
            queue: RankedMutex::default(),
            reserve: CompactionReserve::default(),
        })
    }

    /// Requests a compaction. It starts immediately, or when earlier ones have ended.
    ///
    /// # Errors
    /// `NotMyVbucket` if the bucket does not have one of the vBuckets; `TemporaryFailure` while the bucket is loading,
    /// and after it was closed.
    pub fn compact(&self, request: &CompactionRequest) -> Result<CompactionTicket, Status> {
        let vbuckets = self.checked_vbuckets(request.vbuckets.as_deref())?;
        if self.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let ticket = CompactionTicket::new(vbuckets.len());
        let purge = PurgeOptions {
            purge_before_secs: request.purge_before_secs,
            purge_before_seqno: request.purge_before_seqno,
            drop_deletes: request.drop_deletes,
        };
        let mut queue = self.queue.lock();
        for vb in vbuckets {
            let request = QueuedCompaction {
                purge,
                tickets: vec![ticket.clone()],
                is_automatic: false,
            };
            queue.enqueue(vb, request);
        }
        drop(queue);
        self.begin_queued();
        Ok(ticket)
    }

    /// Removes vBuckets (all if `None`) from the queue, and stops their running compactions. Returns the number of
    /// vBuckets concerned. A running compaction may end a little later; its tickets report the end.
    ///
    /// # Errors
    /// `NotMyVbucket` if the bucket does not have one of the vBuckets.
    pub fn cancel(&self, vbuckets: Option<&[VbId]>) -> Result<usize, Status> {
        let vbuckets = self.checked_vbuckets(vbuckets)?;
        let mut cancelled = 0;
        let mut tickets = Vec::new();
        let mut queue = self.queue.lock();
        for vb in vbuckets {
            let (mut queued, any) = queue.cancel(vb);
            tickets.append(&mut queued);
            cancelled += usize::from(any);
        }
        drop(queue);
        self.wake_paused();
        for ticket in tickets {
            ticket.on_vbucket_end(TicketEvent::Cancelled);
        }
        Ok(cancelled)
    }

    /// Returns the vBuckets that are being compacted or are queued.
    #[must_use]
    pub fn progress(&self) -> Vec<CompactionProgress> {
        let vbuckets = self.queue.lock().vbuckets();
        let storage = self.core.storage.get();
        let figures = |vb| storage.and_then(|storage| storage.compaction(vb));
        vbuckets
            .into_iter()
            .map(|(vb, is_running)| CompactionProgress {
                vb,
                is_running,
                figures: figures(vb).filter(|_| is_running),
            })
            .collect()
    }

    fn checked_vbuckets(&self, vbuckets: Option<&[VbId]>) -> Result<BTreeSet<VbId>, Status> {
        let all = self.core.vbucket_count();
        let Some(vbuckets) = vbuckets else {
            return Ok((0..all).map(VbId).collect());
        };
        let are_known = vbuckets.iter().all(|vb| vb.get() < all);
        let wanted = are_known.then(|| vbuckets.iter().copied().collect());
        wanted.ok_or(Status::NotMyVbucket)
    }

    /// Applies changed settings.
    pub fn on_config(&self, config: &CompactionConfig) {
        if self.shared.compaction_throttle.set(config.throttle) {
            self.wake_paused();
        }
        // With the new limits, more files may be due, and more compactions may run.
        (0..self.core.vbucket_count())
            .for_each(|vb| self.shared.changed_files.on_changed(VbId(vb)));
        self.begin_queued();
    }

    /// Starts queued compactions up to the limit.
    pub(crate) fn begin_queued(&self) {
        // `None` while the component is being dropped.
        let Some(compactions) = self.this.upgrade() else {
            return;
        };
        loop {
            if !matches!(self.core.phase(), BucketPhase::Loading | BucketPhase::Open) {
                return self.cancel_all();
            }
            let config = self.core.config().compaction;
            let limit = self.concurrency_limit(&config);
            let now_ns = self.core.setup.clock.now().mono_ns;
            let Some(job) = self.queue.lock().next(now_ns, limit) else {
                return;
            };
            let kind: &'static TaskKind = match config.pool {
                CompactionPool::Auxio => &COMPACTION,
                CompactionPool::Writer => &COMPACTION_ON_WRITER,
            };
            let spec = TaskSpec {
                description: format!("compacts the file of vBucket {}", job.vb).into(),
                ..TaskSpec::new(kind, self.core.owner)
            };
            let task = CompactionTask {
                compactions: Arc::clone(&compactions),
                job: Some(job),
                is_throttled: config.pool == CompactionPool::Auxio,
                began: false,
            };
            // A rejected task is dropped, which ends its job.
            if self.core.setup.executor.schedule(spec, task).is_err() {
                return;
            }
        }
    }

    fn concurrency_limit(&self, config: &CompactionConfig) -> usize {
        match config.max_concurrent {
            0 => automatic_limit(
                &self.core.setup.executor,
                self.shared.apply_queues.shards.len(),
            ),
            wanted => usize::from(wanted),
        }
    }

    /// Ends a compaction: reports the result to its tickets, and queues a retry if one may help.
    fn end_compaction(&self, job: CompactionJob, outcome: &CompactionOutcome) {
        let CompactionJob {
            vb,
            request,
            cancel,
        } = job;
        let now_ns = self.core.setup.clock.now().mono_ns;
        let QueuedCompaction {
            purge,
            tickets,
            is_automatic,
        } = request;
        let event = match outcome {
            CompactionOutcome::Compacted { done, expired } => TicketEvent::Compacted {
                done,
                expired: *expired,
            },
            CompactionOutcome::NoFile => TicketEvent::NoFile,
            CompactionOutcome::Cancelled => {
                self.core.totals.add(Total::CompactionsCancelled, 1);
                TicketEvent::Cancelled
            }
            CompactionOutcome::Preempted => {
                self.core.totals.add(Total::CompactionsCancelled, 1);
                let request = QueuedCompaction {
                    purge,
                    tickets,
                    is_automatic,
                };
                self.queue.lock().retry(vb, request, now_ns, false);
                return self.wake_check();
            }
            CompactionOutcome::Failed(error) => {
                let is_wanted = !cancel.load(Ordering::Relaxed);
                let again = QueuedCompaction {
                    purge,
                    tickets: Vec::new(),
                    is_automatic,
                };
                self.on_compaction_failed(vb, again, is_wanted, now_ns, error);
                TicketEvent::Failed(error)
            }
        };
        if !matches!(outcome, CompactionOutcome::Failed(_)) {
            self.queue.lock().end(vb);
        }
        for ticket in tickets {
            ticket.on_vbucket_end(event);
        }
    }

    fn on_compaction_failed(
        &self,
        vb: VbId,
        request: QueuedCompaction,
        is_wanted: bool,
        now_ns: u64,
        error: &StorageError,
    ) {
        self.core.totals.add(Total::CompactionFailures, 1);
        if error.is_fatal() {
            self.queue.lock().end(vb);
            return self.core.fail(&error.to_string());
        }
        if !is_wanted {
            return self.queue.lock().end(vb);
        }
        let mut queue = self.queue.lock();
        let pause_ns = queue.retry(vb, request, now_ns, true);
        drop(queue);
        tracing::error!(
            bucket = self.core.name(),
            vbucket = %vb,
            %error,
            retry_secs = pause_ns / 1_000_000_000,
            "the compaction of a vBucket's file failed: the file is unchanged, and the compaction will be retried"
        );
        self.wake_check();
    }

    /// Has the task `compaction_check` examine all files soon.
    pub(crate) fn examine_all(&self) {
        self.shared.changed_files.add_all();
        self.wake_check();
    }

    /// Wakes the task `compaction_check`, which starts retries.
    fn wake_check(&self) {
        if let Some(task) = self.shared.changed_files.parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// Cancels all compactions.
    pub fn cancel_all(&self) {
        // Only unknown vBuckets cause an error.
        let _ = self.cancel(None);
    }

    /// Returns the pause after reading that many bytes of a file for a new copy on another node, or after receiving them for a
    /// new copy here, in nanoseconds. Compactions and new copies share the throttle, because the same clients suffer from both.
    #[must_use]
    pub fn copy_pause(&self, bytes: u64, now_ns: u64) -> u64 {
        self.shared.compaction_throttle.on_bytes(bytes, now_ns)
    }

    /// Returns the rate of the throttle in bytes per second; `None` without a throttle.
    #[must_use]
    pub fn throttle_rate(&self) -> Option<u64> {
        let rate = self.shared.compaction_throttle.figures().bytes_per_sec;
        (rate > 0).then_some(rate)
    }

    /// Calls `each` with the statistics of the throttle that are text.
    pub fn throttle_stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let last = self.shared.compaction_throttle.figures().last_slowdown;
        let last = last.map_or("none", ThrottleSignal::name);
        each("ep_compaction_last_slowdown", last);
    }

    pub(crate) fn gauges(&self) -> [(&'static str, u64); 12] {
        let queue = self.queue.lock();
        let (queued, running) = (queue.queued() as u64, queue.running() as u64);
        drop(queue);
        let throttle = self.shared.compaction_throttle.figures();
        let usual_us = |signal| throttle.undisturbed_us[signal].unwrap_or(0);
        [
            ("ep_compactions_queued", queued),
            ("ep_compactions_running", running),
            ("ep_compaction_bytes_per_sec", throttle.bytes_per_sec),
            (
                "ep_compaction_bytes_per_sec_min",
                throttle.bytes_per_sec_min,
            ),
            (
                "ep_compaction_undisturbed_us",
                usual_us(ThrottleSignal::Commits),
            ),
            (
                "ep_compaction_undisturbed_read_us",
                usual_us(ThrottleSignal::Reads),
            ),
            (
                "ep_compaction_undisturbed_processor_us",
                usual_us(ThrottleSignal::Processor),
            ),
            ("ep_compaction_slowed_down", throttle.slowed_down.sum()),
            (
                "ep_compaction_slowed_down_by_reads",
                throttle.slowed_down[ThrottleSignal::Reads],
            ),
            (
                "ep_compaction_slowed_down_by_processor",
                throttle.slowed_down[ThrottleSignal::Processor],
            ),
            ("ep_compaction_paused_ms", throttle.paused_ns / 1_000_000),
            ("ep_compaction_reserve_bytes", self.reserve.bytes()),
        ]
    }
}

/// Returns the number of concurrent compactions if the settings do not give one. Source: couchstore file format,
/// section 11.
fn automatic_limit(executor: &Executor, shards: usize) -> usize {
    let pools = executor.pools();
    let threads = |pool| {
        let info = pools.iter().find(|info| info.pool == pool);
        info.map_or(0, |info| info.threads)
    };
    limit_of(threads(Pool::Writer), threads(Pool::AuxIo), shards)
}

fn limit_of(writers: usize, auxio: usize, shards: usize) -> usize {
    let half = writers.min(shards).min(auxio) / 2;
    half.min(auxio.saturating_sub(1)).max(1)
}

#[cfg(test)]
mod tests;
