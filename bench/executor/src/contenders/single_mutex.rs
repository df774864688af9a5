//! The old design: one mutex around the whole scheduling state.
//!
//! A heap of ready tasks by priority, a heap of snoozed tasks by their wake times, and a map from id to task, all
//! behind one mutex; workers sleep on one condition variable. A wake searches the heap of snoozed tasks, as tasks do
//! not know their position in it.
//!
//! Invariants, under the mutex:
//! * A task is `Snoozed` exactly when it is in `future`, and `Ready` exactly when it is in `ready`.
//! * A `Running` task is in neither, so it cannot run twice at once; its state records events in the meantime.
//! * Some worker sleeps no longer than until `watched`, unless that is for ever. A thread that adds an earlier timer
//!   wakes a worker, so that no timer waits for a worker with a later deadline.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::future_heap::FutureHeap;
use super::task::{
    BENCH, Body, KINDS, Kind, LONG_LIVED, Next, ONE_SHOT, PRIORITIES, once, sleeper,
};
use crate::hist::KindStats;
use crate::pool::{Pool, TaskPool, WholePool};

/// Nanoseconds since the pool was started; the largest is "for ever".
type Nanos = u64;
const FOR_EVER: Nanos = Nanos::MAX;

/// The contender; see the header of the file.
#[derive(Debug)]
pub struct SingleMutex {
    /// The queue that the benchmarks use.
    queue: Arc<Queue>,
    /// The queues of the other pools, which only a whole server has.
    others: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
    next_id: AtomicU64,
    stats: [KindStats; KINDS],
    epoch: Instant,
}

#[derive(Default)]
struct State {
    tasks: HashMap<u64, Task>,
    ready: BinaryHeap<Ready>,
    future: FutureHeap,
    /// The number of tasks that became ready, which serves equal priorities in order.
    order: u64,
    parked: usize,
    watched: Nanos,
    stopping: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

struct Task {
    owner: u32,
    kind: Kind,
    phase: Phase,
    wake_at: Nanos,
    runs: u64,
    run_time: Nanos,
    body: Option<Body>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Snoozed,
    Ready,
    Running {
        woken: bool,
        snooze_until: Option<Nanos>,
        cancelled: bool,
    },
}

/// Ordered so that the largest runs first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    priority: std::cmp::Reverse<u8>,
    order: std::cmp::Reverse<u64>,
    id: u64,
}

