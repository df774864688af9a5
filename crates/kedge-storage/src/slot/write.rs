//! The operations of the write lock.

use super::{CurrentHeader, FileReader, NewRevision, SlotFile, SlotWriter, WriteGuard};
use crate::keys::NewFile;
use crate::names::{FileRevision, boot_name, damaged_name, deleted_name, file_name};
use crate::stats::StorageCounters;
use crate::vb_metadata::VbMetadata;
use crate::{Storage, StorageError};
use kedge_couchstore::compact::{Compaction, CopyProgress};
use kedge_couchstore::{Error as FileError, Header, Snapshot, Writer};
use kedge_disk::Disk;
use kedge_types::CollectionId;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that has replaced the one before.
#[derive(Debug)]
pub(crate) struct InstalledFile {
    pub(crate) header: Header,
    pub(crate) file_bytes: u64,
    /// The figures of its creation.
    pub(crate) progress: CopyProgress,
}

impl<'a> WriteGuard<'a> {
    /// Returns `true` if the vBucket has a file.
    pub(crate) fn has_file(&self) -> bool {
        !matches!(self.slot.current.lock().file, SlotFile::Missing)
    }

    /// Returns the file at its last commit; `None` if there is none.
    pub(crate) fn newest(&self) -> Result<Option<FileReader<'_>>, StorageError> {
        self.storage.reader(self.slot.vb)
    }

    /// Returns the metadata of the file, or those of a first file.
    pub(crate) fn metadata(&mut self) -> Result<&mut VbMetadata, StorageError> {
        if self.written.metadata.is_none() {
            let metadata = match self.newest()? {
                Some(file) => VbMetadata::read(&file)?,
                None => VbMetadata::new(),
            };
            self.written.metadata = Some(metadata);
        }
        Ok(self.written.metadata.as_mut().expect("it was just set"))
    }

    /// Returns `true` if dropped collections are known to wait for a compaction.
    pub(crate) fn has_dropped(&self) -> bool {
        let metadata = self.written.metadata.as_ref();
        let manifest = metadata.and_then(|metadata| metadata.manifest.as_deref());
        manifest.is_some_and(|manifest| !manifest.dropped.is_empty())
    }

    /// Returns the known sizes of collections.
    pub(crate) fn collection_bytes(&self) -> BTreeMap<CollectionId, u64> {
        let metadata = self.written.metadata.iter();
        let stats = metadata.flat_map(|metadata| &metadata.collections);
        stats
            .map(|(id, stats)| (*id, stats.disk_bytes.unwrap_or(0)))
            .collect()
    }

    /// Returns a writer that continues after the current header.
    ///
    /// # Panics
    /// Panics if there is no file.
    pub fn writer(&mut self) -> Result<SlotWriter<'_, 'a>, StorageError> {
        self.check()?;
        let newest = self.newest()?.expect("the vBucket has a file");
        let durable = match &self.slot.current.lock().file {
            SlotFile::At(at) => at.durable,
            _ => false,
        };
        let writer = if durable {
            Writer::resume(&newest)?
        } else {
            self.first_writer(&newest)?
        };
        Ok(SlotWriter {
            guard: self,
            writer,
            new: None,
        })
    }

    /// Creates the first writer in this process. The header that was found may never have been synced.
    fn first_writer(&self, newest: &Snapshot) -> Result<Writer, StorageError> {
        let options = self.storage.options.to_open();
        let mut writer = Writer::open(&*self.storage.disk, newest.path(), &options)?;
        if writer.header() != newest.header() {
            writer.rewind(newest.header())?;
        }
        let mut current = self.slot.current.lock();
        if let SlotFile::At(at) = &mut current.file {
            at.durable = true;
        }
        let revision = current.revision;
        drop(current);
        self.storage
            .note_commit(self.slot.vb, revision, newest.header());
        Ok(writer)
    }

    /// Returns an error if the vBucket's file must not be written to any more.
    fn check(&self) -> Result<(), StorageError> {
        if self.written.undecided {
            let file = self
                .storage
                .dir
                .join(file_name(self.slot.vb, self.revision()));
            return Err(FileError::PreviousIo { file }.into());
        }
        self.check_is_there()
    }

    /// Returns an error if the catalog lists a file of the vBucket that is missing.
    pub(crate) fn check_is_there(&self) -> Result<(), StorageError> {
        let current = self.slot.current.lock();
        current.check_is_there(self.storage, self.slot.vb)
    }

    /// Returns `true` if the current header is known to be durable.
    pub(crate) fn is_durable(&self) -> bool {
        match &self.slot.current.lock().file {
            SlotFile::Missing => true,
            SlotFile::Unread => false,
            SlotFile::At(at) => at.durable,
        }
    }

    /// Records a failed write: the handle is not reused, unless the error is known to be harmless.
    pub(crate) fn failed(&self, error: &StorageError) {
        StorageCounters::count(&self.storage.counters.failed_commits);
        let harmless = matches!(error, StorageError::File(FileError::Refused(_)));
        if !harmless && !error.is_no_space() {
            let mut current = self.slot.current.lock();
            self.storage.close(self.slot, &mut current);
        }
    }

    /// Returns the path of a new file of the vBucket until it is complete.
    fn boot_path(&self) -> PathBuf {
        self.storage.dir.join(boot_name(self.slot.vb))
    }

    /// Returns the current or last revision.
    pub(crate) fn revision(&self) -> FileRevision {
        self.slot.current.lock().revision
    }

    /// Removes a new file that did not become complete. If that fails, the next new file or the next start tries again.
    pub(crate) fn clear_boot(&self) {
        let _ = self.storage.disk.remove(&self.boot_path());
    }

    /// Creates a new file, replacing an incomplete one.
    pub fn create(&mut self) -> Result<SlotWriter<'_, 'a>, StorageError> {
        self.check()?;
        let (disk, path) = (&*self.storage.disk, self.boot_path());
        if disk.exists(&path)? {
            disk.remove(&path)?;
        }
        let NewFile { create, lease } = self.storage.options.new_file();
        let writer = Writer::create(disk, &path, &create, &self.storage.options.plain)?;
        Ok(SlotWriter {
            guard: self,
            writer,
            new: Some(NewRevision { lease }),
        })
    }

    /// Installs a copy as the next revision of the file. The copy can no longer be written through its own handle.
    /// [`WriteGuard::remove_left`] removes the old file.
    pub(crate) fn install(&mut self, copy: Compaction) -> Result<InstalledFile, StorageError> {
        let target = copy.target();
        let options = self.storage.options.to_open();
        let new = Snapshot::open(&*self.storage.disk, target, &options)?;
        let (header, file_bytes) = (new.header().clone(), new.file_bytes()?);
        let metadata = VbMetadata::read(&new)?;
        // Until it has its name, the compaction removes the copy when it is dropped.
        self.install_file(target, &new, file_bytes, metadata)?;
        Ok(InstalledFile {
            header,
            file_bytes,
            progress: copy.finish()?,
        })
    }

    /// Installs the complete and durable file at `from`, whose newest commit is `newest`, like [`WriteGuard::install`].
    pub(crate) fn install_file(
        &mut self,
        from: &Path,
        newest: &Snapshot,
        file_bytes: u64,
        metadata: VbMetadata,
    ) -> Result<(), StorageError> {
        self.check()?;
        let Storage { disk, dir, .. } = self.storage;
        let header = newest.header();
        let (old, new) = {
            let current = self.slot.current.lock();
            let old = (!matches!(current.file, SlotFile::Missing)).then_some(current.revision);
            (old, current.revision.next())
        };
        let to = dir.join(file_name(self.slot.vb, new));
        if let Err(error) = disk.rename(from, &to) {
            self.written.undecided = disk.exists(&to).unwrap_or(true);
            return Err(error.into());
        }
        // Sync before the removal of the old file, which a crash leaves until then.
        if let Err(error) = disk.sync_dir(dir) {
            self.written.undecided = true;
            return Err(error.into());
        }
        self.written.metadata = Some(metadata);
        self.written.removed = false;
        let mut current = self.slot.current.lock();
        self.storage.close(self.slot, &mut current);
        current.revision = new;
        current.file = SlotFile::At(Box::new(CurrentHeader {
            header: header.clone(),
            file_bytes,
            key_id: newest.key_id().map(Arc::from),
            durable: true,
        }));
        drop(current);
        // Before the deletion marker and the older file are removed, which explain that the old entry is void.
        self.storage.note_commit(self.slot.vb, new, header);
        self.written.left.extend(old);
        self.clear_deletion_marker();
        Ok(())
    }

    /// Releases the write lock and then removes older revisions, because that takes long for large files.
    pub(crate) fn remove_left(mut self) {
        let (storage, slot) = (self.storage, self.slot);
        let mut left = std::mem::take(&mut self.written.left);
        drop(self);
        let before = left.len();
        left.retain(|old| {
            let path = storage.dir.join(file_name(slot.vb, *old));
            remove_if_there(&*storage.disk, &path).is_err()
        });
        let mut written = slot.written.lock();
        written.removed |= left.len() < before;
        // They do no harm while there is a newer one.
        StorageCounters::add(&storage.counters.files_left, left.len() as u64);
        written.left.extend(left);
    }

    /// Ensures that no older revision comes back when the current one is removed.
    fn remove_older(&mut self) -> Result<(), StorageError> {
        let Storage { disk, dir, .. } = self.storage;
        while let Some(old) = self.written.left.last() {
            remove_if_there(&**disk, &dir.join(file_name(self.slot.vb, *old)))?;
            self.written.left.pop();
            self.written.removed = true;
        }
        if self.written.removed {
            disk.sync_dir(dir)?;
            self.written.removed = false;
        }
        Ok(())
    }

    /// Removes an obsolete deletion marker. If that fails, the next start removes it.
    fn clear_deletion_marker(&mut self) {
        let Storage { disk, dir, .. } = self.storage;
        if let Some(mark) = self.written.deleted.take() {
            let _ = disk.remove(&dir.join(deleted_name(self.slot.vb, mark)));
        }
    }

    /// Returns `true` if the vBucket was deleted and has no file.
    pub(crate) fn is_deleted(&self) -> bool {
        self.written.deleted.is_some()
    }

    /// Creates the deletion marker durably.
    pub(crate) fn mark_deleted(&mut self) -> Result<(), StorageError> {
        if self.is_deleted() {
            return Ok(());
        }
        let Storage { disk, dir, .. } = self.storage;
        let revision = self.revision();
        let path = dir.join(deleted_name(self.slot.vb, revision));
        // An earlier attempt may have left it.
        if !disk.exists(&path)? {
            disk.create(&path)?;
        }
        // Sync before the removal of the file, which a crash leaves until then.
        disk.sync_dir(dir)?;
        self.written.deleted = Some(revision);
        Ok(())
    }

    /// Removes the file, durably.
    pub fn remove(&mut self) -> Result<(), StorageError> {
        let Storage { disk, dir, .. } = self.storage;
        if !self.has_file() {
            return Ok(());
        }
        self.remove_older()?;
        // Before the removal, so that the absence is not reported.
        self.storage.catalog.forget(self.slot.vb)?;
        let mut current = self.slot.current.lock();
        remove_if_there(
            &**disk,
            &dir.join(file_name(self.slot.vb, current.revision)),
        )?;
        self.storage.close(self.slot, &mut current);
        current.file = SlotFile::Missing;
        drop(current);
        self.written.metadata = None;
        Ok(disk.sync_dir(dir)?)
    }
}

