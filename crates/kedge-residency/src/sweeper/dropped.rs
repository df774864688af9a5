//! The purge of dropped collections' documents from memory.
//!
//! Invariant: while a vBucket has some ([`VBucket::has_dropped_documents`]), the task is awake or about to be.

use super::component::Sweeper;
use kedge_bucket_core::{TaskBody, Total};
use kedge_executor::Next;
use kedge_vbucket::VBucket;
use std::time::Duration;

/// Largest number of shards of one run, after which other tasks run.
const SHARDS_PER_RUN: usize = 64;

/// The task, with the vBucket that is next.
#[derive(Debug, Default)]
pub(crate) struct DroppedSweep {
    vbucket: usize,
}

impl TaskBody<Sweeper> for DroppedSweep {
    fn run(&mut self, sweeper: &Sweeper, _: Duration) -> Next {
        let parker = &sweeper.signals.dropped_sweep;
        parker.park();
        let mut shards = 0;
        for _ in 0..=sweeper.core.vbuckets.len() {
            while shards < SHARDS_PER_RUN {
                let mut vbucket = sweeper.core.vbuckets[self.vbucket].lock();
                if !vbucket.documents().has_dropped() {
                    break;
                }
                let (swept, _) = sweeper.core.measure(&mut vbucket, VBucket::sweep_dropped);
                sweeper.core.totals.add(Total::DroppedSwept, swept);
                let ended = u64::from(!vbucket.documents().has_dropped());
                sweeper.core.totals.add(Total::DroppedSweeps, ended);
                shards += 1;
            }
            if shards == SHARDS_PER_RUN {
                parker.clear();
                return Next::Again;
            }
            self.vbucket = (self.vbucket + 1) % sweeper.core.vbuckets.len();
        }
        if shards > 0 {
            // Another round, as it parked before this one.
            parker.clear();
            return Next::Again;
        }
        Next::Sleep
    }
}
