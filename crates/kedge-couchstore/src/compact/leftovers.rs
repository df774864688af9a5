//! Names of targets and temporary files, and their removal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::Error;

/// Suffix of a target's name after the name of the source.
const TARGET_SUFFIX: &str = ".compact";
/// Part of a temporary file's name between the name of the target and a number.
const TEMPORARY_INFIX: &str = ".btree-tmp_";

/// Returns the path of a compaction's target until it replaces another file: `0.couch.7.compact` for `0.couch.7`.
/// [`remove_leftovers`] removes files with such names.
#[must_use]
pub fn target_path(source: &Path) -> PathBuf {
    with_suffix(source, TARGET_SUFFIX)
}

/// Returns the path of a temporary file of a compaction.
pub(super) fn temporary_path(target: &Path, number: u32) -> PathBuf {
    with_suffix(target, &format!("{TEMPORARY_INFIX}{number}"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn is_leftover(name: &str) -> bool {
    let target = match name.rsplit_once(TEMPORARY_INFIX) {
        Some((target, number))
            if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            target
        }
        _ => name,
    };
    target
        .strip_suffix(TARGET_SUFFIX)
        .is_some_and(|source| !source.is_empty())
}

/// Removes the files that compactions interrupted by a crash have left in a directory. Returns their names. Called when
/// the directory is opened, before any compaction begins.
///
/// # Errors
/// Disk errors.
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = disk.list(dir)?;
    names.retain(|name| is_leftover(name));
    for name in &names {
        disk.remove(&dir.join(name))?;
    }
    if !names.is_empty() {
        disk.sync_dir(dir)?;
    }
    Ok(names)
}

/// A file that is removed on drop unless it is kept.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    keep: bool,
}

impl UnfinishedFile {
    pub(super) fn new(disk: &Arc<dyn Disk>, path: &Path) -> Self {
        UnfinishedFile {
            disk: Arc::clone(disk),
            path: path.to_owned(),
            keep: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file.
    pub(super) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.keep {
            // If the file cannot be removed, the next start removes it; it may also not exist yet. The failed
            // compaction has its own error.
            let _ = self.disk.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_files_are_recognised_by_name() {
        let target = target_path(Path::new("0.couch.7"));
        assert_eq!(target, Path::new("0.couch.7.compact"));
        let temporary = temporary_path(&target, 12);
        assert_eq!(temporary, Path::new("0.couch.7.compact.btree-tmp_12"));
        for (name, is) in [
            ("0.couch.7.compact", true),
            ("0.couch.7.compact.btree-tmp_12", true),
            ("0.couch.7", false),
            ("0.couch.7.compact.btree-tmp_", false),
            ("0.couch.7.compact.btree-tmp_1x", false),
            ("0.couch.7.btree-tmp_1", false),
            (".compact", false),
            ("0.couch.7.compact.1", false),
            ("stats.json", false),
        ] {
            assert_eq!(is_leftover(name), is, "{name}");
        }
    }
}
