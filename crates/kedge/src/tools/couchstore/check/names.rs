//! Which files to check, and what their names say: `VBUCKET.couch.REVISION`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use kedge_disk::{DiskError, Operation};

use super::super::FileError;

/// A file to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    /// What the name says; `None` for any other name.
    pub(super) revision: Option<Revision>,
}

/// The contents of a vBucket move to a file of the next revision when they are compacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Revision {
    /// The vBucket, or what stands in its place.
    pub(super) name: String,
    pub(super) revision: u64,
    /// The highest revision of this name in the same directory, when that was looked at.
    pub(super) newest: Option<u64>,
}

impl Revision {
    /// The vBucket, if the name is a number.
    pub(super) fn vbucket(&self) -> Option<u16> {
        let digits = self.name.bytes().all(|byte| byte.is_ascii_digit());
        self.name.parse().ok().filter(|_| digits)
    }
}

/// The files of the command line, and those in its directories.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<Named>, FileError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(in_directory(path)?);
        } else {
            let revision = path.file_name().and_then(|name| parse(name.to_str()?));
            let path = path.clone();
            files.push(Named { path, revision });
        }
    }
    Ok(files)
}

fn in_directory(dir: &Path) -> Result<Vec<Named>, FileError> {
    let error = |source: io::Error| {
        let error = DiskError::new(Operation::List, dir, source);
        FileError::from(kedge_couchstore::Error::from(error))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        if let Some(revision) = name.to_str().and_then(parse) {
            found.push((dir.join(&name), revision));
        }
    }
    if found.is_empty() {
        let text = format!("{} has no file of the form *.couch.N", dir.display());
        return Err(FileError::Usage(text));
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
    let named = found.into_iter().map(|(path, revision)| Named {
        path,
        revision: Some(revision),
    });
    Ok(named.collect())
}

fn parse(name: &str) -> Option<Revision> {
    let (name, revision) = name.split_once(".couch.")?;
    // `parse` would take a sign.
    let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
    if name.is_empty() || !digits {
        return None;
    }
    Some(Revision {
        name: name.to_owned(),
        revision: revision.parse().ok()?,
        newest: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_vbucket_and_revision() {
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
