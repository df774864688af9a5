//! Admission on the disk that is kept for compactions: on a full disk they are what makes room, and need some first.
//!
//! A file without content takes the room. It is removed when a compaction finds the disk full, and made again by the task
//! that looks for garbage when there is enough room. Invariants:
//! * Nothing depends on the file: it may be missing, or shorter.
//! * It is not made where it would be a large part of what is left.

use crate::persistence::Persistence;
use kedge_disk::DiskError;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the file, in the bucket's directory.
const FILE: &str = "compaction.reserve";
/// The disk must have this many times as much room.
const ROOM_FACTOR: u64 = 8;

/// Bytes that are kept, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Reserve(AtomicU64);

impl Reserve {
    /// Bytes of the disk that are kept for compactions.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Persistence {
    fn reserve_file(&self) -> PathBuf {
        self.core.setup.dir.join(FILE)
    }

    /// Takes the room, unless it was taken already or there is little.
    pub(crate) fn keep_reserve(&self) {
        let bytes = self.core.setup.compaction_reserve_bytes;
        if bytes == 0 || self.reserve.bytes() == bytes || self.core.quota.disk_full() {
            return;
        }
        if let Err(error) = self.take_reserve(bytes) {
            tracing::debug!(bucket = self.core.name(), %error, "no room is kept for compactions");
            // A part of it is of no use.
            let _ = self.core.setup.disk.remove(&self.reserve_file());
        }
    }

    fn take_reserve(&self, bytes: u64) -> Result<(), DiskError> {
        let (disk, path) = (&self.core.setup.disk, self.reserve_file());
        let is_there = disk.exists(&path)? && disk.len(&path)? >= bytes;
        if !is_there {
            if disk.free_bytes(&self.core.setup.dir)? / ROOM_FACTOR < bytes {
                return Ok(());
            }
            disk.create(&path)?.allocate(bytes)?;
        }
        self.reserve.0.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the room back to the disk. Returns how many bytes that were.
    pub(crate) fn give_up_reserve(&self) -> u64 {
        let (disk, path) = (&self.core.setup.disk, self.reserve_file());
        self.reserve.0.store(0, Ordering::Relaxed);
        // Also what an earlier process kept.
        let bytes = disk.len(&path).unwrap_or(0);
        if bytes == 0 || disk.remove(&path).is_err() {
            return 0;
        }
        tracing::warn!(
            bucket = self.core.name(),
            bytes,
            "the disk is full: the room that was kept for compactions is theirs"
        );
        bytes
    }
}
