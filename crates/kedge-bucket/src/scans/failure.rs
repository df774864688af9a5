//! The failure of a command on a range scan.

use kedge_bucket_core::BucketError;
use kedge_types::Status;

/// The cause of a command's failure.
pub(super) enum ScanFailure {
    Status(Status),
    /// The file cannot be read.
    Disk(BucketError),
}

impl From<Status> for ScanFailure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<BucketError> for ScanFailure {
    fn from(error: BucketError) -> Self {
        Self::Disk(error)
    }
}

impl From<kedge_storage::StorageError> for ScanFailure {
    fn from(error: kedge_storage::StorageError) -> Self {
        Self::Disk(error.into())
    }
}
