//! When changes are made durable: at once when someone waits, else after an interval, and a mark when all is quiet.
//!
//! With a commit log there is one writer, that of the log; without one, each part of the vBuckets has one, which commits
//! their files. A writer is a task. Usually it commits; a front-end thread does so itself when nobody else of its
//! connections would be held up (see [`Persistence::request_flush`]), because waking another thread and being woken by it costs about
//! as much as the sync.
//!
//! Invariants:
//! * `state` says how the task rests, and is set before the lists are looked at; who fills a list looks at the state
//!   after. So one of the two sees the other.
//! * While `state` is [`RUNNING`] a run is under way or on its way, and looks at everything: nobody wakes the task.

use crate::persistence::Persistence;
use crate::queues::WriteQueues;
use kedge_bucket_core::BucketCore;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::Phase;
use kedge_bucket_core::TaskBody;
use kedge_executor::{Next, TaskId};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// How long a writer waits before it tries a full disk again.
const DISK_FULL_RETRY: Duration = Duration::from_millis(100);
/// What the system refuses is tried again after this time, then after twice as long, and so on.
const REFUSED_RETRY: Duration = Duration::from_millis(100);
/// So often the time doubles: up to 3.2 s.
const REFUSED_DOUBLINGS: u32 = 5;
/// After this much quiet a mark is written behind the last batch.
const IDLE_MARK: Duration = Duration::from_secs(1);

/// A run goes on with the next batch for so long while someone waits; then tasks of other buckets have their turn.
const TURN: Duration = Duration::from_millis(10);
/// Nor does it go on after so many changes.
pub(crate) const RUN_ITEMS_MAX: usize = 4_096;

/// A run is under way, or will come by itself.
const RUNNING: u8 = 0;
/// The task sleeps until the interval for changes that nobody waits for is over.
const TIMED: u8 = 1;
/// The task sleeps until something is written.
const IDLE: u8 = 2;
/// Something was written while the task fell asleep: the interval is to begin.
const BEGIN: u8 = 3;

/// How a writer is reached.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    task: OnceLock<TaskId>,
    state: AtomicU8,
    /// Someone waits for a sync.
    urgent: AtomicBool,
    /// With a log: a command was parked that waits for the disk, and nobody has requested since.
    awaited: AtomicBool,
}

impl Writer {
    /// To be known before the task runs first.
    pub(crate) fn set_task(&self, task: TaskId) {
        // Tasks begin once.
        let _ = self.task.set(task);
    }

    /// A command that waits for the disk was parked, after its change was queued.
    pub(crate) fn note_awaited(&self) {
        // Whoever takes it away looks at what was queued before this look, too.
        if !self.awaited.load(Ordering::SeqCst) {
            self.awaited.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a command waits for the disk of which nobody has told the log yet; the caller does.
    pub(crate) fn take_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst) && self.awaited.swap(false, Ordering::SeqCst)
    }

    fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    fn set_state(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }

