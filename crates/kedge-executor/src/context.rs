//! What a task sees while it runs.

use crate::TaskId;
use crate::executor::Executor;
use std::time::Duration;

/// Given to every run of a task.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) executor: &'a Executor,
    pub(crate) id: TaskId,
    pub(crate) now_ns: u64,
    pub(crate) last: bool,
}

impl Context<'_> {
    /// The executor, to schedule, wake and cancel, the task itself too.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        self.executor
    }

    /// The task's id.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// When the run began, since the executor's beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// Whether this is the last run, as the owner is being unregistered: see [`crate::TaskSpec::wants_last_run`].
    #[must_use]
    pub fn is_last_run(&self) -> bool {
        self.last
    }

    /// Whether the task was cancelled meanwhile. A long run should look at it now and then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.executor.inner.is_cancelled(self.id)
    }
}
