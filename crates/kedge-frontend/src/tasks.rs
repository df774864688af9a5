//! The kinds of tasks of front-end threads.

use std::time::Duration;

use kedge_executor::{Pool, Priority, TaskKind};

/// Begins the delayed flush of a memcached client when its time has come.
pub(crate) static DELAYED_FLUSH: TaskKind = TaskKind::new(
    "delayed_flush",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// Returns memory to the operating system.
pub(crate) static MEMORY_RETURN: TaskKind = TaskKind::new(
    "memory_return",
    Pool::NonIo,
    Priority::Low,
    Duration::from_millis(100),
);

/// Executes one command that takes too long for a front-end thread, as its value or that of its document is large.
pub(crate) static LONG_COMMAND: TaskKind = TaskKind::new(
    "long_command",
    Pool::NonIo,
    Priority::Normal,
    Duration::from_millis(500),
);
