//! The list of a bucket's files in its catalog, for read-only tools. It accesses no disk.

use kedge_types::VbId;

use crate::catalog::{self, CATALOG_FILE, CatalogEntry, CatalogVerdict, TornEntry};
use crate::names::{classify, file_name, revision_of};

/// The list of files in a bucket's catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileListing {
    /// Entries by vBucket.
    entries: Vec<Result<Option<CatalogEntry>, TornEntry>>,
}

/// The differences between the catalog and the files of a directory, by file name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDifferences {
    /// Files that are missing without an explanation.
    pub missing: Vec<String>,
    /// Files with the offset of the header of a durable commit, in bytes. The newest header of a truncated file is
    /// before it.
    pub committed: Vec<(String, u64)>,
    /// Files of vBuckets that the catalog does not list, or only with an older revision. They may be sound, because an
    /// entry is written without a sync after its file is durable.
    pub unlisted: Vec<String>,
}

impl FileListing {
    /// Name of the catalog in the bucket's directory.
    pub const FILE: &str = CATALOG_FILE;

    /// Decodes a catalog. Returns `None` if the bytes are no catalog.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let entries = catalog::read(bytes)?;
        Some(Self { entries })
    }

    /// Returns the number of vBuckets of the bucket.
    #[must_use]
    pub fn vbuckets(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of listed files.
    #[must_use]
    pub fn files(&self) -> usize {
        let listed = self.entries.iter();
        listed.filter(|it| matches!(it, Ok(Some(_)))).count()
    }

    /// Returns the vBuckets whose entries have a wrong checksum, which a power loss may cause.
    pub fn torn(&self) -> impl Iterator<Item = VbId> + '_ {
        let numbered = self.entries.iter().zip(0..);
        numbered.filter_map(|(entry, vb)| entry.is_err().then_some(VbId(vb)))
    }

    /// Removes entries that differ in a later reading. The files of a bucket in use may change between two readings.
    #[must_use]
    pub fn unless_changed(mut self, later: &Self) -> Self {
        for (vb, entry) in self.entries.iter_mut().enumerate() {
            let revision = |it: &Result<Option<CatalogEntry>, TornEntry>| {
                it.map(|it| it.map(|it| it.revision))
            };
            let later = later.entries.get(vb).copied().unwrap_or(Ok(None));
            if revision(entry) != revision(&later) {
                *entry = Err(TornEntry);
            }
        }
        self
    }

    /// Compares the catalog with the names of all files in the directory.
    #[must_use]
    pub fn compare(&self, names: &[String]) -> FileDifferences {
        let names = || names.iter().map(String::as_str);
        let (stock, _) = classify(names(), self.entries.len());
        let mut compared = FileDifferences::default();
        for ((entry, found), vb) in self.entries.iter().zip(stock).zip(0..) {
            let vb = VbId(vb);
            // The contents of a torn entry are unknown.
            let Ok(entry) = *entry else { continue };
            let listed = entry.map(|entry| entry.revision).unwrap_or_default();
            let name = file_name(vb, found.revision);
            if found.has_file() && found.revision > listed {
                compared.unlisted.push(name.clone());
            }
            let CatalogVerdict { header_at, missing } = entry
                .map_or_else(CatalogVerdict::default, |entry| {
                    catalog::check_entry(entry, found)
                });
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
    use crate::catalog::FileCatalog;
    use crate::names::{FileRevision, find_files};

    fn listed(entries: &[(u16, u64, u64)]) -> Vec<u8> {
        let (disk, dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let stock = find_files(&*disk, dir, 8).expect("stock");
        let (catalog, _) = FileCatalog::open(&*disk, dir, &stock).expect("a catalog");
        for &(vb, revision, header_at) in entries {
            let revision = FileRevision(revision);
            catalog.note(
                VbId(vb),
                CatalogEntry {
                    revision,
                    header_at,
                },
            );
        }
        read_file(&*disk, &dir.join(FileListing::FILE)).expect("its bytes")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn compare_finds_missing_files_commits_and_unlisted_files() {
        let entries = (0..6).map(|vb| (vb, 3, 4_096)).collect::<Vec<_>>();
        let listed = FileListing::decode(&listed(&entries)).expect("a catalog");
        assert_eq!((listed.vbuckets(), listed.files()), (8, 6));
        let compared = listed.compare(&names(&[
            "0.couch.3",
            // 1 is missing; 2 was compacted; 3 deleted; 4 quarantined; of 5 only an older copy exists.
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
    fn torn_and_changed_entries_report_no_missing_file() {
        let bytes = listed(&[(0, 3, 4_096), (1, 1, 4_096)]);
        let mut torn = bytes.clone();
        torn[512 + 9] ^= 1;
        let torn = FileListing::decode(&torn).expect("a catalog");
        assert_eq!(torn.torn().collect::<Vec<_>>(), [VbId(0)]);
        assert_eq!(torn.compare(&[]).missing, ["1.couch.1"]);
        assert_eq!(torn.compare(&names(&["0.couch.3"])).unlisted, [""; 0]);
        // Between the readings vBucket 0 was compacted, and another commit of vBucket 1 was recorded.
        let before = FileListing::decode(&bytes).expect("a catalog");
        let after = listed(&[(0, 4, 4_096), (1, 1, 8_192)]);
        let after = FileListing::decode(&after).expect("a catalog");
        let both = before.unless_changed(&after);
        assert_eq!(both.compare(&names(&["1.couch.1"])).missing, [""; 0]);
        let committed = both.compare(&names(&["1.couch.1"])).committed;
        assert_eq!(committed, [("1.couch.1".to_owned(), 4_096)]);
        assert_eq!(both.compare(&[]).missing, ["1.couch.1"]);
    }

    #[test]
    fn malformed_catalogs_are_rejected() {
        let bytes = listed(&[]);
        for at in [0, 8, 12, 16] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(FileListing::decode(&damaged), None, "byte {at}");
        }
        for len in [0, 20, 512, bytes.len() - 1] {
            assert_eq!(FileListing::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
