//! Memory that only cursors of streams keep is bounded: the slowest are dropped, and their streams go back to the files.

use crate::bucket::Bucket;
use crate::counters::Total;
use crate::tasks::TaskBody;
use kedge_executor::Next;
use kedge_types::VbId;
use std::time::Duration;

/// Down to this part of the bound.
const DOWN_TO: f64 = 0.75;
/// Until the next look when no cursor could be dropped that keeps memory.
const REST: Duration = Duration::from_millis(10);

/// The task.
#[derive(Debug)]
pub(crate) struct CursorMemory;

impl TaskBody for CursorMemory {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let parker = &bucket.dcp.cursors;
        parker.clear();
        let bound = (bucket.cursor_bytes_max() as f64 * DOWN_TO) as u64;
        let mut dropped = true;
        while dropped && bucket.quota.cursor_bytes() > bound {
            dropped = bucket.drop_slowest_cursors();
        }
        bucket.tell_receivers();
        parker.park();
        // What was given back since nobody was told of.
        bucket.tell_receivers();
        if bucket.quota.cursor_bytes() > bucket.cursor_bytes_max() {
            parker.clear();
            return if dropped {
                Next::Again
            } else {
                Next::Snooze(REST)
            };
        }
        Next::Sleep
    }
}

impl Bucket {
    /// Bytes that only cursors of streams may keep.
    fn cursor_bytes_max(&self) -> u64 {
        self.quota.limit() / 100 * u64::from(self.config().memory.dcp_cursor_percent)
    }

    /// A vBucket keeps more for streams than before.
    pub(crate) fn on_cursor_memory(&self) {
        if self.dcp.cursors.is_asleep()
            && self.quota.cursor_bytes() > self.cursor_bytes_max()
            && let Some(task) = self.dcp.cursors.unpark()
        {
            self.setup.executor.wake(task);
        }
    }

    /// Drops the slowest cursors of the vBucket that keeps most for streams. False when that gave no memory back.
    fn drop_slowest_cursors(&self) -> bool {
        let with_streams = |vb: &VbId| !self.dcp.open[vb.index()].lock().is_empty();
        let kept = |vb: &VbId| self.vbuckets[vb.index()].lock().cursor_bytes();
        let all = || (0..self.vbuckets()).map(VbId);
        let keeps = |vb: &VbId| kept(vb) > 0;
        let most = all().filter(with_streams).max_by_key(kept).filter(keeps);
        // The backfill of a stream that has ended has its cursor until it is told.
        let Some(vb) = most.or_else(|| all().max_by_key(kept).filter(keeps)) else {
            return false;
        };
        let mut vbucket = self.vbuckets[vb.index()].lock();
        let (forgotten, _) = self.measure(&mut vbucket, |vbucket| vbucket.drop_slowest_cursors());
        drop(vbucket);
        if forgotten.is_empty() {
            return false;
        }
        self.totals.add(Total::CursorsDropped, 1);
        true
    }
}
