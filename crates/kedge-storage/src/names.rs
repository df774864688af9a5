//! Names of files (couchstore file format, section 3.5), and the files that a crash may leave.
//!
//! ```text
//! 17.couch.3                      the file of vBucket 17, in its third revision
//! 17.couch.boot                   a file under construction
//! 17.couch.copy.1                 a file that is being copied from another node
//! 17.couch.3.compact              the copy of a compaction, and beside it 17.couch.3.compact.btree-tmp_N
//! 17.couch.3.damaged              a quarantined file; of several .damaged.2 and so on
//! 17.deleted.3                    an empty file: vBucket 17 was deleted, with all revisions up to the third
//! ```

use std::path::Path;

use kedge_couchstore::compact::remove_leftovers;
use kedge_disk::Disk;
use kedge_types::VbId;

use crate::StorageError;

const INFIX: &str = ".couch.";
const BOOT: &str = "boot";
const COPY: &str = "copy.";
const DAMAGED: &str = "damaged";
const DELETED: &str = ".deleted.";

/// The revision of a vBucket's file, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileRevision(
    /// The number in the file's name.
    pub u64,
);

impl FileRevision {
    pub(crate) fn next(self) -> Self {
        FileRevision(self.0 + 1)
    }
}

/// Returns the name of a vBucket's file.
pub(crate) fn file_name(vb: VbId, revision: FileRevision) -> String {
    format!("{vb}{INFIX}{}", revision.0)
}

/// Returns the name of a vBucket's file under construction.
pub(crate) fn boot_name(vb: VbId) -> String {
    format!("{vb}{INFIX}{BOOT}")
}

/// Returns the `n`th name in this process for a file that is being copied from another node.
pub(crate) fn copy_name(vb: VbId, n: u64) -> String {
    format!("{vb}{INFIX}{COPY}{n}")
}

/// Returns `true` for what follows the vBucket in the name of an incomplete file.
fn is_incomplete(rest: &str) -> bool {
    let is_copy = |n: &str| n.parse::<u64>().is_ok();
    rest == BOOT || rest.strip_prefix(COPY).is_some_and(is_copy)
}

/// Returns the `n`th name, counted from 1, for a quarantined file.
pub(crate) fn damaged_name(name: &str, n: u32) -> String {
    match n {
        1 => format!("{name}.{DAMAGED}"),
        _ => format!("{name}.{DAMAGED}.{n}"),
    }
}

/// Returns the vBucket and the revision of the name of a quarantined file.
pub(crate) fn damaged_of(name: &str) -> Option<(VbId, FileRevision)> {
    let (vb, rest) = parse(name)?;
    let (revision, rest) = rest.split_once('.')?;
    let revision = FileRevision(revision.parse().ok()?);
    let n = rest.strip_prefix(DAMAGED)?;
    let is_one = n.is_empty() || n.strip_prefix('.')?.parse::<u32>().is_ok();
    is_one.then_some((vb, revision))
}

/// Returns the name of a deletion marker.
pub(crate) fn deleted_name(vb: VbId, revision: FileRevision) -> String {
    format!("{vb}{DELETED}{}", revision.0)
}

fn deleted_of(name: &str) -> Option<(VbId, FileRevision)> {
    let (vb, revision) = name.split_once(DELETED)?;
    let (vb, revision) = (VbId(vb.parse().ok()?), FileRevision(revision.parse().ok()?));
    (deleted_name(vb, revision) == name).then_some((vb, revision))
}

/// Splits a name. Only names in canonical form are valid, so that no file has two.
fn parse(name: &str) -> Option<(VbId, &str)> {
    let (vb, rest) = name.split_once(INFIX)?;
    let number = vb.parse().ok()?;
    (VbId(number).to_string() == vb).then_some((VbId(number), rest))
}

/// Returns the vBucket and the revision of the name of a complete file, or `None` for other names.
pub(crate) fn revision_of(name: &str) -> Option<(VbId, FileRevision)> {
    let (vb, rest) = parse(name)?;
    let revision = rest.parse().ok().map(FileRevision)?;
    let is_one = revision.0 > 0 && file_name(vb, revision) == name;
    is_one.then_some((vb, revision))
}

/// The files found of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFiles {
    /// The newest revision of its file, or the highest that was deleted; 0 if there never was a file.
    pub(crate) revision: FileRevision,
    /// `true` if it was deleted and has no file.
    pub(crate) is_deleted: bool,
    /// The newest quarantined revision; 0 if there is none.
    pub(crate) quarantine: FileRevision,
}

impl FoundFiles {
    /// Returns `true` if there is a file.
    pub(crate) fn has_file(self) -> bool {
        !self.is_deleted && self.revision > FileRevision(0)
    }
}

