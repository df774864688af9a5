//! The kinds of the tasks of persistence.

use kedge_executor::{Pool, Priority, TaskKind};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Group commit. A run is one append and one sync.
pub(crate) static LOG_COMMIT: TaskKind =
    TaskKind::new("log_commit", Pool::Writer, Priority::High, ms(500));
/// Without a log: commits of vBuckets' files. A run is as many as commands wait for.
pub(crate) static FLUSH: TaskKind = TaskKind::new("flush", Pool::Writer, Priority::High, ms(500));
/// The log is applied to the vBuckets' files. A run is one commit.
pub(crate) static APPLY: TaskKind =
    TaskKind::new("log_apply", Pool::Writer, Priority::Normal, ms(500));
/// A log segment made ready, or removed. A run is a step.
pub(crate) static LOG_SEGMENT: TaskKind =
    TaskKind::new("log_segment", Pool::AuxIo, Priority::Normal, ms(500));
/// Files that the process before wrote are made durable.
pub(crate) static MAKE_DURABLE: TaskKind =
    TaskKind::new("make_durable", Pool::AuxIo, Priority::Normal, ms(5_000));
/// A vBucket goes back to an earlier seqno. A run is all of it.
pub(crate) static ROLLBACK: TaskKind =
    TaskKind::new("rollback", Pool::AuxIo, Priority::Normal, ms(60_000));
/// A vBucket's file is compacted. A run is all of it.
pub(crate) static COMPACTION: TaskKind =
    TaskKind::new("compaction", Pool::AuxIo, Priority::Low, ms(600_000));
/// The same where commits are made.
pub(crate) static COMPACTION_ON_WRITER: TaskKind = TaskKind::new(
    "compaction_on_writer",
    Pool::Writer,
    Priority::Low,
    ms(600_000),
);
/// A look at files that changed.
pub(crate) static COMPACTION_CHECK: TaskKind =
    TaskKind::new("compaction_check", Pool::AuxIo, Priority::Normal, ms(1_000));
