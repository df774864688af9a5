//! Pools, priorities and kinds of tasks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Largest number of kinds in a process.
pub(crate) const MAX_KINDS: usize = 256;

/// A pool of threads. Long work, and work that no client waits for, belongs on [`Pool::AuxIo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Short reads from disk that a client waits for.
    Reader = 0,
    /// Short writes to disk that a client waits for.
    Writer = 1,
    /// Long work on files. Its threads have a lower priority in the operating system.
    AuxIo = 2,
    /// Work without I/O.
    NonIo = 3,
}

impl Pool {
    /// All pools.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Writer, Self::AuxIo, Self::NonIo];

    /// Returns the name of the pool. Its threads are named `NAME-0` and so on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::AuxIo => "auxio",
            Self::NonIo => "nonio",
        }
    }
}

/// The order of a pool's due tasks. A priority that was passed over [`crate::STARVATION_LIMIT`] times is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// For tasks that a client waits for.
    High = 0,
    /// The default.
    Normal = 1,
    /// For tasks that run when no others are due.
    Low = 2,
}

impl Priority {
    pub(crate) const COUNT: usize = 3;
}

/// The kind of a task: a `static` to which the tasks of that kind refer. A crate defines its kinds in one file, which
/// reads as a table.
///
/// ```
/// use kedge_executor::{TaskKind, Pool, Priority};
/// use std::time::Duration;
///
/// static APPLY: TaskKind = TaskKind::new("log_apply", Pool::Writer, Priority::Normal, Duration::from_millis(250));
/// assert_eq!(APPLY.name(), "log_apply");
/// ```
#[derive(Debug)]
pub struct TaskKind {
    name: &'static str,
    pool: Pool,
    priority: Priority,
    expected: Duration,
    index: OnceLock<usize>,
}

/// The index of the next kind that is used for the first time.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl TaskKind {
    /// Creates a kind. Runs that take longer than `expected` are logged and counted.
    #[must_use]
    pub const fn new(
        name: &'static str,
        pool: Pool,
        priority: Priority,
        expected: Duration,
    ) -> Self {
        Self {
            name,
            pool,
            priority,
            expected,
            index: OnceLock::new(),
        }
    }

    /// Returns the name in statistics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the pool of the kind's tasks.
    #[must_use]
    pub const fn pool(&self) -> Pool {
        self.pool
    }

    /// Returns the priority of the kind's tasks in their pool.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the longest expected duration of a run.
    #[must_use]
    pub const fn expected(&self) -> Duration {
        self.expected
    }

    /// Returns the index in tables, which is the same in all executors of the process.
    pub(crate) fn index(&self) -> usize {
        *self.index.get_or_init(|| {
            let index = NEXT.fetch_add(1, Ordering::Relaxed);
            assert!(
                index < MAX_KINDS,
                "a kind is a static, of which there are few"
            );
            index
        })
    }
}

/// The kinds of closures that [`crate::Executor::submit`] runs, one per pool.
pub(crate) static CLOSURES: [TaskKind; 4] = {
    const EXPECTED: Duration = Duration::from_secs(1);
    [
        TaskKind::new("reader_closure", Pool::Reader, Priority::Normal, EXPECTED),
        TaskKind::new("writer_closure", Pool::Writer, Priority::Normal, EXPECTED),
        TaskKind::new("auxio_closure", Pool::AuxIo, Priority::Normal, EXPECTED),
        TaskKind::new("nonio_closure", Pool::NonIo, Priority::Normal, EXPECTED),
    ]
};
