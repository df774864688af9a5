//! The commit log: one append and one sync make the waiting records of all vBuckets of a bucket durable, and a replay
//! after a crash returns them in order.
//!
//! One thread at a time uses a [`Log`]: the leader of a group commit, which collects records in a [`Batch`] and calls
//! [`Log::append`] for one write and one sync. A [`SegmentPreallocator`] fills new segments with zeros in the
//! background, because overwriting allocated blocks needs no journal commit of the file system and is twice as fast.
//!
//! Invariants:
//! * Every later [`Log::open`] replays a batch whose append has returned, in order, until it is released. A batch whose
//!   append did not return is replayed as a whole or not at all.
//! * Replayed records are durable before [`Log::open`] returns, so the next crash cannot revoke state that was
//!   published because of them.
//! * Bytes that were not part of a batch when a recovery ended never become part of one.
//! * Damage to acknowledged data is an error with file and offset, never a silent end of the log. There is one limit:
//!   damage to the last batch before a power loss looks like an unfinished append. [`Log::close`] and [`Log::write_marker`]
//!   write an end marker after that batch, which lifts the limit.
//! * With an active key in [`LogConfig::keys`], no record is written to a file as plain text, and a key that is missing
//!   at an open is an error of its own, never damage or an end of the log.
//! * A missing segment is an error, too: a catalog beside the directory has the range of segments that must exist.
//!
//! `docs/reference/formats/log.md` proves these invariants and describes the format. The log does not know the meaning
//! of its records.
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_disk::SimDisk;
//! use kedge_log::{Batch, Log, LogConfig, LogError, RecoveryMode};
//! use kedge_types::VbId;
//!
//! let (disk, dir, owner) = (Arc::new(SimDisk::new(1)), Path::new("/data/log"), [7; 16]);
//! let (config, mode) = (LogConfig::default(), RecoveryMode::Strict);
//!
//! // One append makes the records of all vBuckets durable.
//! let mut nothing = |_: kedge_log::LogRecord<'_>| Ok::<(), LogError>(());
//! let (mut log, _) = Log::open(disk.clone(), dir, owner, config.clone(), mode, &mut nothing)?;
//! let mut batch = Batch::new();
//! batch.push(1, VbId(3), &[b"key", b"value"])?;
//! batch.push(1, VbId(8), &[b"another"])?;
//! log.append(&mut batch)?;
//! drop(log);
//! disk.crash(42);
//!
//! // After a power loss they are replayed in order.
//! let mut replayed = Vec::new();
//! let mut replay = |record: kedge_log::LogRecord<'_>| {
//!     replayed.push((record.vb, record.payload.to_vec()));
//!     Ok::<(), LogError>(())
//! };
//! let (log, _) = Log::open(disk, dir, owner, config, mode, &mut replay)?;
//! assert_eq!(replayed, [(VbId(3), b"keyvalue".to_vec()), (VbId(8), b"another".to_vec())]);
//! log.close()?;
//! # Ok::<(), LogError>(())
//! ```

mod batch;
mod catalog;
mod config;
mod error;
mod format;
mod key_use;
mod keys;
mod listed;
mod log;
mod pool;
mod recovery;
mod seal;
mod segment;

use std::fmt;

use kedge_types::VbId;

pub use batch::{Batch, MAX_PAYLOAD_BYTES};
pub use catalog::catalog_path;
pub use config::{LogConfig, RecoveryMode};
pub use error::{CorruptionKind, LogError};
pub use key_use::SegmentKeyUse;
pub use keys::{KEY_BYTES, KEY_ID_BYTES_MAX, NoKeys, SegmentKey, SegmentKeys};
pub use listed::{SegmentDifferences, SegmentListing};
pub use log::{Log, LogStats};
pub use pool::{PreallocationStep, SegmentPreallocator};
pub use recovery::{LogLocation, RecoveryReport};

/// Log sequence number: a position in the log in bytes, counted from its creation and never reused. It is a multiple of
/// 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(
    /// The position in bytes.
    pub u64,
);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A replayed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// Position of the batch with the record. The log from there on has to be retained to replay the record.
    pub lsn: Lsn,
    /// The `kind` given to [`Batch::push`].
    pub kind: u8,
    /// The `vb` given to [`Batch::push`].
    pub vb: VbId,
    /// The concatenation of the `parts` given to [`Batch::push`].
    pub payload: &'a [u8],
}
