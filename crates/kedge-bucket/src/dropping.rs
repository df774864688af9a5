//! The removal of a dropped bucket's directory, which a crash may interrupt.
//!
//! Invariant: the drop marker is removed durably after everything else. So the rest of a dropped bucket is distinguishable
//! from a bucket that has lost a file.

use kedge_disk::{Disk, DiskError};
use std::path::Path;

/// The name of the drop marker in the directory of a bucket that is being dropped.
pub const DROPPING_FILE: &str = "dropping";

/// Removes the directory of a dropped bucket durably. A missing directory is not an error.
///
/// # Errors
/// Errors of the disk. A repeated call continues the removal.
pub fn finish_drop(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    remove_dir_marker_last(disk, dir, DROPPING_FILE)
}

/// Removes a directory durably, and the file `marker` in it after everything else. A missing directory is not an error.
///
/// # Errors
/// Errors of the disk.
pub fn remove_dir_marker_last(disk: &dyn Disk, dir: &Path, marker: &str) -> Result<(), DiskError> {
    if !disk.exists(dir)? {
        return Ok(());
    }
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        if name == marker {
            continue;
        }
        // Only a directory can be listed.
        match disk.list(&path) {
            Ok(_) => disk.remove_dir_all(&path)?,
            Err(_) => disk.remove(&path)?,
        }
    }
    // Sync before the marker is removed.
    disk.sync_dir(dir)?;
    disk.remove_dir_all(dir)?;
    match dir.parent() {
        Some(parent) => disk.sync_dir(parent),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::{Fault, SimDisk};

    /// Creates a bucket directory with a subdirectory, files and the drop marker.
    fn dropped_bucket() -> SimDisk {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data/b"));
        disk.create_dir_all(&dir.join("log")).unwrap();
        for name in ["0.couch.1", DROPPING_FILE, "log/1.log", "log/2.log", "z"] {
            disk.create(&dir.join(name)).unwrap();
        }
        disk.sync_dir(dir).unwrap();
        disk.sync_dir(&dir.join("log")).unwrap();
        disk
    }

    #[test]
    fn drop_marker_survives_a_power_loss_at_any_operation_until_the_directory_is_empty() {
        let dir = Path::new("/data/b");
        let mut cut_off = 0;
        for number in 1.. {
            let disk = dropped_bucket();
            disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
            let is_done = finish_drop(&disk, dir).is_ok();
            for seed in 0..20 {
                let disk = disk.fork();
                disk.crash(seed);
                let is_there = disk.exists(dir).unwrap();
                let is_empty = is_there && disk.list(dir).unwrap().is_empty();
                let is_marked = disk.exists(&dir.join(DROPPING_FILE)).unwrap();
                assert!(
                    !is_there || is_empty || is_marked,
                    "operation {number}, seed {seed}"
                );
                assert!(!is_done || !is_there);
                finish_drop(&disk, dir).unwrap();
                assert!(!disk.exists(dir).unwrap());
            }
            if is_done {
                break;
            }
            cut_off += 1;
        }
        assert!(cut_off >= 8, "{cut_off}");
    }
}
