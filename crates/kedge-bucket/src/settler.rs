//! What the log has goes into the vBuckets' files, and the log forgets it.
//!
//! A settler is a task, one for each part of the vBuckets. Settling is lazy: a vBucket's turn comes when its oldest change
//! has been in the log for a while, so that a document that changes often is written once. It comes earlier when the
//! log grows too long, or memory is short that only older versions take. A run writes one commit of one file; a vBucket
//! that has more goes to the back of the queue.
//!
//! Invariants:
//! * A vBucket with something to settle is in its settler's queue, once, or in the hands of the settler.
//! * What is being written stays with the vBucket's count, and the log's records of it stay, until all of it is in the
//!   file. What could not be written goes back in front of what came meanwhile.
//! * One thread settles a vBucket at a time: who holds the lock of its [`Settler`]. No vBucket is locked over a commit.

use crate::bucket::{Bucket, Phase};
use crate::counters::Total;
use crate::error::BucketError;
use crate::floor::has_work;
use crate::tasks::{MAKE_DURABLE, Sleeper, Work};
use crate::timings::Timing;
use kedge_executor::Next;
use kedge_storage::{Committed, Storage, StorageError};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{PersistedState, Settle, SettleBatch};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause after something could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// vBuckets whose time has come are settled no closer together than this, unless it is urgent: so the syncs of many
/// files do not come all at once.
const GAP_MAX: Duration = Duration::from_millis(10);
/// Settling begins at this part of `log_bytes_max`, so that the log stays below while it goes on.
const LOG_RATIO: f64 = 0.75;

/// A vBucket in the queue of its settler.
#[derive(Debug)]
struct Due {
    vb: VbId,
    /// When the oldest change came that is to be settled.
    since_ns: u64,
    /// What of it was begun.
    begun: Option<Begun>,
}

/// A batch of which not all parts are written.
#[derive(Debug)]
struct Begun {
    batch: SettleBatch,
    parts: VecDeque<PartPlan>,
    /// The file of an earlier history has to go first.
    replace: bool,
}

/// One commit of the file.
#[derive(Debug)]
struct PartPlan {
    items: Range<usize>,
    state: PersistedState,
    upto: Seqno,
}

impl Begun {
    fn new(mut batch: SettleBatch, max_items: usize, max_bytes: usize) -> Self {
        let replace = batch.replaces_file();
        let mut at = 0;
        let parts = batch
            .parts(max_items, max_bytes)
            .map(|part| {
                let from = at;
                at += part.items.len();
                PartPlan {
                    items: from..at,
                    state: part.state,
                    upto: part.upto,
                }
            })
            .collect();
        Self {
            batch,
            parts,
            replace,
        }
    }
}

/// What a settler works on. The front of the queue has waited longest.
#[derive(Debug, Default)]
pub(crate) struct Settler {
    queue: VecDeque<Due>,
    /// The last attempt failed, and that was said.
    failing: bool,
    /// So many vBuckets in a row were in the way.
    in_the_way: usize,
}

