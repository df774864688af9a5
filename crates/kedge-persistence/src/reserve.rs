//! Admission on the disk that is kept for compactions: on a full disk they are what makes room, and need some first.
//!
//! A file without content takes the room. It is removed when a compaction finds the disk full, and made again by the task
//! that looks for garbage when there is enough room. Invariants:
//! * Nothing depends on the file: it may be missing, or shorter.
//! * It is not made where it would be a large part of what is left.

use kedge_bucket_core::BucketCore;
use kedge_disk::DiskError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the file, in the bucket's directory.
const FILE: &str = "compaction.reserve";
/// The disk must have this many times as much room.
const FREE_SPACE_FACTOR: u64 = 8;

/// Bytes that are kept, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct CompactionReserve(AtomicU64);

impl CompactionReserve {
    /// Bytes of the disk that are kept for compactions.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes the room, unless it was taken already or there is little.
    pub(crate) fn ensure(&self, core: &BucketCore) {
        let bytes = core.setup.compaction_reserve_bytes;
        if bytes == 0 || self.bytes() == bytes || core.quota.disk_full() {
            return;
        }
        if let Err(error) = self.allocate(core, bytes) {
            tracing::debug!(bucket = core.name(), %error, "no room is kept for compactions");
            // A part of it is of no use.
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

    /// Gives the room back to the disk. Returns how many bytes that were.
    pub(crate) fn free(&self, core: &BucketCore) -> u64 {
        let (disk, path) = (&core.setup.disk, core.setup.dir.join(FILE));
        self.0.store(0, Ordering::Relaxed);
        // Also what an earlier process kept.
        let bytes = disk.len(&path).unwrap_or(0);
        if bytes == 0 || disk.remove(&path).is_err() {
            return 0;
        }
        tracing::warn!(
            bucket = core.name(),
            bytes,
            "the disk is full: the room that was kept for compactions is theirs"
        );
        bytes
    }
}
