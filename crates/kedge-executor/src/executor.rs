//! The executor and its public methods. `run` implements the run of a task; `worker_threads` and `manual` drive the
//! runs.

use crate::TaskId;
use crate::clock::{ExecutorClock, nanos};
use crate::config::{ExecutorConfig, TaskSpec};
use crate::error::ScheduleError;
use crate::kind::Pool;
use crate::owners::{OwnerId, Owners};
use crate::pool::PoolShared;
use crate::run_waiters::RunWaiters;
use crate::slab::{NEVER, Slab};
use crate::state::{AfterRun, PostResult};
use crate::stats::KindTable;
use crate::sync::{AtomicBool, Ordering};
use crate::task::{Runnable, Task};
use crate::threads::{ThreadCount, cores};
use crate::timers::Timers;
use crate::workers::Workers;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Thread pools and the tasks that run on them. Clones share one executor, which shuts down when the last clone is
/// dropped.
///
/// A task that owns a clone keeps the executor alive for as long as the task exists. A clone of
/// [`crate::TaskContext::executor`] does not keep it alive; after the shutdown its methods do nothing.
#[derive(Clone)]
pub struct Executor {
    pub(crate) inner: Arc<ExecutorInner>,
    /// Shuts the executor down when it is dropped. The executor's own threads have no guard, so they do not keep it
    /// alive.
    _guard: Option<Arc<ShutdownGuard>>,
}

