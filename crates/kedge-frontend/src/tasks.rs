//! The kinds of tasks that front-end threads give work to.

use std::time::Duration;

use kedge_executor::{Pool, Priority, TaskKind};

/// A flush of memcached clients whose time has come. A run begins it.
pub(crate) static DELAYED_FLUSH: TaskKind = TaskKind::new(
    "delayed_flush",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// A command that takes too long for a front-end thread, as its value or that of its document is large; a run is one
/// command.
pub(crate) static LONG_COMMAND: TaskKind = TaskKind::new(
    "long_command",
    Pool::NonIo,
    Priority::Normal,
    Duration::from_millis(500),
);
