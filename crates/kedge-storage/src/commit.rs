//! Changes of files: commits, replacement and removal.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kedge_types::VbId;
use kedge_vbucket::{FileChange, PersistedState};

use crate::commits::{self, CommitGroup, CommitResult};
use crate::names::damaged_of;
use crate::slot::WriteGuard;
use crate::stats::StorageCounters;
use crate::{Storage, StorageError};

impl Storage {
    /// Writes items and the state of the vBucket after them to the vBucket's file, in one commit that is durable on
    /// return. A vBucket without a file gets its first one. The seqnos of the items must be above all seqnos in the
    /// file. Each key may occur once per namespace, in any order, and there may be no items.
    ///
    /// `now_ns`, nanoseconds since 1970, is stored in the header of the commit. The call needs about 200 bytes of
    /// memory per item in addition to the items.
    ///
    /// # Errors
    /// [`StorageError::is_no_space`]: the commit has no effect. [`StorageError::is_fatal`]: the effect is unknown.
    /// After all other errors the commit has no effect either, and the caller may commit the same items again.
    ///
    /// # Panics
    /// Panics if a prepare has no level, or a seqno is above 2^48.
    pub fn commit(
        &self,
        vb: VbId,
        items: &[FileChange],
        state: &PersistedState,
        now_ns: u64,
    ) -> Result<CommitResult, StorageError> {
        self.commit_with(self.writer(vb), now_ns, |commits| {
            commits.write(items, state, &mut || {})
        })
    }

    /// Writes several commits like those of [`Storage::commit`] that become durable together, with the two syncs of
    /// one. `write` passes them to [`CommitGroup::write`] one after the other. If that or `write` fails, none of them has
    /// an effect.
    ///
    /// # Errors
    /// The errors of [`Storage::commit`] and of `write`.
    pub fn commit_together<R>(
        &self,
        vb: VbId,
        now_ns: u64,
        write: impl FnOnce(&mut CommitGroup<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        self.commit_with(self.writer(vb), now_ns, write)
    }

    /// Does the same as [`Storage::commit_together`], unless another thread has the write lock of the file, for a
    /// commit or the end of a compaction.
    ///
    /// # Errors
    /// [`StorageError::Busy`] if another thread has the write lock. Nothing is changed then.
    pub fn try_commit_together<R>(
        &self,
        vb: VbId,
        now_ns: u64,
        write: impl FnOnce(&mut CommitGroup<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        let guard = self.try_writer(vb).ok_or(StorageError::Busy { vb })?;
        self.commit_with(guard, now_ns, write)
    }

    fn commit_with<R>(
        &self,
        mut guard: WriteGuard<'_>,
        now_ns: u64,
        write: impl FnOnce(&mut CommitGroup<'_, '_>) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        let committed = if guard.has_file() {
            commits::append(&mut guard, now_ns, write)
        } else {
            commits::begin(&mut guard, now_ns, write)
        };
        match committed {
            Ok((written, done)) => {
                StorageCounters::add(&self.counters.commits, done.commits);
                StorageCounters::add(&self.counters.committed_items, done.items);
                Ok(written)
            }
            Err(error) => {
                guard.failed(&error);
                Err(error)
            }
        }
    }

    /// Replaces the vBucket's file with a new, empty one, for a reset. A running compaction is stopped first.
    ///
    /// # Errors
    /// Disk errors. The old file stays valid then, unless [`StorageError::is_fatal`].
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

    /// Removes the vBucket's file, if it has one, durably. A running compaction is stopped first. A later commit
    /// creates a new file.
    ///
    /// # Errors
    /// Disk errors. The file stays valid then, unless [`StorageError::is_fatal`].
    pub fn remove(&self, vb: VbId) -> Result<(), StorageError> {
        self.remove_with(vb, |guard| guard.remove())
    }

    /// Removes the vBucket's file like [`Storage::remove`], and leaves a deletion marker on disk until the vBucket has
    /// a file again.
    ///
    /// # Errors
    /// Disk errors. The call may be repeated, unless [`StorageError::is_fatal`]; a crash may leave the vBucket deleted.
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

    /// Quarantines the vBucket's file, durably: the file is renamed and the vBucket has none from now on. Returns the
    /// new path. It serves for files that cannot be read. A later commit creates a new file.
    ///
    /// # Errors
    /// Disk errors. The file stays valid then, unless [`StorageError::is_fatal`].
    pub fn quarantine(&self, vb: VbId) -> Result<Option<PathBuf>, StorageError> {
        let _alone = self.slot(vb).maintenance().exclusive(&self.pauses);
        self.writer(vb).quarantine()
    }

    /// Returns the vBuckets whose file was quarantined, by this or an earlier process, and that have had no file since.
    ///
    /// # Errors
    /// Disk errors.
    pub fn quarantined(&self) -> Result<BTreeSet<VbId>, StorageError> {
        let names = self.disk.list(&self.dir)?;
        let quarantine = names.iter().filter_map(|name| damaged_of(name));
        let mut quarantined: BTreeSet<VbId> = quarantine.map(|(vb, _)| vb).collect();
        quarantined.retain(|vb| {
            vb.get() < self.vbuckets() && {
                let guard = self.writer(*vb);
                !guard.has_file() && !guard.is_deleted()
            }
        });
        Ok(quarantined)
    }

    /// Returns `true` if a thread has the write lock of the vBucket's file.
    #[must_use]
    pub fn is_being_written(&self, vb: VbId) -> bool {
        self.try_writer(vb).is_none()
    }

    /// Returns `true` if the vBucket was deleted with [`Storage::delete`], by this or an earlier process, and has no
    /// file.
    #[must_use]
    pub fn is_deleted(&self, vb: VbId) -> bool {
        self.writer(vb).is_deleted()
    }

    /// Makes the newest commit of the vBucket's file durable. Every commit is durable on return, but the last one of an
    /// earlier process may be in the page cache only. Callers have to call it once for a file before they discard
    /// anything because the file has it. It is free after the first call, or after a commit.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
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
