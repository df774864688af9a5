//! Why a bucket does not open.

use kedge_disk::DiskError;
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
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// Loading failed; the reason was given to who waited first.
    #[error("bucket {0} could not be loaded")]
    NotLoaded(String),
}
