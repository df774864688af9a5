//! The files to check, and the parts of their names: `VBUCKET.couch.REVISION`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use kedge_disk::{DiskError, Operation};
use kedge_node::registry::buckets_dir;

use super::super::FileError;

/// A file to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    /// The parts of the name; `None` for any other name.
    pub(super) revision: Option<FileRevision>,
    /// The offset of the header of the durable commit in the catalog of its directory, in bytes.
    pub(super) committed_at: Option<u64>,
    /// True if the catalog of its directory does not list it.
    pub(super) is_unlisted: bool,
}

impl NamedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        let revision = path.file_name().and_then(|name| parse(name.to_str()?));
        Self {
            path,
            revision,
            committed_at: None,
            is_unlisted: false,
        }
    }
}

/// The revision of a file. A compaction moves the contents of a vBucket to a file of the next revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileRevision {
    /// The vBucket, or the text in its place.
    pub(super) name: String,
    pub(super) revision: u64,
    /// The highest revision of this name in the same directory, if the directory was listed.
    pub(super) newest: Option<u64>,
}

impl FileRevision {
    /// Returns the vBucket, if the name is a number.
    pub(super) fn vbucket(&self) -> Option<u16> {
        let digits = self.name.bytes().all(|byte| byte.is_ascii_digit());
        self.name.parse().ok().filter(|_| digits)
    }
}

/// A directory to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedDirectory {
    pub(super) path: PathBuf,
    /// True if the directory may have no files, because it was found in a data directory, or is one.
    pub(super) may_be_empty: bool,
}

/// An argument of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathArgument {
    File(NamedFile),
    Directory(CheckedDirectory),
}

/// Returns the arguments for which one argument stands: a file, a directory, or a data directory and those of all its
/// buckets.
pub(super) fn given(path: &Path) -> Result<Vec<PathArgument>, FileError> {
    if !path.is_dir() {
        return Ok(vec![PathArgument::File(NamedFile::new(path.to_owned()))]);
    }
    let buckets = buckets_dir(path);
    let is_data = buckets.is_dir();
    let directory = |path: PathBuf| {
        PathArgument::Directory(CheckedDirectory {
            path,
            may_be_empty: is_data,
        })
    };
    let mut given = vec![directory(path.to_owned())];
    if is_data {
        let mut found: Vec<PathBuf> = list(&buckets)?.iter().map(|it| buckets.join(it)).collect();
        found.retain(|path| path.is_dir());
        found.sort();
        given.extend(found.into_iter().map(directory));
    }
    Ok(given)
}

/// Lists the names in a directory that are UTF-8, as all names of the server are.
pub(super) fn list(dir: &Path) -> Result<Vec<String>, FileError> {
    let error = |source: io::Error| {
        let error = DiskError::new(Operation::List, dir, source);
        FileError::from(kedge_couchstore::Error::from(error))
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        names.extend(entry.map_err(error)?.file_name().into_string());
    }
    Ok(names)
}

/// Lists the couchstore files in a directory.
pub(super) fn in_directory(dir: &Path) -> Result<Vec<NamedFile>, FileError> {
    let mut found: Vec<(PathBuf, FileRevision)> = Vec::new();
    for name in list(dir)? {
        found.extend(parse(&name).map(|revision| (dir.join(&name), revision)));
    }
    found.sort_by_cached_key(|(_, it)| (it.vbucket(), it.name.clone(), it.revision));
    // The last of each name stays: it has the highest revision.
    let newest: HashMap<String, u64> = found
        .iter()
        .map(|(_, it)| (it.name.clone(), it.revision))
        .collect();
    for (_, revision) in &mut found {
        revision.newest = newest.get(&revision.name).copied();
    }
    let named = found.into_iter().map(|(path, revision)| NamedFile {
        revision: Some(revision),
        ..NamedFile::new(path)
    });
    Ok(named.collect())
}

/// Returns the error of a directory that has nothing to check.
pub(super) fn nothing_in(dir: &Path) -> FileError {
    FileError::Usage(format!(
        "{} has no file of the form *.couch.N",
        dir.display()
    ))
}

fn parse(name: &str) -> Option<FileRevision> {
    let (name, revision) = name.split_once(".couch.")?;
    // `parse` would accept a sign.
    let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
    if name.is_empty() || !digits {
        return None;
    }
    Some(FileRevision {
        name: name.to_owned(),
        revision: revision.parse().ok()?,
        newest: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_have_vbucket_and_revision() {
        let parsed = |name| parse(name).map(|it| (it.vbucket(), it.revision));
        assert_eq!(parsed("12.couch.3"), Some((Some(12), 3)));
        for name in ["master.couch.3", "+1.couch.3", "65536.couch.3"] {
            assert_eq!(parsed(name), Some((None, 3)), "{name}");
        }
        for other in [
            "12.couch.3.compact",
            "12.couch.",
            ".couch.1",
            "1.couch.+1",
            "1.couch.boot",
            "couch",
        ] {
            assert!(parse(other).is_none(), "{other}");
        }
    }
}
