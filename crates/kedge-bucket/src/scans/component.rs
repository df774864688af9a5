//! The range scan component of a bucket.

use super::Scans;
use super::task::RangeScanTask;
use crate::file_readers::FileReaders;
use crate::tasks::RANGE_SCAN;
use kedge_bucket_core::{BucketCore, BucketError, Component, add_task};
use kedge_residency::Residency;
use std::sync::Arc;

/// The range scans of a bucket.
pub struct RangeScanner {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) residency: Arc<Residency>,
    pub(crate) files: Arc<FileReaders>,
    pub(crate) scans: Scans,
}

impl std::fmt::Debug for RangeScanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeScanner")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

impl Component for RangeScanner {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl RangeScanner {
    pub(crate) fn new(
        core: &Arc<BucketCore>,
        residency: &Arc<Residency>,
        files: &Arc<FileReaders>,
    ) -> Self {
        Self {
            scans: Scans::new(core.vbucket_count()),
            core: Arc::clone(core),
            residency: Arc::clone(residency),
            files: Arc::clone(files),
        }
    }

    /// Starts the tasks that read files for range scans.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        for (number, lane) in self.scans.lanes().iter().enumerate() {
            let description = "reads files for range scans";
            let task = add_task(self, &RANGE_SCAN, description, RangeScanTask::new(number))?;
            lane.parker.set_task(task);
            self.core.setup.executor.wake(task);
        }
        Ok(())
    }
}
