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
mod throttle;

use crate::persistence::Persistence;
use batch::Begun;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Phase;
use kedge_bucket_core::Total;
use kedge_bucket_core::{Parker, TaskBody};
use kedge_executor::Next;
use kedge_storage::StorageError;
use kedge_sync::{
    RankedMutex, RankedMutexGuard,
    ranks::{ApplierNew, LogApplier},
};
use kedge_types::VbId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use throttle::{CommitThrottle, GAP, Pressure};

/// Pause after something could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// A vBucket in the queue of its applier.
#[derive(Debug)]
struct Due {
    vb: VbId,
    /// When the oldest change came that is to be applied.
    since_ns: u64,
    /// What of it was begun.
    begun: Option<Begun>,
}

/// The work of an applier. The front of the queue has waited longest.
#[derive(Debug, Default)]
pub(crate) struct Applier {
    queue: VecDeque<Due>,
    /// The last attempt failed, and that was said.
    failing: bool,
    /// So many vBuckets in a row were in the way.
    in_the_way: usize,
    /// How long it rested within the last commit.
    rested: Duration,
}

/// An applier, and the way to it.
#[derive(Debug, Default)]
pub(crate) struct ApplierShard {
    /// vBuckets that are to go into the queue, and since when they wait.
    new: RankedMutex<ApplierNew, Vec<(VbId, u64)>>,
    applier: RankedMutex<LogApplier, Applier>,
    /// So many wait for it.
    waiting: AtomicUsize,
    pub(crate) parker: Parker,
    /// The [`Pressure`] that it knows of.
    pressed: AtomicU8,
}

