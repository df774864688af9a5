//! Preallocation of log segments. The task sleeps until a commit finds that a segment is needed.

use crate::commit::CommitLog;
use kedge_bucket_core::TaskBody;
use kedge_executor::Next;
use std::time::Duration;

/// The task of the segment preallocator.
pub(crate) struct LogSegmentTask;

impl LogSegmentTask {
    /// The delay of the first run, which must not slow down the start.
    pub(crate) const FIRST_RUN: Duration = Duration::from_millis(100);
}

impl TaskBody<CommitLog> for LogSegmentTask {
    fn run(&mut self, log: &CommitLog, _: Duration) -> Next {
        let Some(preallocator) = log.shared.log_space.preallocator.get() else {
            return Next::Sleep;
        };
        if log.core.quota.disk_full() {
            log.shared.log_space.free_spare_segments();
        }
        if !preallocator.is_needed() {
            log.shared.log_space.parker.park();
            if !preallocator.is_needed() {
                return Next::Sleep;
            }
            log.shared.log_space.parker.clear();
        }
        let pause = log.shared.log_space.run_step(preallocator);
        // If the log is in use, its next commit updates the statistics.
        if let Some(committer) = log.committer.get().and_then(|it| it.try_lock()) {
            *log.stats.lock() = committer.log.stats();
        }
        // No event wakes the task meanwhile: the pause is the throttle.
        Next::Snooze(pause)
    }
}
