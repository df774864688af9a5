//! The disk that is watched.

use super::{Io, Watch};
use kedge_disk::{DirLock, Disk, DiskError, File};
use std::path::Path;
use std::sync::Arc;

/// Passes everything on to another disk.
#[derive(Debug)]
pub(crate) struct Watched {
    disk: Arc<dyn Disk>,
    watch: Arc<Watch>,
    timed: bool,
}

impl Watched {
    /// `timed`: how long operations take is counted.
    pub(crate) fn over(disk: &Arc<dyn Disk>, watch: &Arc<Watch>, timed: bool) -> Arc<dyn Disk> {
        Arc::new(Self {
            disk: Arc::clone(disk),
            watch: Arc::clone(watch),
            timed,
        })
    }

    fn file(&self, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(WatchedFile {
            file,
            watch: Arc::clone(&self.watch),
            timed: self.timed,
        })
    }
}

impl Disk for Watched {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.file(self.disk.open(path)?))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.file(self.disk.create(path)?))
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
        let sync = || self.disk.sync_dir(dir);
        self.watch.watch(Io::Sync, self.timed, sync)
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
struct WatchedFile {
    file: Box<dyn File>,
    watch: Arc<Watch>,
    timed: bool,
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let io = Io::Read(buf.len());
        let read = || self.file.read_at(buf, offset);
        self.watch.watch(io, self.timed, read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        let write = || self.file.write_at(buf, offset);
        self.watch.watch(Io::Write(buf.len()), self.timed, write)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let sync = || self.file.sync_data();
        self.watch.watch(Io::Sync, self.timed, sync)
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        let sync = || self.file.sync_all();
        self.watch.watch(Io::Sync, self.timed, sync)
    }

    fn forget(&self, offset: u64, len: u64) {
        self.file.forget(offset, len);
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        // It writes nothing, but a full disk is found out here.
        self.watch
            .watch(Io::Write(0), false, || self.file.allocate(len))
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }
}
