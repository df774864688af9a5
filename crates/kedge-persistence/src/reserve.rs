//! Disk space that is reserved for compactions: they free space on a full disk, but need some first.
//!
//! The space is allocated by a file without content. A compaction that finds the disk full removes the file. The task
//! that checks files for garbage allocates it again when there is enough space.
//!
//! Invariants:
//! * Nothing depends on the file: it may be missing or too short.
//! * It is not allocated where it would be a large part of the free space.

use kedge_bucket_core::BucketCore;
use kedge_disk::DiskError;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the file in the bucket's directory.
const FILE: &str = "compaction.reserve";
/// The minimum ratio of the free space to the reserve for an allocation.
const FREE_SPACE_FACTOR: u64 = 8;

/// The number of reserved bytes, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct CompactionReserve(AtomicU64);

impl CompactionReserve {
    /// Returns the number of bytes that are reserved for compactions.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Allocates the reserve, unless it exists or the disk has little free space.
    pub(crate) fn ensure(&self, core: &BucketCore) {
        let bytes = core.setup.compaction_reserve_bytes;
        if bytes == 0 || self.bytes() == bytes || core.quota.disk_full() {
            return;
        }
        if let Err(error) = self.allocate(core, bytes) {
            tracing::debug!(bucket = core.name(), %error, "no disk space could be reserved for compactions");
            // A partial reserve is useless.
            let _ = core.setup.disk.remove(&core.setup.dir.join(FILE));
        }
    }

    fn allocate(&self, core: &BucketCore, bytes: u64) -> Result<(), DiskError> {
        let (disk, path) = (&core.setup.disk, core.setup.dir.join(FILE));
        let exists = disk.exists(&path)? && disk.len(&path)? >= bytes;
        if !exists {
            if disk.free_bytes(&core.setup.dir)? / FREE_SPACE_FACTOR < bytes {
                return Ok(());
            }
            disk.create(&path)?.allocate(bytes)?;
        }
        self.0.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the reserve. Returns the number of freed bytes.
    pub(crate) fn free(&self, core: &BucketCore) -> u64 {
        let (disk, path) = (&core.setup.disk, core.setup.dir.join(FILE));
        self.0.store(0, Ordering::Relaxed);
        // An earlier process may have allocated it.
        let bytes = disk.len(&path).unwrap_or(0);
        if bytes == 0 || disk.remove(&path).is_err() {
            return 0;
        }
        tracing::warn!(
            bucket = core.name(),
            bytes,
            "the disk is full: the compaction reserve is freed"
        );
        bytes
    }
}
