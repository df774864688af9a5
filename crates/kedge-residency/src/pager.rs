//! The item pager: when memory runs short, what is seldom asked for leaves it.
//!
//! It begins when memory crosses the high watermark, and goes on down to the low one. A pass looks at a sample of the
//! hash tables to find how seldom a document must be asked for to go, so that about as much goes as has to, and then
//! visits the tables part by part from where the last pass ended; those that stay count a little less from then on. What
//! the file does not have yet cannot go: if too much of that is in the way, the appliers are asked not to wait.
//!
//! Invariants:
//! * A vBucket is locked for one part of its table at a time.
//! * The task is awake, or about to be, while memory is above the high watermark.

use crate::residency::Residency;
use crate::signals::MemorySignals;
use kedge_bucket_core::BucketCore;
use kedge_bucket_core::EvictionPolicy;
use kedge_bucket_core::Timing;
use kedge_bucket_core::Total;
use kedge_bucket_core::{Parker, TaskBody};
use kedge_executor::Next;
use kedge_sync::{
    RankedMutex,
    ranks::{PagerEvicted, PagerSweep},
};
use kedge_types::VbId;
use kedge_vbucket::{Eviction, FrequencyCounts, PageOut, VbState};
use std::time::Duration;

/// A slice of the pager's work; others may run before the next one.
const SLICE: Duration = Duration::from_millis(3);
/// A sample is spread over so many places of the hash tables.
const SAMPLE_PLACES: usize = 64;
const SAMPLE_PLACES_MIN: usize = 16;
/// One place after the other, and neighbours not soon: it has no factor in common with their number.
const SPREAD: usize = 37;
/// Documents that are enough for a sample: those that may go, and all that it looks at.
const SAMPLE_MIN: u64 = 2_000;
const SAMPLE_MAX: usize = 50_000;
/// It takes more than the share that has to go: not all that is seldom asked for may go.
const SHARE_MARGIN: f64 = 1.3;
/// Least share of the documents that a pass is for.
const SHARE_MIN: f64 = 0.02;
/// First and longest rest when nothing can go.
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(1);

/// The pager, and the way to it.
#[derive(Debug, Default)]
pub(crate) struct Pager {
    pub(crate) parker: Parker,
    sweep: RankedMutex<PagerSweep, Sweep>,
    /// What left memory of active and pending vBuckets, and of the others.
    evicted: RankedMutex<PagerEvicted, [FrequencyCounts; 2]>,
}

/// Where it is.
#[derive(Debug, Default)]
struct Sweep {
    /// The part of all hash tables that is next.
    part: usize,
    pass: Option<Pass>,
}

/// A visit of all parts.
#[derive(Debug)]
struct Pass {
    frequency_max: u8,
    /// The number of parts when it began.
    parts: usize,
    left: usize,
    freed: u64,
}

/// What came of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// Memory is below the low watermark.
    Enough,
    /// There is more to do.
    More,
    /// What could go was asked for meanwhile.
    Stuck,
    /// Nothing may go now.
    Nothing,
}

/// The task.
#[derive(Debug)]
pub(crate) struct ItemPager {
    rest: Duration,
}

impl Default for ItemPager {
    fn default() -> Self {
        Self { rest: REST_MIN }
    }
}

impl TaskBody<Residency> for ItemPager {
    fn run(&mut self, residency: &Residency, _: Duration) -> Next {
        let pager = &residency.signals.pager;
        pager.parker.clear();
        match residency.page_slice() {
            Slice::More => {
                self.rest = REST_MIN;
                residency.set_pageable(true);
                Next::Again
            }
            Slice::Enough => {
                residency.set_pageable(true);
                self.rest = REST_MIN;
                residency.core.quota.set_room_wanted(false);
                pager.parker.park();
                if residency.core.quota.is_high() {
                    pager.parker.clear();
                    return Next::Again;
                }
                Next::Sleep
            }
            stuck @ (Slice::Stuck | Slice::Nothing) => {
                residency.ask_to_apply();
                residency.set_pageable(stuck == Slice::Stuck);
                let rest = self.rest;
                self.rest = (rest * 2).min(REST_MAX);
                Next::Snooze(rest)
            }
        }
    }
}

