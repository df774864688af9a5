//! The defragmenter: documents move within memory, so that slabs become free and their memory is given back.
//!
//! Blocks that nothing uses come from overwrites, deletions and evictions. So the task sleeps until changes are in the files or
//! documents were evicted, and then waits for an interval, in which more of them gather. It visits the hash tables, a chunk at
//! a time, only while the slabs are sparse: those of the process, as buckets share them. What queues needed when they were longer
//! is returned too, and what was freed of the memory of the front-end threads.
//!
//! Invariant: after the last report of free blocks, the task runs at least once, unless it is disabled.

use super::component::Sweeper;
use crate::parts::{parts, place_of};
use kedge_bucket_core::{BucketCore, TaskBody, Timing, Total};
use kedge_executor::Next;
use kedge_vbucket::slab_figures;
use std::time::Duration;

/// A chunk of the work. With the pause after it, at most one fifth of a core goes into defragmentation.
const CHUNK: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(20);

/// The task, with its position.
#[derive(Debug, Default)]
pub(crate) struct Defragmenter {
    part: usize,
    /// The number of parts when this round began.
    parts: usize,
    /// Parts of this round that are left.
    left: usize,
    /// Documents that moved in it.
    moved: usize,
}

/// Returns the pause between two rounds, or `None` if the defragmenter is disabled.
pub(crate) fn interval(core: &BucketCore) -> Option<Duration> {
    let config = core.config();
    let interval = Duration::from_secs(config.memory.defragmenter_interval_secs);
    config.memory.defragmenter_enabled.then_some(interval)
}

impl TaskBody<Sweeper> for Defragmenter {
    fn run(&mut self, sweeper: &Sweeper, _: Duration) -> Next {
        let core = &sweeper.core;
        let began_ns = core.setup.clock.now().mono_ns;
        let took = || Duration::from_nanos(core.setup.clock.now().mono_ns.saturating_sub(began_ns));
        let next = self.chunk(sweeper, || took() >= CHUNK);
        let took_us = took().as_micros() as u64;
        core.timings
            .record_us(u16::MAX, Timing::Defragmenter, took_us);
        next
    }
}

impl Defragmenter {
    fn chunk(&mut self, sweeper: &Sweeper, is_over: impl Fn() -> bool) -> Next {
        if self.left == 0 && !self.begin(sweeper) {
            return Next::Sleep;
        }
        while self.left > 0 {
            self.defragment_part(sweeper);
            if is_over() {
                break;
            }
        }
        match interval(&sweeper.core) {
            Some(_) if self.left > 0 => Next::Snooze(PAUSE),
            // What is still sparse may belong to another bucket, or be in use by the log applier.
            Some(interval) if self.moved > 0 => Next::Snooze(interval),
            _ => {
                self.left = 0;
                sweeper.signals.defragmenter.park();
                Next::Sleep
            }
        }
    }

    /// Begins a round. Returns false if there is nothing to do: the task is parked then.
    fn begin(&mut self, sweeper: &Sweeper) -> bool {
        // Blocks that become free from now on are reported.
        sweeper.signals.defragmenter.park();
        for vbucket in &sweeper.core.vbuckets {
            vbucket.lock().store_mut().return_memory();
        }
        sweeper.core.setup.completions.return_memory();
        if interval(&sweeper.core).is_none() || !slab_figures().is_sparse {
            return false;
        }
        sweeper.signals.defragmenter.clear();
        self.parts = parts(&sweeper.core);
        (self.left, self.moved) = (self.parts, 0);
        true
    }

    fn defragment_part(&mut self, sweeper: &Sweeper) {
        let (vb, shard) = place_of(&sweeper.core, self.part);
        let done = sweeper.core.vbuckets[vb.index()]
            .lock()
            .store_mut()
            .defragment(shard);
        self.part = (self.part + 1) % self.parts;
        self.left -= 1;
        self.moved += done.moved;
        let totals = &sweeper.core.totals;
        totals.add(Total::DefragmenterVisited, done.visited as u64);
        totals.add(Total::DefragmenterMoved, done.moved as u64);
    }
}
