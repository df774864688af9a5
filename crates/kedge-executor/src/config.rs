//! The configuration of an executor and the specification of a task.

use crate::kind::{Pool, TaskKind};
use crate::owners::OwnerId;
use crate::threads::ThreadCount;
use std::borrow::Cow;
use std::time::Duration;

/// The configuration of an executor: sizes and priority of its thread pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Number of threads of [`Pool::Reader`].
    pub reader: ThreadCount,
    /// Number of threads of [`Pool::Writer`].
    pub writer: ThreadCount,
    /// Number of threads of [`Pool::AuxIo`].
    pub auxio: ThreadCount,
    /// Number of threads of [`Pool::NonIo`].
    pub nonio: ThreadCount,
    /// Increment of the nice value of [`Pool::AuxIo`] threads, 0 to 19, so that long work yields the processor to work
    /// that clients wait for.
    pub auxio_nice: i32,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self {
            reader: ThreadCount::default(),
            writer: ThreadCount::default(),
            auxio: ThreadCount::default(),
            nonio: ThreadCount::default(),
            auxio_nice: 5,
        }
    }
}

impl ExecutorConfig {
    /// Returns the number of threads configured for a pool.
    #[must_use]
    pub fn threads(&self, pool: Pool) -> ThreadCount {
        match pool {
            Pool::Reader => self.reader,
            Pool::Writer => self.writer,
            Pool::AuxIo => self.auxio,
            Pool::NonIo => self.nonio,
        }
    }
}

/// The specification of a task: kind, owner and first run.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// The kind of the task.
    pub kind: &'static TaskKind,
    /// The owner of the task.
    pub owner: OwnerId,
    /// A description for operators that list the tasks. The kind's name is used if it is empty.
    pub description: Cow<'static, str>,
    /// The delay until the first run. `None` means that the task sleeps until a wake.
    pub first_run: Option<Duration>,
    /// `true` if the task runs once more when its owner is unregistered without force, see
    /// [`crate::TaskContext::is_last_run`].
    pub wants_last_run: bool,
}

impl TaskSpec {
    /// Creates the specification of a task whose first run is due immediately.
    #[must_use]
    pub fn new(kind: &'static TaskKind, owner: OwnerId) -> Self {
        Self {
            kind,
            owner,
            description: Cow::Borrowed(""),
            first_run: Some(Duration::ZERO),
            wants_last_run: false,
        }
    }
}
