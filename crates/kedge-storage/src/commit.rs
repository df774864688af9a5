//! Changing files: commits, new files in place of others, removal.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kedge_couchstore::{Change, Writer};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{PersistedState, Settle};

use crate::codec::Batch;
use crate::facts::{Changes, Facts};
use crate::names::damaged_of;
use crate::slot::WriteGuard;
use crate::stats::Counters;
use crate::{Storage, StorageError};

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

impl Storage {
    /// Writes items to the vBucket's file, and what the vBucket is after them, in one commit that is durable when this
    /// returns. A vBucket without a file gets its first. The items have seqnos above all that the file has, each key
    /// once in each namespace, in any order; there may be none.
    ///
    /// `now_ns`, nanoseconds since 1970, goes into the commit's header. Memory: about 200 bytes an item beside the
    /// items.
    ///
    /// # Errors
    /// [`StorageError::is_no_space`]: nothing was written that counts. [`StorageError::is_fatal`]: nobody knows. After
    /// all others the same items may be given again, too: a commit that failed does not count.
    ///
    /// # Panics
    /// If a prepare has no level, or a seqno is above 2^48.
    pub fn commit(
        &self,
        vb: VbId,
        items: &[Settle],
        state: &PersistedState,
        now_ns: u64,
    ) -> Result<Committed, StorageError> {
        let commit = Commit {
            items,
            state,
            now_ns,
        };
        self.commit_with(self.writer(vb), &commit, &mut || {})
    }

    /// As [`Storage::commit`], unless somebody has the right to write to the file: a commit, or a compaction that has come
    /// to its end. Nobody waits for this one: `between` is called again and again while it works, and may rest.
    ///
    /// # Errors
    /// [`StorageError::Busy`] then, and nothing was done.
    pub fn try_commit(
        &self,
        vb: VbId,
        items: &[Settle],
        state: &PersistedState,
        now_ns: u64,
        between: &mut dyn FnMut(),
    ) -> Result<Committed, StorageError> {
        let guard = self.try_writer(vb).ok_or(StorageError::Busy { vb })?;
        let commit = Commit {
            items,
            state,
            now_ns,
        };
        self.commit_with(guard, &commit, between)
    }

    fn commit_with(
        &self,
        mut guard: WriteGuard<'_>,
        commit: &Commit<'_>,
        between: &mut dyn FnMut(),
    ) -> Result<Committed, StorageError> {
        let committed = if guard.has_file() {
            commit.append(&mut guard, between)
        } else {
            commit.begin(&mut guard, between)
        };
        match &committed {
            Ok(_) => {
                Counters::count(&self.counters.commits);
                Counters::add(&self.counters.committed_items, commit.items.len() as u64);
            }
            Err(error) => guard.failed(error),
        }
        committed
    }

    /// Gives the vBucket a new, empty file in the place of the one it has: what a reset does. A compaction under way is
    /// stopped first.
    ///
    /// # Errors
    /// Those of the disk. The old file counts then, unless [`StorageError::is_fatal`].
    pub fn replace(
        &self,
        vb: VbId,
        state: &PersistedState,
        now_ns: u64,
    ) -> Result<(), StorageError> {
        let _alone = self.slot(vb).maintenance().exclusive(&self.rests);
        let mut guard = self.writer(vb);
        let commit = Commit {
            items: &[],
            state,
            now_ns,
        };
        let replaced = commit.begin(&mut guard, &mut || {}).map(|_| ());
        match &replaced {
            Ok(()) => guard.remove_left(),
            Err(error) => guard.failed(error),
        }
        replaced
    }

    /// Removes the vBucket's file, if it has one, durably. A compaction under way is stopped first. A later commit makes
    /// a new file.
    ///
    /// # Errors
    /// Those of the disk. The file counts then, unless [`StorageError::is_fatal`].
    pub fn remove(&self, vb: VbId) -> Result<(), StorageError> {
        self.remove_with(vb, |guard| guard.remove())
    }

    /// As [`Storage::remove`], and leaves a mark on the disk that the vBucket was deleted, until it has a file again.
    ///
    /// # Errors
    /// Those of the disk. The same may be tried again, unless [`StorageError::is_fatal`]; a crash may leave the vBucket
    /// deleted.
    pub fn delete(&self, vb: VbId) -> Result<(), StorageError> {
        self.remove_with(vb, |guard| {
            guard.mark_deleted()?;
            guard.remove()
        })
    }

