//! The files of the vBuckets, and waiting until everything is in them or in the log.

use crate::persistence::Persistence;
use kedge_bucket_core::BucketError;
use kedge_types::{Status, VbId};

impl Persistence {
    /// Makes everything that was written so far durable before it returns.
    ///
    /// # Errors
    /// Those of the log, or of the files without one.
    pub fn sync(&self) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.core.storage()?;
            return self.flush_everything();
        }
        let Some(committer) = self.committer.get() else {
            return Err(BucketError::NotLoaded(self.core.name().to_owned()));
        };
        self.commit_all(&mut committer.lock())
    }

    /// Brings everything that was written so far into the vBuckets' files before it returns.
    ///
    /// # Errors
    /// Those of the log and of the files.
    pub fn apply(&self) -> Result<(), BucketError> {
        self.sync()?;
        self.apply_all(|| false)
    }

    /// Logs an error of the disk, and returns the status that a client gets; an error that does not pass ends the bucket.
    pub fn refuse(&self, vb: VbId, error: &BucketError, what: &str) -> Status {
        if error.is_passing() {
            tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "{what}");
        } else {
            self.core.fail(&error.to_string());
        }
        Status::TemporaryFailure
    }
}
