//! The clean-shutdown marker of a bucket without a commit log: a file that marks the bucket as such and states whether
//! the last shutdown was clean.
//!
//! Invariant: while the marker exists, the vBuckets' files are authoritative. A log that also exists is void; it is
//! left from a crash during its removal.

use kedge_disk::{Disk, DiskError, read_file, replace_file};
use std::path::Path;

/// The name of the marker in the directory of a bucket without a commit log. A log beside it is void.
pub const DIRECT_FILE: &str = "direct";
const OPEN: &[u8] = b"open\n";
const CLEAN: &[u8] = b"clean\n";

/// The content of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownMarker {
    /// The bucket is open, so a crash may lose changes that clients have seen.
    Open,
    /// The last shutdown was clean.
    Clean,
}

impl ShutdownMarker {
    /// Reads the marker. Returns `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, DiskError> {
        let path = dir.join(DIRECT_FILE);
        if !disk.exists(&path)? {
            return Ok(None);
        }
        let text = read_file(disk, &path)?;
        // Unknown content is read as an unclean shutdown, which is the safe interpretation.
        Ok(Some(if text == CLEAN {
            Self::Clean
        } else {
            Self::Open
        }))
    }

    /// Writes the marker durably.
    pub(crate) fn write(self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let text = match self {
            Self::Open => OPEN,
            Self::Clean => CLEAN,
        };
        replace_file(disk, &dir.join(DIRECT_FILE), text)
    }

    /// Removes the marker durably.
    pub(crate) fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        disk.remove(&dir.join(DIRECT_FILE))?;
        disk.sync_dir(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::SimDisk;

    #[test]
    fn marker_survives_a_crash_as_written() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data/bucket"));
        disk.create_dir_all(dir).unwrap();
        assert_eq!(ShutdownMarker::read(&disk, dir).unwrap(), None);
        for marker in [ShutdownMarker::Open, ShutdownMarker::Clean] {
            marker.write(&disk, dir).unwrap();
            disk.crash(1);
            assert_eq!(ShutdownMarker::read(&disk, dir).unwrap(), Some(marker));
        }
        ShutdownMarker::remove(&disk, dir).unwrap();
        assert_eq!(ShutdownMarker::read(&disk, dir).unwrap(), None);
    }
}