    fn remove_with(
        &self,
        vb: VbId,
        remove: impl FnOnce(&mut WriteGuard<'_>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let _alone = self.slot(vb).maintenance().exclusive(&self.rests);
        let mut guard = self.writer(vb);
        let removed = remove(&mut guard);
        if let Err(error) = &removed {
            guard.failed(error);
        }
        removed
    }

    /// Puts the vBucket's file away, durably: from now on it has none, and the file has another name, which is given back.
    /// For a file that cannot be read. A later commit makes a new file.
    ///
    /// # Errors
    /// Those of the disk. The file counts then, unless [`StorageError::is_fatal`].
    pub fn put_away(&self, vb: VbId) -> Result<Option<PathBuf>, StorageError> {
        let _alone = self.slot(vb).maintenance().exclusive(&self.rests);
        self.writer(vb).put_away()
    }

    /// The vBuckets that had a file put away, now or by an earlier process, and have none since.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn given_up(&self) -> Result<BTreeSet<VbId>, StorageError> {
        let names = self.disk.list(&self.dir)?;
        let mut given_up: BTreeSet<VbId> =
            names.iter().filter_map(|name| damaged_of(name)).collect();
        given_up.retain(|vb| {
            vb.get() < self.vbuckets() && {
                let guard = self.writer(*vb);
                !guard.has_file() && !guard.is_deleted()
            }
        });
        Ok(given_up)
    }

    /// Whether somebody has the right to write to the vBucket's file just now.
    #[must_use]
    pub fn is_being_written(&self, vb: VbId) -> bool {
        self.try_writer(vb).is_none()
    }

    /// Whether the vBucket was deleted with [`Storage::delete`], in this process or an earlier one, and has no file.
    #[must_use]
    pub fn is_deleted(&self, vb: VbId) -> bool {
        self.writer(vb).is_deleted()
    }

    /// Makes durable what counts of the vBucket's file. Every commit is when it returns, but the last one of an earlier
    /// process may be in the kernel's memory only: before anything is forgotten because a file has it, this has to be
    /// called once for the file. Costs nothing after that, or after a commit.
    ///
    /// # Errors
    /// Damage, or those of the disk.
    pub fn make_durable(&self, vb: VbId) -> Result<(), StorageError> {
        let mut guard = self.writer(vb);
        if guard.is_durable() {
            return Ok(());
        }
        let opened = guard.writer().map(drop);
        if let Err(error) = &opened {
            guard.failed(error);
        }
        opened
    }
}

/// One commit.
struct Commit<'a> {
    items: &'a [Settle],
    state: &'a PersistedState,
    now_ns: u64,
}

impl Commit<'_> {
    /// Behind what the vBucket's file has.
    fn append(
        &self,
        guard: &mut WriteGuard<'_>,
        between: &mut dyn FnMut(),
    ) -> Result<Committed, StorageError> {
        let facts = guard.facts()?.clone();
        let mut writer = guard.writer()?;
        let (committed, facts) = self.write(&mut writer, &facts, between)?;
        writer.committed(facts)?;
        Ok(committed)
    }

    /// As the beginning of a new file (couchstore file format, section 4.1).
    fn begin(
        &self,
        guard: &mut WriteGuard<'_>,
        between: &mut dyn FnMut(),
    ) -> Result<Committed, StorageError> {
        let made = guard.create().and_then(|mut writer| {
            let (committed, facts) = self.write(&mut writer, &Facts::new(), between)?;
            writer.committed(facts)?;
            Ok(committed)
        });
        if made.is_err() {
            guard.clear_boot();
        }
        made
    }

    fn write(
        &self,
        writer: &mut Writer,
        facts: &Facts,
        between: &mut dyn FnMut(),
    ) -> Result<(Committed, Facts), StorageError> {
        let mut changes = Changes::new(self.items);
        let mut live_before = vec![0_u64; self.items.len().div_ceil(64)];
        {
            let batch = Batch::new(self.items);
            let mutations = batch.mutations();
            let mut observe = |change: Change<'_>| {
                let index = change.index;
                let was_live = change.old.as_ref().is_some_and(|old| !old.is_deleted());
                live_before[index / 64] |= u64::from(was_live) << (index % 64);
                changes.add(&mutations[index], &change);
            };
            writer.save_with_breaks(&mutations, &mut observe, between)?;
        }
        let facts = facts.after(self.state, &changes);
        let locals = facts.locals(&changes);
        let locals: Vec<_> = locals
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        writer.save_locals(&locals)?;
        // A compaction may have purged more than the vBucket has heard of.
        writer.set_purge_seqno(writer.header().purge_seqno().max(self.state.purge));
        writer.commit(self.now_ns)?;
        let committed = Committed {
            high_seqno: writer.header().update_seqno(),
            file_bytes: writer.file_bytes(),
            live_before,
        };
        Ok((committed, facts))
    }
}
