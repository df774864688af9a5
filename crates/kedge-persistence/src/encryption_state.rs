//! The part of the encryption that other components reach: they wake its task when data was written again.

use kedge_bucket_core::{BucketCore, Parker};
use kedge_log::SegmentKeyUse;
use kedge_sync::{RankedMutex, ranks::EncryptionResults};

/// The task of the encryption, and its last results.
#[derive(Debug, Default)]
pub(crate) struct EncryptionState {
    pub(crate) parker: Parker,
    results: RankedMutex<EncryptionResults, TaskResults>,
}

#[derive(Debug, Default)]
struct TaskResults {
    error: Option<String>,
    /// The keys of the log at the last look at it.
    log_keys: Option<SegmentKeyUse>,
}

impl EncryptionState {
    /// Has the task look at the keys and the data.
    pub(crate) fn wake(&self, core: &BucketCore) {
        if let Some(task) = self.parker.task() {
            core.setup.executor.wake(task);
        }
    }

    /// Has the task look if a file that was replaced may have been the last one of its key.
    pub(crate) fn on_file_replaced(&self, core: &BucketCore) {
        let keyring = core.setup.keyring.as_ref();
        if keyring.is_some_and(|keyring| keyring.keys().len() > 1) {
            self.wake(core);
        }
    }

    /// Notes the error of the last run of the task, or that there was none.
    pub(crate) fn set_error(&self, error: Option<String>) {
        self.results.lock().error = error;
    }

    /// Returns the error of the last run of the task.
    pub(crate) fn error(&self) -> Option<String> {
        self.results.lock().error.clone()
    }

    /// Notes the keys of the log.
    pub(crate) fn note_log_keys(&self, keys: &SegmentKeyUse) {
        self.results.lock().log_keys = Some(keys.clone());
    }

    /// Returns the keys of the log at the last look at it.
    pub(crate) fn last_log_keys(&self) -> Option<SegmentKeyUse> {
        self.results.lock().log_keys.clone()
    }
}