impl MemorySignals {
    /// Reports that memory has changed. Cheap unless the pager sleeps and has to begin, or a write waits for memory.
    pub fn on_memory(&self, core: &BucketCore) {
        if self.pager.parker.is_asleep() && core.quota.is_high() {
            core.wake_parked(&self.pager.parker);
        }
        self.note_first_queued_write(core);
    }

    /// Reports that changes are in the files: documents that had to wait for that may leave memory now.
    pub fn on_applied(&self, core: &BucketCore) {
        if core.quota.is_room_wanted()
            && let Some(task) = self.pager.parker.task()
        {
            core.setup.executor.wake(task);
        }
    }
}

impl Residency {
    /// A write waits for memory, though that may be below the high watermark: all who give some back begin at once.
    pub fn make_room(&self) {
        self.writers.write_all_soon(&self.core);
        // It may rest until more is applied: by now there may be.
        if self.core.quota.above_low() > 0
            && let Some(task) = self.signals.pager.parker.task()
        {
            self.core.setup.executor.wake(task);
        }
    }

    /// What is not in the files yet is in the way. Without a log the flushers bring it there, and do not wait for their
    /// interval.
    fn ask_to_apply(&self) {
        self.core.quota.set_room_wanted(true);
        if self.core.is_direct() {
            self.writers.write_all_soon(&self.core);
        } else {
            self.report_apply_wanted();
        }
    }

    /// Above the quota, who reads more into memory makes room for it first.
    pub(crate) fn make_room_for_fetch(&self) {
        if self.core.quota.used() > self.core.quota.limit() {
            self.page_slice();
        }
    }

    /// Pages out for a short while.
    fn page_slice(&self) -> Slice {
        let mut sweep = self.signals.pager.sweep.lock();
        let began_ns = self.core.setup.clock.now().mono_ns;
        if self.core.quota.above_low() == 0 {
            sweep.pass = None;
            return Slice::Enough;
        }
        if sweep.pass.is_none() {
            self.core.totals.add(Total::PagerRuns, 1);
            let parts = self.parts();
            let Some(frequency_max) = self.sample(sweep.part, parts) else {
                // The next sample is of others.
                sweep.part = (sweep.part + 1) % parts;
                return Slice::Nothing;
            };
            sweep.pass = Some(Pass {
                frequency_max,
                parts,
                left: parts,
                freed: 0,
            });
        }
        let slice = self.sweep_parts(&mut sweep, began_ns);
        let took_ns = self.core.setup.clock.now().mono_ns.saturating_sub(began_ns);
        self.core
            .timings
            .record_us(u16::MAX, Timing::ItemPager, took_ns / 1_000);
        slice
    }

