//! The threads of one pool: running, searching and sleeping.
//!
//! Waking a sleeping thread takes about 20 us, a hundred times the duration of a short task. So at most one thread of a
//! pool is the *searcher*. It spins for work, or has just been woken, or runs tasks so short that it reads the queue
//! again before another thread could wake up. While a pool has a searcher, a new task wakes no thread.
//!
//! Invariants:
//! * While a task is queued, the pool has a searcher, or a busy thread that reads the queue after its run, or no idle
//!   thread. If the searcher is delayed, the next task wakes another thread, or the watchdog (see `workers`) does so
//!   within about a millisecond.
//! * An idle thread is in `idle` once. It sleeps until the thread that removes it from there sets its `awake`.

use crate::Priority;
use crate::kind::Pool;
use crate::queue::{RunQueue, SlotIndex};
use crate::stats::PoolInfo;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, Thread, thread};
use std::sync::{Arc, OnceLock};

/// Time in ns for which a searcher that runs or spins counts as alive after its last sign of life. It is a little
/// longer than a short task, because the searcher may have lost its processor.
const ALIVE_NS: u64 = 5_000;
/// Time in ns for which a woken searcher counts as alive.
const WAKES_NS: u64 = 20_000;
/// Number of queued short tasks above which a second thread is woken.
const BACKLOG: usize = 32;

/// The part of a pool's thread that other threads access.
#[derive(Debug, Default)]
pub(crate) struct PoolWorker {
    awake: AtomicBool,
    thread: OnceLock<Thread>,
    /// True if there is idle work.
    has_idle_work: AtomicBool,
    idle_work: Mutex<Option<fn()>>,
}

impl PoolWorker {
    pub(crate) fn enter(&self) {
        self.thread.get_or_init(thread::current);
    }

    pub(crate) fn sleep(&self) {
        while !self.awake.swap(false, Ordering::SeqCst) {
            if self.has_idle_work.swap(false, Ordering::SeqCst) {
                let work = self.idle_work.lock().take();
                work.into_iter().for_each(|work| work());
            } else {
                thread::park();
            }
        }
    }

