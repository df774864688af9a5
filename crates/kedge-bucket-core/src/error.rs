//! Why a bucket does not open.

use kedge_disk::DiskError;
use kedge_executor::ScheduleError;
use kedge_log::LogError;
use kedge_storage::StorageError;
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
    /// A vBucket's file cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
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
    /// Not everything that the log has could be written into the vBuckets' files. It is safe in the log.
    #[error("what the log of bucket {0} has could not be written into the files")]
    NotApplied(String),
    /// The executor takes no tasks any more, or has too many.
    #[error("the bucket's tasks are refused: {0}")]
    Executor(#[from] ScheduleError),
    /// Loading failed, and the reason was given to who waited first; or it was cut short by the bucket's end.
    #[error("bucket {0} could not be loaded")]
    NotLoaded(String),
}

impl BucketError {
    /// Whether the disk was full. The same may work when there is room.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Log(error) => error.is_no_space(),
            Self::Storage(error) => error.is_no_space(),
            Self::Disk(error) => error.is_no_space(),
            _ => false,
        }
    }

    /// Whether the same may be tried again, with nothing lost that was acknowledged. A file is written behind what it
    /// has, so only a failed sync leaves open what is in it; the log is stricter.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Log(error) => error.is_passing(),
            Self::Storage(error) => !error.is_fatal(),
            Self::Disk(error) => !error.is_sync_failure(),
            Self::NotLoaded(_) | Self::NotApplied(_) => true,
            _ => false,
        }
    }
}
