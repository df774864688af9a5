//! A disk that counts what is asked of the one below it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kedge_disk::{DirLock, Disk, DiskError, File, PosixDisk};

/// Reads and writes of at most this many bytes are small.
const SMALL_BYTES_MAX: usize = 4096;

/// What was asked of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Io {
    /// Reads.
    pub reads: u64,
    /// Bytes of all reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Writes of at most 4 KiB.
    pub small_writes: u64,
    /// Bytes of all writes.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl Io {
    /// What was asked since `before`.
    #[must_use]
    pub fn since(&self, before: &Io) -> Io {
        Io {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            small_writes: self.small_writes - before.small_writes,
            written_bytes: self.written_bytes - before.written_bytes,
            syncs: self.syncs - before.syncs,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    small_writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// The system's files, counted.
#[derive(Debug, Clone, Default)]
pub struct CountedDisk {
    below: PosixDisk,
    counters: Arc<Counters>,
}

impl CountedDisk {
    /// What was asked so far.
    #[must_use]
    pub fn io(&self) -> Io {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Io {
            reads: read(&self.counters.reads),
            read_bytes: read(&self.counters.read_bytes),
            writes: read(&self.counters.writes),
            small_writes: read(&self.counters.small_writes),
            written_bytes: read(&self.counters.written_bytes),
            syncs: read(&self.counters.syncs),
        }
    }

    fn counted(&self, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(CountedFile {
            below: file,
            counters: Arc::clone(&self.counters),
        })
    }
}

impl Disk for CountedDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.counted(self.below.open(path)?))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        Ok(self.counted(self.below.create(path)?))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.below.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.below.rename(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.below.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.below.create_dir_all(dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.below.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.below.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        self.below.exists(path)
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        self.below.len(path)
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        self.below.lock_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        self.below.free_bytes(dir)
    }
}

#[derive(Debug)]
struct CountedFile {
    below: Box<dyn File>,
    counters: Arc<Counters>,
}

impl File for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, buf.len());
        self.below.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        add(&self.counters.writes, 1);
        add(
            &self.counters.small_writes,
            usize::from(buf.len() <= SMALL_BYTES_MAX),
        );
        add(&self.counters.written_bytes, buf.len());
        self.below.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        add(&self.counters.syncs, 1);
        self.below.sync_data()
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        add(&self.counters.syncs, 1);
        self.below.sync_all()
    }

    fn forget(&self, offset: u64, len: u64) {
        self.below.forget(offset, len);
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.below.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.below.allocate(len)
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.below.len()
    }
}