impl State {
    fn make_ready(&mut self, id: u64, now: Nanos) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.phase = Phase::Ready;
        task.wake_at = now;
        self.order += 1;
        self.ready.push(Ready {
            priority: std::cmp::Reverse(PRIORITIES[usize::from(task.kind)]),
            order: std::cmp::Reverse(self.order),
            id,
        });
    }

    /// Places a task that does not run and is in no heap according to its wake time.
    fn place(&mut self, id: u64, wake_at: Nanos, now: Nanos) {
        if wake_at <= now {
            self.make_ready(id, now);
        } else if let Some(task) = self.tasks.get_mut(&id) {
            task.phase = Phase::Snoozed;
            task.wake_at = wake_at;
            self.future.push(wake_at, id);
        }
    }

    /// Returns the time of the next snoozed task.
    fn first_timer(&self) -> Nanos {
        self.future.first().map_or(FOR_EVER, |(wake_at, _)| wake_at)
    }

    /// Makes due tasks ready.
    fn collect_due(&mut self, now: Nanos) {
        while let Some((wake_at, id)) = self.future.first() {
            if wake_at > now {
                break;
            }
            self.future.pop();
            self.make_ready(id, wake_at);
        }
    }

    /// Takes the body of the next task to run.
    fn begin(&mut self) -> Option<(u64, Kind, Nanos, Body)> {
        let Ready { id, .. } = self.ready.pop()?;
        let task = self.tasks.get_mut(&id).expect("a ready task exists");
        task.phase = Phase::Running {
            woken: false,
            snooze_until: None,
            cancelled: false,
        };
        let body = task
            .body
            .take()
            .expect("a task that does not run has its body");
        Some((id, task.kind, task.wake_at, body))
    }

    /// Records the end of a run. Returns a body to drop, which must happen outside the mutex.
    fn end(
        &mut self,
        id: u64,
        body: Option<Body>,
        next: Next,
        ran: Nanos,
        now: Nanos,
    ) -> Option<Body> {
        let task = self.tasks.get_mut(&id).expect("a running task exists");
        task.runs += 1;
        task.run_time += ran;
        let Phase::Running {
            woken,
            snooze_until,
            cancelled,
        } = task.phase
        else {
            unreachable!("the phase of a running task is only changed by its worker");
        };
        if cancelled || next == Next::Done {
            self.tasks.remove(&id);
            return body;
        }
        task.body = body;
        let wake_at = if woken {
            now
        } else {
            snooze_until.unwrap_or(FOR_EVER)
        };
        self.place(id, wake_at, now);
        None
    }
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                watched: FOR_EVER,
                ..State::default()
            }),
            work: Condvar::new(),
            next_id: AtomicU64::new(1),
            stats: Default::default(),
            epoch: Instant::now(),
        })
    }

    fn now(&self) -> Nanos {
        nanos(self.epoch.elapsed())
    }

    fn schedule(&self, owner: u32, kind: Kind, wake_in: Option<Duration>, body: Body) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        let wake_at = wake_in.map_or(FOR_EVER, |time| now + nanos(time));
        let task = Task {
            owner,
            kind,
            phase: Phase::Snoozed,
            wake_at,
            runs: 0,
            run_time: 0,
            body: Some(body),
        };
        let mut state = self.state.lock();
        state.tasks.insert(id, task);
        state.place(id, wake_at, now);
        self.release(state);
        id
    }

    fn wake(&self, id: u64) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(task) = state.tasks.get_mut(&id) else {
            return false;
        };
        match &mut task.phase {
            Phase::Ready => {}
            Phase::Running { woken, .. } => *woken = true,
            Phase::Snoozed => {
                state.future.remove(id);
                state.make_ready(id, now);
            }
        }
        self.release(state);
        true
    }

    fn snooze(&self, id: u64, wake_in: Duration) -> bool {
        let wake_at = self.now() + nanos(wake_in);
        let mut state = self.state.lock();
        let Some(task) = state.tasks.get_mut(&id) else {
            return false;
        };
        match &mut task.phase {
            Phase::Ready => {}
            Phase::Running { snooze_until, .. } => *snooze_until = Some(wake_at),
            Phase::Snoozed => {
                task.wake_at = wake_at;
                state.future.update(id, wake_at);
            }
        }
        self.release(state);
        true
    }

    fn cancel(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let Some(task) = state.tasks.get_mut(&id) else {
            return false;
        };
        match &mut task.phase {
            Phase::Running { cancelled, .. } => return !std::mem::replace(cancelled, true),
            Phase::Snoozed => state.future.remove(id),
            Phase::Ready => state.ready.retain(|ready| ready.id != id),
        }
        let task = state.tasks.remove(&id);
        drop(state);
        task.is_some_and(|task| task.owner == BENCH)
    }

    /// Unlocks, and wakes one worker if one sleeps and there is work or an unwatched timer. Notifying after the mutex
    /// is free spares the worker a second sleep.
    fn release(&self, state: MutexGuard<'_, State>) {
        let is_wanted = !state.ready.is_empty() || state.first_timer() < state.watched;
        let notify = state.parked > 0 && is_wanted;
        drop(state);
        if notify {
            self.work.notify_one();
        }
    }

    fn run_worker(&self) {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return;
            }
            let timer = state.first_timer();
            if timer != FOR_EVER {
                state.collect_due(self.now());
            }
            let Some((id, kind, wake_at, mut body)) = state.begin() else {
                state.parked += 1;
                if timer < state.watched {
                    state.watched = timer;
                    let until = self.epoch + Duration::from_nanos(timer);
                    self.work.wait_until(&mut state, until);
                    state.watched = FOR_EVER;
                } else {
                    self.work.wait(&mut state);
                }
                state.parked -= 1;
                continue;
            };
            // Several may have become due at once.
            self.release(state);
            let began = self.now();
            let stats = &self.stats[usize::from(kind)];
            stats.queue_time.record(began.saturating_sub(wake_at));
            let next = body();
            let ended = self.now();
            stats.run_time.record(ended - began);
            // A task is dropped without a lock.
            let body = if next == Next::Done { None } else { Some(body) };
            state = self.state.lock();
            let dead = state.end(id, body, next, ended - began, ended);
            if dead.is_some() {
                drop(state);
                drop(dead);
                state = self.state.lock();
            }
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(FOR_EVER)
}

impl SingleMutex {
    fn start_pools(threads: &[usize]) -> Self {
        let queues: Vec<_> = threads.iter().map(|_| Queue::new()).collect();
        let threads = threads
            .iter()
            .zip(&queues)
            .flat_map(|(count, queue)| (0..*count).map(move |_| Arc::clone(queue)))
            .map(|queue| std::thread::spawn(move || queue.run_worker()))
            .collect();
        Self {
            queue: Arc::clone(&queues[0]),
            others: queues[1..].to_vec(),
            threads,
        }
    }
}

impl Drop for SingleMutex {
    fn drop(&mut self) {
        for queue in self.others.iter().chain([&self.queue]) {
            queue.state.lock().stopping = true;
            queue.work.notify_all();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Pool for SingleMutex {
    const NAME: &'static str = "single_mutex";

    fn start(threads: usize) -> Self {
        Self::start_pools(&[threads])
    }

    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J) {
        self.queue
            .schedule(BENCH, ONE_SHOT, Some(Duration::ZERO), once(job));
    }
}

impl TaskPool for SingleMutex {
    type Id = u64;

    fn add<R: FnMut() + Send + 'static>(&self, wake_in: Option<Duration>, run: R) -> u64 {
        self.queue
            .schedule(BENCH, LONG_LIVED, wake_in, sleeper(run))
    }

    fn wake(&self, id: u64) {
        self.queue.wake(id);
    }

    fn wake_and_wait(&self, id: u64) -> bool {
        self.queue.wake(id)
    }

    fn snooze(&self, id: u64, wake_in: Duration) {
        self.queue.snooze(id, wake_in);
    }

    fn cancel(&self, id: u64) {
        self.queue.cancel(id);
    }
}

impl WholePool for SingleMutex {
    fn start_whole() -> Self {
        Self::start_pools(&super::WHOLE)
    }
}
