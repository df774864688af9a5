//! The executor: what its users call. How a task runs is in `run`, who runs it in `workers` and `manual`.

use crate::TaskId;
use crate::awaited::Awaited;
use crate::clock::{Clock, nanos};
use crate::config::{Config, TaskSpec};
use crate::error::Refused;
use crate::job::{Body, Handle, Shot, Task};
use crate::kind::{CLOSURES, Kind, Pool};
use crate::owners::{OwnerId, Owners};
use crate::pool::PoolShared;
use crate::slab::{NEVER, Slab};
use crate::state::{Ended as After, Posted};
use crate::stats::KindTable;
use crate::submitter::give_a_moment;
use crate::sync::{AtomicBool, Ordering};
use crate::threads::{Threads, cores};
use crate::timers::Timers;
use crate::workers::Workers;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Pools of threads and the tasks on them. Clones are the same executor; when the last one goes it shuts down.
///
/// A task that holds a clone keeps the executor until the task is gone; one that clones [`crate::Context::executor`] does
/// not, and finds it shut down after that.
#[derive(Clone)]
pub struct Executor {
    pub(crate) inner: Arc<Inner>,
    /// Shuts down when dropped. The executor's own threads have none, so they don't keep it alive.
    _guard: Option<Arc<Guard>>,
}

struct Guard(Arc<Inner>);

impl Drop for Guard {
    fn drop(&mut self) {
        Executor::unguarded(&self.0).shutdown();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    pub(crate) slab: Slab,
    pub(crate) pools: [PoolShared; 4],
    pub(crate) timers: Timers,
    pub(crate) kinds: KindTable,
    pub(crate) owners: Owners,
    pub(crate) awaited: Awaited,
    pub(crate) workers: Workers,
    /// Owner of closures that have none.
    common: OwnerId,
    stopped: AtomicBool,
    /// A task ended everything: the threads end after the last task.
    pub(crate) end_of_tasks: AtomicBool,
}

impl Executor {
    /// Begins the threads of all pools.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    pub fn new(config: Config) -> io::Result<Self> {
        let executor = Self::build(Clock::real(), Workers::new(config));
        executor.begin_timer()?;
        for pool in Pool::ALL {
            executor.set_threads(pool, config.threads(pool))?;
        }
        Ok(executor)
    }

    pub(crate) fn build(clock: Clock, workers: Workers) -> Self {
        let owners = Owners::default();
        let common = owners.open("executor").expect("it is the first one");
        let inner = Arc::new(Inner {
            clock,
            slab: Slab::default(),
            pools: Pool::ALL.map(PoolShared::new),
            timers: Timers::default(),
            kinds: KindTable::default(),
            owners,
            awaited: Awaited::default(),
            workers,
            common,
            stopped: AtomicBool::new(false),
            end_of_tasks: AtomicBool::new(false),
        });
        Self {
            _guard: Some(Arc::new(Guard(inner.clone()))),
            inner,
        }
    }

    /// A clone that does not keep the executor's threads alive.
    pub(crate) fn unguarded(inner: &Arc<Inner>) -> Self {
        Self {
            inner: inner.clone(),
            _guard: None,
        }
    }

    /// Enters an owner of tasks.
    ///
    /// # Errors
    /// [`Refused::TooMany`] when there are 1,024, [`Refused::NoOwner`] after [`Executor::shutdown`].
    pub fn register(&self, name: &str) -> Result<OwnerId, Refused> {
        if self.is_stopped() {
            return Err(Refused::NoOwner);
        }
        let owners = &self.inner.owners;
        let owner = owners.open(name).ok_or(Refused::TooMany)?;
        if self.is_stopped() {
            // The shutdown may have looked for owners before this one was there.
            owners.close(owner);
            owners.forget(owner);
            return Err(Refused::NoOwner);
        }
        Ok(owner)
    }

