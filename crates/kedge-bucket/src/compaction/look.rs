//! When files are compacted without anyone's asking: a look at those that changed.
//!
//! Invariant: a file that had a commit since the last look is in the list, once, and the task is about to look.

use super::CompactionConfig;
use super::queue::{Asked, Wish};
use crate::bucket::Bucket;
use crate::tasks::{Sleeper, Work};
use kedge_executor::Next;
use kedge_storage::FileFigures;
use kedge_types::VbId;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From a commit to the look at its file.
const PERIOD: Duration = Duration::from_secs(10);

/// Files that are to be looked at.
#[derive(Debug)]
pub(super) struct Changed {
    marked: Box<[AtomicBool]>,
    list: Mutex<Vec<VbId>>,
}

impl Changed {
    pub(super) fn new(vbuckets: u16) -> Self {
        Self {
            marked: (0..vbuckets).map(|_| AtomicBool::new(false)).collect(),
            list: Mutex::default(),
        }
    }

    /// Whether it was not marked before.
    fn mark(&self, vb: VbId) -> bool {
        let mark = &self.marked[vb.index()];
        let is_new = !mark.load(Ordering::Relaxed) && !mark.swap(true, Ordering::SeqCst);
        if is_new {
            self.list.lock().push(vb);
        }
        is_new
    }

    fn take(&self) -> Vec<VbId> {
        let list = std::mem::take(&mut *self.list.lock());
        for vb in &list {
            self.marked[vb.index()].store(false, Ordering::SeqCst);
        }
        list
    }

    fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}

/// Whether a file is worth its compaction.
fn is_due(config: &CompactionConfig, file: &FileFigures) -> bool {
    let garbage = file.file_bytes.saturating_sub(file.data_bytes);
    let percent = config.fragmentation_percent;
    percent < 100 && file.fragmentation_percent() >= percent && garbage >= config.min_bytes
}

/// The task. It also begins what waits for a pause to end.
#[derive(Debug)]
pub(crate) struct CompactionLook;

impl CompactionLook {
    /// Files as an earlier process left them are looked at after this time.
    pub(crate) const FIRST: Duration = PERIOD;
}

impl Work for CompactionLook {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let sleeper: &Sleeper = &bucket.compactions.sleeper;
        sleeper.get_up();
        bucket.look_at_files();
        bucket.begin_compactions();
        let now_ns = bucket.setup.clock.now().mono_ns;
        let retry_ns = bucket.compactions.queue.lock().next_retry_ns(now_ns);
        let rest = retry_ns.map(|at_ns| Duration::from_nanos(at_ns - now_ns));
        sleeper.lie_down();
        if !bucket.compactions.changed.is_empty() {
            sleeper.get_up();
            return Next::Snooze(rest.map_or(PERIOD, |rest| rest.min(PERIOD)));
        }
        rest.map_or(Next::Sleep, Next::Snooze)
    }
}

impl Bucket {
    /// A vBucket's file has a new commit.
    pub(crate) fn on_file_changed(&self, vb: VbId) {
        let compactions = &self.compactions;
        if !compactions.changed.mark(vb) {
            return;
        }
        if let Some(task) = compactions.sleeper.rouse() {
            let executor = &self.setup.executor;
            // One that is still falling asleep sees to it itself.
            if !executor.snooze(task, PERIOD) {
                executor.wake(task);
            }
        }
    }

    /// All files are to be looked at, as they may have been left in any shape.
    pub(crate) fn mark_all_files(&self) {
        for vb in 0..self.vbuckets() {
            self.compactions.changed.mark(VbId(vb));
        }
    }

    fn look_at_files(&self) {
        let changed = self.compactions.changed.take();
        let Ok(storage) = self.storage() else {
            return;
        };
        let config = self.config().compaction;
        for vb in changed {
            match storage.file_figures(vb) {
                Ok(Some(file)) if is_due(&config, &file) || storage.has_dropped(vb) => {
                    let asked = Asked {
                        wish: Wish::default(),
                        tickets: Vec::new(),
                    };
                    self.compactions.queue.lock().ask(vb, asked);
                }
                Ok(_) => {}
                // Whoever needs the file says so, too. Its next commit brings it here again.
                Err(error) => {
                    tracing::warn!(bucket = self.name(), vbucket = %vb, %error, "a file cannot be looked at");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_listed_once_until_it_was_looked_at() {
        let changed = Changed::new(4);
        assert!(changed.mark(VbId(2)) && !changed.mark(VbId(2)) && changed.mark(VbId(0)));
        assert_eq!(changed.take(), [VbId(2), VbId(0)]);
        assert!(changed.is_empty() && changed.mark(VbId(2)));
    }
}