    /// Moves from one state to another. False when it was in neither.
    fn change(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// What the task rests for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It does not: the last run left something.
    None,
    /// For the interval, until this time of the executor's clock.
    Interval(Duration),
    /// For something to do; for a mark from this time on.
    Idle(Duration),
}

impl Default for Rest {
    /// What is written before the first run waits for the interval as well.
    fn default() -> Self {
        Self::Idle(Duration::ZERO)
    }
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitOutcome {
    /// Changes.
    pub(crate) items: usize,
    /// Others are to be written at once.
    pub(crate) more: bool,
}

/// The task.
#[derive(Debug, Default)]
pub(crate) struct CommitTask {
    /// Which of the writers it is.
    lane: usize,
    rest: Rest,
    /// The mark stands behind the last batch.
    marked: bool,
    /// So often in a row the system refused.
    refusals: u32,
    /// The last batch could not be written.
    has_failed: bool,
}

impl TaskBody<Persistence> for CommitTask {
    fn run(&mut self, persistence: &Persistence, now: Duration) -> Next {
        let writer = &persistence.queues.writers[self.lane];
        let before = writer.state.swap(RUNNING, Ordering::SeqCst);
        let urgent = writer.urgent.swap(false, Ordering::SeqCst);
        match self.rest {
            _ if urgent => {}
            Rest::None => {}
            // A wake that came late must not cut the next interval short.
            Rest::Interval(end) if now < end => {
                if let Some(next) = self.begin_interval(persistence, now, end - now) {
                    return next;
                }
            }
            Rest::Interval(_) => {}
            // The interval began without a run, see `Bucket::on_dirty`, and is over.
            Rest::Idle(_) if before == TIMED => {}
            Rest::Idle(mark_at) => {
                let is_quiet = before == IDLE && now >= mark_at;
                if is_quiet && !self.marked && persistence.next_write(self.lane).is_none() {
                    persistence.mark_log();
                    self.marked = true;
                }
                if let Some(next) = self.rest(persistence, now) {
                    return next;
                }
            }
        }
        self.commit(persistence, now)
    }
}

impl CommitTask {
    pub(crate) fn new(lane: usize) -> Self {
        Self {
            lane,
            ..Self::default()
        }
    }

    /// Commits until nobody waits: a turn through the queue of the pool between two batches would cost a wake.
    fn commit(&mut self, persistence: &Persistence, now: Duration) -> Next {
        let writer = &persistence.queues.writers[self.lane];
        let began_ns = persistence.core.setup.clock.now().mono_ns;
        let mut items = 0;
        loop {
            self.rest = Rest::None;
            self.marked = false;
            // Who waits by now has its change in the lists that are looked at next.
            writer.urgent.store(false, Ordering::SeqCst);
            match persistence.write_once(self.lane) {
                Ok(wrote) => {
                    self.refusals = 0;
                    if self.has_failed && !wrote.more {
                        persistence.on_written();
                        self.has_failed = false;
                    }
                    items += wrote.items;
                    if !wrote.more
                        && let Some(next) = self.rest(persistence, now)
                    {
                        return next;
                    }
                }
                Err(error) if error.is_no_space() => {
                    self.has_failed = true;
                    return Next::Snooze(DISK_FULL_RETRY);
                }
                Err(error) if error.is_passing() && !persistence.core.has_ended() => {
                    let pause = REFUSED_RETRY * (1 << self.refusals.min(REFUSED_DOUBLINGS));
                    self.refusals += 1;
                    self.has_failed = true;
                    return Next::Snooze(pause);
                }
                Err(_) => return Next::Done,
            }
            let took_ns = persistence
                .core
                .setup
                .clock
                .now()
                .mono_ns
                .saturating_sub(began_ns);
            let is_over = took_ns >= TURN.as_nanos() as u64 || items >= RUN_ITEMS_MAX;
            if is_over || persistence.core.phase() == Phase::Closed {
                return Next::Again;
            }
        }
    }

    /// Nothing has to be done now: what comes next? None when someone waits all the same; the task goes on then.
    fn rest(&mut self, persistence: &Persistence, now: Duration) -> Option<Next> {
        let writer = &persistence.queues.writers[self.lane];
        writer.set_state(IDLE);
        if let Some(interval) = persistence.next_write(self.lane) {
            return self.begin_interval(persistence, now, interval);
        }
        if writer.is_urgent() {
            return self.go_on(persistence);
        }
        self.rest = Rest::Idle(now + IDLE_MARK);
        Some(if self.marked || persistence.core.is_direct() {
            Next::Sleep
        } else {
            Next::Snooze(IDLE_MARK)
        })
    }

    fn begin_interval(
        &mut self,
        persistence: &Persistence,
        now: Duration,
        interval: Duration,
    ) -> Option<Next> {
        let writer = &persistence.queues.writers[self.lane];
        writer.set_state(TIMED);
        if writer.is_urgent() {
            return self.go_on(persistence);
        }
        self.rest = Rest::Interval(now + interval);
        Some(Next::Snooze(interval))
    }

