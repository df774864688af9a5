//! A disk that reports calls to an observer, which may delay or reject them, and forwards them to another disk.

use std::path::Path;
use std::sync::Arc;

use crate::{DirLock, Disk, DiskError, File, Operation, RingFile};

/// A call to a disk or to one of its files.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DiskCall<'a> {
    /// The operation. The length of an open file is [`Operation::Stat`], too.
    pub operation: Operation,
    /// The file or directory; the old name in a rename. `None` for calls to an open file.
    pub path: Option<&'a Path>,
    /// The number of bytes to read or write; 0 for other operations.
    pub bytes: usize,
}

/// An observer of the calls to an [`ObservedDisk`] disk.
pub trait DiskObserver: std::fmt::Debug + Send + Sync + 'static {
    /// Wraps each operation except [`File::forget`] and [`File::begin_sync`], which cannot fail. The operation runs
    /// only if the observer calls `run`.
    ///
    /// # Errors
    /// The error of `run`, or another one that the observer chooses.
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError>;

    /// Called before a file is closed.
    fn on_close(&self) {}
}

/// Forwards all calls to another disk and reports them to an observer.
#[derive(Debug)]
pub struct ObservedDisk<O> {
    disk: Arc<dyn Disk>,
    observer: Arc<O>,
}

impl<O: DiskObserver> ObservedDisk<O> {
    /// Wraps `disk`.
    pub fn new(disk: Arc<dyn Disk>, observer: Arc<O>) -> Self {
        Self { disk, observer }
    }

    /// Returns the observer.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.observer
    }

    fn ask<R>(
        &self,
        operation: Operation,
        path: &Path,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let asked = DiskCall {
            operation,
            path: Some(path),
            bytes: 0,
        };
        self.observer.around(&asked, run)
    }

    fn file(&self, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(ObservedFile {
            file,
            observer: Arc::clone(&self.observer),
        })
    }
}

impl<O: DiskObserver> Disk for ObservedDisk<O> {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let file = self.ask(Operation::Open, path, || self.disk.open(path))?;
        Ok(self.file(file))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let file = self.ask(Operation::Create, path, || self.disk.create(path))?;
        Ok(self.file(file))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.ask(Operation::Remove, path, || self.disk.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.ask(Operation::Rename, from, || self.disk.rename(from, to))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.ask(Operation::List, dir, || self.disk.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.ask(Operation::CreateDir, dir, || self.disk.create_dir_all(dir))
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.ask(Operation::Remove, dir, || self.disk.remove_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.ask(Operation::SyncDir, dir, || self.disk.sync_dir(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.ask(Operation::Stat, path, || self.disk.exists(path))
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        self.ask(Operation::Stat, path, || self.disk.len(path))
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        self.ask(Operation::Lock, dir, || self.disk.lock_dir(dir))
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.ask(Operation::Stat, dir, || self.disk.free_bytes(dir))
    }
}

#[derive(Debug)]
struct ObservedFile<O: DiskObserver> {
    file: Box<dyn File>,
    observer: Arc<O>,
}

impl<O: DiskObserver> ObservedFile<O> {
    fn ask<R>(
        &self,
        operation: Operation,
        bytes: usize,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let asked = DiskCall {
            operation,
            path: None,
            bytes,
        };
        self.observer.around(&asked, run)
    }
}

impl<O: DiskObserver> File for ObservedFile<O> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let bytes = buf.len();
        self.ask(Operation::Read, bytes, || self.file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        let write = || self.file.write_at(buf, offset);
        self.ask(Operation::Write, buf.len(), write)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.ask(Operation::Sync, 0, || self.file.sync_data())
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.ask(Operation::Sync, 0, || self.file.sync_all())
    }

    fn forget(&self, offset: u64, len: u64) {
        self.file.forget(offset, len);
    }

    fn begin_sync(&self, offset: u64, len: u64) {
        self.file.begin_sync(offset, len);
    }

    fn for_ring(&self) -> Option<RingFile> {
        self.file.for_ring()
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.ask(Operation::SetLen, 0, || self.file.set_len(len))
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.ask(Operation::Allocate, 0, || self.file.allocate(len))
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.ask(Operation::Stat, 0, || self.file.len())
    }
}

impl<O: DiskObserver> Drop for ObservedFile<O> {
    fn drop(&mut self) {
        self.observer.on_close();
    }
}
