//! The DCP component of a bucket.

use super::memory::CursorMemoryTask;
use super::signals::StreamSignals;
use crate::file_readers::FileReaders;
use crate::tasks::DCP_CURSORS;
use crate::vbuckets::VbStates;
use kedge_bucket_core::{BucketCore, BucketError, Component, add_task};
use kedge_persistence::Persistence;
use kedge_residency::Residency;
use std::sync::Arc;

/// The DCP streams of a bucket, outbound and inbound.
pub struct Dcp {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) persistence: Arc<Persistence>,
    pub(crate) residency: Arc<Residency>,
    pub(crate) states: Arc<VbStates>,
    pub(crate) files: Arc<FileReaders>,
    pub(crate) signals: Arc<StreamSignals>,
}

impl std::fmt::Debug for Dcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dcp")
            .field("bucket", &self.core.name())
            .finish_non_exhaustive()
    }
}

impl Component for Dcp {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

impl Dcp {
    /// Starts the task that bounds the memory of cursors.
    pub(crate) fn begin_tasks(self: &Arc<Self>) -> Result<(), BucketError> {
        let description = "bounds the memory of DCP cursors";
        let task = add_task(self, &DCP_CURSORS, description, CursorMemoryTask)?;
        self.signals.cursors.set_task(task);
        self.core.setup.executor.wake(task);
        Ok(())
    }
}
