//! The log applier: it writes the changes of the log to the vBuckets' files, so that the log can be truncated.
//!
//! Each shard of the vBuckets has an applier, which is a task. Changes are applied lazily: a vBucket is due when its
//! oldest change has been in the log for `apply_max_lag`, so that a document that changes often is written once. It is
//! due earlier if the log grows too long or memory is short. A run writes one commit of one file. A vBucket with more
//! changes moves to the back of the queue.
//!
//! Invariants:
//! * A vBucket with changes to apply is in its applier's queue once, or is being applied.
//! * Changes that are being written count as unapplied, and their log records are retained, until all of them are in
//!   the file. Changes that could not be written are put back in front of newer ones.
//! * One thread applies a vBucket at a time: the holder of the lock of its [`Applier`]. No vBucket is locked during a
//!   commit.

mod batch;
mod drain;
pub(crate) mod queues;
mod throttle;

use crate::shared::SharedState;
use crate::writers::Writers;
use batch::PartialApply;
use kedge_bucket_core::{
    BucketCore, BucketError, BucketPhase, Component, DiskWriters as _, TaskBody, Total,
};
use kedge_executor::Next;
use kedge_storage::StorageError;
use kedge_sync::{RankedMutex, ranks::LogApplier as LogApplierRank};
use kedge_types::VbId;
use queues::{ApplierShard, ApplyPressure, COMMIT_GAP};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use throttle::CommitThrottle;

/// The pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// An entry in the queue of an applier.
#[derive(Debug)]
struct QueuedApply {
    vb: VbId,
    /// The time of the oldest change to apply, in nanoseconds of the monotonic clock.
    since_ns: u64,
    /// The batch of which some parts are written, if there is one.
    partial: Option<PartialApply>,
}

/// The state of an applier. The front of its queue has the oldest changes.
#[derive(Debug, Default)]
pub(crate) struct Applier {
    queue: VecDeque<QueuedApply>,
    /// True if the last attempt failed and the failure was logged.
    failing: bool,
    /// The error of the last failed attempt.
    last_error: Option<String>,
    /// The number of consecutive vBuckets whose files were in use.
    busy_files: usize,
    /// The total duration of the pauses within the last commit.
    paused: Duration,
}

/// The outcome of a run of an applier.
enum ApplyOutcome {
    /// No vBucket is due. The next one is due after this time, if there is one.
    Idle(Option<Duration>),
    /// A commit was made.
    Applied,
    /// The vBucket cannot be applied yet, and is queued again.
    NotReady,
    /// The vBucket's file is in use. The vBucket moved to the back of the queue.
    FileBusy,
    /// The write failed, and the changes are queued again.
    Failed,
}

/// The task of one applier.
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
            // A rollback holds the applier for longer, so no thread waits for the lock.
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
                ApplyOutcome::Failed if component.core.phase() == BucketPhase::Failed => {
                    return Next::Done;
                }
                ApplyOutcome::Failed => return Next::Snooze(RETRY),
                ApplyOutcome::Idle(delay) => {
                    shard.set_known_pressure(ApplyPressure::Normal);
                    if delay.is_none() {
                        shard.parker.park();
                        if !shard.incoming.lock().is_empty() {
                            shard.parker.clear();
                            continue;
                        }
                    }
                    return delay.map_or(Next::Sleep, Next::Snooze);
                }
            }
        }
    }
}

/// The component that applies the log to the files of the vBuckets.
pub struct LogApplier {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) writers: Arc<Writers>,
    /// The state of each applier, in the order of the shards of `apply_queues`.
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

    /// Requests that the changes of a vBucket are written to its file soon, because a reader waits for them.
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

    /// Applies a part of the vBucket with the oldest changes if it is due, or in any case with `now`.
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
                // A partially written batch continues before other vBuckets are due.
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

    /// Applies a part of a queue entry. With `waits`, waits for a file that is in use.
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
