//! The catalog's list of a bucket's files, for one who only looks: no disk is asked and nothing is written.

use kedge_types::VbId;

use crate::catalog::{self, CATALOG_FILE, Entry, Judged, Torn};
use crate::names::{file_name, revision_of, sort_out};

/// The catalog of the vBuckets' files in a bucket's directory, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFiles {
    /// By vBucket.
    entries: Vec<Result<Option<Entry>, Torn>>,
}

/// Files, by name, that are not as the catalog says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesCompared {
    /// Files that have to be there, with nothing to explain that they are not.
    pub missing: Vec<String>,
    /// Files that are there, and where each has the header of a durable commit, in bytes. The newest header of a file that was
    /// cut stands before that.
    pub committed: Vec<(String, u64)>,
    /// Files of vBuckets that the catalog does not list, or only in an older revision. They may be sound: an entry is
    /// written without a sync, after its file is durable.
    pub unlisted: Vec<String>,
}

impl ListedFiles {
    /// Name of the catalog in the bucket's directory.
    pub const FILE: &str = CATALOG_FILE;

    /// Reads a catalog; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let entries = catalog::read(bytes)?;
        Some(Self { entries })
    }

    /// vBuckets of the bucket.
    #[must_use]
    pub fn vbuckets(&self) -> usize {
        self.entries.len()
    }

    /// Files that are listed.
    #[must_use]
    pub fn files(&self) -> usize {
        let listed = self.entries.iter();
        listed.filter(|it| matches!(it, Ok(Some(_)))).count()
    }

    /// vBuckets whose entry has a wrong checksum, as a loss of power may leave one.
    pub fn torn(&self) -> impl Iterator<Item = VbId> + '_ {
        let numbered = self.entries.iter().zip(0..);
        numbered.filter_map(|(entry, vb)| entry.is_err().then_some(VbId(vb)))
    }

    /// Forgets what a later reading says otherwise: the files of a bucket that is served change between two looks.
    #[must_use]
    pub fn unless_changed(mut self, later: &Self) -> Self {
        for (vb, entry) in self.entries.iter_mut().enumerate() {
            let revision = |it: &Result<Option<Entry>, Torn>| it.map(|it| it.map(|it| it.revision));
            let later = later.entries.get(vb).copied().unwrap_or(Ok(None));
            if revision(entry) != revision(&later) {
                *entry = Err(Torn);
            }
        }
        self
    }

    /// Compares the catalog with the names of all files in the directory.
    #[must_use]
    pub fn compare(&self, names: &[String]) -> FilesCompared {
        let names = || names.iter().map(String::as_str);
        let (stock, _) = sort_out(names(), self.entries.len());
        let mut compared = FilesCompared::default();
        for ((entry, found), vb) in self.entries.iter().zip(stock).zip(0..) {
            let vb = VbId(vb);
            // Of a torn entry it is not known what it said.
            let Ok(entry) = *entry else { continue };
            let listed = entry.map(|entry| entry.revision).unwrap_or_default();
            let name = file_name(vb, found.revision);
            if found.has_file() && found.revision > listed {
                compared.unlisted.push(name.clone());
            }
            let Judged { header_at, missing } =
                entry.map_or_else(Judged::default, |entry| catalog::judge(entry, found));
            let missing = missing.map(|revision| file_name(vb, revision));
            compared.missing.extend(missing);
            if header_at > 0 {
                compared.committed.push((name, header_at));
            }
        }
        let of_nobody =
            |name: &&str| revision_of(name).is_some_and(|(vb, _)| vb.index() >= self.entries.len());
        let strangers = names().filter(of_nobody);
        compared.unlisted.extend(strangers.map(str::to_owned));
        compared
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use kedge_disk::{Disk, SimDisk, read_file};

    use super::*;
    use crate::catalog::Catalog;
    use crate::names::{Revision, take_stock};

    fn listed(entries: &[(u16, u64, u64)]) -> Vec<u8> {
        let (disk, dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let stock = take_stock(&*disk, dir, 8).expect("stock");
        let (catalog, _) = Catalog::open(&*disk, dir, &stock).expect("a catalog");
        for &(vb, revision, header_at) in entries {
            let revision = Revision(revision);
            catalog.note(
                VbId(vb),
                Entry {
                    revision,
                    header_at,
                },
            );
        }
        read_file(&*disk, &dir.join(ListedFiles::FILE)).expect("its bytes")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn comparison_finds_missing_files_commits_and_files_that_are_not_listed() {
        let entries = (0..6).map(|vb| (vb, 3, 4_096)).collect::<Vec<_>>();
        let listed = ListedFiles::decode(&listed(&entries)).expect("a catalog");
        assert_eq!((listed.vbuckets(), listed.files()), (8, 6));
        let compared = listed.compare(&names(&[
            "0.couch.3",
            // 1 is missing; 2 was compacted; 3 deleted; 4 put away; of 5 only an older copy is there.
            "2.couch.4",
            "3.deleted.3",
            "4.couch.3.damaged",
            "5.couch.2",
            "6.couch.1",
            "8.couch.1",
            "notes.txt",
        ]));
        assert_eq!(compared.missing, ["1.couch.3", "5.couch.3"]);
        assert_eq!(compared.committed, [("0.couch.3".to_owned(), 4_096)]);
        assert_eq!(compared.unlisted, ["2.couch.4", "6.couch.1", "8.couch.1"]);
    }

    #[test]
    fn torn_and_changed_entries_make_no_file_missing() {
        let bytes = listed(&[(0, 3, 4_096), (1, 1, 4_096)]);
        let mut torn = bytes.clone();
        torn[512 + 9] ^= 1;
        let torn = ListedFiles::decode(&torn).expect("a catalog");
        assert_eq!(torn.torn().collect::<Vec<_>>(), [VbId(0)]);
        assert_eq!(torn.compare(&[]).missing, ["1.couch.1"]);
        assert_eq!(torn.compare(&names(&["0.couch.3"])).unlisted, [""; 0]);
        // vBucket 0 was compacted, and another commit of vBucket 1 was noted, between the looks.
        let before = ListedFiles::decode(&bytes).expect("a catalog");
        let after = listed(&[(0, 4, 4_096), (1, 1, 8_192)]);
        let after = ListedFiles::decode(&after).expect("a catalog");
        let both = before.unless_changed(&after);
        assert_eq!(both.compare(&names(&["1.couch.1"])).missing, [""; 0]);
        let committed = both.compare(&names(&["1.couch.1"])).committed;
        assert_eq!(committed, [("1.couch.1".to_owned(), 4_096)]);
        assert_eq!(both.compare(&[]).missing, ["1.couch.1"]);
    }

    #[test]
    fn what_is_no_catalog_is_refused() {
        let bytes = listed(&[]);
        for at in [0, 8, 12, 16] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(ListedFiles::decode(&damaged), None, "byte {at}");
        }
        for len in [0, 20, 512, bytes.len() - 1] {
            assert_eq!(ListedFiles::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
