//! Changing files: commits, new files in place of others, removal.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kedge_types::VbId;
use kedge_vbucket::{FileChange, PersistedState};

use crate::commits::{self, Commits, Committed};
use crate::names::damaged_of;
use crate::slot::WriteGuard;
use crate::stats::Counters;
use crate::{Storage, StorageError};

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
        items: &[FileChange],
        state: &PersistedState,
        now_ns: u64,
    ) -> Result<Committed, StorageError> {
        self.commit_with(self.writer(vb), now_ns, |commits| {
            commits.write(items, state, &mut || {})
        })
    }

    /// As [`Storage::commit`], for several of them that become durable together, with the two syncs of one, when this
    /// returns: `write` gives them to [`Commits::write`] one after the other. If that fails, or `write` does, none of them
    /// counts.
    ///
    /// # Errors
    /// As [`Storage::commit`], or those of `write`.
    pub fn commit_together<R>(
        &self,
        vb: VbId,
        now_ns: u64,
        write: impl FnOnce(&mut Commits<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        self.commit_with(self.writer(vb), now_ns, write)
    }

    /// As [`Storage::commit_together`], unless somebody has the right to write to the file: a commit, or a compaction that
    /// has come to its end.
    ///
    /// # Errors
    /// [`StorageError::Busy`] then, and nothing was done.
    pub fn try_commit_together<R>(
        &self,
        vb: VbId,
        now_ns: u64,
        write: impl FnOnce(&mut Commits<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        let guard = self.try_writer(vb).ok_or(StorageError::Busy { vb })?;
        self.commit_with(guard, now_ns, write)
    }

    fn commit_with<R>(
        &self,
        mut guard: WriteGuard<'_>,
        now_ns: u64,
        write: impl FnOnce(&mut Commits<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        let committed = if guard.has_file() {
            commits::append(&mut guard, now_ns, write)
        } else {
            commits::begin(&mut guard, now_ns, write)
        };
        match committed {
            Ok((written, done)) => {
                Counters::add(&self.counters.commits, done.commits);
                Counters::add(&self.counters.committed_items, done.items);
                Ok(written)
            }
            Err(error) => {
                guard.failed(&error);
                Err(error)
            }
        }
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
        let _alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        let mut guard = self.writer(vb);
        let replaced = commits::begin(&mut guard, now_ns, |commits| {
            commits.write(&[], state, &mut || {})
        });
        let replaced = replaced.map(drop);
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
        let _alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        let mut guard = self.writer(vb);
        guard.check_is_there()?;
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
        let _alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        self.writer(vb).put_away()
    }

    /// The vBuckets that had a file put away, now or by an earlier process, and have none since.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn given_up(&self) -> Result<BTreeSet<VbId>, StorageError> {
        let names = self.disk.list(&self.dir)?;
        let put_away = names.iter().filter_map(|name| damaged_of(name));
        let mut given_up: BTreeSet<VbId> = put_away.map(|(vb, _)| vb).collect();
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
        guard.check_is_there()?;
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
