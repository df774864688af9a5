//! Commits of one file that become durable together.

use kedge_couchstore::SavedChange;
use kedge_types::Seqno;
use kedge_vbucket::{FileChange, PersistedState};

use crate::StorageError;
use crate::codec::EncodedBatch;
use crate::slot::{SlotWriter, WriteGuard};
use crate::vb_metadata::{MetadataChanges, VbMetadata};

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitResult {
    /// The highest seqno of the file.
    pub high_seqno: Seqno,
    /// The length of the file, in bytes.
    pub file_bytes: u64,
    /// A bit for each item.
    live_before: Vec<u64>,
}

impl CommitResult {
    /// Returns `true` if item number `index` of the batch replaced a live document, or a prepare that was not complete.
    #[must_use]
    pub fn was_live(&self, index: usize) -> bool {
        let word = self.live_before.get(index / 64).copied().unwrap_or(0);
        word & 1 << (index % 64) != 0
    }
}

/// A group of commits to a vBucket's file that become durable together.
#[derive(Debug)]
pub struct CommitGroup<'g, 'a> {
    writer: SlotWriter<'g, 'a>,
    /// The metadata of the file after the last commit.
    metadata: VbMetadata,
    now_ns: u64,
    /// The length of the file before the group, in bytes.
    from_bytes: u64,
    done: CommitTotals,
}

/// The totals of a group of commits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommitTotals {
    pub(crate) commits: u64,
    pub(crate) items: u64,
}

impl<'g, 'a> CommitGroup<'g, 'a> {
    fn new(writer: SlotWriter<'g, 'a>, metadata: VbMetadata, now_ns: u64) -> Self {
        Self {
            from_bytes: writer.file_bytes(),
            writer,
            metadata,
            now_ns,
            done: CommitTotals::default(),
        }
    }

    /// Writes items and the state of the vBucket after them as one more commit, see [`crate::Storage::commit`]. It
    /// takes effect, durably, with the whole group. During the write `between` is called repeatedly and may pause.
    ///
    /// # Errors
    /// The errors of [`crate::Storage::commit`]. The group accepts no further commits then.
    pub fn write(
        &mut self,
        items: &[FileChange],
        state: &PersistedState,
        between: &mut dyn FnMut(),
    ) -> Result<CommitResult, StorageError> {
        let writer = &mut self.writer;
        // It shortens the sync at the end.
        writer.begin_sync();
        let mut changes = MetadataChanges::new(items);
        let mut live_before = vec![0_u64; items.len().div_ceil(64)];
        {
            let batch = EncodedBatch::new(items);
            let mutations = batch.mutations();
            let mut observe = |change: SavedChange<'_>| {
                let index = change.index;
                let was_live = change.old.as_ref().is_some_and(|old| !old.is_deleted());
                live_before[index / 64] |= u64::from(was_live) << (index % 64);
                changes.add(&mutations[index], &change);
            };
            writer.save_with_breaks(&mutations, &mut observe, between)?;
        }
        let metadata = self.metadata.after(state, &changes);
        metadata.save(&changes, writer)?;
        // A compaction may have purged tombstones above the purge seqno that the vBucket knows.
        let purged = writer.header().purge_seqno();
        writer.set_purge_seqno(purged.max(state.purge));
        writer.commit_later(self.now_ns)?;
        self.metadata = metadata;
        self.done.commits += 1;
        self.done.items += items.len() as u64;
        Ok(CommitResult {
            high_seqno: writer.header().update_seqno(),
            file_bytes: writer.file_bytes(),
            live_before,
        })
    }

    /// Returns the number of bytes that the group has added to the file so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.writer.file_bytes() - self.from_bytes
    }

    /// Makes the commits durable and valid.
    fn end(mut self) -> Result<CommitTotals, StorageError> {
        // A new file without a commit is not installed.
        if self.done.commits > 0 {
            self.writer.make_durable()?;
            self.writer.committed(self.metadata)?;
        }
        Ok(self.done)
    }
}

/// Appends commits to the vBucket's file.
pub(crate) fn append<R>(
    guard: &mut WriteGuard<'_>,
    now_ns: u64,
    write: impl FnOnce(&mut CommitGroup<'_, '_>) -> Result<R, StorageError>,
) -> Result<(R, CommitTotals), StorageError> {
    let metadata = guard.metadata()?.clone();
    let mut commits = CommitGroup::new(guard.writer()?, metadata, now_ns);
    let written = write(&mut commits)?;
    Ok((written, commits.end()?))
}

/// Writes commits as the beginning of a new file (couchstore file format, section 4.1).
pub(crate) fn begin<R>(
    guard: &mut WriteGuard<'_>,
    now_ns: u64,
    write: impl FnOnce(&mut CommitGroup<'_, '_>) -> Result<R, StorageError>,
) -> Result<(R, CommitTotals), StorageError> {
    let made = guard.create().and_then(|writer| {
        let mut commits = CommitGroup::new(writer, VbMetadata::new(), now_ns);
        let written = write(&mut commits)?;
        Ok((written, commits.end()?))
    });
    if made.is_err() {
        guard.clear_boot();
    }
    made
}
