//! The kinds of tasks of a bucket.

use kedge_executor::{Pool, Priority, TaskKind};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The task that loads a bucket. It is long, but runs in the Reader pool, because all clients wait for it and the threads
/// of AuxIO have a lower priority.
pub(crate) static WARMUP: TaskKind =
    TaskKind::new("warmup", Pool::Reader, Priority::High, ms(60_000));
/// The task that completes the deletion of a vBucket: it syncs the log, and removes the documents and the file.
pub(crate) static VBUCKET_DELETION: TaskKind =
    TaskKind::new("vbucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The task that flushes a bucket, in one run.
pub(crate) static BUCKET_FLUSH: TaskKind =
    TaskKind::new("bucket_flush", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The task that removes the directory of a dropped bucket, in one run.
pub(crate) static BUCKET_DELETION: TaskKind =
    TaskKind::new("bucket_deletion", Pool::AuxIo, Priority::Normal, ms(5_000));
/// The task that changes the state of a vBucket. A run includes a sync.
pub(crate) static VBUCKET_STATE: TaskKind =
    TaskKind::new("vbucket_state", Pool::Writer, Priority::Normal, ms(500));
/// The task that executes the backfills of a connection, in time slices.
pub(crate) static DCP_BACKFILL: TaskKind =
    TaskKind::new("dcp_backfill", Pool::AuxIo, Priority::Normal, ms(500));
/// The task that executes range scans, in time slices.
pub(crate) static RANGE_SCAN: TaskKind =
    TaskKind::new("range_scan", Pool::Reader, Priority::Normal, ms(500));
/// The task that opens a file for another node, or reads a part of it.
pub(crate) static FILE_COPY: TaskKind =
    TaskKind::new("file_copy", Pool::AuxIo, Priority::Normal, ms(500));
/// The task that closes a file which another node does not read any more.
pub(crate) static FILE_COPY_END: TaskKind =
    TaskKind::new("file_copy_end", Pool::NonIo, Priority::Low, ms(100));
/// The task that drops the slowest cursors of streams.
pub(crate) static DCP_CURSORS: TaskKind =
    TaskKind::new("dcp_cursors", Pool::NonIo, Priority::Normal, ms(100));
