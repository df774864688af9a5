//! The context of a task's run.

use crate::TaskId;
use crate::executor::Executor;
use std::time::Duration;

/// The context that a task receives for each run.
#[derive(Debug)]
pub struct TaskContext<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) id: TaskId,
    pub(crate) now_ns: u64,
    pub(crate) last: bool,
}

impl TaskContext<'_> {
    /// Returns the executor. A task may schedule, wake and cancel through it, itself included.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        self.executor
    }

    /// Returns the id of the task.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the start time of the run, relative to the creation of the executor.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// Returns `true` in the last run of a task whose owner is being unregistered, see
    /// [`crate::TaskSpec::wants_last_run`].
    #[must_use]
    pub fn is_last_run(&self) -> bool {
        self.last
    }

    /// Returns `true` if the task has been cancelled during this run. Long runs check it from time to time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.executor.inner.is_cancelled(self.id)
    }
}
