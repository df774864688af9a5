//! What the log has goes into the vBuckets' files, and the log forgets it.
//!
//! An applier is a task, one for each part of the vBuckets. Applying is lazy: a vBucket's turn comes when its oldest change
//! has been in the log for a while, so that a document that changes often is written once. It comes earlier when the
//! log grows too long, or memory is short. A run writes one commit of one file; a vBucket
//! that has more goes to the back of the queue.
//!
//! Invariants:
//! * A vBucket with something to apply is in its applier's queue, once, or in the hands of the applier.
//! * What is being written stays with the vBucket's count, and the log's records of it stay, until all of it is in the
//!   file. What could not be written goes back in front of what came meanwhile.
//! * One thread applies a vBucket at a time: who holds the lock of its [`Applier`]. No vBucket is locked over a commit.

mod batch;
mod drain;
pub(crate) mod queues;
mod throttle;

use crate::shared::SharedState;
use crate::writers::Writers;
use batch::PartialApply;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Phase;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Total;
use kedge_bucket_core::{BucketCore, BucketError, Component};
use kedge_executor::Next;
use kedge_storage::StorageError;
use kedge_sync::{RankedMutex, ranks::LogApplier as LogApplierRank};
use kedge_types::VbId;
use queues::{ApplierShard, ApplyPressure, COMMIT_GAP};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use throttle::CommitThrottle;

/// Pause after something could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// A vBucket in the queue of its applier.
#[derive(Debug)]
struct QueuedApply {
    vb: VbId,
    /// When the oldest change came that is to be applied.
    since_ns: u64,
    /// What of it was partial.
    partial: Option<PartialApply>,
}

/// The work of an applier. The front of the queue has waited longest.
#[derive(Debug, Default)]
pub(crate) struct Applier {
    queue: VecDeque<QueuedApply>,
    /// The last attempt failed, and that was said.
    failing: bool,
    /// So many vBuckets in a row were in the way.
    busy_files: usize,
    /// How long it paused within the last commit.
    paused: Duration,
}

/// The outcome of a turn of an applier.
enum ApplyOutcome {
    /// Nothing has to be applied now; something may have to after this time.
    Idle(Option<Duration>),
    /// A commit.
    Applied,
    /// The vBucket cannot be applied yet, and is in the queue again.
    NotReady,
    /// Somebody else has the vBucket's file just now; it went to the back of the queue.
    FileBusy,
    /// It did not work; what it was is in the queue again.
    Failed,
}

/// The task.
#[derive(Debug)]
pub(crate) struct ApplyTask {
    shard: usize,
}

impl ApplyTask {
    pub(crate) fn new(shard: usize) -> Self {
        Self { shard }
    }
}

impl TaskBody<LogApplier> for ApplyTask {
    fn run(&mut self, component: &LogApplier, _: Duration) -> Next {
        let shard = &component.shared.apply_queues.shards[self.shard];
        shard.parker.clear();
        loop {
            // Who rolls a vBucket back has it for longer: no thread waits for that.
            let Some(mut work) = component.appliers[self.shard].try_lock() else {
                return Next::Snooze(COMMIT_GAP);
            };
            let now_ns = || component.core.setup.clock.now().mono_ns;
            let start_ns = now_ns();
            let outcome = component.apply_next(shard, &mut work, false);
            let (queued, paused) = (work.queue.len(), work.paused);
            let all_busy = work.busy_files >= queued;
            drop(work);
            match outcome {
                ApplyOutcome::FileBusy if !all_busy => return Next::Again,
                ApplyOutcome::FileBusy => return Next::Snooze(COMMIT_GAP),
                ApplyOutcome::Applied => {
                    let took = Duration::from_nanos(now_ns() - start_ns);
                    let worked = took.saturating_sub(paused);
                    return component
                        .shared
                        .apply_queues
                        .next_run(shard, worked, paused, queued);
                }
                ApplyOutcome::NotReady => return Next::Snooze(COMMIT_GAP),
                ApplyOutcome::Failed if component.core.phase() == Phase::Failed => {
                    return Next::Done;
                }
                ApplyOutcome::Failed => return Next::Snooze(RETRY),
                ApplyOutcome::Idle(rest) => {
                    shard.set_known_pressure(ApplyPressure::Normal);
                    if rest.is_none() {
                        shard.parker.park();
                        if !shard.incoming.lock().is_empty() {
                            shard.parker.clear();
                            continue;
                        }
                    }
                    return rest.map_or(Next::Sleep, Next::Snooze);
                }
            }
        }
    }
}

