//! What the log has goes into the vBuckets' files, and the log forgets it.
//!
//! A settler is a task, one for each part of the vBuckets. Settling is lazy: a vBucket's turn comes when its oldest change
//! has been in the log for a while, so that a document that changes often is written once. It comes earlier when the
//! log grows too long, or memory is short. A run writes one commit of one file; a vBucket
//! that has more goes to the back of the queue.
//!
//! Invariants:
//! * A vBucket with something to settle is in its settler's queue, once, or in the hands of the settler.
//! * What is being written stays with the vBucket's count, and the log's records of it stay, until all of it is in the
//!   file. What could not be written goes back in front of what came meanwhile.
//! * One thread settles a vBucket at a time: who holds the lock of its [`Settler`]. No vBucket is locked over a commit.

mod batch;
mod pace;
mod whole;

use crate::bucket::{Bucket, Phase};
use crate::counters::Total;
use crate::error::BucketError;
use crate::tasks::{Sleeper, Work};
use batch::Begun;
use kedge_executor::Next;
use kedge_storage::StorageError;
use kedge_types::VbId;
use pace::{GAP, Pressure, Rests};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// Pause after something could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// A vBucket in the queue of its settler.
#[derive(Debug)]
struct Due {
    vb: VbId,
    /// When the oldest change came that is to be settled.
    since_ns: u64,
    /// What of it was begun.
    begun: Option<Begun>,
}

/// What a settler works on. The front of the queue has waited longest.
#[derive(Debug, Default)]
pub(crate) struct Settler {
    queue: VecDeque<Due>,
    /// The last attempt failed, and that was said.
    failing: bool,
    /// So many vBuckets in a row were in the way.
    in_the_way: usize,
    /// How long it rested within the last commit.
    rested: Duration,
}

/// A settler, and the way to it.
#[derive(Debug, Default)]
pub(crate) struct SettleShard {
    /// vBuckets that are to go into the queue, and since when they wait.
    new: Mutex<Vec<(VbId, u64)>>,
    settler: Mutex<Settler>,
    /// So many wait for it.
    waiting: AtomicUsize,
    pub(crate) sleeper: Sleeper,
    /// The [`Pressure`] that it knows of.
    pressed: AtomicU8,
}

impl SettleShard {
    /// The settler, for someone who waits: it does not rest meanwhile.
    fn hold(&self) -> MutexGuard<'_, Settler> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let settler = self.settler.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        settler
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// What came of a turn of a settler.
enum Turn {
    /// Nothing has to be settled now; something may have to after this time.
    Nothing(Option<Duration>),
    /// A commit.
    Settled,
    /// The vBucket cannot be settled yet, and is in the queue again.
    Waits,
    /// Somebody else has the vBucket's file just now; it went to the back of the queue.
    InTheWay,
    /// It did not work; what it was is in the queue again.
    Failed,
}

/// The task.
#[derive(Debug)]
pub(crate) struct SettleTask {
    shard: usize,
}

impl SettleTask {
    pub(crate) fn new(shard: usize) -> Self {
        Self { shard }
    }
}

impl Work for SettleTask {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let shard = &bucket.settlers[self.shard];
        shard.sleeper.get_up();
        loop {
            // Who rolls a vBucket back has it for longer: no thread waits for that.
            let Some(mut settler) = shard.settler.try_lock() else {
                return Next::Snooze(GAP);
            };
            let now_ns = || bucket.setup.clock.now().mono_ns;
            let began_ns = now_ns();
            let turn = bucket.settle_next(shard, &mut settler, false);
            let (queued, rested) = (settler.queue.len(), settler.rested);
            let all_in_the_way = settler.in_the_way >= queued;
            drop(settler);
            match turn {
                Turn::InTheWay if !all_in_the_way => return Next::Again,
                Turn::InTheWay => return Next::Snooze(GAP),
                Turn::Settled => {
                    let took = Duration::from_nanos(now_ns() - began_ns);
                    let worked = took.saturating_sub(rested);
                    return bucket.rest(shard, worked, rested, queued);
                }
                Turn::Waits => return Next::Snooze(GAP),
                Turn::Failed if bucket.phase() == Phase::Failed => return Next::Done,
                Turn::Failed => return Next::Snooze(RETRY),
                Turn::Nothing(rest) => {
                    shard.is_told(Pressure::None);
                    if rest.is_none() {
                        shard.sleeper.lie_down();
                        if !shard.new.lock().is_empty() {
                            shard.sleeper.get_up();
                            continue;
                        }
                    }
                    return rest.map_or(Next::Sleep, Next::Snooze);
                }
            }
        }
    }
}

