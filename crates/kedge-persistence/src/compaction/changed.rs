//! Files that had commits since they were last examined.

use kedge_bucket_core::{BucketCore, Parker};
use kedge_sync::{
    RankedMutex,
    ranks::{ChangedFiles as ChangedFilesRank, DeferredFiles},
};
use kedge_types::VbId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The delay between a commit and the examination of its file.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// A list of files, each of which is in it at most once.
#[derive(Debug)]
struct FileList {
    listed: Box<[AtomicBool]>,
    list: RankedMutex<ChangedFilesRank, Vec<VbId>>,
}

impl FileList {
    fn new(vbuckets: u16) -> Self {
        Self {
            listed: (0..vbuckets).map(|_| AtomicBool::new(false)).collect(),
            list: RankedMutex::default(),
        }
    }

    /// Adds a file. Returns false if it was in the list.
    fn add(&self, vb: VbId) -> bool {
        let flag = &self.listed[vb.index()];
        let is_new = !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::SeqCst);
        if is_new {
            self.list.lock().push(vb);
        }
        is_new
    }

    fn take(&self) -> Vec<VbId> {
        let list = std::mem::take(&mut *self.list.lock());
        for vb in &list {
            self.listed[vb.index()].store(false, Ordering::SeqCst);
        }
        list
    }

    fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

/// The files that the task `compaction_check` is to examine.
pub(crate) struct ChangedFiles {
    core: Arc<BucketCore>,
    files: FileList,
    /// Files that had enough garbage outside the time of day at which Kedge compacts automatically.
    pub(super) deferred: RankedMutex<DeferredFiles, BTreeSet<VbId>>,
    /// The time of the next run of the parked task if no file changes, in nanoseconds of the monotonic clock.
    pub(super) next_run_ns: AtomicU64,
    pub(crate) parker: Parker,
}

impl ChangedFiles {
    pub(crate) fn new(core: Arc<BucketCore>) -> Self {
        Self {
            files: FileList::new(core.vbucket_count()),
            core,
            deferred: RankedMutex::default(),
            next_run_ns: AtomicU64::new(u64::MAX),
            parker: Parker::default(),
        }
    }

    /// Adds a file without waking the task.
    pub(super) fn add(&self, vb: VbId) {
        self.files.add(vb);
    }

    /// Removes all files from the list and returns them.
    pub(super) fn take(&self) -> Vec<VbId> {
        self.files.take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Adds a file that has a new commit, and has the task examine it after [`PERIOD`].
    pub(crate) fn on_changed(&self, vb: VbId) {
        if !self.files.add(vb) {
            return;
        }
        if let Some(task) = self.parker.unpark() {
            let executor = &self.core.setup.executor;
            let next_run_ns = self.next_run_ns.load(Ordering::SeqCst);
            let left_ns = next_run_ns.saturating_sub(self.core.setup.clock.now().mono_ns);
            // A task that is about to sleep reads the list again.
            if !executor.snooze(task, PERIOD.min(Duration::from_nanos(left_ns))) {
                executor.wake(task);
            }
        }
    }

    /// Adds all files, which an earlier process may have left with any amount of garbage.
    pub(crate) fn add_all(&self) {
        for vb in 0..self.core.vbucket_count() {
            self.add(VbId(vb));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_listed_once_until_taken() {
        let changed = FileList::new(4);
        assert!(changed.add(VbId(2)) && !changed.add(VbId(2)) && changed.add(VbId(0)));
        assert_eq!(changed.take(), [VbId(2), VbId(0)]);
        assert!(changed.is_empty() && changed.add(VbId(2)));
    }
}
