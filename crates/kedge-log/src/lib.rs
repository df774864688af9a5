//! The commit log: one append and one sync make durable whatever all vBuckets of a bucket have
//! waiting, and a replay after a crash gives it back in order.
//!
//! A [`Log`] is used by one thread at a time, the leader of a group commit: it collects records in
//! a [`Batch`] and calls [`Log::append`], which writes once and syncs once. New segments are
//! filled with zeros beforehand by a [`SegmentPreallocator`] in the background, as overwriting blocks
//! that were written before needs no journal commit of the file system and is twice as fast.
//!
//! Invariants:
//! * A batch whose append returned is replayed by every later [`Log::open`], in order, until it is
//!   released. A batch whose append did not return is replayed whole or not at all.
//! * What a replay delivered is durable before [`Log::open`] returns, so nothing that was published
//!   because of it can be taken back by the next crash.
//! * Bytes that were not part of a batch when a recovery ended never become part of one.
//! * Damage to what was acknowledged is an error with file and offset, never a silent end of the
//!   log. The one limit: the last batch before a power loss cannot be told from one that was never
//!   finished; [`Log::close`] and [`Log::mark`] write a mark behind it that lifts the limit.
//! * So is a segment that was acknowledged in and is not there: a catalog beside the directory says which have to be.
//!
//! Why these hold stands in `docs/reference/formats/log.md`, next to the format. The log knows nothing of
//! what its records mean.
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
//! let mut nothing = |_: kedge_log::Record<'_>| Ok::<(), LogError>(());
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
//! let mut replay = |record: kedge_log::Record<'_>| {
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
mod listed;
mod log;
mod pool;
mod recovery;
mod segment;

use std::fmt;

use kedge_types::VbId;

pub use batch::{Batch, MAX_PAYLOAD_BYTES};
pub use catalog::catalog_path;
pub use config::{LogConfig, RecoveryMode};
pub use error::{LogError, Problem};
pub use listed::{ListedSegments, SegmentsCompared};
pub use log::{Log, LogStats};
pub use pool::{SegmentPreallocator, Step};
pub use recovery::{Place, RecoveryReport};

/// Log sequence number: a position in the log in bytes, counted from its creation and never reused.
/// A multiple of 8.
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

/// A record as the replay delivers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Start of the batch that the record is in: the log up to here has to be kept to find it.
    pub lsn: Lsn,
    /// What the caller gave to [`Batch::push`].
    pub kind: u8,
    /// What the caller gave to [`Batch::push`].
    pub vb: VbId,
    /// The parts given to [`Batch::push`], joined.
    pub payload: &'a [u8],
}
