//! Why a bucket does not open.

use kedge_disk::DiskError;
use kedge_executor::Refused;
use kedge_log::LogError;
use kedge_types::VbId;
use kedge_vbucket::ReplayError;

/// Why a bucket cannot be opened or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The settings make no sense.
    #[error("bucket {name}: {why}")]
    Config {
        /// The bucket.
        name: String,
        /// Which setting, and what is wrong with it.
        why: String,
    },
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A directory cannot be made or removed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A record of the log passed its checksum, yet is none that this version writes.
    #[error("a record of the log for vBucket {vb} is not understood: {why}")]
    Record {
        /// The vBucket that it names.
        vb: VbId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A record of the log does not fit the ones before it.
    #[error("the log of vBucket {vb} does not hang together: {source}")]
    Replay {
        /// The vBucket.
        vb: VbId,
        /// What does not fit.
        source: ReplayError,
    },
    /// The executor takes no tasks any more, or has too many.
    #[error("the bucket's tasks are refused: {0}")]
    Executor(#[from] Refused),
    /// Loading failed, and the reason was given to who waited first; or it was cut short by the bucket's end.
    #[error("bucket {0} could not be loaded")]
    NotLoaded(String),
}