    fn go_on(&mut self, persistence: &Persistence) -> Option<Next> {
        persistence.queues.writers[self.lane].set_state(RUNNING);
        self.rest = Rest::None;
        None
    }
}

impl Persistence {
    /// To be called at the end of a turn in which a command was parked. With `lead` this thread may commit itself if
    /// the log is idle; it does so when no other connection of the thread would be held up. Completions come through
    /// the sink, before this returns when it led.
    pub fn request_flush(&self, lead: bool) {
        // Who waits for a document to be read, or only for the memory of other nodes, does not wait for the log.
        if self.core.is_direct() || self.queues.writers[0].take_awaited() {
            self.write_now(lead);
        }
    }

    /// Someone waits for what was written by now.
    pub fn write_now(&self, lead: bool) {
        if self.core.is_direct() {
            return self.request_flushers(lead);
        }
        if lead
            && let Some(committer) = self.committer.get()
            && let Some(mut committer) = committer.try_lock()
        {
            let result = self.commit_once(&mut committer);
            let (more, was_full) = (committer.has_work(), committer.was_full());
            self.on_commit_result(&result);
            drop(committer);
            if was_full {
                // What is left may be what someone waits for.
                self.queues.on_urgent(&self.core, 0);
            } else if more {
                self.queues.begin_interval(&self.core, 0);
            }
            return;
        }
        self.queues.on_urgent(&self.core, 0);
    }

    /// Lets a later recovery tell damage to the last batch from one that was never finished.
    fn mark_log(&self) {
        let Some(committer) = self.committer.get() else {
            return;
        };
        let marked = committer.lock().log.mark();
        match marked {
            // The next batch is tried, too, and says what is wrong.
            Err(error) if error.is_passing() => {}
            result => self.on_commit_result(&result.map(|()| 0).map_err(BucketError::from)),
        }
    }

    /// One batch of a writer.
    fn write_once(&self, lane: usize) -> Result<CommitOutcome, BucketError> {
        if self.core.is_direct() {
            return self.flush_next(lane);
        }
        let Some(committer) = self.committer.get() else {
            return Err(BucketError::NotLoaded(self.core.name().to_owned()));
        };
        let mut committer = committer.lock();
        let result = self.commit_once(&mut committer);
        let more = committer.was_full();
        self.on_commit_result(&result);
        result.map(|items| CommitOutcome { items, more })
    }

    /// How long what waits for a writer may still wait; None when nothing does.
    fn next_write(&self, lane: usize) -> Option<Duration> {
        if self.core.is_direct() {
            return self.next_flush(lane);
        }
        let queued = self
            .committer
            .get()
            .is_some_and(|committer| committer.lock().has_work());
        (queued || !self.queues.dirty.is_empty())
            .then(|| Duration::from_millis(self.core.config().log_interval_ms))
    }
}

impl WriteQueues {
    /// Has a writer that is idle write when the interval is over: a vBucket became dirty.
    pub(crate) fn begin_interval(&self, core: &BucketCore, lane: usize) {
        let writer = &self.writers[lane];
        if writer.state.load(Ordering::SeqCst) != IDLE || !writer.change(IDLE, TIMED) {
            return;
        }
        let Some(task) = writer.task.get() else {
            return;
        };
        let interval = Duration::from_millis(core.config().log_interval_ms);
        // No thread is woken before the interval is over.
        if !core.setup.executor.snooze(*task, interval) {
            // It was falling asleep just now: one more run begins the interval.
            writer.change(TIMED, BEGIN);
            core.setup.executor.wake(*task);
        }
    }

    /// Wakes a writer: a command waits for a sync.
    pub(crate) fn on_urgent(&self, core: &BucketCore, lane: usize) {
        let writer = &self.writers[lane];
        writer.urgent.store(true, Ordering::SeqCst);
        if writer.state.swap(RUNNING, Ordering::SeqCst) != RUNNING
            && let Some(task) = writer.task.get()
        {
            core.setup.executor.wake(*task);
        }
    }
}
