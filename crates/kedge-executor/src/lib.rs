//! Task pools: work runs on Reader, Writer, AuxIO and NonIO threads, sleeps until a time or a wake, and ends with its
//! owner.
//!
//! * A [`Task`] belongs to a [`TaskKind`] (pool, priority, expected duration) and to an owner. Each run returns what
//!   happens [`Next`].
//! * [`Executor::wake`] returns immediately; no wake is lost, and a task never runs on two threads at once.
//! * [`Executor::submit`] runs a closure once; its [`TaskHandle`] returns the result to a thread or a future.
//! * [`Executor::unregister`] ends all tasks of an owner.
//! * [`ManualExecutor`] is the same executor without threads, with a clock that a test advances.
//!
//! Implementation: the state of a task is one atomic word (`state`), and the id of a task leads to its slot in a slab
//! without a lock (`slab`). Each pool has a run queue ordered by priority, round-robin among owners (`queue`). One lock
//! protects the queue and the sets of sleeping and searching threads (`pool`). Slots store deadlines; a heap stores
//! only the times at which to check slots (`timers`).
//!
//! # Example
//!
//! A task is scheduled, woken, postponed and cancelled. [`ManualExecutor`] is the executor for tests: tests advance its clock,
//! so the example needs no sleep.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use std::time::Duration;
//!
//! use kedge_executor::{TaskContext, TaskKind, ManualExecutor, Next, Pool, Priority, TaskSpec};
//!
//! // A kind is a static: name, pool, priority, and the longest time that a run should take.
//! static SWEEP: TaskKind = TaskKind::new("sweep", Pool::NonIo, Priority::Low, Duration::from_millis(50));
//! const MINUTE: Duration = Duration::from_secs(60);
//!
//! let (executor, manual) = ManualExecutor::new();
//! let owner = executor.register("bucket default")?;
//! let runs = Arc::new(AtomicUsize::new(0));
//!
//! // Schedule: the first run is due at once. Each run returns when the next one is due.
//! let counter = Arc::clone(&runs);
//! let id = executor.schedule(TaskSpec::new(&SWEEP, owner), move |_: &TaskContext<'_>| {
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
//! # Ok::<(), kedge_executor::ScheduleError>(())
//! ```
//!
//! With threads, an executor is created by [`Executor::new`]. A closure that runs once needs no kind and no owner:
//!
//! ```
//! use kedge_executor::{ExecutorConfig, Executor, Pool, ThreadCount};
//!
//! let executor = Executor::new(ExecutorConfig { reader: ThreadCount::Fixed(2), ..ExecutorConfig::default() })?;
//! let handle = executor.submit(Pool::Reader, || std::fs::read_to_string("Cargo.toml"));
//! let manifest = handle.wait().expect("neither cancelled nor panicked")?;
//! assert!(manifest.contains("kedge-executor"));
//! executor.shutdown();
//! # Ok::<(), std::io::Error>(())
//! ```

mod backoff;
mod clock;
mod config;
mod context;
mod error;
mod executor;
mod info;
mod kind;
mod manual;
mod next;
mod one_shot;
mod owners;
mod pool;
mod promise;
mod queue;
mod run;
mod run_waiters;
mod slab;
mod state;
mod stats;
mod submit;
mod submit_spin;
mod sync;
mod task;
mod threads;
mod timers;
mod worker_threads;
mod workers;

pub use config::{ExecutorConfig, TaskSpec};
pub use context::TaskContext;
pub use error::{ScheduleError, TaskError};
pub use executor::Executor;
pub use kind::{Pool, Priority, TaskKind};
pub use manual::ManualExecutor;
pub use next::Next;
pub use owners::OwnerId;
pub use queue::STARVATION_LIMIT;
pub use slab::MAX_TASKS;
pub use stats::{LatencyHistogram, PoolInfo, TaskInfo, TaskKindStats, TaskState};
pub use submit::TaskHandle;
pub use task::Task;
pub use threads::{MAX_THREADS, ThreadCount};

/// The id of a task, unique for the lifetime of the executor.
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

    /// Returns the id as a number, for logs and statistics.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
