//! Errors of opening and removing a bucket.

use kedge_disk::DiskError;
use kedge_encryption::KeyringError;
use kedge_executor::ScheduleError;
use kedge_log::LogError;
use kedge_storage::StorageError;
use kedge_types::VbId;
use kedge_vbucket::ReplayError;
use std::fmt;

/// An error of opening or removing a bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The settings are invalid.
    #[error("bucket {name}: {why}")]
    Config {
        /// The bucket.
        name: String,
        /// The setting, and the fault in it.
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
    /// A record of the log passed its checksum, but this version does not know it.
    #[error("a record of the log for vBucket {vb} is not understood: {why}")]
    Record {
        /// The vBucket that it names.
        vb: VbId,
        /// The fault in it.
        why: &'static str,
    },
    /// A record of the log contradicts the ones before it.
    #[error("the log of vBucket {vb} is inconsistent: {source}")]
    Replay {
        /// The vBucket.
        vb: VbId,
        /// The contradiction.
        source: ReplayError,
    },
    /// Some changes could not be applied to the vBuckets' files. They are safe in the log.
    #[error("changes in the log of bucket {bucket} could not be applied to the files{}", Reason(why.as_deref()))]
    NotApplied {
        /// The bucket.
        bucket: String,
        /// The first error of a file, if there was one.
        why: Option<String>,
    },
    /// The data keys cannot be read or changed.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The executor accepts no more tasks, or has too many.
    #[error("the bucket's tasks are refused: {0}")]
    Executor(#[from] ScheduleError),
    /// Loading failed, and the first waiter got the reason; or the bucket ended while it was loading.
    #[error("bucket {0} could not be loaded")]
    NotLoaded(String),
}

impl BucketError {
    /// Returns whether the disk was full. Another attempt may succeed when there is room.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Log(error) => error.is_no_space(),
            Self::Storage(error) => error.is_no_space(),
            Self::Disk(error) | Self::Keyring(KeyringError::Disk(error)) => error.is_no_space(),
            _ => false,
        }
    }

    /// Returns whether another attempt is allowed, as no acknowledged change is lost. Files are appended to, so only after a
    /// failed sync is their content unknown; the log is stricter.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Log(error) => error.is_passing(),
            Self::Storage(error) => !error.is_fatal(),
            Self::Disk(error) => !error.is_sync_failure(),
            // The file is replaced as a whole, and no key is used before that is done.
            Self::NotLoaded(_) | Self::NotApplied { .. } | Self::Keyring(_) => true,
            _ => false,
        }
    }
}

/// Formats the reason of an error that has one.
struct Reason<'a>(Option<&'a str>);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}
