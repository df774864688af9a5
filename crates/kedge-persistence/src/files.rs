//! The files of the vBuckets, and waiting until everything is in them or in the log.

use crate::persistence::Persistence;
use kedge_bucket_core::BucketError;
use kedge_storage::{FileFigures, Storage};
use kedge_types::{Status, VbId};

impl Persistence {
    /// What the file of a vBucket is like; `None` while it has none. A file that nobody looked at since the start is
    /// opened for it. Nothing but the length counts of one that a flush has made void, until another takes its place.
    ///
    /// # Errors
    /// `NotLoaded` at the beginning of loading; what storage says of the file.
    pub fn file_figures(&self, vb: VbId) -> Result<Option<FileFigures>, BucketError> {
        let figures = self.storage()?.file_figures(vb)?;
        let vbucket = self.core.vbuckets.get(vb.index());
        let is_void = vbucket.is_some_and(|vbucket| vbucket.lock().store().is_file_void());
        Ok(figures.map(|figures| match is_void {
            true => figures.without_content(),
            false => figures,
        }))
    }

    /// Makes everything that was written so far durable before it returns.
    ///
    /// # Errors
    /// What the log says, or the files without one.
    pub fn sync(&self) -> Result<(), BucketError> {
        if self.core.is_direct() {
            self.storage()?;
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
    /// What the log and the files say.
    pub fn apply(&self) -> Result<(), BucketError> {
        self.sync()?;
        self.apply_all(|| false)
    }

    /// The bucket's files, which are there from the beginning of loading on.
    pub fn storage(&self) -> Result<&Storage, BucketError> {
        self.storage
            .get()
            .ok_or_else(|| BucketError::NotLoaded(self.core.name().to_owned()))
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
