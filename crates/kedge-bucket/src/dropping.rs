//! The removal of a bucket's directory, which a crash may cut short.
//!
//! Invariant: the mark that a drop was begun goes after all else, durably. So what a crash leaves of a dropped bucket is
//! told from a bucket that lost a file.

use kedge_disk::{Disk, DiskError};
use std::path::Path;

/// The mark in the directory of a bucket that is being dropped.
pub const DROPPING_FILE: &str = "dropping";

/// Removes the directory of a bucket whose drop was begun, durably. A missing one is no error.
///
/// # Errors
/// What the disk says. The rest may be removed by calling it again.
pub fn finish_drop(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    remove_but_last(disk, dir, DROPPING_FILE)
}

/// Removes a directory durably, the file `last` in it after everything else. A missing directory is no error.
///
/// # Errors
/// What the disk says.
pub fn remove_but_last(disk: &dyn Disk, dir: &Path, last: &str) -> Result<(), DiskError> {
    if !disk.exists(dir)? {
        return Ok(());
    }
    for name in disk.list(dir)? {
        let path = dir.join(&name);
        if name == last {
            continue;
        }
        // What can be listed is a directory.
        match disk.list(&path) {
            Ok(_) => disk.remove_dir_all(&path)?,
            Err(_) => disk.remove(&path)?,
        }
    }
    // Before the last one goes.
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

    /// A directory with a folder, files and the mark.
    fn begun() -> SimDisk {
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
    fn the_mark_is_there_as_long_as_anything_is_wherever_the_power_fails() {
        let dir = Path::new("/data/b");
        let mut cut_off = 0;
        for number in 1.. {
            let disk = begun();
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
