//! A disk that counts what is done to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kedge_disk::{DirLock, Disk, DiskError, File};

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Files that were opened or created.
    pub(crate) opened: AtomicU64,
    /// Files that were closed.
    pub(crate) closed: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) directory_syncs: AtomicU64,
}

/// Passes everything on to another disk.
#[derive(Debug)]
pub(crate) struct Metered {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
}

impl Metered {
    pub(crate) fn new(disk: Arc<dyn Disk>, counters: Arc<Counters>) -> Self {
        Metered { disk, counters }
    }

    fn count(&self, file: Box<dyn File>) -> Box<dyn File> {
        self.counters.opened.fetch_add(1, Relaxed);
        Box::new(MeteredFile {
            file,
            counters: Arc::clone(&self.counters),
        })
    }
}

impl Disk for Metered {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.count(self.disk.open(path)?))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.count(self.disk.create(path)?))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.create_dir_all(dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.counters.directory_syncs.fetch_add(1, Relaxed);
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.disk.exists(path)
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        self.disk.len(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        self.disk.lock_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.disk.free_bytes(dir)
    }
}

#[derive(Debug)]
struct MeteredFile {
    file: Box<dyn File>,
    counters: Arc<Counters>,
}

impl File for MeteredFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.counters
            .read_bytes
            .fetch_add(buf.len() as u64, Relaxed);
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.counters
            .written_bytes
            .fetch_add(buf.len() as u64, Relaxed);
        self.file.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.counters.syncs.fetch_add(1, Relaxed);
        self.file.sync_data()
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.counters.syncs.fetch_add(1, Relaxed);
        self.file.sync_all()
    }

    fn forget(&self, offset: u64, len: u64) {
        self.file.forget(offset, len);
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.file.allocate(len)
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
}

impl Drop for MeteredFile {
    fn drop(&mut self) {
        self.counters.closed.fetch_add(1, Relaxed);
    }
}