struct ShutdownGuard(Arc<ExecutorInner>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        Executor::unguarded(&self.0).shutdown();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

pub(crate) struct ExecutorInner {
    pub(crate) clock: ExecutorClock,
    pub(crate) slab: Slab,
    pub(crate) pools: [PoolShared; 4],
    pub(crate) timers: Timers,
    pub(crate) kinds: KindTable,
    pub(crate) owners: Owners,
    pub(crate) awaited: RunWaiters,
    pub(crate) workers: Workers,
    /// The owner of closures without an owner of their own.
    pub(crate) common: OwnerId,
    stopped: AtomicBool,
    /// `true` after a task called `shutdown`: the threads end after the last task.
    pub(crate) end_of_tasks: AtomicBool,
}

impl Executor {
    /// Creates an executor and starts the threads of all pools.
    ///
    /// # Errors
    /// The error of the operating system when a thread cannot be started.
    pub fn new(config: ExecutorConfig) -> io::Result<Self> {
        let executor = Self::build(ExecutorClock::real(), Workers::new(config));
        executor.start_timer()?;
        for pool in Pool::ALL {
            executor.set_threads(pool, config.threads(pool))?;
        }
        Ok(executor)
    }

    pub(crate) fn build(clock: ExecutorClock, workers: Workers) -> Self {
        let owners = Owners::default();
        let common = owners.open("executor").expect("it is the first one");
        let inner = Arc::new(ExecutorInner {
            clock,
            slab: Slab::default(),
            pools: Pool::ALL.map(PoolShared::new),
            timers: Timers::default(),
            kinds: KindTable::default(),
            owners,
            awaited: RunWaiters::default(),
            workers,
            common,
            stopped: AtomicBool::new(false),
            end_of_tasks: AtomicBool::new(false),
        });
        Self {
            _guard: Some(Arc::new(ShutdownGuard(inner.clone()))),
            inner,
        }
    }

    /// Creates a clone that does not keep the executor alive.
    pub(crate) fn unguarded(inner: &Arc<ExecutorInner>) -> Self {
        Self {
            inner: inner.clone(),
            _guard: None,
        }
    }

    /// Registers an owner of tasks.
    ///
    /// # Errors
    /// [`ScheduleError::TooMany`] when 1,024 owners are registered, [`ScheduleError::NoOwner`] after [`Executor::shutdown`].
    pub fn register(&self, name: &str) -> Result<OwnerId, ScheduleError> {
        if self.is_stopped() {
            return Err(ScheduleError::NoOwner);
        }
        let owners = &self.inner.owners;
        let owner = owners.open(name).ok_or(ScheduleError::TooMany)?;
        if self.is_stopped() {
            // The shutdown may have listed the owners before this one was registered.
            owners.close(owner);
            owners.forget(owner);
            return Err(ScheduleError::NoOwner);
        }
        Ok(owner)
    }

    /// Schedules a task.
    ///
    /// # Errors
    /// [`ScheduleError`] when the executor does not accept the task, which is then dropped.
    pub fn schedule(
        &self,
        spec: TaskSpec,
        task: impl Task + 'static,
    ) -> Result<TaskId, ScheduleError> {
        self.inner.add(spec, Runnable::Task(Box::new(task)))
    }

    /// Makes a task run: immediately if it sleeps, or once more if it is running, unless that run ends with
    /// [`Next::Done`]. Returns immediately, with `false` if no such task exists.
    ///
    /// [`Next::Done`]: crate::Next::Done
    pub fn wake(&self, id: TaskId) -> bool {
        self.inner.wake(id)
    }

    /// Makes each thread of all pools call `work` the next time that it has no task, for what only the thread itself can do, as
    /// returning memory that its allocator keeps for it. A thread that is still busy at the next call does it once. A manual
    /// executor has no threads.
    pub fn on_idle_threads(&self, work: fn()) {
        self.inner
            .pools
            .iter()
            .for_each(|pool| pool.do_when_idle(work));
    }

    /// Wakes a task like [`Executor::wake`] and waits until that run begins. Returns `false` if the task ended first. A
    /// task must not call it with its own id. On a manual executor the calling thread runs due tasks while it waits.
    pub fn wake_and_wait(&self, id: TaskId) -> bool {
        let inner = &self.inner;
        let Some(slot) = inner.slab.get(id.index()) else {
            return false;
        };
        let beginning = inner.awaited.add(id);
        match slot.state.wake_awaited(id.generation()) {
            PostResult::Gone => {
                inner.awaited.remove(&beginning);
                return false;
            }
            PostResult::Queue => inner.queue(id.index()),
            PostResult::Noted => {}
        }
        self.drive_until(|| beginning.is_set());
        beginning.wait(inner.kinds.get(slot.kind()).is_quick())
    }

    /// Reschedules the next run of a sleeping task to `time` from now. Returns `false` if the task does not sleep: the
    /// result of a due or running task determines its next run.
    pub fn snooze(&self, id: TaskId, time: Duration) -> bool {
        let inner = &self.inner;
        // Read first: reading the processor's counter has a high latency, and the following code does not depend on it.
        let now_ns = inner.clock.now_ns();
        let Some(slot) = inner.slab.get(id.index()) else {
            return false;
        };
        if !slot.state.claim_sleeping(id.generation()) {
            return false;
        }
        let deadline_ns = now_ns.saturating_add(nanos(time));
        // The release of the state publishes it.
        slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        match slot.state.end_asleep() {
            AfterRun::Asleep => inner.arm(id.index(), slot, now_ns),
            AfterRun::Queue => inner.queue(id.index()),
            AfterRun::Dead => {
                slot.state.queue_dead();
                inner.queue(id.index());
            }
        }
        true
    }

    /// Cancels a task: no further run begins, and a run in progress completes. Returns `false` if no such task exists
    /// or it has been cancelled before.
    pub fn cancel(&self, id: TaskId) -> bool {
        self.inner.cancel(id)
    }

    /// Unregisters an owner: rejects new tasks of it, cancels its tasks, and returns when none runs and all are
    /// dropped. Without `force`, tasks that want a last run get it. The calling thread drops tasks that are cancelled
    /// while queued.
    ///
    /// # Panics
    /// Panics if a task of that owner calls it, because the task would wait for itself. Other deadlocks are not
    /// detected: tasks of two owners that unregister each other's owner, and a task that waits for a last run which
    /// needs its own thread.
    pub fn unregister(&self, owner: OwnerId, force: bool) {
        self.inner.unregister(owner, force, self);
    }

    /// Changes the number of threads of a pool. Surplus threads end after their current run.
    ///
    /// # Errors
    /// The error of the operating system when a thread cannot be started. The pool then has fewer threads than
    /// requested.
    pub fn set_threads(&self, pool: Pool, threads: ThreadCount) -> io::Result<()> {
        if self.is_stopped() || self.is_manual() {
            return Ok(());
        }
        self.resize(pool, threads.count(pool, cores()))
    }

    /// Shuts down: cancels all tasks, waits for runs in progress, and ends the threads. If a task or the destructor of
    /// a task calls it, it returns immediately, and the threads end after the last task.
    pub fn shutdown(&self) {
        self.inner.stopped.store(true, Ordering::SeqCst);
        if self.inner.end_owners(self) {
            self.end_threads();
        }
    }

    /// Starts the timer thread, which models have only on request.
    ///
    /// # Errors
    /// The error of the operating system when a thread cannot be started.
    #[cfg(kedge_model)]
    #[doc(hidden)]
    pub fn start_model_timer(&self) -> io::Result<()> {
        self.start_timer_thread()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.inner.clock, ExecutorClock::Virtual(_))
    }
}

