//! External sorting of records by key: runs are sorted in memory, written to a temporary file if there is more than
//! one, and merged.
//!
//! Invariants:
//! * Memory: the records of one run during collection, and one block of each run during the merge of as many runs as
//!   fit. If there are more, some are merged to longer ones first.
//! * Blocks have checksums, and are encrypted if the target is.
//! * Temporary files are unlinked right after their creation, so nothing has to be removed, however the compaction
//!   ends.

mod merge;
mod run;
mod spill;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use super::leftovers::temporary_path;
use super::meter::ProgressMeter;
use crate::Error;
use merge::RunMerger;
use run::SortedRun;
use spill::SpillFile;

/// Size of the smallest and the largest block of temporary files, in bytes.
const BLOCK_BYTES_MIN: usize = 512;
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Bounds of the memory for sorting, in bytes. The position of a record in its run has 32 bits.
const MEMORY_BYTES_MIN: usize = 4 << 10;
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// The disk and directory of runs that do not fit into memory.
#[derive(Debug)]
struct SpillDirectory {
    disk: Arc<dyn Disk>,
    target: PathBuf,
    is_secret: bool,
    /// Number of temporary files created so far.
    files: u32,
    block_bytes: usize,
}

impl SpillDirectory {
    fn new_spill(&mut self) -> Result<SpillFile, Error> {
        let path = temporary_path(&self.target, self.files);
        self.files += 1;
        let file = self.disk.create(&path)?;
        // The handle keeps the file. Without a name it is gone at the latest when the process ends.
        self.disk.remove(&path)?;
        Ok(SpillFile::new(file, path, self.is_secret, self.block_bytes))
    }
}

/// Sorts records that arrive in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    place: SpillDirectory,
    run: SortedRun,
    spill: Option<SpillFile>,
    /// Number of runs that are merged at once.
    fan_in: usize,
}

impl Sorter {
    /// Creates a sorter that uses about `memory_bytes`, with temporary files in the directory of `target`.
    pub(super) fn new(
        disk: &Arc<dyn Disk>,
        target: &Path,
        memory_bytes: usize,
        is_secret: bool,
    ) -> Self {
        let memory = memory_bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        let block_bytes = (memory / 16).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Sorter {
            place: SpillDirectory {
                disk: Arc::clone(disk),
                target: target.to_owned(),
                is_secret,
                files: 0,
                block_bytes,
            },
            run: SortedRun::new(memory),
            spill: None,
            // While runs are merged to a longer one, another block is being written.
            fan_in: (memory / block_bytes - 1).max(2),
        }
    }

    /// Adds a record; `value` appends its value, which has `value_bytes`.
    pub(super) fn push(
        &mut self,
        key: &[u8],
        value_bytes: usize,
        meter: &mut ProgressMeter<'_>,
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        if !self.run.has_room(record::bytes(key, value_bytes)) {
            self.spill_run(meter)?;
        }
        self.run.push(key, value_bytes, value);
        Ok(())
    }

    /// Returns all records in the order of their keys.
    pub(super) fn finish(mut self, meter: &mut ProgressMeter<'_>) -> Result<SortedRecords, Error> {
        if self.spill.is_none() {
            self.run.sort();
            return Ok(SortedRecords(SortSource::Memory(self.run, 0)));
        }
        self.spill_run(meter)?;
        let Sorter {
            mut place,
            run,
            spill,
            fan_in,
        } = self;
        // The blocks use its memory from here on.
        drop(run);
        let mut spill = spill.expect("a run was spilled");
        while spill.runs().len() > fan_in {
            spill = merge_some(&mut place, &spill, fan_in, meter)?;
        }
        let runs = spill.runs().to_vec();
        Ok(SortedRecords(SortSource::Merge(
            RunMerger::new(&spill, &runs, meter)?,
            spill,
        )))
    }

    fn spill_run(&mut self, meter: &mut ProgressMeter<'_>) -> Result<(), Error> {
        self.run.sort();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            None => self.spill.insert(self.place.new_spill()?),
        };
        for number in 0..self.run.len() {
            spill.push(self.run.record(number), meter)?;
        }
        spill.end_run(meter)?;
        self.run.clear();
        Ok(())
    }
}

/// Merges each `fan_in` runs to one, in another file.
fn merge_some(
    place: &mut SpillDirectory,
    from: &SpillFile,
    fan_in: usize,
    meter: &mut ProgressMeter<'_>,
) -> Result<SpillFile, Error> {
    let mut to = place.new_spill()?;
    for runs in from.runs().chunks(fan_in) {
        let mut merge = RunMerger::new(from, runs, meter)?;
        while let Some(record) = merge.next(from, meter)? {
            to.push(record, meter)?;
        }
        to.end_run(meter)?;
    }
    Ok(to)
}

/// The key and the value of a record.
pub(super) type KeyValue<'a> = (&'a [u8], &'a [u8]);

/// Records in the order of their keys.
#[derive(Debug)]
pub(super) struct SortedRecords(SortSource);

#[derive(Debug)]
enum SortSource {
    /// All records fit into memory; with the index of the next one.
    Memory(SortedRun, usize),
    /// The records are in a file.
    Merge(RunMerger, SpillFile),
}

impl SortedRecords {
    /// Returns the next record.
    pub(super) fn next(
        &mut self,
        meter: &mut ProgressMeter<'_>,
    ) -> Result<Option<KeyValue<'_>>, Error> {
        let record = match &mut self.0 {
            SortSource::Memory(run, at) => {
                let number = *at;
                *at += 1;
                (number < run.len()).then(|| run.record(number))
            }
            SortSource::Merge(merge, spill) => merge.next(spill, meter)?,
        };
        Ok(record.map(record::split))
    }
}

/// The encoding of a record: the lengths of key and value, 16 bits each, followed by both.
mod record {
    /// Size of the two lengths, in bytes.
    pub(super) const LENGTHS_BYTES: usize = 4;

    /// Returns the size of a record, in bytes.
    pub(super) fn bytes(key: &[u8], value_bytes: usize) -> usize {
        LENGTHS_BYTES + key.len() + value_bytes
    }

    /// Appends a record.
    pub(super) fn put(
        key: &[u8],
        value_bytes: usize,
        value: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let end = out.len() + bytes(key, value_bytes);
        for len in [key.len(), value_bytes] {
            let len = u16::try_from(len).expect("lengths were checked");
            out.extend_from_slice(&len.to_le_bytes());
        }
        out.extend_from_slice(key);
        value(out);
        assert_eq!(out.len(), end, "a value has the length that was said");
    }

    /// Returns the record at the start of `bytes`.
    pub(super) fn first(bytes: &[u8]) -> Option<&[u8]> {
        let lengths: &[u8; LENGTHS_BYTES] = bytes.first_chunk()?;
        let [key, value] = [[lengths[0], lengths[1]], [lengths[2], lengths[3]]]
            .map(|bytes| usize::from(u16::from_le_bytes(bytes)));
        bytes.get(..LENGTHS_BYTES + key + value)
    }

    /// Returns the key of a record.
    pub(super) fn key(record: &[u8]) -> &[u8] {
        split(record).0
    }

    /// Returns the key and the value of a record.
    pub(super) fn split(record: &[u8]) -> (&[u8], &[u8]) {
        let key = usize::from(u16::from_le_bytes([record[0], record[1]]));
        record[LENGTHS_BYTES..].split_at(key)
    }
}

#[cfg(test)]
mod tests;
