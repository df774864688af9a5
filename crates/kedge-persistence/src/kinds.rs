//! The kinds of the tasks of persistence.

use kedge_executor::{Pool, Priority, TaskKind};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Group commit. A run is one or more batches of one append and one sync.
pub(crate) static LOG_COMMIT: TaskKind =
    TaskKind::new("log_commit", Pool::Writer, Priority::High, ms(500));
/// Commits of the vBuckets' files in a bucket without a log. A run flushes the vBuckets that commands wait for.
pub(crate) static FLUSH: TaskKind = TaskKind::new("flush", Pool::Writer, Priority::High, ms(500));
/// Application of the log to the vBuckets' files. A run is one commit.
pub(crate) static APPLY: TaskKind =
    TaskKind::new("log_apply", Pool::Writer, Priority::Normal, ms(500));
/// Preallocation and removal of log segments. A run is one step.
pub(crate) static LOG_SEGMENT: TaskKind =
    TaskKind::new("log_segment", Pool::AuxIo, Priority::Normal, ms(500));
/// Syncs of the files that the previous process wrote.
pub(crate) static MAKE_DURABLE: TaskKind =
    TaskKind::new("make_durable", Pool::AuxIo, Priority::Normal, ms(5_000));
/// Rollback of a vBucket to an earlier seqno, in one run.
pub(crate) static ROLLBACK: TaskKind =
    TaskKind::new("rollback", Pool::AuxIo, Priority::Normal, ms(60_000));
/// Installation of a copy of another node's file, in one run.
pub(crate) static FILE_INSTALL: TaskKind =
    TaskKind::new("file_install", Pool::AuxIo, Priority::Normal, ms(60_000));
/// Compaction of a vBucket's file, in one run.
pub(crate) static COMPACTION: TaskKind =
    TaskKind::new("compaction", Pool::AuxIo, Priority::Low, ms(600_000));
/// The same, on the pool that makes the commits.
pub(crate) static COMPACTION_ON_WRITER: TaskKind = TaskKind::new(
    "compaction_on_writer",
    Pool::Writer,
    Priority::Low,
    ms(600_000),
);
/// Check of changed files for garbage.
pub(crate) static COMPACTION_CHECK: TaskKind =
    TaskKind::new("compaction_check", Pool::AuxIo, Priority::Normal, ms(1_000));
/// Changes of the data keys, and the truncation of log segments of older ones.
pub(crate) static ENCRYPTION_KEYS: TaskKind =
    TaskKind::new("encryption_keys", Pool::AuxIo, Priority::Normal, ms(60_000));