impl ExecutorInner {
    pub(crate) fn add(&self, spec: TaskSpec, body: Runnable) -> Result<TaskId, ScheduleError> {
        if !self.owners.is_open(spec.owner) {
            return Err(ScheduleError::NoOwner);
        }
        let index = self.slab.take().ok_or(ScheduleError::TooMany)?;
        let slot = self.slab.slot(index);
        let (kind, _) = self.kinds.enter(spec.kind);
        slot.set_belongs(kind, spec.owner.index());
        slot.runs.store(0, Ordering::Relaxed);
        slot.run_ns.store(0, Ordering::Relaxed);
        slot.last_run_ns.store(0, Ordering::Relaxed);
        {
            let mut cell = slot.cell.lock();
            cell.body = Some(body);
            cell.description = spec.description;
            cell.wants_last_run = spec.wants_last_run;
        }
        let now_ns = self.clock.now_ns();
        let deadline_ns = spec
            .first_run
            .map_or(NEVER, |after| now_ns.saturating_add(nanos(after)));
        // No other thread reads the slot before the state is set.
        slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        let queued = deadline_ns <= now_ns;
        let id = TaskId::new(index, slot.state.fill(queued));
        // No thread runs the task before this check: see `owners`.
        if !self.owners.is_open(spec.owner) {
            self.withdraw(id, slot);
            return Err(ScheduleError::NoOwner);
        }
        if queued {
            self.queue_at(index, now_ns);
        } else {
            self.follow_end(id, slot, slot.state.end_asleep(), now_ns);
        }
        Ok(id)
    }

    pub(crate) fn wake(&self, id: TaskId) -> bool {
        let Some(slot) = self.slab.get(id.index()) else {
            return false;
        };
        match slot.state.wake(id.generation()) {
            PostResult::Gone => false,
            PostResult::Noted => true,
            PostResult::Queue => {
                self.queue(id.index());
                true
            }
        }
    }

    pub(crate) fn cancel(&self, id: TaskId) -> bool {
        let Some(slot) = self.slab.get(id.index()) else {
            return false;
        };
        match slot.state.cancel(id.generation()) {
            PostResult::Gone => false,
            PostResult::Noted => true,
            PostResult::Queue => {
                self.queue(id.index());
                true
            }
        }
    }

    pub(crate) fn is_cancelled(&self, id: TaskId) -> bool {
        let view = self.slab.slot(id.index()).state.load();
        view.generation() != id.generation() || view.is_cancelled()
    }

    /// Inserts a task in state `QUEUED` into the run queue of its pool.
    pub(crate) fn queue(&self, index: u32) {
        self.queue_at(index, self.clock.now_ns());
    }

    pub(crate) fn queue_at(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        slot.queued_ns.store(now_ns, Ordering::Relaxed);
        self.push(index, now_ns);
    }

    /// Queues a task after its run. Its thread reads the queue next, so no other thread is woken for it.
    pub(crate) fn queue_again(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        slot.queued_ns.store(now_ns, Ordering::Relaxed);
        let kind = self.kinds.get(slot.kind()).kind;
        self.pools[kind.pool() as usize].push_own(kind.priority(), slot.owner(), index);
    }

    /// Inserts a task into the run queue without changing the start of its queue time.
    pub(crate) fn push(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        let kind = self.kinds.get(slot.kind()).kind;
        let pool = &self.pools[kind.pool() as usize];
        let notice = pool.push(kind.priority(), slot.owner(), index, now_ns);
        if notice.act() {
            self.workers.request_watchdog();
        }
    }

    pub(crate) fn arm(&self, index: u32, slot: &crate::slab::TaskSlot, now_ns: u64) {
        if self.timers.arm(&self.slab, index, slot, now_ns) {
            self.workers.wake_timer();
        }
    }
}
