//! Timeouts of parked commands. While none is parked, the task sleeps.

use crate::core::BucketCore;
use crate::error::BucketError;
use crate::task::{Component, TaskBody, add_task};
use kedge_executor::{Next, Pool, Priority, TaskKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Parked commands whose time is up are ended.
static DURABILITY_TIMEOUT: TaskKind = TaskKind::new(
    "durability_timeout",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(100),
);

/// Interval at which the timeouts of parked commands are checked while there are any.
const TICK: Duration = Duration::from_millis(20);

/// The task.
struct DurabilityTimeout;

impl TaskBody<BucketCore> for DurabilityTimeout {
    fn run(&mut self, core: &BucketCore, _: Duration) -> Next {
        let none_parked = || core.parked.load(Ordering::SeqCst) <= 0;
        if none_parked() {
            core.timeouts.park();
            if none_parked() {
                return Next::Sleep;
            }
            core.timeouts.clear();
        }
        core.check_time();
        Next::Snooze(TICK)
    }
}

impl Component for BucketCore {
    fn core(&self) -> &BucketCore {
        self
    }
}

impl BucketCore {
    /// Begins the task that ends parked commands whose time is up.
    ///
    /// # Errors
    /// [`BucketError::Executor`].
    pub fn begin_timeouts(self: &Arc<Self>) -> Result<(), BucketError> {
        let does = "ends parked commands whose time is up";
        let task = add_task(self, &DURABILITY_TIMEOUT, does, DurabilityTimeout)?;
        self.timeouts.set_task(task);
        self.setup.executor.wake(task);
        Ok(())
    }

    /// Reports that a command was parked, and is counted in `parked`.
    pub fn on_parked(&self) {
        let Some(task) = self.timeouts.unpark() else {
            return;
        };
        let executor = &self.setup.executor;
        // The first check is a tick from now; a task that is still falling asleep does it at once.
        if !executor.snooze(task, TICK) {
            executor.wake(task);
        }
    }

    /// Tells every vBucket with waiting commands the time.
    fn check_time(&self) {
        let now = self.setup.clock.now();
        let mut done = Vec::new();
        for vbucket in &self.vbuckets {
            let mut vbucket = vbucket.lock();
            if vbucket.durability().has_waiters() {
                let (_, mut ended) =
                    self.account(now, &mut vbucket, |vbucket| vbucket.on_time(now));
                done.append(&mut ended);
            }
        }
        self.after_step();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
    }
}
