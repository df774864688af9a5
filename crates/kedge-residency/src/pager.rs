//! The item pager: when memory runs short, documents that are seldom used leave it.
//!
//! It begins when memory crosses the high watermark, and goes on down to the low one. A pass samples the hash tables for
//! the frequency below which documents are evicted, so that about as many go as have to. Then it visits the tables part by
//! part from where the last pass ended; the frequency of documents that stay decays. A document whose change is not in the
//! file yet cannot go: if too many of these are in the way, the appliers are asked not to wait.
//!
//! Invariants:
//! * A vBucket is locked for one part of its table at a time.
//! * The task is awake, or about to be, while memory is above the high watermark.

use crate::parts::{parts, place_of};
use crate::signals::{MemorySignals, ResidencyEvents};
use kedge_bucket_core::{
    BucketCore, Component, DiskWriters, EvictionPolicy, TaskBody, Timing, Total,
};
use kedge_executor::Next;
use kedge_sync::{
    RankedMutex,
    ranks::{PagerEvicted, PagerSweep},
};
use kedge_vbucket::{Eviction, FrequencyCounts, PageOut, VbState};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Longest time of a slice of the pager's work, after which other tasks run.
const SLICE: Duration = Duration::from_millis(3);
/// Number of places of the hash tables over which a sample is spread.
const SAMPLE_PLACES: usize = 64;
const SAMPLE_PLACES_MIN: usize = 16;
/// Step from one place of a sample to the next. It has no factor in common with their number, so all are visited, and
/// neighbours are not visited one after the other.
const SPREAD: usize = 37;
/// Documents that are enough for a sample: those that may go, and all that are visited.
const SAMPLE_MIN: u64 = 2_000;
const SAMPLE_MAX: usize = 50_000;
/// The share is larger than has to go, as not all documents that are seldom used may go.
const SHARE_MARGIN: f64 = 1.3;
/// Least share of the documents that a pass evicts.
const SHARE_MIN: f64 = 0.02;
/// First and longest pause when nothing can go.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The item pager of a bucket.
#[derive(Debug)]
pub struct ItemPager {
    core: Arc<BucketCore>,
    signals: Arc<MemorySignals>,
    writers: Arc<dyn DiskWriters>,
    events: OnceLock<Weak<dyn ResidencyEvents>>,
    sweep: RankedMutex<PagerSweep, PagerPosition>,
    /// Frequencies of documents that were evicted: of active and pending vBuckets, and of the others.
    evicted: RankedMutex<PagerEvicted, [FrequencyCounts; 2]>,
}

impl Component for ItemPager {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

/// The position of the pager.
#[derive(Debug, Default)]
struct PagerPosition {
    /// The part of all hash tables that is next.
    part: usize,
    pass: Option<PagerPass>,
}

/// A visit of all parts.
#[derive(Debug)]
struct PagerPass {
    frequency_max: u8,
    /// The number of parts when it began.
    parts: usize,
    left: usize,
    freed: u64,
}

/// The outcome of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceResult {
    /// Memory is below the low watermark.
    Enough,
    /// There is more to do.
    More,
    /// A pass freed nothing: the documents that could go were used meanwhile.
    Stuck,
    /// Nothing may go now.
    Nothing,
}

/// The task.
#[derive(Debug)]
pub(crate) struct PageOutTask {
    pause: Duration,
}

impl Default for PageOutTask {
    fn default() -> Self {
        Self { pause: PAUSE_MIN }
    }
}

impl TaskBody<ItemPager> for PageOutTask {
    fn run(&mut self, pager: &ItemPager, _: Duration) -> Next {
        let (core, signals) = (&pager.core, &pager.signals);
        signals.pager.clear();
        match pager.page_slice() {
            SliceResult::More => {
                self.pause = PAUSE_MIN;
                signals.set_pageable(core, true);
                Next::Again
            }
            SliceResult::Enough => {
                signals.set_pageable(core, true);
                self.pause = PAUSE_MIN;
                core.quota.set_room_wanted(false);
                signals.on_free_blocks(core);
                signals.pager.park();
                if core.quota.is_high() {
                    signals.pager.clear();
                    return Next::Again;
                }
                Next::Sleep
            }
            stuck @ (SliceResult::Stuck | SliceResult::Nothing) => {
                pager.ask_to_apply();
                signals.set_pageable(core, stuck == SliceResult::Stuck);
                let pause = self.pause;
                self.pause = (pause * 2).min(PAUSE_MAX);
                Next::Snooze(pause)
            }
        }
    }
}

