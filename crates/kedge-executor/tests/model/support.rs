//! Building blocks of the models.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kedge_executor::{
    Executor, ExecutorConfig, Next, OwnerId, Pool, Priority, Task, TaskContext, TaskKind, TaskSpec,
    ThreadCount,
};
use shuttle::sync::{Condvar, Mutex};

pub(crate) static KIND: TaskKind =
    TaskKind::new("kind", Pool::NonIo, Priority::Normal, Duration::MAX);

/// Number of schedules per strategy.
const ROUNDS: usize = 2_000;
/// Number of preemptions per schedule of the second strategy.
const DEPTH: usize = 3;

/// Runs a model with both kinds of schedules: random, and with few preemptions.
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let same = model.clone();
    shuttle::check_random(move || model(), ROUNDS);
    shuttle::check_pct(move || same(), ROUNDS, DEPTH);
}

/// Creates an executor with `threads` threads in the pool of [`KIND`], and an owner.
pub(crate) fn executor(threads: usize) -> (Executor, OwnerId) {
    let executor = Executor::new(ExecutorConfig {
        reader: ThreadCount::Fixed(1),
        writer: ThreadCount::Fixed(1),
        auxio: ThreadCount::Fixed(1),
        nonio: ThreadCount::Fixed(threads),
        ..ExecutorConfig::default()
    });
    let executor = executor.unwrap();
    let owner = executor.register("owner").unwrap();
    (executor, owner)
}

pub(crate) fn asleep(owner: OwnerId) -> TaskSpec {
    TaskSpec {
        first_run: None,
        ..TaskSpec::new(&KIND, owner)
    }
}

/// A number that a thread can wait for.
#[derive(Clone, Default)]
pub(crate) struct Level(Arc<(Mutex<u32>, Condvar)>);

impl Level {
    pub(crate) fn set(&self, level: u32) {
        *self.0.0.lock().unwrap() = level;
        self.0.1.notify_all();
    }

    pub(crate) fn add(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    pub(crate) fn get(&self) -> u32 {
        *self.0.0.lock().unwrap()
    }

    pub(crate) fn wait_for(&self, level: u32) {
        let mut now = self.0.0.lock().unwrap();
        while *now < level {
            now = self.0.1.wait(now).unwrap();
        }
    }
}

/// A record of failures, because a panic in a task would be caught. It is not part of the model's schedule.
#[derive(Clone, Default)]
pub(crate) struct Wrong(Arc<AtomicU32>);

impl Wrong {
    pub(crate) fn unless(&self, holds: bool) {
        if !holds {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.0.load(Ordering::SeqCst), 0);
    }
}

/// Adds to a level when it is dropped.
pub(crate) struct Dropped(pub(crate) Level);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A task that checks that it never runs twice at a time, and whose drop can be waited for.
pub(crate) struct Probe {
    inside: AtomicBool,
    wrong: Wrong,
    dropped: Dropped,
}

impl Probe {
    pub(crate) fn new(wrong: &Wrong, dropped: &Level) -> Self {
        Self {
            inside: AtomicBool::new(false),
            wrong: wrong.clone(),
            dropped: Dropped(dropped.clone()),
        }
    }

    /// Performs one run, and checks that no other run is in progress.
    pub(crate) fn run(&self) {
        self.wrong.unless(!self.inside.swap(true, Ordering::SeqCst));
        self.wrong.unless(self.dropped.0.get() == 0);
        shuttle::thread::yield_now();
        self.wrong.unless(self.inside.swap(false, Ordering::SeqCst));
    }

    /// Creates a task that returns `next` at the end of each run.
    pub(crate) fn task(self, next: impl Fn() -> Next + Send + 'static) -> impl Task {
        move |_: &TaskContext<'_>| {
            self.run();
            next()
        }
    }
}