/// A settler, and the way to it.
#[derive(Debug, Default)]
pub(crate) struct SettleShard {
    /// vBuckets that are to go into the queue, and since when they wait.
    new: Mutex<Vec<(VbId, u64)>>,
    settler: Mutex<Settler>,
    pub(crate) sleeper: Sleeper,
    /// It was woken because it is urgent.
    pressed: AtomicBool,
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
                return Next::Snooze(GAP_MAX);
            };
            let turn = bucket.settle_next(shard, &mut settler, false);
            let queued = settler.queue.len();
            let all_in_the_way = settler.in_the_way >= queued;
            drop(settler);
            match turn {
                Turn::InTheWay if !all_in_the_way => return Next::Again,
                Turn::InTheWay => return Next::Snooze(GAP_MAX),
                Turn::Settled => {
                    // Who finds it urgent during the gap wakes the task.
                    shard.pressed.store(false, Ordering::SeqCst);
                    return bucket.gap(queued);
                }
                Turn::Waits => return Next::Snooze(GAP_MAX),
                Turn::Failed if bucket.phase() == Phase::Failed => return Next::Done,
                Turn::Failed => return Next::Snooze(RETRY),
                Turn::Nothing(rest) => {
                    shard.pressed.store(false, Ordering::SeqCst);
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
        if let Some(task) = shard.sleeper.rouse() {
            let age = Duration::from_millis(self.config().settle_age_ms);
            let executor = &self.setup.executor;
            // No thread is woken before the time has come. One that is still falling asleep sees to it itself.
            if !executor.snooze(task, age) {
                executor.wake(task);
            }
        }
    }

    /// The log has grown: wakes the settlers when they have to begin early.
    pub(crate) fn look_at_pressure(&self) {
        if !self.is_settling_urgent() {
            return;
        }
        for shard in &self.settlers {
            if !shard.pressed.swap(true, Ordering::SeqCst)
                && let Some(task) = shard.sleeper.task()
            {
                self.setup.executor.wake(task);
            }
        }
    }

    /// Whether the log is too long, or memory too short for what waits to be settled.
    fn is_settling_urgent(&self) -> bool {
        let limit = (self.config().log_bytes_max as f64 * LOG_RATIO) as u64;
        self.floor.needed_bytes(limit) > limit
            || self.quota.is_short_of_settling()
            || self.is_room_wanted()
    }

    /// How long a settler rests between two vBuckets whose time has come.
    fn gap(&self, queued: usize) -> Next {
        if queued == 0 || self.is_settling_urgent() {
            return Next::Again;
        }
        let age = Duration::from_millis(self.config().settle_age_ms);
        Next::Snooze((age / 2 / queued as u32).min(GAP_MAX))
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
        let Some(front) = settler.queue.front() else {
            return Turn::Nothing(None);
        };
        let mut at = 0;
        if front.begun.is_none() && !now {
            let now_ns = self.setup.clock.now().mono_ns;
            let due_ns = front.since_ns + self.config().settle_age_ms * 1_000_000;
            if now_ns < due_ns && !self.is_settling_urgent() {
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
        let mut begun = match begun.map_or_else(|| self.begin_settle(vb), Ok) {
            Ok(begun) => begun,
            Err(turn) => return turn,
        };
        let settled = self.settle_part(vb, &mut begun, waits);
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
                self.end_settle(vb, begun, since_ns);
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

    /// Takes all that a vBucket has to settle. If that is nothing, the turn is over.
    fn begin_settle(&self, vb: VbId) -> Result<Begun, Turn> {
        let need = self.floor.need(vb);
        let mut vbucket = self.vbuckets[vb.index()].lock();
        let (batch, _) = self.measure(&mut vbucket, kedge_vbucket::VBucket::begin_settle);
        need.queued.store(false, Ordering::Relaxed);
        let Some(batch) = batch else {
            if !has_work(&vbucket) {
                need.forget_waiting();
                return Err(Turn::Settled);
            }
            // A batch is under way, or the log does not have the last reset yet.
            need.queued.store(true, Ordering::Relaxed);
            let now_ns = self.setup.clock.now().mono_ns;
            self.settler_of(vb).new.lock().push((vb, now_ns));
            return Err(Turn::Waits);
        };
        need.begin();
        drop(vbucket);
        let config = self.config();
        let (items, bytes) = (config.flusher_batch_max_items, config.flush_batch_max_bytes);
        Ok(Begun::new(batch, items, bytes))
    }

    /// Writes the next part, with what has to come before it.
    fn settle_part(&self, vb: VbId, begun: &mut Begun, waits: bool) -> Result<(), BucketError> {
        let Some(part) = begun.parts.front() else {
            return Ok(());
        };
        let storage = self.storage()?;
        let before = self.setup.clock.now();
        let replaced = begun.replace;
        if replaced {
            storage.replace(vb, &begun.batch.empty_state(), before.unix_ns)?;
            begun.replace = false;
        }
        let items = &begun.batch.items()[part.items.clone()];
        if begun.batch.removes_file() {
            storage.delete(vb)?;
        } else if !items.is_empty() || !replaced {
            // An empty file that was just made says all there is to say.
            let commit = if waits {
                Storage::commit
            } else {
                Storage::try_commit
            };
            let committed = commit(storage, vb, items, &part.state, before.unix_ns)?;
            self.note_overwritten(vb, begun.batch.history(), items, &committed);
        }
        let took_ns = self
            .setup
            .clock
            .now()
            .mono_ns
            .saturating_sub(before.mono_ns);
        let timings = &self.timings;
        timings.record_us(u16::MAX, Timing::SettleCommit, took_ns / 1_000);
        timings.record_us(u16::MAX, Timing::SettleBatchItems, items.len() as u64);
        self.totals.add(Total::SettledItems, items.len() as u64);
        let bytes: usize = items.iter().map(|it| it.item().heap_bytes()).sum();
        self.totals.add(Total::SettledBytes, bytes as u64);
        self.totals.add(Total::SettleCommits, 1);
        self.on_file_changed(vb);
        let (history, upto) = (begun.batch.history(), part.upto);
        let mut vbucket = self.vbuckets[vb.index()].lock();
        self.measure(&mut vbucket, |vbucket| vbucket.settled(history, upto));
        drop(vbucket);
        self.on_settled();
        begun.parts.pop_front();
        Ok(())
    }

    /// Tells a vBucket which documents the file had already among those that nobody knew that of. They stay in memory
    /// until it is told.
    pub(crate) fn note_overwritten(
        &self,
        vb: VbId,
        history: u32,
        items: &[Settle],
        committed: &Committed,
    ) {
        let blind = |(_, settle): &(usize, &Settle)| matches!(settle, Settle::Document(item) if item.is_blind());
        let blind: Vec<(usize, &Settle)> = items.iter().enumerate().filter(blind).collect();
        if blind.is_empty() {
            return;
        }
        let mut vbucket = self.vbuckets[vb.index()].lock();
        for (index, settle) in blind {
            vbucket.settled_over(history, settle.item(), committed.was_live(index));
        }
    }

    /// A batch was written, or given up; what of it is not in the file waits again.
    fn end_settle(&self, vb: VbId, begun: Begun, since_ns: u64) {
        let need = self.floor.need(vb);
        let is_written = begun.parts.is_empty();
        let mut vbucket = self.vbuckets[vb.index()].lock();
        let (dropped, _) = self.measure(&mut vbucket, |vbucket| vbucket.end_settle(begun.batch));
        if is_written {
            need.end();
        } else {
            need.fail();
            if !need.queued.swap(true, Ordering::Relaxed) {
                self.settler_of(vb).new.lock().push((vb, since_ns));
            }
        }
        drop(vbucket);
        // Many documents may go with these: not under the lock.
        drop(dropped);
        self.on_settled();
    }

    fn on_settle_failed(&self, settler: &mut Settler, vb: VbId, error: &BucketError) {
        self.totals.add(Total::SettleFailures, 1);
        if !error.is_passing() {
            self.fail(&error.to_string());
        } else if !std::mem::replace(&mut settler.failing, true) {
            tracing::error!(
                bucket = self.name(),
                vbucket = %vb,
                %error,
                "changes stay in the log, as they cannot be written into the vBucket's file"
            );
        }
    }

    /// Makes durable what the files were found with, so that the log need not be kept for it.
    pub(crate) fn make_durable_behind(self: &Arc<Self>) {
        if !self.floor.is_held() {
            return;
        }
        let bucket = Arc::clone(self);
        let work = move || {
            let storage = bucket.storage()?;
            for index in 0..bucket.vbuckets() {
                if bucket.phase() == Phase::Closed {
                    return Ok(());
                }
                if !bucket.is_set_aside(VbId(index)) {
                    storage.make_durable(VbId(index))?;
                }
            }
            bucket.floor.let_go();
            bucket.release_log();
            Ok::<(), BucketError>(())
        };
        let bucket = Arc::clone(self);
        let noting = move || match work() {
            Ok(()) => {}
            Err(error) if error.is_passing() => {
                tracing::error!(bucket = bucket.name(), %error, "the log is kept, as a file cannot be made durable");
            }
            Err(error) => bucket.fail(&error.to_string()),
        };
        // Refused when the bucket ends; the next start does it.
        drop(
            self.setup
                .executor
                .submit_as(&MAKE_DURABLE, self.owner, noting),
        );
    }

    /// Settles a vBucket now, unless that is under way; then it will come to its end.
    pub(crate) fn settle_vbucket(&self, vb: VbId) {
        if self.is_direct() {
            return;
        }
        // What could not be settled is said, and tried again.
        let _ = self.settle_to_end(&mut self.hold_settler(vb), vb);
    }

    /// Settles all that the log has of a vBucket.
    ///
    /// # Errors
    /// [`BucketError::NotSettled`] when it cannot be written, or the log does not have all of it.
    pub(crate) fn settle_to_end(&self, settler: &mut Settler, vb: VbId) -> Result<(), BucketError> {
        loop {
            let is_begun = |due: &Due| due.vb == vb && due.begun.is_some();
            let begun = settler.queue.iter().position(is_begun);
            if begun.is_none() && !has_work(&self.vbuckets[vb.index()].lock()) {
                return Ok(());
            }
            // What else is in the queue of it finds nothing to do.
            let new = || Due {
                vb,
                since_ns: self.setup.clock.now().mono_ns,
                begun: None,
            };
            let due = begun.and_then(|at| settler.queue.remove(at));
            match self.settle_due(settler, due.unwrap_or_else(new), true) {
                Turn::Settled => {}
                _ => return Err(BucketError::NotSettled(self.name().to_owned())),
            }
        }
    }

    /// The settler of a vBucket: while it is held, nothing of its part of the vBuckets is settled.
    pub(crate) fn hold_settler(&self, vb: VbId) -> MutexGuard<'_, Settler> {
        self.settler_of(vb).settler.lock()
    }

    /// Settles everything, or as much as `enough` lets it. Whoever writes meanwhile makes it take longer.
    ///
    /// # Errors
    /// The first that comes; the other vBuckets are settled all the same.
    pub(crate) fn settle_all(&self, mut enough: impl FnMut() -> bool) -> Result<(), BucketError> {
        let failures = self.totals.get(Total::SettleFailures);
        for shard in &self.settlers {
            let mut settler = shard.settler.lock();
            let mut in_vain = 0;
            loop {
                if enough() {
                    return Ok(());
                }
                match self.settle_next(shard, &mut settler, true) {
                    // A vBucket waits for what was begun of it, too, as long as that takes.
                    Turn::Settled => in_vain = 0,
                    Turn::Nothing(_) => break,
                    Turn::Waits | Turn::InTheWay | Turn::Failed => in_vain += 1,
                }
                if in_vain > settler.queue.len() + shard.new.lock().len() {
                    break;
                }
            }
        }
        if self.totals.get(Total::SettleFailures) > failures {
            return Err(BucketError::NotSettled(self.name().to_owned()));
        }
        Ok(())
    }
}
