//! The threads of one pool: who runs, who looks for work, who sleeps.
//!
//! Waking a sleeping thread costs about 20 us, a hundred times what a short task takes. So at most one thread of a pool
//! is the *searcher*: it spins for work, was woken for it just now, or runs tasks that are so quick that it will look
//! again before another could be awake. While there is one, a new task wakes nobody.
//!
//! Invariants:
//! * A task in the queue has a searcher, or a thread that was not idle since the task came and looks at the queue when
//!   its run ends, or there is no idle thread. If the searcher turns out to be held up, the next task wakes another, or
//!   the watch (see `workers`) does so within about a millisecond.
//! * An idle thread is in `idle`, once, and sleeps until its `awake` is set by who took it out.

use crate::Priority;
use crate::kind::Pool;
use crate::queue::{Index, RunQueue};
use crate::stats::PoolInfo;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, Thread, thread};
use std::sync::{Arc, OnceLock};

/// A searcher that runs a task or spins is waited for this long after it was heard of. More than a quick task takes, and
/// not much more: it may have lost its processor.
const ALIVE_NS: u64 = 5_000;
/// A searcher that was woken is waited for this long.
const WAKES_NS: u64 = 20_000;
/// With more quick tasks waiting than this a second thread helps.
const BACKLOG: usize = 32;

/// A thread of the pool, as the others see it.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    awake: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Worker {
    pub(crate) fn enter(&self) {
        self.thread.get_or_init(thread::current);
    }

    pub(crate) fn sleep(&self) {
        while !self.awake.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }

    pub(crate) fn wake(&self) {
        self.awake.store(true, Ordering::SeqCst);
        // A thread that has not begun yet sees `awake` before it sleeps.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Searcher {
    worker: usize,
    /// So long it is waited for.
    until_ns: u64,
}

/// On a cache line of its own, so that looking at it does not hold up who uses its neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// What passes between who queues a task and who spins for it, without the lock.
#[derive(Debug, Default)]
struct Signals {
    /// Length of the queue.
    queued: AtomicU32,
    /// So long the searcher that spins is waited for, in ns.
    spins_until_ns: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct PoolShared {
    pub(crate) pool: Pool,
    signals: OwnLine<Signals>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    searcher: Option<Searcher>,
    queue: RunQueue,
    /// Those that sleep; who fell asleep last is woken first.
    idle: Vec<usize>,
    workers: Vec<Arc<Worker>>,
    /// Threads that should be; those with a higher number end.
    target: usize,
    /// Threads that are.
    running: Vec<bool>,
}

/// What a thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Run this task. Then, with `look`, look for work as for [`Turn::Look`].
    Run { task: Index, look: bool },
    /// Look for work without sleeping while that pays, then ask again.
    Look,
    /// Sleep until woken, then ask again.
    Sleep,
    /// End.
    Retire,
}

/// What a new task means for the threads.
#[derive(Debug)]
pub(crate) enum Notice {
    /// This one must be woken.
    Wake(Arc<Worker>),
    /// Somebody will look; the watch should see to it that he does.
    Watch,
    /// All threads are at work, and look when they are done.
    Nothing,
}

impl PoolShared {
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            pool,
            signals: OwnLine(Signals::default()),
            state: Mutex::default(),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.signals.0.queued.load(Ordering::SeqCst) > 0
    }

    /// Queues a task on behalf of a thread of the pool that asks for its [`Turn`] next.
    pub(crate) fn push_own(&self, priority: Priority, owner: u16, task: Index) {
        let mut state = self.state.lock();
        state.queue.push(priority, owner, task);
        self.publish(&state);
    }

    pub(crate) fn push(&self, priority: Priority, owner: u16, task: Index, now_ns: u64) -> Notice {
        let mut state = self.state.lock();
        state.queue.push(priority, owner, task);
        self.publish(&state);
        state.notice(now_ns, self.spins_until_ns())
    }

    /// The searcher spins.
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

    /// Notes how long the queue is, for those who look at it without the lock.
    fn publish(&self, state: &PoolState) {
        let len = state.queue.len() as u32;
        self.signals.0.queued.store(len, Ordering::Release);
    }

    /// Takes the next task, for who drives a pool without threads.
    pub(crate) fn pop(&self) -> Option<Index> {
        let mut state = self.state.lock();
        let task = state.queue.pop();
        self.publish(&state);
        task
    }

    /// What thread `me` does next. `is_quick` tells whether a task is over before another thread could be awake;
    /// `has_looked` that the thread need not be told to look for work before it sleeps. The second value is another
    /// thread to be woken.
    pub(crate) fn next(
        &self,
        me: usize,
        now_ns: u64,
        has_looked: bool,
        is_quick: impl Fn(Index) -> bool,
    ) -> (Turn, Option<Arc<Worker>>) {
        let mut state = self.state.lock();
        if me >= state.target {
            return (Turn::Retire, state.retire(me, now_ns));
        }
        let mine = state.searcher.is_none_or(|searcher| searcher.worker == me);
        let Some(task) = state.queue.pop() else {
            if mine && !has_looked {
                state.search(me, now_ns + ALIVE_NS);
                return (Turn::Look, None);
            }
            if mine {
                state.searcher = None;
                self.signals.0.spins_until_ns.store(0, Ordering::Relaxed);
            }
            state.idle.push(me);
            return (Turn::Sleep, None);
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
        (Turn::Run { task, look }, help)
    }

    /// Wakes a thread if tasks wait and nobody has looked at them for too long. Returns whether to come back: tasks
    /// wait, and threads sleep.
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
        if let Notice::Wake(worker) = notice {
            worker.wake();
        }
        wanted
    }

    /// Changes the number of threads. Returns the numbers of those to be begun.
    pub(crate) fn resize(&self, target: usize) -> Vec<(usize, Arc<Worker>)> {
        let mut state = self.state.lock();
        state.target = target;
        while state.workers.len() < target {
            state.workers.push(Arc::new(Worker::default()));
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
                state.workers[number] = Arc::new(Worker::default());
                begun.push((number, state.workers[number].clone()));
            }
        }
        begun
    }

    /// These threads could not be begun: the pool has those with lower numbers only.
    pub(crate) fn not_begun(&self, numbers: impl Iterator<Item = usize>) {
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

    /// Takes an owner's tasks out of the queue.
    pub(crate) fn strip(&self, owner: u16, into: &mut Vec<Index>) {
        let mut state = self.state.lock();
        state.queue.strip(owner, into);
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

impl Notice {
    /// Wakes who is to be woken. Returns whether the watch is wanted.
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

    /// There is work: who sees to it? `spins_until_ns` is as in [`Signals`].
    fn notice(&mut self, now_ns: u64, spins_until_ns: u64) -> Notice {
        if self.idle.is_empty() {
            return Notice::Nothing;
        }
        if let Some(searcher) = self.searcher
            && now_ns < searcher.until_ns.max(spins_until_ns)
        {
            return Notice::Watch;
        }
        self.wake_one(now_ns).map_or(Notice::Nothing, Notice::Wake)
    }

    /// Makes a sleeping thread the searcher.
    fn wake_one(&mut self, now_ns: u64) -> Option<Arc<Worker>> {
        let number = self.idle.pop()?;
        self.search(number, now_ns + WAKES_NS);
        Some(self.workers[number].clone())
    }

    fn retire(&mut self, me: usize, now_ns: u64) -> Option<Arc<Worker>> {
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
