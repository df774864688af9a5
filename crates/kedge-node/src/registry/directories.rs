//! The states of the directories below `buckets`, and their transitions.
//!
//! ```text
//! bucket.json     a bucket, whatever else there is
//! dropping        one that is being dropped: bucket.json itself, under another name
//! creating        one that is being made or imported, and that nobody has written to yet
//! anything else   not understood: left alone, and not served until an operator says so
//! ```
//!
//! Invariants:
//! * `creating` exists, durably, before anything else of a new bucket, and is gone, durably, before anything is written
//!   to it.
//! * `dropping` replaces `bucket.json` in one step, and exists until everything else is gone, durably.
//! * So nothing is ever removed because something else is missing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kedge_bucket::{BucketConfig, DROPPING_FILE, finish_drop, remove_dir_marker_last};
use kedge_disk::{Disk, DiskError, read_file, replace_file};

use super::{CONFIG_FILE, RegistryError, bucket_dir, buckets_dir, config_path, read_config_of};

/// The marker of a bucket that is being created.
const CREATING_FILE: &str = "creating";
/// A copy of `bucket.json`, in case that gets lost.
const COPY_FILE: &str = "bucket.json.copy";

/// The kind of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    /// The directory is missing or empty.
    Nothing,
    /// A bucket.
    Bucket,
    /// A bucket whose creation was interrupted.
    Creating,
    /// A bucket whose drop was interrupted.
    Dropping,
    /// Something else.
    Unknown,
}

/// Determines the kind of a directory of `buckets`.
pub(super) fn look(disk: &dyn Disk, dir: &Path) -> Result<Directory, DiskError> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.is_not_found() => return Ok(Directory::Nothing),
        Err(error) if error.source.kind() == ErrorKind::NotADirectory => {
            return Ok(Directory::Unknown);
        }
        Err(error) => return Err(error),
    };
    Ok(directory_of(&names))
}

/// Determines the kind of a directory from the names of its files.
fn directory_of(names: &[String]) -> Directory {
    let has = |file: &str| names.iter().any(|name| name == file);
    if has(CONFIG_FILE) {
        Directory::Bucket
    } else if has(DROPPING_FILE) {
        Directory::Dropping
    } else if has(CREATING_FILE) {
        Directory::Creating
    } else if names.is_empty() {
        Directory::Nothing
    } else {
        Directory::Unknown
    }
}

/// Returns whether a directory with files of these names is the remainder of an interrupted creation or drop. The next
/// start removes it.
#[must_use]
pub fn is_remainder(names: &[String]) -> bool {
    matches!(
        directory_of(names),
        Directory::Creating | Directory::Dropping
    )
}

/// A directory of `buckets` that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// The name, which no new bucket gets.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// The reason why it is not served.
    pub why: &'static str,
    /// The remedy for an operator.
    pub remedy: String,
}

impl Unserved {
    pub(super) fn new(
        disk: &dyn Disk,
        data_dir: &Path,
        name: &str,
        is: Directory,
    ) -> Result<Self, DiskError> {
        let path = bucket_dir(data_dir, name);
        let adopt = format!("serve it with: kedge bucket adopt {name}");
        let (why, remedy) = if is == Directory::Bucket {
            ("it was put there while the server runs", adopt)
        } else if has_copy(disk, &path) {
            ("its bucket.json is missing", adopt)
        } else {
            let remedy =
                "put its bucket.json back from a backup, or move it out of the data directory";
            (
                "it has no bucket.json, and no copy of one",
                remedy.to_owned(),
            )
        };
        Ok(Self {
            name: name.to_owned(),
            path,
            why,
            remedy,
        })
    }
}

fn has_copy(disk: &dyn Disk, dir: &Path) -> bool {
    // A path that is no directory has none.
    disk.exists(&dir.join(COPY_FILE)).unwrap_or(false)
}

/// Finds the directories that do not belong to these buckets, and are no remainders.
pub(super) fn unserved(
    disk: &dyn Disk,
    data_dir: &Path,
    is_served: impl Fn(&str) -> bool,
) -> Result<Vec<Unserved>, DiskError> {
    let mut unserved = Vec::new();
    for name in disk.list(&buckets_dir(data_dir))? {
        if is_served(&name) {
            continue;
        }
        let is = look(disk, &bucket_dir(data_dir, &name))?;
        if matches!(is, Directory::Bucket | Directory::Unknown) {
            unserved.push(Unserved::new(disk, data_dir, &name, is)?);
        }
    }
    Ok(unserved)
}

/// Creates the directory of a new bucket, which does not count as a bucket before [`end_creation`]. The remainder of an
/// interrupted creation or drop is removed, unless `keep` asks to keep its content.
///
/// # Errors
/// `Unserved` if something else exists under this name or one that differs only in case; `Disk`.
pub(super) fn begin_creation(
    disk: &dyn Disk,
    data_dir: &Path,
    name: &str,
    keep: bool,
) -> Result<(), RegistryError> {
    let others = |other: &str| other == name || !other.eq_ignore_ascii_case(name);
    let twin = unserved(disk, data_dir, others)?;
    let dir = bucket_dir(data_dir, name);
    let is = look(disk, &dir)?;
    let here = matches!(is, Directory::Bucket | Directory::Unknown);
    let here = here.then(|| Unserved::new(disk, data_dir, name, is));
    if let Some(unserved) = here.transpose()?.or_else(|| twin.into_iter().next()) {
        return Err(RegistryError::Unserved(unserved));
    }
    match is {
        Directory::Dropping => finish_drop(disk, &dir)?,
        Directory::Creating if !keep => remove_unmade(disk, &dir)?,
        _ => {}
    }
    disk.create_dir_all(&dir)?;
    disk.create(&dir.join(CREATING_FILE))?;
    Ok(disk.sync_dir(&dir)?)
}