/// Sorts the names in a directory by vBucket: the file of each of `vbuckets` vBuckets, and the obsolete names: older
/// and incomplete files, those of deleted vBuckets, and deletion markers that a newer file supersedes.
pub(crate) fn classify<'a>(
    names: impl Iterator<Item = &'a str>,
    vbuckets: usize,
) -> (Vec<FoundFiles>, Vec<String>) {
    let mut files: Vec<Vec<FileRevision>> = vec![Vec::new(); vbuckets];
    let mut marks: Vec<Vec<FileRevision>> = vec![Vec::new(); vbuckets];
    let mut quarantine = vec![FileRevision(0); vbuckets];
    let mut needless = Vec::new();
    for name in names {
        let is_boot = parse(name)
            .is_some_and(|(vb, rest)| is_incomplete(rest) && usize::from(vb.get()) < vbuckets);
        if is_boot {
            needless.push(name.to_owned());
        } else if let Some((vb, revision)) = revision_of(name) {
            files
                .get_mut(vb.index())
                .into_iter()
                .for_each(|of| of.push(revision));
        } else if let Some((vb, revision)) = deleted_of(name) {
            marks
                .get_mut(vb.index())
                .into_iter()
                .for_each(|of| of.push(revision));
        } else if let Some((vb, revision)) = damaged_of(name) {
            let newest = quarantine.get_mut(vb.index()).into_iter();
            newest.for_each(|newest| *newest = revision.max(*newest));
        }
    }
    let mut stock = Vec::with_capacity(vbuckets);
    for ((mut files, mut marks), vb) in files.into_iter().zip(marks).zip(0..) {
        files.sort_unstable();
        marks.sort_unstable();
        let file = files.pop();
        let mark = marks.pop();
        let is_deleted = mark.is_some() && mark >= file;
        let (kept_file, kept_mark) = if is_deleted {
            (None, mark)
        } else {
            (file, None)
        };
        files.extend(file.filter(|_| kept_file.is_none()));
        marks.extend(mark.filter(|_| kept_mark.is_none()));
        needless.extend(files.iter().map(|revision| file_name(VbId(vb), *revision)));
        needless.extend(
            marks
                .iter()
                .map(|revision| deleted_name(VbId(vb), *revision)),
        );
        stock.push(FoundFiles {
            revision: kept_file.or(kept_mark).unwrap_or_default(),
            is_deleted,
            quarantine: quarantine[usize::from(vb)],
        });
    }
    (stock, needless)
}

/// Finds the file of each vBucket and removes obsolete files. It ignores files of vBuckets that do not exist.
pub(crate) fn find_files(
    disk: &dyn Disk,
    dir: &Path,
    vbuckets: u16,
) -> Result<Vec<FoundFiles>, StorageError> {
    remove_leftovers(disk, dir)?;
    let names = disk.list(dir)?;
    let (stock, needless) = classify(names.iter().map(String::as_str), usize::from(vbuckets));
    if !needless.is_empty() {
        // Before the removals: a name that makes another obsolete may be in the page cache only.
        disk.sync_dir(dir)?;
    }
    for name in &needless {
        disk.remove(&dir.join(name))?;
    }
    // Later writes under the existing names have to be found after a crash.
    disk.sync_dir(dir)?;
    Ok(stock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::SimDisk;

    #[test]
    fn quarantined_file_belongs_to_no_vbucket() {
        for n in [1, 2, 17] {
            let name = damaged_name("3.couch.4", n);
            assert_eq!(
                damaged_of(&name),
                Some((VbId(3), FileRevision(4))),
                "{name}"
            );
            assert_eq!(revision_of(&name), None, "{name}");
        }
        for other in [
            "3.couch.4",
            "3.couch.4.compact",
            "3.couch.x.damaged",
            "3.couch.4.damaged.x",
        ] {
            assert_eq!(damaged_of(other), None, "{other}");
        }
    }

    #[test]
    fn newest_revision_is_valid_and_incomplete_or_deleted_files_are_removed() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let (kept, gone) = (
            [
                "0.couch.2",
                "1.couch.10",
                "3.couch.1",
                "4.couch.1",
                "02.couch.3",
                "2.couch.04",
                "2.couch.0",
                "2.couch.+7",
                "2.couch.x",
                "2.couch.copy.x",
                "bucket.json",
                "master.couch.1",
                "couch.1",
                "3.couch.2.damaged",
                "2.deleted.0",
                "5.couch.4",
                "6.deleted.7",
                "7.deleted.07",
                "9.deleted.1",
                "9.couch.1",
            ],
            [
                "0.couch.1",
                "1.couch.9",
                "1.couch.8",
                "2.couch.boot",
                "2.couch.copy.7",
                "0.couch.2.compact",
                "0.couch.2.compact.btree-tmp_3",
                "5.deleted.3",
                "6.deleted.6",
                "6.couch.7",
                "6.couch.5",
            ],
        );
        for name in kept.iter().chain(&gone) {
            disk.create(&dir.join(name)).expect("a file");
        }
        let stock = find_files(&disk, dir, 8).expect("a directory");
        let revisions: Vec<u64> = stock.iter().map(|stock| stock.revision.0).collect();
        assert_eq!(revisions, [2, 10, 0, 1, 1, 4, 7, 0]);
        let quarantine: Vec<u64> = stock.iter().map(|stock| stock.quarantine.0).collect();
        assert_eq!(quarantine, [0, 0, 0, 2, 0, 0, 0, 0]);
        let deleted: Vec<bool> = stock.iter().map(|stock| stock.is_deleted).collect();
        let expected: Vec<bool> = (0..8).map(|vb| vb == 2 || vb == 6).collect();
        assert_eq!(deleted, expected);
        let mut left = kept.map(str::to_owned);
        left.sort();
        assert_eq!(disk.list(dir).expect("a directory"), left);
        disk.crash(7);
        assert_eq!(find_files(&disk, dir, 8).expect("a directory"), stock);
    }
}
