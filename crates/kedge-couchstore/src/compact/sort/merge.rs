//! The merge of runs, with a heap of their current records.

use std::ops::Range;

use super::record;
use super::spill::{RunReader, SpillFile};
use crate::Error;
use crate::compact::meter::ProgressMeter;

/// A merge of runs.
#[derive(Debug)]
pub(super) struct RunMerger {
    readers: Vec<RunReader>,
    /// Runs that have further records. None has a key below that of the one at half its index.
    heap: Vec<usize>,
    /// `true` if the record of the first run was returned, so that it has to advance.
    was_taken: bool,
}

impl RunMerger {
    /// Creates a merge of these runs of `spill`. All other calls need the same `spill`.
    pub(super) fn new(
        spill: &SpillFile,
        runs: &[Range<u64>],
        meter: &mut ProgressMeter<'_>,
    ) -> Result<Self, Error> {
        let mut merge = RunMerger {
            readers: runs.iter().cloned().map(RunReader::new).collect(),
            heap: Vec::with_capacity(runs.len()),
            was_taken: false,
        };
        for (number, reader) in merge.readers.iter_mut().enumerate() {
            if reader.advance(spill, meter)? {
                merge.heap.push(number);
            }
        }
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(place);
        }
        Ok(merge)
    }

    /// Returns the next record.
    pub(super) fn next(
        &mut self,
        spill: &SpillFile,
        meter: &mut ProgressMeter<'_>,
    ) -> Result<Option<&[u8]>, Error> {
        if std::mem::take(&mut self.was_taken) {
            let first = self.heap[0];
            if !self.readers[first].advance(spill, meter)? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        let Some(first) = self.heap.first() else {
            return Ok(None);
        };
        self.was_taken = true;
        Ok(Some(self.readers[*first].record()))
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let below = if right < self.heap.len() && self.key(right) < self.key(left) {
                right
            } else {
                left
            };
            if self.key(place) <= self.key(below) {
                return;
            }
            self.heap.swap(place, below);
            place = below;
        }
    }

    /// Returns the current key of the run at this index of the heap.
    fn key(&self, place: usize) -> &[u8] {
        record::key(self.readers[self.heap[place]].record())
    }
}
