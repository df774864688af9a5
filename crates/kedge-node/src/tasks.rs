//! The kinds of tasks of a node, in addition to those of its buckets.

use std::time::Duration;

use kedge_executor::{Pool, Priority, TaskKind};

/// The owner of the server's own tasks.
pub(crate) const OWNER: &str = "server";

/// Hashes the password of a login; a run is one login.
pub(crate) static AUTHENTICATION: TaskKind = TaskKind::new(
    "authentication",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// Writes lines of the audit log. A run is a batch of them and a sync.
pub(crate) static AUDIT_LOG: TaskKind = TaskKind::new(
    "audit_log",
    Pool::AuxIo,
    Priority::High,
    Duration::from_millis(500),
);

/// Saves the hashes of passwords that logins have proven. A run is all that wait.
pub(crate) static PASSWORD_HASHES: TaskKind = TaskKind::new(
    "password_hashes",
    Pool::AuxIo,
    Priority::Low,
    Duration::from_millis(500),
);
