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