/// Completes the creation: the directory is a bucket from now on.
pub(super) fn end_creation(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let mark = dir.join(CREATING_FILE);
    if disk.exists(&mark)? {
        disk.remove(&mark)?;
        disk.sync_dir(dir)?;
    }
    Ok(())
}

/// Removes the remainder of an interrupted creation.
pub(super) fn remove_unmade(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    remove_dir_marker_last(disk, dir, CREATING_FILE)
}

/// Removes a bucket whose creation failed, at any step.
pub(super) fn undo_creation(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    match look(disk, dir)? {
        Directory::Creating => return remove_unmade(disk, dir),
        Directory::Bucket => begin_drop(disk, dir)?,
        _ => {}
    }
    finish_drop(disk, dir)
}

/// Marks a bucket as one that is being dropped, durably. Takes no space on the disk.
pub(super) fn begin_drop(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let mark = dir.join(DROPPING_FILE);
    match disk.rename(&config_path(dir), &mark) {
        // Someone removed it by hand.
        Err(error) if error.is_not_found() => drop(disk.create(&mark)?),
        renamed => renamed?,
    }
    disk.sync_dir(dir)
}

/// Cancels a drop.
pub(super) fn cancel_drop(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    disk.rename(&dir.join(DROPPING_FILE), &config_path(dir))?;
    disk.sync_dir(dir)
}

/// Stores a copy of the settings, for [`settings_from_copy`]. On a full disk the next start does it.
pub(super) fn keep_copy(disk: &dyn Disk, dir: &Path, json: &[u8]) -> Result<(), DiskError> {
    let copy = dir.join(COPY_FILE);
    if disk.exists(&copy)? && read_file(disk, &copy)? == json {
        return Ok(());
    }
    match replace_file(disk, &copy, json) {
        Err(error) if error.is_no_space() => Ok(()),
        replaced => replaced,
    }
}

/// Returns the settings of a directory from the copy.
///
/// # Errors
/// `NoSettings` without a copy; `Damaged`, `Disk`.
pub(super) fn copied_settings(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
) -> Result<BucketConfig, RegistryError> {
    if !has_copy(disk, dir) {
        return Err(RegistryError::NoSettings(dir.to_owned()));
    }
    read_config_of(disk, &dir.join(COPY_FILE), name)
}

/// Restores the settings of a directory from the copy.
pub(super) fn restore_settings(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    replace_file(
        disk,
        &config_path(dir),
        &read_file(disk, &dir.join(COPY_FILE))?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::{Fault, SimDisk};

    fn data_dir() -> &'static Path {
        Path::new("/data")
    }

    /// Creates a bucket of two files and a log, up to a power failure.
    fn make(disk: &SimDisk) -> Result<(), RegistryError> {
        let dir = bucket_dir(data_dir(), "b");
        disk.create_dir_all(&buckets_dir(data_dir()))?;
        begin_creation(disk, data_dir(), "b", false)?;
        let config = BucketConfig::new("b", 4, 64 << 20);
        super::super::write_config(disk, data_dir(), &config)?;
        end_creation(disk, &dir)?;
        disk.create_dir_all(&dir.join("log"))?;
        for file in ["0.couch.1", "log/1.log"] {
            disk.create(&dir.join(file))?;
        }
        disk.sync_dir(&dir)?;
        Ok(disk.sync_dir(&dir.join("log"))?)
    }

    #[test]
    fn crash_during_bucket_creation_or_drop_leaves_a_known_state() {
        let dir = bucket_dir(data_dir(), "b");
        let mut seen = std::collections::BTreeSet::new();
        for number in 1.. {
            let disk = SimDisk::new(number);
            disk.fail_operation(number, Fault::PowerLoss);
            let made = make(&disk).is_ok();
            let begun = made && begin_drop(&disk, &dir).is_ok();
            let dropped = begun && finish_drop(&disk, &dir).is_ok();
            for seed in 0..20 {
                let disk = disk.fork();
                disk.crash(seed);
                let is = look(&disk, &dir).unwrap();
                assert_ne!(is, Directory::Unknown, "operation {number}, seed {seed}");
                assert!(!made || begun || matches!(is, Directory::Bucket | Directory::Dropping));
                assert!(!begun || matches!(is, Directory::Nothing | Directory::Dropping));
                assert!(!dropped || is == Directory::Nothing);
                seen.insert(format!("{is:?}"));
                // Everything but a bucket can be created again.
                if is != Directory::Bucket {
                    disk.create_dir_all(&buckets_dir(data_dir())).unwrap();
                    begin_creation(&disk, data_dir(), "b", false).unwrap();
                    assert_eq!(disk.list(&dir).unwrap(), [CREATING_FILE]);
                }
            }
            if dropped {
                break;
            }
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
    }
}