    /// Adds a task.
    ///
    /// # Errors
    /// [`Refused`]; the task is dropped.
    pub fn schedule(&self, spec: TaskSpec, task: impl Task + 'static) -> Result<TaskId, Refused> {
        self.inner.add(spec, Body::Task(Box::new(task)))
    }

    /// Runs a closure once on a pool. With a kind and an owner of its own: [`Executor::submit_as`].
    ///
    /// A thread that has waited for each result so far, of closures of a kind that takes less than 5 us on average, is held up
    /// for about 6 us at most, until the closure has run. So it need not sleep, in whatever way it waits.
    pub fn submit<T: Send + 'static>(
        &self,
        pool: Pool,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Handle<T> {
        self.submit_as(&CLOSURES[pool as usize], self.inner.common, closure)
    }

    /// Runs a closure once. If it is not taken the handle says so.
    pub fn submit_as<T: Send + 'static>(
        &self,
        kind: &'static Kind,
        owner: OwnerId,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Handle<T> {
        let shot = Arc::new(Shot::new(closure));
        let added = self
            .inner
            .add(TaskSpec::new(kind, owner), Body::Job(shot.clone()));
        if let Err(refused) = added {
            shot.refuse(refused);
        }
        let is_quick = self.inner.kinds.enter(kind).1.is_quick();
        let has_looked = is_quick && !self.is_manual() && give_a_moment(&shot);
        Handle {
            shot,
            id: added.ok(),
            soon: is_quick && !has_looked,
            manual: self.is_manual().then(|| Self::unguarded(&self.inner)),
        }
    }

    /// Makes a task run: now if it sleeps; once more if it runs, unless that run is its last, as it ends with [`Next::Done`].
    /// Returns at once, whether there is such a task.
    ///
    /// [`Next::Done`]: crate::Next::Done
    pub fn wake(&self, id: TaskId) -> bool {
        self.inner.wake(id)
    }

    /// As [`Executor::wake`], and returns when that run has begun: whether it did, as the task may be cancelled before.
    /// Not for a task to call on itself. On a manual executor the calling thread does the pools' work meanwhile.
    pub fn wake_and_wait(&self, id: TaskId) -> bool {
        let inner = &self.inner;
        let Some(slot) = inner.slab.get(id.index()) else {
            return false;
        };
        let beginning = inner.awaited.enter(id);
        match slot.state.wake_awaited(id.generation()) {
            Posted::Gone => {
                inner.awaited.leave(&beginning);
                return false;
            }
            Posted::Queue => inner.queue(id.index()),
            Posted::Noted => {}
        }
        self.drive_until(|| beginning.is_kept());
        beginning.wait(inner.kinds.get(slot.kind()).is_quick())
    }

    /// Moves the next run of a task that sleeps to so long from now. Returns whether it slept: a task that is due or
    /// runs says itself what comes next.
    pub fn snooze(&self, id: TaskId, time: Duration) -> bool {
        let inner = &self.inner;
        // First, as the processor's counter is slow to come, and the rest need not wait for it.
        let now_ns = inner.clock.now_ns();
        let Some(slot) = inner.slab.get(id.index()) else {
            return false;
        };
        if !slot.state.take_sleeper(id.generation()) {
            return false;
        }
        let deadline_ns = now_ns.saturating_add(nanos(time));
        // Published with the state.
        slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        match slot.state.end_asleep() {
            After::Asleep => inner.arm(id.index(), slot, now_ns),
            After::Queue => inner.queue(id.index()),
            After::Dead => {
                slot.state.queue_dead();
                inner.queue(id.index());
            }
        }
        true
    }

    /// Takes care that a task begins no further run. A run that is under way ends by itself. Returns whether there was
    /// such a task, not cancelled before.
    pub fn cancel(&self, id: TaskId) -> bool {
        self.inner.cancel(id)
    }

