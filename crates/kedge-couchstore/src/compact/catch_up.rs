//! Catching up: the commits of the source since the copy are written to the target like batches of documents.

use std::ops::Bound;

use kedge_types::Seqno;

use super::copy::{AHEAD_BYTES_MAX, ENTRY_BYTES, check_lengths};
use super::meter::{CopyPhase, ProgressMeter};
use super::{Compaction, CompactionHooks, LocalPatch, local};
use crate::file::window::ReadWindow;
use crate::{Entry, Error, InvalidBatch, Mutation, MutationBody, Snapshot, Writer};

/// Memory per entry until its batch is saved, in bytes, in addition to key, metadata and body: the entry, its mutation,
/// its share of a node, and the needs of the save.
const ENTRY_MEMORY_BYTES: usize = 320;

/// The result of a catch-up round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CaughtUp {
    /// Number of documents and tombstones. A small number means that the next round is short, too, so it can be the
    /// last one.
    pub entries: u64,
    /// Number of bytes that the source has grown by since the state before.
    pub source_bytes: u64,
}

impl Compaction {
    /// Performs one round, without the bookkeeping of failures.
    pub(super) fn round(
        &mut self,
        newest: &Snapshot,
        hooks: &mut dyn CompactionHooks,
    ) -> Result<CaughtUp, Error> {
        let (from, to) = (self.source.header().clone(), newest.header());
        if !follows(newest, &self.source)? {
            return Err(InvalidBatch::NotNewer.into());
        }
        if from.offset() == to.offset() {
            return Ok(CaughtUp::default());
        }
        self.progress.phase = CopyPhase::CatchUp;
        let mut meter = ProgressMeter::new(hooks, &mut self.progress);
        let mut batch = CatchUpBatch::new(newest, self.settings.memory_bytes);
        let mut entries = 0;
        let range: (Bound<Seqno>, _) = (Bound::Excluded(from.update_seqno()), Bound::Unbounded);
        for entry in newest.scan_seqnos(range)? {
            let entry = entry?;
            check_lengths(newest, &entry, entries)?;
            entries += 1;
            if !batch.has_room(&entry) {
                batch.save(&mut self.writer, &mut meter)?;
            }
            batch.add(entry, &mut meter)?;
        }
        batch.save(&mut self.writer, &mut meter)?;
        let mut patch = LocalPatch::new(newest);
        meter.hooks.locals(&mut patch)?;
        local::update(patch, &mut self.writer)?;
        let purged = self.writer.header().purge_seqno();
        self.writer.set_purge_seqno(purged.max(to.purge_seqno()));
        self.writer.raise_update_seqno(to.update_seqno());
        self.writer.commit(to.timestamp_ns())?;
        self.source = newest.clone();
        Ok(CaughtUp {
            entries,
            source_bytes: to.offset().0 - from.offset().0,
        })
    }
}

/// Returns `true` if `newest` is `copied` or has been made from it by commits. A rollback in between would have removed
/// documents that are in the target.
fn follows(newest: &Snapshot, copied: &Snapshot) -> Result<bool, Error> {
    let end = copied.header();
    for snapshot in newest.history() {
        let snapshot = snapshot?;
        let header = snapshot.header();
        if header.offset() <= end.offset() {
            return Ok(header == end);
        }
        // Without pointers to previous headers, a rollback shows only in this.
        if header.update_seqno() < end.update_seqno() {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Documents that are saved together.
struct CatchUpBatch<'a> {
    source: &'a Snapshot,
    window: ReadWindow,
    memory_bytes: usize,
    entries: Vec<Entry>,
    bodies: Vec<u8>,
    /// The end of each entry's body in `bodies`, and whether it has one. It starts at the end of the one before.
    ends: Vec<(usize, bool)>,
    /// Size of keys and metadata, in bytes.
    metadata_bytes: usize,
}

impl<'a> CatchUpBatch<'a> {
    fn new(source: &'a Snapshot, memory_bytes: usize) -> Self {
        CatchUpBatch {
            source,
            window: ReadWindow::ahead(AHEAD_BYTES_MAX),
            memory_bytes,
            entries: Vec::new(),
            bodies: Vec::new(),
            ends: Vec::new(),
            metadata_bytes: 0,
        }
    }

    /// Returns `true` if an entry fits, or would be alone.
    fn has_room(&self, entry: &Entry) -> bool {
        let bytes = self.bodies.len() + entry.disk_bytes() as usize + self.metadata_bytes;
        let all = bytes + (self.entries.len() + 1) * ENTRY_MEMORY_BYTES;
        self.entries.is_empty() || all <= self.memory_bytes
    }

    fn add(&mut self, entry: Entry, meter: &mut ProgressMeter<'_>) -> Result<(), Error> {
        let metadata = entry.key().len() + entry.rev_meta().len();
        let read = u64::from(entry.disk_bytes()) + ENTRY_BYTES + metadata as u64;
        meter.moves(read, 0)?;
        let body = self.source.stored_body(&mut self.window, &entry)?;
        self.bodies.extend_from_slice(body.unwrap_or_default());
        self.ends.push((self.bodies.len(), body.is_some()));
        self.metadata_bytes += metadata;
        self.entries.push(entry);
        Ok(())
    }

    /// Saves the batch and empties it.
    fn save(&mut self, writer: &mut Writer, meter: &mut ProgressMeter<'_>) -> Result<(), Error> {
        let count = self.entries.len() as u64;
        let both_trees = 2 * (count * ENTRY_BYTES + self.metadata_bytes as u64);
        meter.moves(0, self.bodies.len() as u64 + both_trees)?;
        let mut start = 0;
        let places = self.entries.iter().zip(&self.ends);
        let mutations: Vec<Mutation<'_>> = places
            .map(|(entry, (end, has_body))| {
                let body = &self.bodies[start..*end];
                start = *end;
                Mutation {
                    key: entry.key(),
                    seqno: entry.seqno(),
                    rev: entry.rev(),
                    deleted: entry.is_deleted(),
                    content_meta: entry.content_meta(),
                    rev_meta: entry.rev_meta(),
                    body: if *has_body {
                        MutationBody::Stored(body)
                    } else {
                        MutationBody::None
                    },
                }
            })
            .collect();
        let hooks = &mut *meter.hooks;
        writer.save(&mutations, &mut |change| {
            hooks.copied(&self.entries[change.index], change.disk_bytes, change.old);
        })?;
        meter.progress.entries += count;
        meter.progress.kept += count;
        self.entries.clear();
        self.bodies.clear();
        self.ends.clear();
        self.metadata_bytes = 0;
        Ok(())
    }
}
