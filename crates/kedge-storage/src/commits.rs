//! Commits of one file that become durable together.

use kedge_couchstore::Change;
use kedge_types::Seqno;
use kedge_vbucket::{FileChange, PersistedState};

use crate::StorageError;
use crate::codec::Batch;
use crate::slot::{SlotWriter, WriteGuard};
use crate::vb_metadata::{Changes, VbMetadata};

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The highest seqno of the file.
    pub high_seqno: Seqno,
    /// The length of the file, in bytes.
    pub file_bytes: u64,
    /// A bit for each item.
    live_before: Vec<u64>,
}

impl Committed {
    /// Whether the file had a live document, or a prepare that was not over, in the place of item number `index` of the
    /// batch.
    #[must_use]
    pub fn was_live(&self, index: usize) -> bool {
        let word = self.live_before.get(index / 64).copied().unwrap_or(0);
        word & 1 << (index % 64) != 0
    }
}

/// Commits of a vBucket's file that become durable together.
#[derive(Debug)]
pub struct Commits<'g, 'a> {
    writer: SlotWriter<'g, 'a>,
    /// What the file says with the last one.
    metadata: VbMetadata,
    now_ns: u64,
    /// The length of the file before.
    from_bytes: u64,
    done: Done,
}

/// How much was committed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) commits: u64,
    pub(crate) items: u64,
}

impl<'g, 'a> Commits<'g, 'a> {
    fn new(writer: SlotWriter<'g, 'a>, metadata: VbMetadata, now_ns: u64) -> Self {
        Self {
            from_bytes: writer.file_bytes(),
            writer,
            metadata,
            now_ns,
            done: Done::default(),
        }
    }

    /// Writes items, and what the vBucket is after them, as one more commit: see [`crate::Storage::commit`]. It counts, and
    /// is durable, when all of them are. Meanwhile `between` is called again and again, and may rest.
    ///
    /// # Errors
    /// As [`crate::Storage::commit`]; no more may be written then.
    pub fn write(
        &mut self,
        items: &[FileChange],
        state: &PersistedState,
        between: &mut dyn FnMut(),
    ) -> Result<Committed, StorageError> {
        let writer = &mut self.writer;
        // There is less to wait for at the end.
        writer.begin_sync();
        let mut changes = Changes::new(items);
        let mut live_before = vec![0_u64; items.len().div_ceil(64)];
        {
            let batch = Batch::new(items);
            let mutations = batch.mutations();
            let mut observe = |change: Change<'_>| {
                let index = change.index;
                let was_live = change.old.as_ref().is_some_and(|old| !old.is_deleted());
                live_before[index / 64] |= u64::from(was_live) << (index % 64);
                changes.add(&mutations[index], &change);
            };
            writer.save_with_breaks(&mutations, &mut observe, between)?;
        }
        let metadata = self.metadata.after(state, &changes);
        metadata.save(&changes, writer)?;
        // A compaction may have purged more than the vBucket has heard of.
        let purged = writer.header().purge_seqno();
        writer.set_purge_seqno(purged.max(state.purge));
        writer.commit_later(self.now_ns)?;
        self.metadata = metadata;
        self.done.commits += 1;
        self.done.items += items.len() as u64;
        Ok(Committed {
            high_seqno: writer.header().update_seqno(),
            file_bytes: writer.file_bytes(),
            live_before,
        })
    }

    /// By how much they made the file longer, in bytes.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.writer.file_bytes() - self.from_bytes
    }

    /// From now on they count, and are durable.
    fn end(mut self) -> Result<Done, StorageError> {
        // A new file without a commit is none.
        if self.done.commits > 0 {
            self.writer.make_durable()?;
            self.writer.committed(self.metadata)?;
        }
        Ok(self.done)
    }
}

/// Behind what the vBucket's file has.
pub(crate) fn append<R>(
    guard: &mut WriteGuard<'_>,
    now_ns: u64,
    write: impl FnOnce(&mut Commits<'_, '_>) -> Result<R, StorageError>,
) -> Result<(R, Done), StorageError> {
    let metadata = guard.metadata()?.clone();
    let mut commits = Commits::new(guard.writer()?, metadata, now_ns);
    let written = write(&mut commits)?;
    Ok((written, commits.end()?))
}

/// As the beginning of a new file (couchstore file format, section 4.1).
pub(crate) fn begin<R>(
    guard: &mut WriteGuard<'_>,
    now_ns: u64,
    write: impl FnOnce(&mut Commits<'_, '_>) -> Result<R, StorageError>,
) -> Result<(R, Done), StorageError> {
    let made = guard.create().and_then(|writer| {
        let mut commits = Commits::new(writer, VbMetadata::new(), now_ns);
        let written = write(&mut commits)?;
        Ok((written, commits.end()?))
    });
    if made.is_err() {
        guard.clear_boot();
    }
    made
}
