//! The item compressor: with compression `active`, values are compressed in memory.
//!
//! It visits the hash tables, a chunk at a time, with pauses in between. A value is compressed without its vBucket's lock, and
//! tried once. A value whose change is not in the file yet waits for that, as its older copy would stay in memory.
//!
//! Invariant: while the bucket is to compress and has values that were not tried, the task is awake, about to be, or
//! snoozes.

use super::component::Sweeper;
use crate::parts::{parts, place_of};
use crate::signals::COMPRESSOR_PAUSE;
use kedge_bucket_core::{TaskBody, Timing, Total};
use kedge_executor::Next;
use kedge_types::VbId;
use kedge_vbucket::{Item, ValueCompressor};
use std::time::Duration;

/// A chunk of the work. With the pause after it, at most one part in twelve of a core goes into compression.
const CHUNK: Duration = Duration::from_millis(20);
/// Pause after a round in which nothing could be done.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of values that are taken out of a hash table at a time.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// The task, with its position.
#[derive(Debug, Default)]
pub(crate) struct ItemCompressor {
    part: usize,
    /// The number of parts when this round began.
    parts: usize,
    /// Parts of this round that are left.
    left: usize,
    /// Values that were tried in it.
    tried: usize,
    items: Vec<Item>,
    packer: ValueCompressor,
}

impl TaskBody<Sweeper> for ItemCompressor {
    fn run(&mut self, sweeper: &Sweeper, _: Duration) -> Next {
        sweeper.signals.compressor.clear();
        let began_ns = sweeper.core.setup.clock.now().mono_ns;
        let took = || {
            let now_ns = sweeper.core.setup.clock.now().mono_ns;
            Duration::from_nanos(now_ns.saturating_sub(began_ns))
        };
        let next = self.chunk(sweeper, || took() >= CHUNK);
        let took_us = took().as_micros() as u64;
        sweeper
            .core
            .timings
            .record_us(u16::MAX, Timing::ItemCompressor, took_us);
        next
    }
}

impl ItemCompressor {
    fn chunk(&mut self, sweeper: &Sweeper, is_over: impl Fn() -> bool) -> Next {
        if self.left == 0 {
            sweeper.signals.compressor.park();
            if !sweeper.has_values_to_compress() {
                return Next::Sleep;
            }
            sweeper.signals.compressor.clear();
            self.parts = parts(&sweeper.core);
            (self.left, self.tried) = (self.parts, 0);
        }
        while self.left > 0 && sweeper.core.dynamic.compresses() {
            if self.compress_part(sweeper, &is_over) {
                self.part = (self.part + 1) % self.parts;
                self.left -= 1;
            }
            if is_over() {
                return Next::Snooze(COMPRESSOR_PAUSE);
            }
        }
        self.left = 0;
        Next::Snooze(if self.tried == 0 {
            LONG_PAUSE
        } else {
            COMPRESSOR_PAUSE
        })
    }

    /// Compresses values of one part of a hash table. Returns whether nothing is left to do there now.
    fn compress_part(&mut self, sweeper: &Sweeper, is_over: impl Fn() -> bool) -> bool {
        let (vb, shard) = place_of(&sweeper.core, self.part);
        sweeper.core.vbuckets[vb.index()]
            .lock()
            .store()
            .to_compress(shard, TAKEN_BYTES_MAX, &mut self.items);
        let all = self.items.is_empty();
        for item in self.items.drain(..) {
            if is_over() {
                break;
            }
            let packed = self
                .packer
                .pack(item.value(), sweeper.core.dynamic.min_ratio());
            sweeper.put_compressed(vb, &item, packed);
            self.tried += 1;
        }
        all
    }
}

impl Sweeper {
    fn put_compressed(&self, vb: VbId, item: &Item, packed: Option<&[u8]>) {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let (saved, _) = self.core.measure(&mut vbucket, |vbucket| {
            vbucket.store_mut().compressed(item, packed)
        });
        drop(vbucket);
        let totals = &self.core.totals;
        totals.add(Total::CompressorVisited, 1);
        if saved > 0 {
            totals.add(Total::Compressed, 1);
            totals.add(Total::CompressorSavedBytes, saved as u64);
        }
    }

    fn has_values_to_compress(&self) -> bool {
        let mut vbuckets = self.core.vbuckets.iter();
        self.core.dynamic.compresses()
            && vbuckets.any(|vbucket| vbucket.lock().table().compressible() > 0)
    }
}