impl Bucket {
    pub(crate) fn settler_of(&self, vb: VbId) -> &SettleShard {
        &self.settlers[vb.index() % self.settlers.len()]
    }

    /// A vBucket, locked by the caller, has something to settle since `since_ns`.
    pub(crate) fn queue_settle(&self, vb: VbId, since_ns: u64) {
        let shard = self.settler_of(vb);
        shard.new.lock().push((vb, since_ns));
        if self.is_file_wanted(vb) {
            shard.sleeper.rouse();
            if let Some(task) = shard.sleeper.task() {
                self.setup.executor.wake(task);
            }
            return;
        }
        if let Some(task) = shard.sleeper.rouse() {
            let age = Duration::from_millis(self.config().settle_age_ms);
            let executor = &self.setup.executor;
            // No thread is woken before the time has come. One that is still falling asleep sees to it itself.
            if !executor.snooze(task, age) {
                executor.wake(task);
            }
        }
    }

    /// Settles a part of the vBucket that has waited longest, if its time has come, or in any case.
    fn settle_next(&self, shard: &SettleShard, settler: &mut Settler, now: bool) -> Turn {
        let new = std::mem::take(&mut *shard.new.lock());
        settler
            .queue
            .extend(new.into_iter().map(|(vb, since_ns)| Due {
                vb,
                since_ns,
                begun: None,
            }));
        if self.is_any_file_wanted()
            && let Some(wanted) = settler
                .queue
                .iter()
                .position(|due| self.is_file_wanted(due.vb))
            && let Some(due) = settler.queue.remove(wanted)
        {
            return self.settle_due(settler, due, now);
        }
        let Some(front) = settler.queue.front() else {
            return Turn::Nothing(None);
        };
        let mut at = 0;
        if front.begun.is_none() && !now {
            let now_ns = self.setup.clock.now().mono_ns;
            let due_ns = front.since_ns + self.config().settle_age_ms * 1_000_000;
            if now_ns < due_ns && self.pressure() == Pressure::None {
                // What was begun need not wait until the others' time has come.
                match settler.queue.iter().position(|due| due.begun.is_some()) {
                    Some(begun) => at = begun,
                    None => return Turn::Nothing(Some(Duration::from_nanos(due_ns - now_ns))),
                }
            }
        }
        match settler.queue.remove(at) {
            Some(due) => self.settle_due(settler, due, now),
            None => Turn::Nothing(None),
        }
    }

    /// `waits`: for whoever has the vBucket's file.
    fn settle_due(&self, settler: &mut Settler, due: Due, waits: bool) -> Turn {
        let Due {
            vb,
            since_ns,
            begun,
        } = due;
        settler.rested = Duration::ZERO;
        let mut begun = match begun.map_or_else(|| self.begin_settle(vb), Ok) {
            Ok(begun) => begun,
            Err(turn) => return turn,
        };
        let mut rests = Rests::new(self, vb, settler.queue.len());
        let settled = self.settle_parts(vb, &mut begun, (!waits).then_some(&mut rests));
        settler.rested = rests.taken;
        if let Err(BucketError::Storage(StorageError::Busy { .. })) = settled {
            settler.in_the_way += 1;
            self.totals.add(Total::SettlesPutOff, 1);
            settler.queue.push_back(Due {
                vb,
                since_ns,
                begun: Some(begun),
            });
            return Turn::InTheWay;
        }
        settler.in_the_way = 0;
        match settled {
            Ok(()) if begun.parts.is_empty() => {
                settler.failing = false;
                self.note_not_stuck(vb);
                self.end_settle(vb, begun, since_ns);
                self.offer_file(vb);
                self.release_log();
                Turn::Settled
            }
            Ok(()) => {
                settler.queue.push_back(Due {
                    vb,
                    since_ns,
                    begun: Some(begun),
                });
                Turn::Settled
            }
            Err(error) => {
                self.end_settle(vb, begun, since_ns);
                self.on_settle_failed(settler, vb, &error);
                Turn::Failed
            }
        }
    }
}
