//! Log segments made ready ahead of need. The task sleeps until a commit finds that one is needed.

use crate::bucket::Bucket;
use crate::tasks::Work;
use kedge_executor::Next;
use kedge_log::SegmentPreparer;
use std::time::Duration;

/// Segments are filled with zeros no faster than this. A log that grows faster is under a load whose syncs are long for
/// the bytes that they carry; writing every byte twice would only take the disk away from it.
const PREPARE_BYTES_PER_SEC: u64 = 16 << 20;
/// Segments that were given back are looked at no more often than this.
const RECYCLE_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a segment could not be made ready.
const RETRY: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct LogSegment;

impl LogSegment {
    /// A start has other things to do first.
    pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(100);
}

impl Work for LogSegment {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let Some(preparer) = bucket.preparer.get() else {
            return Next::Sleep;
        };
        if !preparer.is_needed() {
            bucket.segments.lie_down();
            if !preparer.is_needed() {
                return Next::Sleep;
            }
            bucket.segments.get_up();
        }
        let pause = bucket.prepare_segment(preparer);
        // If the log is in use, its next commit does this.
        if let Some(committer) = bucket.committer.get().and_then(|it| it.try_lock()) {
            *bucket.log_stats.lock() = committer.log.stats();
        }
        // Nobody wakes it meanwhile: the pause is the pace.
        Next::Snooze(pause)
    }
}

impl Bucket {
    /// The log grew, or gave segments back.
    pub(crate) fn on_log_moved(&self) {
        if self.segments.is_asleep()
            && self.preparer.get().is_some_and(SegmentPreparer::is_needed)
            && let Some(task) = self.segments.rouse()
        {
            self.setup.executor.wake(task);
        }
    }

    /// Makes the next log segment ready and says how long to wait before the one after it.
    fn prepare_segment(&self, preparer: &SegmentPreparer) -> Duration {
        let filled = preparer.filled();
        match preparer.prepare_if_needed() {
            // What was given back was only renamed or removed, which costs little.
            Ok(_) if preparer.filled() == filled => RECYCLE_PAUSE,
            Ok(_) => {
                let ns = preparer.ready_bytes() * 1_000_000_000 / PREPARE_BYTES_PER_SEC;
                Duration::from_nanos(ns)
            }
            Err(error) => {
                tracing::warn!(bucket = self.name(), %error, "no log segment could be made ready");
                RETRY
            }
        }
    }
}
