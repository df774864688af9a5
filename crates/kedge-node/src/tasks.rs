//! The kinds of tasks that a node has beside those of its buckets.

use std::time::Duration;

use kedge_executor::{Pool, Priority, TaskKind};

/// Whom the server's own tasks belong to.
pub(crate) const OWNER: &str = "server";

/// A login whose password has to be hashed; a run is one login.
pub(crate) static AUTHENTICATION: TaskKind = TaskKind::new(
    "authentication",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// Lines of the audit log are written. A run is a batch of them and a sync.
pub(crate) static AUDIT_LOG: TaskKind = TaskKind::new(
    "audit_log",
    Pool::AuxIo,
    Priority::High,
    Duration::from_millis(500),
);
