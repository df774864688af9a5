//! Documents of dropped collections leave memory.
//!
//! Invariant: while a vBucket has some ([`VBucket::has_dropped_documents`]), the task is awake or about to be.

use crate::residency::Residency;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Total;
use kedge_executor::Next;
use kedge_vbucket::VBucket;
use std::time::Duration;

/// Shards of one run; others may run before the next one.
const SHARDS_PER_RUN: usize = 64;

/// The task: which vBucket it was at.
#[derive(Debug, Default)]
pub(crate) struct DroppedSweep {
    vbucket: usize,
}

impl TaskBody<Residency> for DroppedSweep {
    fn run(&mut self, residency: &Residency, _: Duration) -> Next {
        let parker = &residency.signals.dropped;
        parker.park();
        let mut shards = 0;
        for _ in 0..=residency.core.vbuckets.len() {
            while shards < SHARDS_PER_RUN {
                let mut vbucket = residency.core.vbuckets[self.vbucket].lock();
                if !vbucket.documents().has_dropped() {
                    break;
                }
                let (swept, _) = residency.core.measure(&mut vbucket, VBucket::sweep_dropped);
                residency.core.totals.add(Total::DroppedSwept, swept);
                let ended = u64::from(!vbucket.documents().has_dropped());
                residency.core.totals.add(Total::DroppedSweeps, ended);
                shards += 1;
            }
            if shards == SHARDS_PER_RUN {
                parker.clear();
                return Next::Again;
            }
            self.vbucket = (self.vbucket + 1) % residency.core.vbuckets.len();
        }
        if shards > 0 {
            // Once more round, as it lay down before what it has just done.
            parker.clear();
            return Next::Again;
        }
        Next::Sleep
    }
}
