//! A disk that counts its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kedge_disk::{DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, PosixDisk};

/// Reads and writes of at most this many bytes are small.
const SMALL_BYTES_MAX: usize = 4096;

/// The numbers of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
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

impl IoCounts {
    /// Returns the operations since `before`.
    #[must_use]
    pub fn since(&self, before: &IoCounts) -> IoCounts {
        IoCounts {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            small_writes: self.small_writes - before.small_writes,
            written_bytes: self.written_bytes - before.written_bytes,
            syncs: self.syncs - before.syncs,
        }
    }
}

/// The counters of a disk.
#[derive(Debug, Default)]
pub struct Counters {
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

impl Counters {
    /// Returns the operations so far.
    #[must_use]
    pub fn io(&self) -> IoCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            reads: read(&self.reads),
            read_bytes: read(&self.read_bytes),
            writes: read(&self.writes),
            small_writes: read(&self.small_writes),
            written_bytes: read(&self.written_bytes),
            syncs: read(&self.syncs),
        }
    }
}

impl DiskObserver for Counters {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        match asked.operation {
            Operation::Read => {
                add(&self.reads, 1);
                add(&self.read_bytes, asked.bytes);
            }
            Operation::Write => {
                add(&self.writes, 1);
                let is_small = asked.bytes <= SMALL_BYTES_MAX;
                add(&self.small_writes, usize::from(is_small));
                add(&self.written_bytes, asked.bytes);
            }
            Operation::Sync => add(&self.syncs, 1),
            _ => {}
        }
        run()
    }
}

/// The system's files with counters.
pub type CountedDisk = ObservedDisk<Counters>;

/// Returns a disk with zero counters.
#[must_use]
pub fn counted_disk() -> CountedDisk {
    ObservedDisk::new(Arc::new(PosixDisk), Arc::default())
}