impl SlotWriter<'_, '_> {
    /// Makes the last commit of the writer the current one, with this metadata. A new file replaces the current one as
    /// its next revision, and [`WriteGuard::remove_left`] removes the old one.
    pub(crate) fn committed(self, metadata: VbMetadata) -> Result<(), StorageError> {
        let SlotWriter { guard, writer, new } = self;
        if let Some(NewRevision { lease }) = new {
            let from = guard.boot_path();
            let installed =
                guard.install_file(&from, &writer.snapshot(), writer.file_bytes(), metadata);
            drop(lease);
            return installed;
        }
        guard.written.metadata = Some(metadata);
        let mut current = guard.slot.current.lock();
        let revision = current.revision;
        let snapshot = writer.snapshot();
        let key_id = match &current.file {
            SlotFile::At(at) => at.key_id.clone(),
            _ => snapshot.key_id().map(Arc::from),
        };
        current.file = SlotFile::At(Box::new(CurrentHeader {
            header: writer.header().clone(),
            file_bytes: writer.file_bytes(),
            key_id,
            durable: true,
        }));
        guard.storage.keep(guard.slot, &mut current, &snapshot);
        drop(current);
        guard
            .storage
            .note_commit(guard.slot.vb, revision, snapshot.header());
        guard.storage.close_excess();
        Ok(())
    }
}

