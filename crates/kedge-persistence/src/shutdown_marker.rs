//! The mark of a bucket without a commit log: a file that says so, and whether the last shutdown was clean.
//!
//! Invariant: while the mark is there, the vBuckets' files are the truth, and a log that is there too is void: it is what
//! a crash left of its removal.

use kedge_disk::{Disk, DiskError, read_file, replace_file};
use std::path::Path;

/// The marker in the directory of a bucket without a commit log. A log that is there too is void.
pub const DIRECT_FILE: &str = "direct";
const OPEN: &[u8] = b"open\n";
const CLEAN: &[u8] = b"clean\n";

/// What the mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownMarker {
    /// Changes may have been given out that are in no file.
    Open,
    /// The last shutdown was clean.
    Clean,
}

impl ShutdownMarker {
    /// Reads the mark; `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, DiskError> {
        let path = dir.join(DIRECT_FILE);
        if !disk.exists(&path)? {
            return Ok(None);
        }
        let text = read_file(disk, &path)?;
        // Anything else is not what this version writes: the careful way.
        Ok(Some(if text == CLEAN {
            Self::Clean
        } else {
            Self::Open
        }))
    }

    /// Writes the mark, durably.
    pub(crate) fn write(self, disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
        let text = match self {
            Self::Open => OPEN,
            Self::Clean => CLEAN,
        };
        replace_file(disk, &dir.join(DIRECT_FILE), text)
    }

    /// Removes the mark, durably.
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
