//! What models are made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kedge_executor::{
    Config, Context, Executor, Kind, Next, OwnerId, Pool, Priority, Task, TaskSpec, Threads,
};
use shuttle::sync::{Condvar, Mutex};

pub(crate) static KIND: Kind = Kind::new("kind", Pool::NonIo, Priority::Normal, Duration::MAX);

/// Schedules that are tried, each way.
const ROUNDS: usize = 2_000;
/// Changes of thread, beside those for waiting, that the second way makes in a schedule.
const DEPTH: usize = 3;

/// Tries a model with schedules of both sorts: any thread at any step; and few changes, at any step.
pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let same = model.clone();
    shuttle::check_random(move || model(), ROUNDS);
    shuttle::check_pct(move || same(), ROUNDS, DEPTH);
}

/// An executor with so many threads in the pool of [`KIND`], and an owner.
pub(crate) fn executor(threads: usize) -> (Executor, OwnerId) {
    let executor = Executor::new(Config {
        reader: Threads::Fixed(1),
        writer: Threads::Fixed(1),
        auxio: Threads::Fixed(1),
        nonio: Threads::Fixed(threads),
        ..Config::default()
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

/// A number that can be waited for.
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

/// Notes that something was wrong: a task's panic would be caught. No part of the model's schedule.
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

/// A task that never runs twice at a time, and whose drop can be waited for.
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

    /// One run: nobody else is inside while others have their turns.
    pub(crate) fn run(&self) {
        self.wrong.unless(!self.inside.swap(true, Ordering::SeqCst));
        self.wrong.unless(self.dropped.0.get() == 0);
        shuttle::thread::yield_now();
        self.wrong.unless(self.inside.swap(false, Ordering::SeqCst));
    }

    /// A task of it that says `next` at the end of each run.
    pub(crate) fn task(self, next: impl Fn() -> Next + Send + 'static) -> impl Task {
        move |_: &Context<'_>| {
            self.run();
            next()
        }
    }
}