impl Deref for SlotWriter<'_, '_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for SlotWriter<'_, '_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl WriteGuard<'_> {
    /// Quarantines the file, durably: it gets a name that no start takes for the vBucket's. A missing file is given up.
    /// Returns the new name; `None` if there is no file.
    pub(crate) fn quarantine(&mut self) -> Result<Option<PathBuf>, StorageError> {
        let missing = self.slot.current.lock().missing;
        let quarantine = match (self.has_file(), missing) {
            (true, _) => self.rename_damaged()?,
            (false, Some(revision)) => {
                self.mark_quarantined(revision)?;
                None
            }
            (false, None) => None,
        };
        // After the file has its other name, which explains its absence: a truncated file must not become valid again.
        self.storage.catalog.forget(self.slot.vb)?;
        let mut current = self.slot.current.lock();
        let missing = current.missing.take().unwrap_or_default();
        current.revision = current.revision.max(missing);
        current.header_at = 0;
        Ok(quarantine)
    }

    /// Creates an empty file in place of a missing one, durably, which marks the vBucket's file as given up.
    fn mark_quarantined(&self, revision: FileRevision) -> Result<(), StorageError> {
        let Storage { disk, dir, .. } = self.storage;
        disk.create(&self.damaged_path(revision)?)?;
        Ok(disk.sync_dir(dir)?)
    }

    /// Returns an unused name for a quarantined file of this revision.
    fn damaged_path(&self, revision: FileRevision) -> Result<PathBuf, StorageError> {
        let Storage { disk, dir, .. } = self.storage;
        let name = file_name(self.slot.vb, revision);
        let mut n = 1;
        let mut path = dir.join(damaged_name(&name, n));
        while disk.exists(&path)? {
            n += 1;
            path = dir.join(damaged_name(&name, n));
        }
        Ok(path)
    }

    fn rename_damaged(&mut self) -> Result<Option<PathBuf>, StorageError> {
        let Storage { disk, dir, .. } = self.storage;
        // Otherwise one of them would be the vBucket's file at the next start.
        self.remove_older()?;
        let mut current = self.slot.current.lock();
        let to = self.damaged_path(current.revision)?;
        let name = file_name(self.slot.vb, current.revision);
        let renamed = disk.rename(&dir.join(name), &to);
        let was_there = match renamed {
            // An administrator has removed it in the meantime.
            Err(error) if error.is_not_found() => false,
            other => other.map(|()| true)?,
        };
        self.storage.close(self.slot, &mut current);
        current.file = SlotFile::Missing;
        drop(current);
        self.written.metadata = None;
        self.written.undecided = false;
        disk.sync_dir(dir)?;
        Ok(was_there.then_some(to))
    }
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    match disk.remove(path) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
