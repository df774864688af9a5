//! The bound of the memory that only cursors of streams keep. The slowest cursors are dropped, and their streams return to
//! backfills.

use super::signals::StreamSignals;
use crate::dcp::component::Dcp;
use kedge_bucket_core::{BucketCore, TaskBody, Total};
use kedge_executor::Next;
use kedge_types::VbId;
use std::time::Duration;

/// The fraction of the bound at which the task stops dropping cursors.
const LOW_WATERMARK: f64 = 0.75;
/// The delay until the next attempt if no cursor that keeps memory could be dropped.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The task that bounds the memory of cursors.
#[derive(Debug)]
pub(crate) struct CursorMemoryTask;

impl TaskBody<Dcp> for CursorMemoryTask {
    fn run(&mut self, dcp: &Dcp, _: Duration) -> Next {
        let parker = &dcp.signals.cursors;
        parker.clear();
        let bound = (cursor_bytes_max(&dcp.core) as f64 * LOW_WATERMARK) as u64;
        let mut dropped = true;
        while dropped && dcp.core.quota.cursor_bytes() > bound {
            dropped = dcp.drop_slowest_cursors();
        }
        dcp.notify_receivers();
        parker.park();
        // Memory may have been freed between the first notification and `park`.
        dcp.notify_receivers();
        if dcp.core.quota.cursor_bytes() > cursor_bytes_max(&dcp.core) {
            parker.clear();
            return if dropped {
                Next::Again
            } else {
                Next::Snooze(RETRY_DELAY)
            };
        }
        Next::Sleep
    }
}

impl StreamSignals {
    /// Wakes the task if the memory of cursors exceeds the bound.
    pub(crate) fn on_cursor_memory(&self, core: &BucketCore) {
        if self.cursors.is_asleep() && core.quota.cursor_bytes() > cursor_bytes_max(core) {
            core.wake_parked(&self.cursors);
        }
    }
}

/// Returns the maximum number of bytes that only cursors of streams may keep.
fn cursor_bytes_max(core: &BucketCore) -> u64 {
    core.quota.limit() / 100 * u64::from(core.config().memory.dcp_cursor_percent)
}

impl Dcp {
    /// Drops the slowest cursors of the vBucket whose cursors keep the most memory. Returns whether that freed any memory.
    fn drop_slowest_cursors(&self) -> bool {
        let with_streams = |vb: &VbId| !self.signals.open[vb.index()].lock().is_empty();
        let kept = |vb: &VbId| {
            self.core.vbuckets[vb.index()]
                .lock()
                .changes()
                .cursor_bytes()
        };
        let all = || (0..self.core.vbucket_count()).map(VbId);
        let keeps = |vb: &VbId| kept(vb) > 0;
        let most = all().filter(with_streams).max_by_key(kept).filter(keeps);
        // The backfill of an ended stream keeps its cursor until its next step.
        let Some(vb) = most.or_else(|| all().max_by_key(kept).filter(keeps)) else {
            return false;
        };
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (forgotten, _) = self.core.measure(&mut vbucket, |vbucket| {
            vbucket.changes_mut().drop_slowest_cursors()
        });
        drop(vbucket);
        if forgotten.is_empty() {
            return false;
        }
        self.core.totals.add(Total::CursorsDropped, 1);
        true
    }
}
