//! Memory that only cursors of streams keep is bounded: the slowest are dropped, and their streams go back to the files.

use crate::dcp::StreamSignals;
use crate::dcp::component::Dcp;
use kedge_bucket_core::BucketCore;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Total;
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

impl TaskBody<Dcp> for CursorMemory {
    fn run(&mut self, dcp: &Dcp, _: Duration) -> Next {
        let parker = &dcp.signals.cursors;
        parker.clear();
        let bound = (cursor_bytes_max(&dcp.core) as f64 * DOWN_TO) as u64;
        let mut dropped = true;
        while dropped && dcp.core.quota.cursor_bytes() > bound {
            dropped = dcp.drop_slowest_cursors();
        }
        dcp.tell_receivers();
        parker.park();
        // What was given back since nobody was told of.
        dcp.tell_receivers();
        if dcp.core.quota.cursor_bytes() > cursor_bytes_max(&dcp.core) {
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

impl StreamSignals {
    /// A vBucket keeps more for streams than before.
    pub(crate) fn on_cursor_memory(&self, core: &BucketCore) {
        if self.cursors.is_asleep() && core.quota.cursor_bytes() > cursor_bytes_max(core) {
            core.wake_parked(&self.cursors);
        }
    }
}

/// Bytes that only cursors of streams may keep.
fn cursor_bytes_max(core: &BucketCore) -> u64 {
    core.quota.limit() / 100 * u64::from(core.config().memory.dcp_cursor_percent)
}

impl Dcp {
    /// Drops the slowest cursors of the vBucket that keeps most for streams. False when that gave no memory back.
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
        // The backfill of a stream that has ended has its cursor until it is told.
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
