//! Documents of dropped collections leave memory.
//!
//! Invariant: while a vBucket has some ([`VBucket::has_dropped_documents`]), the task is awake or about to be.

use crate::bucket::Bucket;
use crate::counters::Total;
use crate::tasks::TaskBody;
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

impl TaskBody for DroppedSweep {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let parker = &bucket.collections.sweeper;
        parker.park();
        let mut shards = 0;
        for _ in 0..=bucket.vbuckets.len() {
            while shards < SHARDS_PER_RUN {
                let mut vbucket = bucket.vbuckets[self.vbucket].lock();
                if !vbucket.has_dropped_documents() {
                    break;
                }
                let (swept, _) = bucket.measure(&mut vbucket, VBucket::sweep_dropped);
                bucket.totals.add(Total::DroppedSwept, swept);
                let ended = u64::from(!vbucket.has_dropped_documents());
                bucket.totals.add(Total::DroppedSweeps, ended);
                shards += 1;
            }
            if shards == SHARDS_PER_RUN {
                parker.clear();
                return Next::Again;
            }
            self.vbucket = (self.vbucket + 1) % bucket.vbuckets.len();
        }
        if shards > 0 {
            // Once more round, as it lay down before what it has just done.
            parker.clear();
            return Next::Again;
        }
        Next::Sleep
    }
}

impl Bucket {
    /// A vBucket has documents of dropped collections. Cheap unless the task rests.
    pub(crate) fn on_dropped_documents(&self) {
        if let Some(task) = self.collections.sweeper.unpark() {
            self.setup.executor.wake(task);
        }
    }
}
