//! Task pools: work is scheduled on Reader, Writer, AuxIO and NonIO threads, sleeps until a time or a wake, and ends
//! with its owner.
//!
//! * A [`Task`] belongs to a [`Kind`] (pool, priority, how long a run should take) and to an owner. Each run says what
//!   comes [`Next`].
//! * [`Executor::wake`] posts and returns; no wake is lost, and a task never runs on two threads at once.
//! * [`Executor::submit`] runs a closure once; its [`Handle`] is waited for or awaited.
//! * [`Executor::unregister`] ends all tasks of an owner.
//! * [`Manual`] is the same executor without threads, with a clock that moves when told.
//!
//! How it works: the state of a task is one atomic word (`state`), its place in a slab is found by its id without a
//! lock (`slab`). Each pool has a queue in the order of priorities and owners' turns (`queue`), under one lock together
//! with who sleeps and who searches (`pool`). Deadlines are in the tasks; a heap knows only when to look at them
//! (`timers`).
//!
//! # Example
//!
//! A task is scheduled, woken, postponed and cancelled. [`Manual`] is the executor of tests: its clock moves when told, so the
//! example needs no sleep.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use std::time::Duration;
//!
//! use kedge_executor::{Context, Kind, Manual, Next, Pool, Priority, TaskSpec};
//!
//! // A kind is a static: name, pool, priority, and the longest time that a run should take.
//! static SWEEP: Kind = Kind::new("sweep", Pool::NonIo, Priority::Low, Duration::from_millis(50));
//! const MINUTE: Duration = Duration::from_secs(60);
//!
//! let (executor, manual) = Manual::new();
//! let owner = executor.register("bucket default")?;
//! let runs = Arc::new(AtomicUsize::new(0));
//!
//! // Schedule: the first run is due at once. Each run returns when the next one is due.
//! let counter = Arc::clone(&runs);
//! let id = executor.schedule(TaskSpec::new(&SWEEP, owner), move |_: &Context<'_>| {
//!     counter.fetch_add(1, Ordering::Relaxed);
//!     Next::Snooze(MINUTE)
//! })?;
//! manual.run_ready();
//! assert_eq!(runs.load(Ordering::Relaxed), 1);
//! manual.advance(MINUTE);
//! assert_eq!(runs.load(Ordering::Relaxed), 2);
//!
//! // Wake: a sleeping task runs now. The call returns at once.
//! assert!(executor.wake(id));
//! manual.run_ready();
//! assert_eq!(runs.load(Ordering::Relaxed), 3);
//!
//! // Snooze: the next run of a sleeping task moves to another time.
//! assert!(executor.snooze(id, 10 * MINUTE));
//! manual.advance(9 * MINUTE);
//! assert_eq!(runs.load(Ordering::Relaxed), 3);
//! manual.advance(MINUTE);
//! assert_eq!(runs.load(Ordering::Relaxed), 4);
//!
//! // Cancel: no further run begins.
//! assert!(executor.cancel(id));
//! manual.advance(MINUTE);
//! assert_eq!(runs.load(Ordering::Relaxed), 4);
//! assert!(!executor.wake(id), "the task is gone");
//!
//! // Unregister: returns when no task of the owner runs or exists.
//! executor.unregister(owner, false);
//! executor.shutdown();
//! # Ok::<(), kedge_executor::Refused>(())
//! ```
//!
//! With threads, an executor is created by [`Executor::new`]. A closure that runs once needs no kind and no owner:
//!
//! ```
//! use kedge_executor::{Config, Executor, Pool, Threads};
//!
//! let executor = Executor::new(Config { reader: Threads::Fixed(2), ..Config::default() })?;
//! let handle = executor.submit(Pool::Reader, || std::fs::read_to_string("Cargo.toml"));
//! let manifest = handle.wait().expect("neither cancelled nor panicked")?;
//! assert!(manifest.contains("kedge-executor"));
//! executor.shutdown();
//! # Ok::<(), std::io::Error>(())
//! ```

mod awaited;
mod backoff;
mod clock;
mod config;
mod context;
mod error;
mod executor;
mod info;
mod job;
mod kind;
mod manual;
mod owners;
mod pool;
mod promise;
mod queue;
mod run;
mod slab;
mod state;
mod stats;
mod submitter;
mod sync;
mod threads;
mod timers;
mod workers;

pub use config::{Config, TaskSpec};
pub use context::Context;
pub use error::{Ended, Refused};
pub use executor::Executor;
pub use job::{Handle, Next, Task};
pub use kind::{Kind, Pool, Priority};
pub use manual::Manual;
pub use owners::OwnerId;
pub use queue::PATIENCE;
pub use slab::MAX_TASKS;
pub use stats::{Histogram, KindInfo, PoolInfo, TaskInfo, TaskState};
pub use threads::{MAX_THREADS, Threads};

/// Names a task for as long as the executor lives: no two tasks have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u64);

impl TaskId {
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// As a number, for logs and statistics.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
