//! An executor without threads for deterministic tests: the test runs tasks step by step and advances the clock.

use crate::clock::{ExecutorClock, nanos};
use crate::config::ExecutorConfig;
use crate::executor::Executor;
use crate::kind::Pool;
use crate::slab::NEVER;
use crate::workers::Workers;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Drives an executor without threads.
///
/// ```
/// use kedge_executor::{ExecutorConfig, TaskContext, TaskKind, ManualExecutor, Next, Pool, Priority, TaskSpec};
/// use std::time::Duration;
///
/// static TICK: TaskKind = TaskKind::new("tick", Pool::NonIo, Priority::Normal, Duration::from_millis(1));
///
/// let (executor, manual) = ManualExecutor::new();
/// let owner = executor.register("test")?;
/// let tick = |_: &TaskContext<'_>| Next::Snooze(Duration::from_secs(60));
/// executor.schedule(TaskSpec::new(&TICK, owner), tick)?;
/// assert_eq!(manual.run_ready(), 1);
/// assert_eq!(manual.run_ready(), 0);
/// assert_eq!(manual.advance(Duration::from_secs(300)), 5);
/// # Ok::<(), kedge_executor::ScheduleError>(())
/// ```
#[derive(Debug)]
pub struct ManualExecutor {
    executor: Executor,
}

impl ManualExecutor {
    /// Creates an executor whose tasks run on calls of this driver only. Its clock starts at 1 ns.
    #[must_use]
    pub fn new() -> (Executor, Self) {
        let clock = ExecutorClock::Virtual(1.into());
        let executor = Executor::build(clock, Workers::new(ExecutorConfig::default()));
        let manual = Self {
            executor: executor.clone(),
        };
        (executor, manual)
    }

    /// Returns the time since the creation of the executor.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.executor.inner.clock.now_ns())
    }

    /// Runs the next due task of a pool. Returns `false` if none is due.
    pub fn run_one(&self, pool: Pool) -> bool {
        self.executor.run_one(pool)
    }

    /// Runs tasks, pool by pool, until none is due. Returns the number of runs. A task that is always due makes the
    /// call endless.
    pub fn run_ready(&self) -> usize {
        let mut runs = 0;
        while self.executor.run_any() {
            runs += 1;
        }
        runs
    }

    /// Advances the clock from deadline to deadline and runs the due tasks at each. Returns the number of runs.
    pub fn advance(&self, time: Duration) -> usize {
        let end_ns = self.executor.inner.clock.now_ns() + nanos(time);
        let mut runs = self.run_ready();
        loop {
            let next_ns = self.executor.fire_timers();
            let ran = self.run_ready();
            runs += ran;
            if ran > 0 {
                // The run may have made tasks due before that time.
                continue;
            }
            let now_ns = self.executor.inner.clock.now_ns();
            if now_ns == end_ns {
                return runs;
            }
            self.executor.set_time(next_ns.clamp(now_ns, end_ns));
        }
    }
}

impl Executor {
    fn run_one(&self, pool: Pool) -> bool {
        let inner = &self.inner;
        let Some(index) = inner.pools[pool as usize].pop() else {
            return false;
        };
        inner.run(self, index, inner.clock.now_ns(), 0);
        true
    }

    fn run_any(&self) -> bool {
        Pool::ALL.iter().any(|pool| self.run_one(*pool))
    }

    fn set_time(&self, now_ns: u64) {
        if let ExecutorClock::Virtual(clock) = &self.inner.clock {
            clock.store(now_ns, Ordering::SeqCst);
        }
    }

    /// On a manual executor: runs due tasks and advances the clock until `is_so`. On an executor with threads: does
    /// nothing.
    ///
    /// # Panics
    /// Panics if no task can run any more, which is a deadlock.
    pub(crate) fn drive_until(&self, is_so: impl Fn() -> bool) {
        while self.is_manual() && !is_so() {
            if self.run_any() {
                continue;
            }
            let next_ns = self.fire_timers();
            if !self
                .inner
                .pools
                .iter()
                .any(crate::pool::PoolShared::has_work)
            {
                assert!(
                    next_ns != NEVER,
                    "nothing is left to run: this would wait for ever"
                );
                self.set_time(next_ns);
            }
        }
    }
}