    /// Makes the thread do this the next time that it has no task.
    pub(crate) fn do_when_idle(&self, work: fn()) {
        *self.idle_work.lock() = Some(work);
        self.has_idle_work.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn wake(&self) {
        self.awake.store(true, Ordering::SeqCst);
        // A thread that has not started yet sees `awake` before it sleeps.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Searcher {
    worker: usize,
    /// The end of the time for which the searcher counts as alive.
    until_ns: u64,
}

/// A value on a cache line of its own, to avoid false sharing.
#[derive(Debug)]
#[repr(align(128))]
struct CacheAligned<T>(T);

/// The lock-free state that queueing threads and the spinning thread share.
#[derive(Debug, Default)]
struct PoolSignals {
    /// Length of the queue.
    queued: AtomicU32,
    /// The end of the time for which a spinning searcher counts as alive, in ns.
    spins_until_ns: AtomicU64,
    /// The thread that was the last one to submit a short closure; 0 for none.
    submitter: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct PoolShared {
    pub(crate) pool: Pool,
    signals: CacheAligned<PoolSignals>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    searcher: Option<Searcher>,
    queue: RunQueue,
    /// Sleeping threads. The last one to fall asleep is woken first.
    idle: Vec<usize>,
    workers: Vec<Arc<PoolWorker>>,
    /// The requested number of threads. Threads with higher numbers end.
    target: usize,
    /// `true` for each number whose thread is started.
    running: Vec<bool>,
}

/// The next action of a pool's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerAction {
    /// Run this task. Then, with `look`, search for work as for [`WorkerAction::Look`].
    Run { task: SlotIndex, look: bool },
    /// Search for work without sleeping while that pays off, then ask again.
    Look,
    /// Sleep until woken, then ask again.
    Sleep,
    /// End the thread.
    Retire,
}

/// The wake-up that a new task requires.
#[derive(Debug)]
pub(crate) enum WakeUp {
    /// Wake this thread.
    Wake(Arc<PoolWorker>),
    /// A searcher will take the task; the watchdog checks that it does.
    Watch,
    /// All threads are busy and read the queue after their runs.
    Nothing,
}

impl PoolShared {
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            pool,
            signals: CacheAligned(PoolSignals::default()),
            state: Mutex::default(),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.signals.0.queued.load(Ordering::SeqCst) > 0
    }

    /// Queues a task on behalf of a thread of the pool, which asks for its [`WorkerAction`] next.
    pub(crate) fn push_own(&self, priority: Priority, owner: u16, task: SlotIndex) {
        let mut state = self.state.lock();
        state.queue.push(priority, owner, task);
        self.publish(&state);
    }

    pub(crate) fn push(
        &self,
        priority: Priority,
        owner: u16,
        task: SlotIndex,
        now_ns: u64,
    ) -> WakeUp {
        let mut state = self.state.lock();
        state.queue.push(priority, owner, task);
        self.publish(&state);
        state.notice(now_ns, self.spins_until_ns())
    }

    /// Records that a thread has submitted a short closure. Returns `true` if another one did since its last one.
    pub(crate) fn note_submitter(&self, thread: usize) -> bool {
        let submitter = &self.signals.0.submitter;
        let last = submitter.load(Ordering::Relaxed);
        if last != thread {
            submitter.store(thread, Ordering::Relaxed);
        }
        last != thread && last != 0
    }

    /// Records that the searcher spins.
    pub(crate) fn spins(&self, now_ns: u64) {
        let until_ns = now_ns + ALIVE_NS;
        self.signals
            .0
            .spins_until_ns
            .store(until_ns, Ordering::Relaxed);
    }

    fn spins_until_ns(&self) -> u64 {
        self.signals.0.spins_until_ns.load(Ordering::Relaxed)
    }

    /// Publishes the length of the queue to threads that read it without the lock.
    fn publish(&self, state: &PoolState) {
        let len = state.queue.len() as u32;
        self.signals.0.queued.store(len, Ordering::Release);
    }

    /// Removes the next task, for the driver of a pool without threads.
    pub(crate) fn pop(&self) -> Option<SlotIndex> {
        let mut state = self.state.lock();
        let task = state.queue.pop();
        self.publish(&state);
        task
    }

    /// Returns the next action of thread `me`, and another thread to wake. `is_quick` returns `true` if a task ends
    /// before another thread could wake up. `has_looked` is `true` if the thread has just searched for work.
    pub(crate) fn next(
        &self,
        me: usize,
        now_ns: u64,
        has_looked: bool,
        is_quick: impl Fn(SlotIndex) -> bool,
    ) -> (WorkerAction, Option<Arc<PoolWorker>>) {
        let mut state = self.state.lock();
        if me >= state.target {
            return (WorkerAction::Retire, state.retire(me, now_ns));
        }
        let mine = state.searcher.is_none_or(|searcher| searcher.worker == me);
        let Some(task) = state.queue.pop() else {
            if mine && !has_looked {
                state.search(me, now_ns + ALIVE_NS);
                return (WorkerAction::Look, None);
            }
            if mine {
                state.searcher = None;
                self.signals.0.spins_until_ns.store(0, Ordering::Relaxed);
            }
            state.idle.push(me);
            return (WorkerAction::Sleep, None);
        };
        self.publish(&state);
        if mine {
            self.signals.0.spins_until_ns.store(0, Ordering::Relaxed);
            if is_quick(task) && state.queue.len() <= BACKLOG {
                state.search(me, now_ns + ALIVE_NS);
            } else {
                state.searcher = None;
            }
        }
        let help = if state.queue.len() > 0 && state.searcher.is_none() {
            state.wake_one(now_ns)
        } else {
            None
        };
        let look = state.searcher.is_some_and(|searcher| searcher.worker == me);
        (WorkerAction::Run { task, look }, help)
    }

    /// Wakes a thread if tasks are queued and no thread has read the queue for too long. Returns `true` if the watchdog
    /// must come back, because tasks are queued and threads sleep.
    pub(crate) fn watch(&self, now_ns: u64) -> bool {
        let (notice, wanted) = {
            let mut state = self.state.lock();
            if state.queue.len() == 0 {
                return false;
            }
            (
                state.notice(now_ns, self.spins_until_ns()),
                !state.idle.is_empty(),
            )
        };
        if let WakeUp::Wake(worker) = notice {
            worker.wake();
        }
        wanted
    }

    /// Makes each thread do this the next time that it has no task.
    pub(crate) fn do_when_idle(&self, work: fn()) {
        for worker in &self.state.lock().workers {
            worker.do_when_idle(work);
        }
    }

    /// Changes the number of threads. Returns the numbers of the threads to start.
    pub(crate) fn resize(&self, target: usize) -> Vec<(usize, Arc<PoolWorker>)> {
        let mut state = self.state.lock();
        state.target = target;
        while state.workers.len() < target {
            state.workers.push(Arc::new(PoolWorker::default()));
            state.running.push(false);
        }
        let mut idle = std::mem::take(&mut state.idle);
        idle.retain(|&number| {
            let stays = number < target;
            if !stays {
                state.workers[number].wake();
            }
            stays
        });
        state.idle = idle;
        let mut begun = Vec::new();
        for number in 0..target {
            if !std::mem::replace(&mut state.running[number], true) {
                state.workers[number] = Arc::new(PoolWorker::default());
                begun.push((number, state.workers[number].clone()));
            }
        }
        begun
    }

    /// Records that these threads could not be started. The pool keeps the threads with lower numbers.
    pub(crate) fn start_failed(&self, numbers: impl Iterator<Item = usize>) {
        let mut target = usize::MAX;
        {
            let mut state = self.state.lock();
            for number in numbers {
                state.running[number] = false;
                target = target.min(number);
            }
            target = target.min(state.target);
        }
        self.resize(target);
    }

    /// Removes an owner's tasks from the queue.
    pub(crate) fn take_owner(&self, owner: u16, into: &mut Vec<SlotIndex>) {
        let mut state = self.state.lock();
        state.queue.take_owner(owner, into);
        self.publish(&state);
    }

    pub(crate) fn lacks_threads(&self) -> bool {
        let state = self.state.lock();
        state.queue.len() > 0 && state.idle.is_empty()
    }

    pub(crate) fn info(&self) -> PoolInfo {
        let state = self.state.lock();
        PoolInfo {
            pool: self.pool,
            threads: state.target,
            idle: state.idle.len(),
            queued: state.queue.len(),
        }
    }
}

impl WakeUp {
    /// Wakes the thread. Returns `true` if the watchdog is needed.
    pub(crate) fn act(self) -> bool {
        match self {
            Self::Wake(worker) => {
                worker.wake();
                false
            }
            Self::Watch => true,
            Self::Nothing => false,
        }
    }
}

impl PoolState {
    fn search(&mut self, worker: usize, until_ns: u64) {
        self.searcher = Some(Searcher { worker, until_ns });
    }

    /// Decides on the wake-up for a new task. `spins_until_ns` is as in [`PoolSignals`].
    fn notice(&mut self, now_ns: u64, spins_until_ns: u64) -> WakeUp {
        if self.idle.is_empty() {
            return WakeUp::Nothing;
        }
        if let Some(searcher) = self.searcher
            && now_ns < searcher.until_ns.max(spins_until_ns)
        {
            return WakeUp::Watch;
        }
        self.wake_one(now_ns).map_or(WakeUp::Nothing, WakeUp::Wake)
    }

    /// Makes a sleeping thread the searcher.
    fn wake_one(&mut self, now_ns: u64) -> Option<Arc<PoolWorker>> {
        let number = self.idle.pop()?;
        self.search(number, now_ns + WAKES_NS);
        Some(self.workers[number].clone())
    }

    fn retire(&mut self, me: usize, now_ns: u64) -> Option<Arc<PoolWorker>> {
        self.running[me] = false;
        if self.searcher.is_some_and(|searcher| searcher.worker == me) {
            self.searcher = None;
        }
        if self.queue.len() > 0 && self.searcher.is_none() {
            return self.wake_one(now_ns);
        }
        None
    }
}