impl ItemPager {
    pub(crate) fn new(
        core: &Arc<BucketCore>,
        signals: &Arc<MemorySignals>,
        writers: &Arc<dyn DiskWriters>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            signals: Arc::clone(signals),
            writers: Arc::clone(writers),
            events: OnceLock::new(),
            sweep: RankedMutex::default(),
            evicted: RankedMutex::default(),
        }
    }

    /// Sets the receiver of events, once.
    pub(crate) fn set_events(&self, events: Weak<dyn ResidencyEvents>) {
        // Components are wired once.
        let _ = self.events.set(events);
    }

    /// Makes room for a write that waits for memory, which may be below the high watermark: writers and pager begin at
    /// once.
    pub fn make_room(&self) {
        self.writers.write_all_soon(&self.core);
        // The pager may pause until more changes are applied, which may be the case by now.
        if self.core.quota.above_low() > 0 {
            self.signals.wake_pager(&self.core);
        }
    }

    /// Has changes that are in the way written to the files. Without a log the flushers do that, and do not wait for
    /// their interval.
    fn ask_to_apply(&self) {
        self.core.quota.set_room_wanted(true);
        if self.core.is_direct() {
            self.writers.write_all_soon(&self.core);
        } else if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            events.apply_wanted();
        }
    }

    /// Makes room for documents that are to be read, above the quota.
    pub(crate) fn make_room_for_fetch(&self) {
        if self.core.quota.used() > self.core.quota.limit() {
            self.page_slice();
        }
    }

    /// Evicts documents for a slice.
    fn page_slice(&self) -> SliceResult {
        let mut sweep = self.sweep.lock();
        let began_ns = self.core.setup.clock.now().mono_ns;
        if self.core.quota.above_low() == 0 {
            sweep.pass = None;
            return SliceResult::Enough;
        }
        if sweep.pass.is_none() {
            self.core.totals.add(Total::PagerRuns, 1);
            let parts = parts(&self.core);
            let Some(frequency_max) = self.sample(sweep.part, parts) else {
                // The next sample begins elsewhere.
                sweep.part = (sweep.part + 1) % parts;
                return SliceResult::Nothing;
            };
            sweep.pass = Some(PagerPass {
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

    fn sweep_parts(&self, sweep: &mut PagerPosition, began_ns: u64) -> SliceResult {
        let eviction = self.eviction();
        let PagerPosition { part, pass } = sweep;
        let Some(current) = pass else {
            return SliceResult::More;
        };
        while current.left > 0 {
            let above = self.core.quota.above_low();
            if above == 0 {
                *pass = None;
                return SliceResult::Enough;
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
            return SliceResult::More;
        }
        let freed = current.freed;
        *pass = None;
        if freed > 0 {
            SliceResult::More
        } else {
            SliceResult::Stuck
        }
    }

    /// Evicts documents of one part of a hash table. Returns the bytes that it freed.
    fn page_part(&self, part: usize, how: &PageOut) -> u64 {
        let now = self.core.setup.clock.now();
        let (vb, shard) = place_of(&self.core, part);
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (out, _) = self
            .core
            .measure(&mut vbucket, |vbucket| vbucket.at(now).page_out(shard, how));
        let state = vbucket.state();
        drop(vbucket);
        if out.values + out.items > 0 {
            self.evicted.lock()[evicted_index(state)] += out.by_frequency;
        }
        self.core.totals.add(Total::ValueEjects, out.values as u64);
        self.core.totals.add(Total::ItemEjects, out.items as u64);
        out.bytes as u64
    }

    /// Returns the frequency at or below which documents are evicted; `None` when no document in the sample may go.
    fn sample(&self, from: usize, parts: usize) -> Option<u8> {
        let counts = self.sample_counts(from, parts, |_| true);
        let share = self.core.quota.above_low() as f64 / self.core.quota.used().max(1) as f64;
        threshold(&counts.0, (share * SHARE_MARGIN).max(SHARE_MIN))
    }

    /// Counts a sample of documents that may leave memory by their frequencies, of vBuckets in wanted states.
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
            let (vb, shard) = place_of(
                &self.core,
                (from + place * (parts / places) + round) % parts,
            );
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

    /// Returns the number of documents in a sample that may leave memory, of vBuckets in this state, by their frequencies.
    #[must_use]
    pub fn evictable(&self, state: VbState) -> FrequencyCounts {
        self.sample_counts(0, parts(&self.core), |of| of == state)
    }

    /// Returns the number of documents that were evicted since the start, or the last reset of statistics, by their
    /// frequencies: of active and pending vBuckets, and of the others.
    #[must_use]
    pub fn evicted(&self) -> [FrequencyCounts; 2] {
        *self.evicted.lock()
    }

    /// Sets the counts of evicted documents to 0.
    pub(crate) fn reset_evicted(&self) {
        *self.evicted.lock() = <[FrequencyCounts; 2]>::default();
    }

    fn eviction(&self) -> Eviction {
        match self.core.config().eviction_policy {
            EvictionPolicy::ValueOnly => Eviction::ValueOnly,
            EvictionPolicy::FullEviction => Eviction::Full,
        }
    }
}

fn evicted_index(state: VbState) -> usize {
    usize::from(!matches!(state, VbState::Active | VbState::Pending))
}

/// Returns the frequency at or below which `share` of all documents lies.
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
    fn threshold_selects_the_wanted_share_of_documents() {
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
