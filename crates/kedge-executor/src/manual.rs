//! An executor without threads, driven step by step, with a clock that moves when told: for tests that must come out
//! the same every time.

use crate::clock::{Clock, nanos};
use crate::config::Config;
use crate::executor::Executor;
use crate::kind::Pool;
use crate::slab::NEVER;
use crate::workers::Workers;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Drives an executor that has no threads.
///
/// ```
/// use kedge_executor::{Config, Context, Kind, Manual, Next, Pool, Priority, TaskSpec};
/// use std::time::Duration;
///
/// static TICK: Kind = Kind::new("tick", Pool::NonIo, Priority::Normal, Duration::from_millis(1));
///
/// let (executor, manual) = Manual::new();
/// let owner = executor.register("test")?;
/// let tick = |_: &Context<'_>| Next::Snooze(Duration::from_secs(60));
/// executor.schedule(TaskSpec::new(&TICK, owner), tick)?;
/// assert_eq!(manual.run_ready(), 1);
/// assert_eq!(manual.run_ready(), 0);
/// assert_eq!(manual.advance(Duration::from_secs(300)), 5);
/// # Ok::<(), kedge_executor::Refused>(())
/// ```
#[derive(Debug)]
pub struct Manual {
    executor: Executor,
}

impl Manual {
    /// An executor whose tasks run when this says so. The clock stands at 1 ns.
    #[must_use]
    pub fn new() -> (Executor, Self) {
        let clock = Clock::Virtual(1.into());
        let executor = Executor::build(clock, Workers::new(Config::default()));
        let manual = Self {
            executor: executor.clone(),
        };
        (executor, manual)
    }

    /// The time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.executor.inner.clock.now_ns())
    }

    /// Runs the next task of a pool that is due. False if there is none.
    pub fn run_one(&self, pool: Pool) -> bool {
        self.executor.run_one(pool)
    }

    /// Runs tasks, pool by pool, until none is due. Returns how many runs that took; a task that is for ever due never
    /// lets it end.
    pub fn run_ready(&self) -> usize {
        let mut runs = 0;
        while self.executor.run_any() {
            runs += 1;
        }
        runs
    }

    /// Moves the clock, from deadline to deadline, and at each runs what is due. Returns how many runs that took.
    pub fn advance(&self, time: Duration) -> usize {
        let end_ns = self.executor.inner.clock.now_ns() + nanos(time);
        let mut runs = self.run_ready();
        loop {
            let next_ns = self.executor.fire_timers();
            let ran = self.run_ready();
            runs += ran;
            if ran > 0 {
                // What ran may be due again before that.
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
        if let Clock::Virtual(clock) = &self.inner.clock {
            clock.store(now_ns, Ordering::SeqCst);
        }
    }

    /// On a manual executor: runs what is due, and lets time pass, until `is_so`. On one with threads: nothing.
    ///
    /// # Panics
    /// When nothing is left that could run.
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