impl ApplierShard {
    /// The applier, for someone who waits: it does not rest meanwhile.
    fn hold(&self) -> RankedMutexGuard<'_, LogApplier, Applier> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let applier = self.applier.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        applier
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// The outcome of a turn of an applier.
enum Turn {
    /// Nothing has to be applied now; something may have to after this time.
    Nothing(Option<Duration>),
    /// A commit.
    Applied,
    /// The vBucket cannot be applied yet, and is in the queue again.
    Waits,
    /// Somebody else has the vBucket's file just now; it went to the back of the queue.
    InTheWay,
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

impl TaskBody<Persistence> for ApplyTask {
    fn run(&mut self, persistence: &Persistence, _: Duration) -> Next {
        let shard = &persistence.appliers[self.shard];
        shard.parker.clear();
        loop {
            // Who rolls a vBucket back has it for longer: no thread waits for that.
            let Some(mut applier) = shard.applier.try_lock() else {
                return Next::Snooze(GAP);
            };
            let now_ns = || persistence.core.setup.clock.now().mono_ns;
            let began_ns = now_ns();
            let turn = persistence.apply_next(shard, &mut applier, false);
            let (queued, rested) = (applier.queue.len(), applier.rested);
            let all_in_the_way = applier.in_the_way >= queued;
            drop(applier);
            match turn {
                Turn::InTheWay if !all_in_the_way => return Next::Again,
                Turn::InTheWay => return Next::Snooze(GAP),
                Turn::Applied => {
                    let took = Duration::from_nanos(now_ns() - began_ns);
                    let worked = took.saturating_sub(rested);
                    return persistence.rest(shard, worked, rested, queued);
                }
                Turn::Waits => return Next::Snooze(GAP),
                Turn::Failed if persistence.core.phase() == Phase::Failed => return Next::Done,
                Turn::Failed => return Next::Snooze(RETRY),
                Turn::Nothing(rest) => {
                    shard.is_told(Pressure::None);
                    if rest.is_none() {
                        shard.parker.park();
                        if !shard.new.lock().is_empty() {
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

impl Persistence {
    /// Has the changes of a vBucket reach its file soon: a reader waits for that.
    pub fn press_for_file(&self, vb: VbId) {
        if self.core.is_direct() {
            self.queues.on_waiting(vb);
            self.request_flushers(false);
            return;
        }
        self.queues.on_urgent(&self.core, 0);
        if let Some(task) = self.applier_of(vb).parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    pub(crate) fn applier_of(&self, vb: VbId) -> &ApplierShard {
        &self.appliers[vb.index() % self.appliers.len()]
    }

    /// A vBucket, locked by the caller, has something to apply since `since_ns`.
    pub(crate) fn queue_apply(&self, vb: VbId, since_ns: u64) {
        let shard = self.applier_of(vb);
        shard.new.lock().push((vb, since_ns));
        if self.is_file_wanted(Some(vb)) {
            shard.parker.unpark();
            if let Some(task) = shard.parker.task() {
                self.core.setup.executor.wake(task);
            }
            return;
        }
        if let Some(task) = shard.parker.unpark() {
            let age = Duration::from_millis(self.core.config().apply_max_lag_ms);
            let executor = &self.core.setup.executor;
            // No thread is woken before the time has come. One that is still falling asleep sees to it itself.
            if !executor.snooze(task, age) {
                executor.wake(task);
            }
        }
    }

    /// Applies a part of the vBucket that has waited longest, if its time has come, or in any case.
    fn apply_next(&self, shard: &ApplierShard, applier: &mut Applier, now: bool) -> Turn {
        let new = std::mem::take(&mut *shard.new.lock());
        applier
            .queue
            .extend(new.into_iter().map(|(vb, since_ns)| Due {
                vb,
                since_ns,
                begun: None,
            }));
        if self.is_file_wanted(None)
            && let Some(wanted) = applier
                .queue
                .iter()
                .position(|due| self.is_file_wanted(Some(due.vb)))
            && let Some(due) = applier.queue.remove(wanted)
        {
            return self.apply_due(applier, due, now);
        }
        let Some(front) = applier.queue.front() else {
            return Turn::Nothing(None);
        };
        let mut at = 0;
        if front.begun.is_none() && !now {
            let now_ns = self.core.setup.clock.now().mono_ns;
            let due_ns = front.since_ns + self.core.config().apply_max_lag_ms * 1_000_000;
            if now_ns < due_ns && self.pressure() == Pressure::None {
                // What was begun need not wait until the others' time has come.
                match applier.queue.iter().position(|due| due.begun.is_some()) {
                    Some(begun) => at = begun,
                    None => return Turn::Nothing(Some(Duration::from_nanos(due_ns - now_ns))),
                }
            }
        }
        match applier.queue.remove(at) {
            Some(due) => self.apply_due(applier, due, now),
            None => Turn::Nothing(None),
        }
    }

    /// `waits`: for whoever has the vBucket's file.
    fn apply_due(&self, applier: &mut Applier, due: Due, waits: bool) -> Turn {
        let Due {
            vb,
            since_ns,
            begun,
        } = due;
        applier.rested = Duration::ZERO;
        let mut begun = match begun.map_or_else(|| self.begin_apply(vb), Ok) {
            Ok(begun) => begun,
            Err(turn) => return turn,
        };
        let mut throttle = CommitThrottle::new(self, vb, applier.queue.len());
        let applied = self.apply_parts(vb, &mut begun, (!waits).then_some(&mut throttle));
        applier.rested = throttle.taken;
        if let Err(BucketError::Storage(StorageError::Busy { .. })) = applied {
            applier.in_the_way += 1;
            self.core.totals.add(Total::ApplyDeferrals, 1);
            applier.queue.push_back(Due {
                vb,
                since_ns,
                begun: Some(begun),
            });
            return Turn::InTheWay;
        }
        applier.in_the_way = 0;
        match applied {
            Ok(()) if begun.parts.is_empty() => {
                applier.failing = false;
                self.note_not_stuck(vb);
                self.end_apply(vb, begun, since_ns);
                self.report_file_advanced(vb);
                self.release_log();
                Turn::Applied
            }
            Ok(()) => {
                applier.queue.push_back(Due {
                    vb,
                    since_ns,
                    begun: Some(begun),
                });
                Turn::Applied
            }
            Err(error) => {
                self.end_apply(vb, begun, since_ns);
                self.on_apply_failed(applier, vb, &error);
                Turn::Failed
            }
        }
    }
}
