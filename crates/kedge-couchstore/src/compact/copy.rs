//! The main pass: one walk over the source by seqno.
//!
//! It writes bodies and the nodes of the tree by seqno to the target in this order, so that a scan of the target reads
//! forward. It sorts the entries of the tree by key separately and writes that tree last.

use std::sync::Arc;

use kedge_disk::Disk;
use kedge_types::Seqno;

use super::meter::{CopyPhase, ProgressMeter};
use super::sort::Sorter;
use super::{CompactionSettings, FilterDecision, LocalPatch, local};
use crate::compress::inflate;
use crate::file::window::ReadWindow;
use crate::format::bytes::{be48, u48_at};
use crate::format::entry::ID_FIXED_BYTES;
use crate::limits::{INFLATED_BODY_BYTES_MAX, KEY_BYTES_MAX, REV_META_BYTES_MAX};
use crate::tree::build::{NodeSizes, TreeBuilder};
use crate::tree::{ById, BySeqno};
use crate::{DamageKind, Entry, Error, InvalidBatch, Offset, Snapshot, Writer};

/// Read-ahead for bodies, in bytes.
pub(super) const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Approximate size of an entry in both trees, in bytes, without key and private metadata.
pub(super) const ENTRY_BYTES: u64 = 60;

/// Copies a snapshot to a new file, except for the commit.
pub(super) fn main_pass(
    disk: &Arc<dyn Disk>,
    source: &Snapshot,
    writer: &mut Writer,
    settings: &CompactionSettings,
    meter: &mut ProgressMeter<'_>,
) -> Result<(), Error> {
    let is_secret = settings.create.encryption.is_some();
    let target = writer.snapshot().path().to_owned();
    let mut sorter = Sorter::new(disk, &target, settings.memory_bytes, is_secret);
    let mut pass = Pass {
        source,
        window: ReadWindow::ahead(AHEAD_BYTES_MAX),
        sorter: &mut sorter,
        meter,
        purged: Seqno(0),
    };
    pass.documents(writer)?;
    let purged = pass.purged;
    index(source, writer, sorter, meter)?;

    let mut patch = LocalPatch::new(source);
    meter.hooks.locals(&mut patch)?;
    local::build(patch, writer)?;
    let header = source.header();
    writer.draft.update_seqno = header.update_seqno();
    writer.draft.purge_seqno = header.purge_seqno().max(purged);
    writer.changed = true;
    Ok(())
}

/// Rejects entries that no target can hold and no known program writes.
pub(super) fn check_lengths(source: &Snapshot, entry: &Entry, number: u64) -> Result<(), Error> {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    if entry.key().is_empty() || entry.key().len() > KEY_BYTES_MAX {
        return Err(InvalidBatch::KeyLength(index).into());
    }
    if entry.rev_meta().len() > REV_META_BYTES_MAX {
        return Err(InvalidBatch::ValueLength(index).into());
    }
    if entry.seqno() > source.header().update_seqno() {
        return Err(differ(source, entry.seqno()));
    }
    Ok(())
}

/// Creates the error of a source that contradicts itself.
fn differ(source: &Snapshot, seqno: Seqno) -> Error {
    Error::Corrupt {
        file: source.path().to_owned(),
        offset: source.header().offset(),
        problem: DamageKind::TreesDiffer(seqno.0),
    }
}

struct Pass<'a, 'h> {
    source: &'a Snapshot,
    window: ReadWindow,
    sorter: &'a mut Sorter,
    meter: &'a mut ProgressMeter<'h>,
    purged: Seqno,
}

impl Pass<'_, '_> {
    fn documents(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let mut builder = TreeBuilder::<BySeqno>::new(&mut writer.out, NodeSizes::COPY);
        builder.remembers = false;
        for entry in self.source.scan_seqnos(..)? {
            let entry = entry?;
            check_lengths(self.source, &entry, self.meter.progress.entries)?;
            self.meter.progress.entries += 1;
            let metadata = entry.key().len() + entry.rev_meta().len();
            self.meter.moves(ENTRY_BYTES + metadata as u64, 0)?;
            if self.keeps(&entry)? {
                self.copy(&entry, &mut builder)?;
            }
        }
        writer.draft.by_seqno = builder.finish()?;
        // Further entries of the tree by key would be lost silently.
        let expected = self.meter.progress.entries_total;
        if self.meter.progress.entries != expected {
            return Err(differ(self.source, Seqno(0)));
        }
        Ok(())
    }