    fn sweep_parts(&self, sweep: &mut Sweep, began_ns: u64) -> Slice {
        let eviction = self.eviction();
        let Sweep { part, pass } = sweep;
        let Some(current) = pass else {
            return Slice::More;
        };
        while current.left > 0 {
            let above = self.core.quota.above_low();
            if above == 0 {
                *pass = None;
                return Slice::Enough;
            }
            let how = PageOut {
                eviction,
                frequency_max: current.frequency_max,
                bytes: usize::try_from(above).unwrap_or(usize::MAX),
                decay: true,
            };
            current.freed += self.page_part(*part, &how);
            current.left -= 1;
            *part = (*part + 1) % current.parts;
            let now_ns = self.core.setup.clock.now().mono_ns;
            if now_ns.saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                break;
            }
        }
        if current.left > 0 {
            return Slice::More;
        }
        let freed = current.freed;
        *pass = None;
        if freed > 0 { Slice::More } else { Slice::Stuck }
    }

    /// Pages one part of a hash table out. Returns the bytes that it freed.
    fn page_part(&self, part: usize, how: &PageOut) -> u64 {
        let now = self.core.setup.clock.now();
        let (vb, shard) = self.place(part);
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (out, _) = self
            .core
            .measure(&mut vbucket, |vbucket| vbucket.at(now).page_out(shard, how));
        let state = vbucket.state();
        drop(vbucket);
        if out.values + out.items > 0 {
            self.signals.pager.evicted.lock()[evicted_index(state)] += out.by_frequency;
        }
        self.core.totals.add(Total::ValueEjects, out.values as u64);
        self.core.totals.add(Total::ItemEjects, out.items as u64);
        out.bytes as u64
    }

    /// How seldom a document must be asked for to go; `None` when nothing in the sample may.
    fn sample(&self, from: usize, parts: usize) -> Option<u8> {
        let counts = self.sample_counts(from, parts, |_| true);
        let share = self.core.quota.above_low() as f64 / self.core.quota.used().max(1) as f64;
        threshold(&counts.0, (share * SHARE_MARGIN).max(SHARE_MIN))
    }

    /// Counts of some documents that may leave memory by how often they are asked for, of vBuckets in wanted states.
    fn sample_counts(
        &self,
        from: usize,
        parts: usize,
        wanted: impl Fn(VbState) -> bool,
    ) -> FrequencyCounts {
        let now = self.core.setup.clock.now();
        let eviction = self.eviction();
        let places = if parts < SAMPLE_PLACES {
            1
        } else {
            SAMPLE_PLACES
        };
        let (mut counts, mut seen) = ([0; 256], 0);
        for look in 0..parts {
            let (place, round) = (look * SPREAD % places, look / places);
            let (vb, shard) = self.place((from + place * (parts / places) + round) % parts);
            let mut vbucket = self.core.vbuckets[vb.index()].lock();
            if !wanted(vbucket.state()) {
                continue;
            }
            vbucket
                .at(now)
                .count_frequencies(shard, eviction, &mut counts);
            seen += vbucket.table().shard(shard).len();
            let enough = counts.iter().sum::<u64>() >= SAMPLE_MIN || seen >= SAMPLE_MAX;
            if enough && look >= SAMPLE_PLACES_MIN {
                break;
            }
        }
        FrequencyCounts(counts)
    }

    /// Documents in a sample that may leave memory, of vBuckets in this state, by how often they are asked for.
    #[must_use]
    pub fn evictable(&self, state: VbState) -> FrequencyCounts {
        self.sample_counts(0, self.parts(), |of| of == state)
    }

    /// What left memory since the start, or the last reset of statistics, by how often it was asked for: of active and
    /// pending vBuckets, and of the others.
    #[must_use]
    pub fn evicted(&self) -> [FrequencyCounts; 2] {
        *self.signals.pager.evicted.lock()
    }

    /// Forgets the counts of documents that left memory.
    pub fn reset_evicted(&self) {
        *self.signals.pager.evicted.lock() = <[FrequencyCounts; 2]>::default();
    }

    fn eviction(&self) -> Eviction {
        match self.core.config().eviction_policy {
            EvictionPolicy::ValueOnly => Eviction::ValueOnly,
            EvictionPolicy::FullEviction => Eviction::Full,
        }
    }

    /// The number of parts of all hash tables: shards of the largest table, times vBuckets. A part may be a shard that a
    /// smaller table does not have.
    pub(crate) fn parts(&self) -> usize {
        self.core.vbuckets.len() * self.core.table_shards().max().unwrap_or(1)
    }

    /// The vBucket and the shard of a part. Neighbours are of different vBuckets, so that one that many ask for is not
    /// locked many times in a row.
    pub(crate) fn place(&self, part: usize) -> (VbId, usize) {
        let vbuckets = self.core.vbuckets.len();
        (VbId((part % vbuckets) as u16), part / vbuckets)
    }
}

fn evicted_index(state: VbState) -> usize {
    usize::from(!matches!(state, VbState::Active | VbState::Pending))
}

/// The count at or below which `share` of all lies.
fn threshold(counts: &[u64; 256], share: f64) -> Option<u8> {
    let all: u64 = counts.iter().sum();
    let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
    let mut below = 0;
    counts
        .iter()
        .zip(0..=u8::MAX)
        .find_map(|(count, frequency)| {
            below += count;
            (below >= wanted).then_some(frequency)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_lets_the_wanted_share_go() {
        let mut counts = [0; 256];
        assert_eq!(threshold(&counts, 0.5), None, "nothing may go");
        counts[10] = 30;
        counts[64] = 60;
        counts[255] = 10;
        let of = |share| threshold(&counts, share);
        assert_eq!(of(0.0), Some(10));
        assert_eq!(of(0.3), Some(10));
        assert_eq!(of(0.31), Some(64));
        assert_eq!(of(0.9), Some(64));
        assert_eq!((of(0.91), of(5.0)), (Some(255), Some(255)));
    }
}
