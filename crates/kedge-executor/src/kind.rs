//! What tasks are: their pool, their priority, how long a run should take.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Kinds that one process may have.
pub(crate) const MAX_KINDS: usize = 256;

/// A pool of threads. What is long, or what no client waits for, belongs on [`Pool::AuxIo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Short reads of the disk that a client waits for.
    Reader = 0,
    /// Short writes to the disk that a client waits for.
    Writer = 1,
    /// Long work on files: its threads have a lower priority in the operating system.
    AuxIo = 2,
    /// Work that needs the processor only.
    NonIo = 3,
}

impl Pool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Writer, Self::AuxIo, Self::NonIo];

    /// Its name; thread 0 of it is called `NAME-0`.
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

/// Which of a pool's due tasks runs first. One that is passed over [`crate::PATIENCE`] times runs whatever its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// A client waits for it.
    High = 0,
    /// The usual.
    Normal = 1,
    /// Whenever there is time.
    Low = 2,
}

impl Priority {
    pub(crate) const COUNT: usize = 3;
}

/// What a task is: a `static` that the tasks of that kind refer to. A crate keeps its kinds in one file, so that they
/// can be read as a table.
///
/// ```
/// use kedge_executor::{Kind, Pool, Priority};
/// use std::time::Duration;
///
/// static APPLY: Kind = Kind::new("log_apply", Pool::Writer, Priority::Normal, Duration::from_millis(250));
/// assert_eq!(APPLY.name(), "log_apply");
/// ```
#[derive(Debug)]
pub struct Kind {
    name: &'static str,
    pool: Pool,
    priority: Priority,
    expected: Duration,
    index: OnceLock<usize>,
}

/// Index of the next kind that is used for the first time.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Kind {
    /// A kind. A run that takes longer than `expected` is logged and counted.
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

    /// Its name in statistics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its tasks run.
    #[must_use]
    pub const fn pool(&self) -> Pool {
        self.pool
    }

    /// Which of a pool's due tasks run first.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// How long a run takes at most when all is well.
    #[must_use]
    pub const fn expected(&self) -> Duration {
        self.expected
    }

    /// Its place in tables, the same in all executors of the process.
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

/// Closures that came through [`crate::Executor::submit`] without a kind of their own.
pub(crate) static CLOSURES: [Kind; 4] = {
    const EXPECTED: Duration = Duration::from_secs(1);
    [
        Kind::new("reader_closure", Pool::Reader, Priority::Normal, EXPECTED),
        Kind::new("writer_closure", Pool::Writer, Priority::Normal, EXPECTED),
        Kind::new("auxio_closure", Pool::AuxIo, Priority::Normal, EXPECTED),
        Kind::new("nonio_closure", Pool::NonIo, Priority::Normal, EXPECTED),
    ]
};
