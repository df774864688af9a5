//! The list of the state files of a directory, which distinguishes a missing file from one that never existed.
//!
//! Without `users.json` a server has no users, without `cluster-map.json` a node has no cluster, and without a bucket's
//! `manifest.json` ids of collections are assigned again: none of them may start over because a file got lost.
//!
//! Invariants:
//! * A name is on the list, durably, after its file is durable. The next start adds names that a crash left out.
//! * No name leaves the list automatically: the server removes these files only with their directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kedge_disk::{Disk, DiskError, read_file, replace_file};
use kedge_sync::{RankedMutex, ranks::StateFiles};

/// The list in each directory.
pub const FILES_LIST: &str = "files.json";

/// Locked while a list is changed.
static CHANGE: RankedMutex<StateFiles, ()> = RankedMutex::new(());

/// The reason why a state file cannot count as one that never existed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The file is on the list, but does not exist.
    #[error(
        "{} is missing: {} says that it was there. Put it back from a backup; to begin without it, remove its name from \
         that list",
        path.display(), list.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The list.
        list: PathBuf,
    },
    /// The list cannot be parsed.
    #[error("{} is no list of names, as [\"users.json\"] is one: {why}", list.display())]
    Damaged {
        /// The list.
        list: PathBuf,
        /// The error in it.
        why: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Returns whether a state file exists. An existing one is on the list from now on.
///
/// # Errors
/// `Missing` if it is on the list but does not exist; `Damaged`, `Disk`.
pub fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool, StateFileError> {
    if disk.exists(path)? {
        saved(disk, path)?;
        return Ok(true);
    }
    let list = list_of(path);
    if read(disk, &list)?.contains(&name_of(path)) {
        return Err(StateFileError::Missing {
            path: path.to_owned(),
            list,
        });
    }
    Ok(false)
}

/// Adds the name of a durable file to the list. On a full disk the next start does that.
///
/// # Errors
/// `Damaged`, `Disk`.
pub fn saved(disk: &dyn Disk, path: &Path) -> Result<(), StateFileError> {
    let list = list_of(path);
    let _one_at_a_time = CHANGE.lock();
    let mut names = read(disk, &list)?;
    if !names.insert(name_of(path)) {
        return Ok(());
    }
    let mut json = serde_json::to_string_pretty(&names).expect("names become JSON");
    json.push('\n');
    match replace_file(disk, &list, json.as_bytes()) {
        Err(error) if !error.is_no_space() => Err(error.into()),
        _ => Ok(()),
    }
}

fn read(disk: &dyn Disk, list: &Path) -> Result<BTreeSet<String>, StateFileError> {
    if !disk.exists(list)? {
        return Ok(BTreeSet::new());
    }
    let bytes = read_file(disk, list)?;
    listed(&bytes).map_err(|why| StateFileError::Damaged {
        list: list.to_owned(),
        why,
    })
}

/// Parses the names of a list.
///
/// # Errors
/// Bytes that are no list of names.
pub fn listed(list: &[u8]) -> Result<BTreeSet<String>, serde_json::Error> {
    serde_json::from_slice(list)
}

fn list_of(path: &Path) -> PathBuf {
    path.with_file_name(FILES_LIST)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::{Fault, SimDisk};

    const FILE: &str = "/data/users.json";

    fn save(disk: &SimDisk, text: &str) -> Result<(), StateFileError> {
        replace_file(disk, Path::new(FILE), text.as_bytes())?;
        saved(disk, Path::new(FILE))
    }

    fn new_disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk
    }

    #[test]
    fn missing_state_file_is_an_error_until_its_name_is_removed() {
        let (disk, path) = (new_disk(1), Path::new(FILE));
        assert!(!is_there(&disk, path).unwrap());
        save(&disk, "1").unwrap();
        assert!(is_there(&disk, path).unwrap());
        assert!(!is_there(&disk, Path::new("/data/other.json")).unwrap());
        disk.remove(path).unwrap();
        let why = is_there(&disk, path).unwrap_err().to_string();
        assert!(
            why.contains(FILE) && why.contains("/data/files.json"),
            "{why}"
        );
        replace_file(&disk, Path::new("/data/files.json"), b"[]").unwrap();
        assert!(!is_there(&disk, path).unwrap());
        replace_file(&disk, Path::new("/data/files.json"), b"[").unwrap();
        let why = is_there(&disk, path).unwrap_err().to_string();
        assert!(why.contains("/data/files.json"), "{why}");
    }

    #[test]
    fn existing_state_file_is_added_to_the_list() {
        let (disk, path) = (new_disk(2), Path::new(FILE));
        replace_file(&disk, path, b"1").unwrap();
        assert!(is_there(&disk, path).unwrap());
        disk.crash(1);
        disk.remove(path).unwrap();
        assert!(is_there(&disk, path).is_err());
    }

    #[test]
    fn crash_does_not_make_a_state_file_missing() {
        for number in 1.. {
            let disk = new_disk(number);
            disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
            let done = save(&disk, "1").and_then(|()| save(&disk, "2")).is_ok();
            for seed in 0..10 {
                let disk = disk.fork();
                disk.crash(seed);
                let there = is_there(&disk, Path::new(FILE)).unwrap();
                assert!(there || !done);
            }
            if done {
                break;
            }
        }
    }

    #[test]
    fn full_disk_does_not_prevent_saving_a_state_file() {
        let disk = new_disk(3);
        replace_file(&disk, Path::new(FILE), b"1").unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        saved(&disk, Path::new(FILE)).unwrap();
        assert!(is_there(&disk, Path::new(FILE)).unwrap());
    }
}