/// Applies the log to the files of the vBuckets.
pub struct LogApplier {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) writers: Arc<Writers>,
    /// The work of each applier, in the order of the shards of `apply_queues`.
    appliers: Box<[RankedMutex<LogApplierRank, Applier>]>,
}

impl Component for LogApplier {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl LogApplier {
    pub(crate) fn new(writers: &Arc<Writers>) -> Self {
        let shared = &writers.shared;
        Self {
            core: Arc::clone(&shared.core),
            shared: Arc::clone(shared),
            appliers: shared
                .apply_queues
                .shards
                .iter()
                .map(|_| RankedMutex::default())
                .collect(),
            writers: Arc::clone(writers),
        }
    }

    /// Has the changes of a vBucket reach its file soon: a reader waits for that.
    pub fn request_apply(&self, vb: VbId) {
        if self.core.is_direct() {
            self.shared.queues.on_waiting(vb);
            self.writers.flusher.request(false);
            return;
        }
        self.shared.queues.on_urgent(&self.core, 0);
        if let Some(task) = self.shared.apply_queues.shard_of(vb).parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// Applies a part of the vBucket that has waited longest, if its time has come, or in any case.
    fn apply_next(&self, shard: &ApplierShard, applier: &mut Applier, now: bool) -> ApplyOutcome {
        let new = std::mem::take(&mut *shard.incoming.lock());
        applier
            .queue
            .extend(new.into_iter().map(|(vb, since_ns)| QueuedApply {
                vb,
                since_ns,
                partial: None,
            }));
        if self.shared.events.has_file_waiter(None)
            && let Some(wanted) = applier
                .queue
                .iter()
                .position(|due| self.shared.events.has_file_waiter(Some(due.vb)))
            && let Some(due) = applier.queue.remove(wanted)
        {
            return self.apply_queued(applier, due, now);
        }
        let Some(front) = applier.queue.front() else {
            return ApplyOutcome::Idle(None);
        };
        let mut at = 0;
        if front.partial.is_none() && !now {
            let now_ns = self.core.setup.clock.now().mono_ns;
            let due_ns = front.since_ns + self.core.config().apply_max_lag_ms * 1_000_000;
            if now_ns < due_ns && self.shared.apply_queues.pressure() == ApplyPressure::Normal {
                // What was partial need not wait until the others' time has come.
                match applier.queue.iter().position(|due| due.partial.is_some()) {
                    Some(partial) => at = partial,
                    None => return ApplyOutcome::Idle(Some(Duration::from_nanos(due_ns - now_ns))),
                }
            }
        }
        match applier.queue.remove(at) {
            Some(due) => self.apply_queued(applier, due, now),
            None => ApplyOutcome::Idle(None),
        }
    }

    /// `waits`: for whoever has the vBucket's file.
    fn apply_queued(&self, applier: &mut Applier, due: QueuedApply, waits: bool) -> ApplyOutcome {
        let QueuedApply {
            vb,
            since_ns,
            partial,
        } = due;
        applier.paused = Duration::ZERO;
        let mut partial = match partial.map_or_else(|| self.begin_apply(vb), Ok) {
            Ok(partial) => partial,
            Err(outcome) => return outcome,
        };
        let mut throttle = CommitThrottle::new(&self.shared.apply_queues, vb, applier.queue.len());
        let applied = self.apply_parts(vb, &mut partial, (!waits).then_some(&mut throttle));
        applier.paused = throttle.taken;
        if let Err(BucketError::Storage(StorageError::Busy { .. })) = applied {
            applier.busy_files += 1;
            self.core.totals.add(Total::ApplyDeferrals, 1);
            applier.queue.push_back(QueuedApply {
                vb,
                since_ns,
                partial: Some(partial),
            });
            return ApplyOutcome::FileBusy;
        }
        applier.busy_files = 0;
        match applied {
            Ok(()) if partial.parts.is_empty() => {
                applier.failing = false;
                self.shared.stuck.remove(vb);
                self.end_apply(vb, partial, since_ns);
                self.shared.events.file_advanced(vb);
                self.writers.log.truncate();
                ApplyOutcome::Applied
            }
            Ok(()) => {
                applier.queue.push_back(QueuedApply {
                    vb,
                    since_ns,
                    partial: Some(partial),
                });
                ApplyOutcome::Applied
            }
            Err(error) => {
                self.end_apply(vb, partial, since_ns);
                self.on_apply_failed(applier, vb, &error);
                ApplyOutcome::Failed
            }
        }
    }
}