    /// Ends an owner: takes no more of its tasks, cancels those that it has, and returns when none runs and all are
    /// dropped. Without `force` the tasks that want a last run get it. Tasks that are cancelled while they wait for a
    /// thread are dropped by this one.
    ///
    /// # Panics
    /// When a task of that owner calls it: it would wait for itself. Other ways to wait in a circle are not seen: tasks of
    /// two owners that each unregister the other's wait for ever, as does one for a last run that only its thread could make.
    pub fn unregister(&self, owner: OwnerId, force: bool) {
        self.inner.unregister(owner, force, self);
    }

    /// Changes the number of a pool's threads. Threads that are too many end when they have no run under way.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun; the pool has those then that could be.
    pub fn set_threads(&self, pool: Pool, threads: Threads) -> io::Result<()> {
        if self.is_stopped() || self.is_manual() {
            return Ok(());
        }
        self.resize(pool, threads.count(pool, cores()))
    }

    /// Ends everything: all tasks are cancelled, runs under way end, threads end. Returns when that is so; but a task,
    /// or the destructor of one, that calls this is not held up: then the threads end after the last task.
    pub fn shutdown(&self) {
        self.inner.stopped.store(true, Ordering::SeqCst);
        if self.inner.end_owners(self) {
            self.end_threads();
        }
    }

    /// Begins the timer's thread, which models have only if they ask for it.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    #[cfg(kedge_model)]
    #[doc(hidden)]
    pub fn begin_timer_of_model(&self) -> io::Result<()> {
        self.begin_timer_thread()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.inner.clock, Clock::Virtual(_))
    }
}

impl Inner {
    fn add(&self, spec: TaskSpec, body: Body) -> Result<TaskId, Refused> {
        if !self.owners.is_open(spec.owner) {
            return Err(Refused::NoOwner);
        }
        let index = self.slab.take().ok_or(Refused::TooMany)?;
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
        // Nobody looks before the state is filled.
        slot.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        let queued = deadline_ns <= now_ns;
        let id = TaskId::new(index, slot.state.fill(queued));
        // Nobody runs it before this is known: see `owners`.
        if !self.owners.is_open(spec.owner) {
            self.withdraw(id, slot);
            return Err(Refused::NoOwner);
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
            Posted::Gone => false,
            Posted::Noted => true,
            Posted::Queue => {
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
            Posted::Gone => false,
            Posted::Noted => true,
            Posted::Queue => {
                self.queue(id.index());
                true
            }
        }
    }

    pub(crate) fn is_cancelled(&self, id: TaskId) -> bool {
        let view = self.slab.slot(id.index()).state.load();
        view.generation() != id.generation() || view.is_cancelled()
    }

    /// Puts a task that is `QUEUED` into the run queue of its pool.
    pub(crate) fn queue(&self, index: u32) {
        self.queue_at(index, self.clock.now_ns());
    }

    pub(crate) fn queue_at(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        slot.queued_ns.store(now_ns, Ordering::Relaxed);
        self.push(index, now_ns);
    }

    /// Queues a task after its run. Its thread looks at the queue next, so no other is woken for it.
    pub(crate) fn queue_again(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        slot.queued_ns.store(now_ns, Ordering::Relaxed);
        let kind = self.kinds.get(slot.kind()).kind;
        self.pools[kind.pool() as usize].push_own(kind.priority(), slot.owner(), index);
    }

    /// Puts a task back that has been in the run queue, so that it waits since then.
    pub(crate) fn push(&self, index: u32, now_ns: u64) {
        let slot = self.slab.slot(index);
        let kind = self.kinds.get(slot.kind()).kind;
        let pool = &self.pools[kind.pool() as usize];
        let notice = pool.push(kind.priority(), slot.owner(), index, now_ns);
        if notice.act() {
            self.workers.want_watch();
        }
    }

    pub(crate) fn arm(&self, index: u32, slot: &crate::slab::Slot, now_ns: u64) {
        if self.timers.arm(&self.slab, index, slot, now_ns) {
            self.workers.wake_timer();
        }
    }
}