    /// Calls the filter.
    fn keeps(&mut self, entry: &Entry) -> Result<bool, Error> {
        let mut verdict = self.meter.hooks.filter(entry, None);
        if verdict == FilterDecision::NeedBody {
            verdict = self.ask_with_body(entry)?;
        }
        let is_newest = entry.seqno() == self.source.header().update_seqno();
        match verdict {
            FilterDecision::Keep | FilterDecision::NeedBody => return Ok(true),
            FilterDecision::Purge if is_newest => return Ok(true),
            FilterDecision::Purge => {
                self.purged = entry.seqno();
                self.meter.progress.purged += 1;
            }
            FilterDecision::Drop => {}
            FilterDecision::Stop => return Err(Error::Stopped),
        }
        self.meter.progress.dropped += 1;
        Ok(false)
    }

    fn ask_with_body(&mut self, entry: &Entry) -> Result<FilterDecision, Error> {
        self.meter.moves(u64::from(entry.disk_bytes()), 0)?;
        let stored = self.source.stored_body(&mut self.window, entry)?;
        let stored = stored.unwrap_or_default();
        let hooks = &mut *self.meter.hooks;
        if !entry.content_meta().is_compressed() || stored.is_empty() {
            return Ok(hooks.filter(entry, Some(stored)));
        }
        let plain = inflate(stored, INFLATED_BODY_BYTES_MAX).map_err(|problem| Error::Corrupt {
            file: self.source.path().to_owned(),
            offset: entry.body_offset().unwrap_or(Offset(0)),
            problem,
        })?;
        Ok(hooks.filter(entry, Some(&plain)))
    }

    fn copy(&mut self, entry: &Entry, builder: &mut TreeBuilder<'_, BySeqno>) -> Result<(), Error> {
        let body_bytes = u64::from(entry.disk_bytes());
        let (key, rev_meta) = (entry.key(), entry.rev_meta());
        let written = body_bytes + ENTRY_BYTES + (key.len() + rev_meta.len()) as u64;
        self.meter.moves(body_bytes, written)?;
        let mut fields = *entry.fields();
        if let Some(body) = self.source.stored_body(&mut self.window, entry)? {
            (fields.body, fields.body_bytes) = builder.out().append(body)?;
        }
        builder.push(&be48(fields.seqno), |value| {
            fields.put_seqno(key.len(), value);
            value.extend_from_slice(key);
            value.extend_from_slice(rev_meta);
        })?;
        let value_bytes = ID_FIXED_BYTES + rev_meta.len();
        self.sorter.push(key, value_bytes, self.meter, |value| {
            fields.put_id(value);
            value.extend_from_slice(rev_meta);
        })?;
        self.meter.progress.kept += 1;
        self.meter.hooks.copied(entry, fields.body_bytes, None);
        Ok(())
    }
}

/// Writes the tree by key.
fn index(
    source: &Snapshot,
    writer: &mut Writer,
    sorter: Sorter,
    meter: &mut ProgressMeter<'_>,
) -> Result<(), Error> {
    meter.progress.phase = CopyPhase::Sort;
    let mut sorted = sorter.finish(meter)?;
    meter.progress.phase = CopyPhase::Index;
    let mut builder = TreeBuilder::<ById>::new(&mut writer.out, NodeSizes::COPY);
    builder.remembers = false;
    let mut last = Vec::new();
    while let Some((key, value)) = sorted.next(meter)? {
        // The keys are sorted, so a key that is not above the one before is equal to it: two seqnos of the source have
        // one key.
        if key <= &*last {
            return Err(differ(source, Seqno(u48_at(value, 0))));
        }
        last.clear();
        last.extend_from_slice(key);
        meter.moves(0, (key.len() + value.len()) as u64)?;
        builder.push(key, |out| out.extend_from_slice(value))?;
    }
    writer.draft.by_id = builder.finish()?;
    Ok(())
}
