//! Catalogs of a directory, and the files that they list: required files, and their committed lengths. The formats are
//! those of the crates that write them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use kedge_bucket::{DIRECT_FILE, FileListing, LOG_DIR, SegmentListing, log_catalog};
use kedge_disk::{DiskError, Operation};
use kedge_node::registry::is_remainder;
use kedge_node::state_files::{FILES_LIST, listed};

use super::super::FileError;
use super::names::{self, NamedFile};
use super::report::{FileReport, Finding};

/// Findings from the catalogs of one directory.
#[derive(Debug, Default)]
pub(super) struct CatalogFindings {
    /// The reports of each catalog, and of each missing file.
    pub(super) reports: Vec<FileReport>,
    /// The offset of the durable commit of each file, by name.
    committed: HashMap<String, u64>,
    unlisted: HashSet<String>,
}

impl CatalogFindings {
    /// Reads the catalogs of a directory. A missing catalog lists nothing.
    ///
    /// # Errors
    /// The directory cannot be read. Unreadable files in it are in the reports.
    pub(super) fn read(dir: &Path) -> Result<Self, FileError> {
        let mut found = Self::default();
        let names = names::list(dir)?;
        // Its files are deleted one by one.
        if is_remainder(&names) {
            return Ok(found);
        }
        found.vbuckets(dir);
        // Without a commit log, an existing catalog was left by a crash during its removal.
        if !names.iter().any(|name| name == DIRECT_FILE) {
            found.segments(dir);
        }
        found.state_files(dir);
        Ok(found)
    }

    /// Adds the information of the catalog to a file.
    pub(super) fn mark(&self, named: &mut NamedFile) {
        let name = named.path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name {
            named.committed_at = self.committed.get(name).copied();
            named.is_unlisted = self.unlisted.contains(name);
        }
    }

    fn vbuckets(&mut self, dir: &Path) {
        let catalog = dir.join(FileListing::FILE);
        let looked = look(&catalog, dir, FileListing::decode, |it, later| {
            it.unless_changed(later)
        });
        let Some((mut report, list, names)) = self.understood(looked) else {
            return;
        };
        let (files, all) = (list.files(), list.vbuckets());
        report.lists = Some(format!("files of {files} of {all} vBuckets"));
        for vb in list.torn() {
            report.note(format!(
                "the entry of vBucket {vb} has a wrong checksum, which a loss of power may leave: what file it had is not known"
            ));
        }
        self.reports.push(report);
        let compared = list.compare(&names);
        for name in compared.missing {
            self.missing(dir.join(name), FileListing::FILE);
        }
        self.committed.extend(compared.committed);
        self.unlisted.extend(compared.unlisted);
    }

    fn segments(&mut self, dir: &Path) {
        let log = dir.join(LOG_DIR);
        let catalog = log_catalog(&log);
        let looked = look(&catalog, &log, SegmentListing::decode, |it, later| {
            it.unless_changed(later)
        });
        let Some((mut report, list, names)) = self.understood(looked) else {
            return;
        };
        report.lists = Some(format!("{} segments", list.segments()));
        let compared = list.compare(&names);
        for name in compared.unlisted {
            report.note(format!("does not list {}", log.join(name).display()));
        }
        self.reports.push(report);
        let catalog = file_name(&catalog);
        for (first, last) in compared.missing {
            if first == last {
                self.missing(log.join(first), &catalog);
                continue;
            }
            let expected = format!(
                "expected this segment and those after it up to {last}: they are missing, and {catalog} lists them"
            );
            self.finding(log.join(first), expected);
        }
    }

    fn state_files(&mut self, dir: &Path) {
        let list = dir.join(FILES_LIST);
        let bytes = match read(&list) {
            Ok(None) => return,
            read => read,
        };
        let mut report = FileReport::new(&NamedFile::new(list));
        let mut missing = Vec::new();
        match bytes {
            Err(error) => report.failed(&error),
            Ok(bytes) => match listed(&bytes.unwrap_or_default()) {
                Err(why) => report.damage(Finding::of_file(format!(
                    "expected a list of names, as [\"users.json\"] is one: {why}"
                ))),
                Ok(names) => {
                    report.lists = Some(format!("{} files", names.len()));
                    let paths = names.iter().map(|name| dir.join(name));
                    missing.extend(paths.filter(|path| is_missing(path)));
                }
            },
        }
        self.reports.push(report);
        for path in missing {
            self.missing(path, FILES_LIST);
        }
    }

    /// Reports a catalog that cannot be parsed.
    fn understood<T>(
        &mut self,
        looked: Option<CatalogReport<T>>,
    ) -> Option<(FileReport, T, Vec<String>)> {
        let (report, found) = looked?;
        match found {
            Some((list, names)) => Some((report, list, names)),
            None => {
                self.reports.push(report);
                None
            }
        }
    }

    fn missing(&mut self, path: PathBuf, catalog: &str) {
        let expected = format!("expected this file: it is missing, and {catalog} lists it");
        self.finding(path, expected);
    }

    fn finding(&mut self, path: PathBuf, expected: String) {
        let mut report = FileReport::new(&NamedFile::new(path));
        report.damage(Finding::of_file(expected));
        self.reports.push(report);
    }
}

/// A catalog's report, and what it lists beside the names in a directory; only the report if the catalog cannot be
/// parsed.
type CatalogReport<T> = (FileReport, Option<(T, Vec<String>)>);

/// Reads a catalog, the names in its directory, and the catalog again, as a server may be running; `None` without a
/// catalog.
fn look<T>(
    catalog: &Path,
    dir: &Path,
    decode: impl Fn(&[u8]) -> Option<T>,
    unless_changed: impl Fn(T, &T) -> T,
) -> Option<CatalogReport<T>> {
    let mut report = FileReport::new(&NamedFile::new(catalog.to_owned()));
    let mut attempt = || {
        let Some(before) = read(catalog)? else {
            return Ok(None);
        };
        let names = match names::list(dir) {
            Err(error) if is_not_found(&error) => Vec::new(),
            names => names?,
        };
        let Some(after) = read(catalog)? else {
            return Ok(None);
        };
        report.file_bytes = after.len() as u64;
        let lists = decode(&before).zip(decode(&after));
        let lists = lists.map(|(before, after)| (unless_changed(before, &after), names));
        Ok::<_, FileError>(Some(lists))
    };
    match attempt() {
        Ok(None) => None,
        Ok(Some(Some(found))) => Some((report, Some(found))),
        Ok(Some(None)) => {
            report.damage(Finding::of_file(
                "expected a catalog: which files have to be there is not known".to_owned(),
            ));
            Some((report, None))
        }
        Err(error) => {
            report.failed(&error);
            Some((report, None))
        }
    }
}

/// Reads a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => {
            let error = DiskError::new(Operation::Read, path, source);
            Err(kedge_couchstore::Error::from(error).into())
        }
    }
}

fn is_not_found(error: &FileError) -> bool {
    match error {
        FileError::Store(kedge_couchstore::Error::Io(error)) => error.is_not_found(),
        _ => false,
    }
}

fn is_missing(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
