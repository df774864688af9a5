//! The server's own kinds of tasks. Those of buckets are theirs.

use std::time::Duration;

use kedge_executor::{Kind, Pool, Priority};

/// Whom the server's own tasks belong to.
pub(crate) const OWNER: &str = "server";

/// A login whose password has to be hashed; a run is one login.
pub(crate) static AUTHENTICATION: Kind = Kind::new(
    "authentication",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// A flush of memcached clients whose time has come. A run begins it.
pub(crate) static DELAYED_FLUSH: Kind = Kind::new(
    "delayed_flush",
    Pool::NonIo,
    Priority::High,
    Duration::from_millis(500),
);

/// A command that takes too long for a front-end thread, as its value or that of its document is large; a run is one
/// command.
pub(crate) static LONG_COMMAND: Kind = Kind::new(
    "long_command",
    Pool::NonIo,
    Priority::Normal,
    Duration::from_millis(500),
);

/// Lines of the audit log are written. A run is a batch of them and a sync.
pub(crate) static AUDIT_LOG: Kind = Kind::new(
    "audit_log",
    Pool::AuxIo,
    Priority::High,
    Duration::from_millis(500),
);
