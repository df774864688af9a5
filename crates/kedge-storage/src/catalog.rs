//! The catalog of a bucket's files: for each vBucket, its newest revision and the position of its last commit.
//!
//! A missing file would look as if it had never existed, and a truncated one like an older state of it. The catalog
//! distinguishes both from legal states. `docs/reference/formats/catalogs.md` has its format.
//!
//! Invariants:
//! * An entry is a lower bound: it is written after the file and the commit that it names are durable. So a lost, torn
//!   or old entry never makes a sound file look wrong; it only detects fewer wrong ones.
//! * An entry is durably removed before the file name that it stands for, unless something else explains the absence of
//!   the file: a newer revision, a deletion marker, or the name of a quarantined file.
//! * Entries of commits are not synced: a killed process loses none, and a power loss those of the last seconds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_disk::{Disk, DiskError, File, read_file, replace_file};
use kedge_types::VbId;

use crate::StorageError;
use crate::names::{FileRevision, FoundFiles};

/// Name of the catalog in the bucket's directory.
pub(crate) const CATALOG_FILE: &str = "vbuckets.catalog";

const MAGIC: &[u8; 8] = b"KedgeVbC";
pub(crate) const VERSION: u32 = 1;
/// Size of the header in bytes: a sector of its own, so that no write of an entry touches it.
const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 32;
/// Number of vBucket ids, which have 16 bits.
const VBUCKETS_MAX: u32 = 1 << 16;

/// The entry of a vBucket that has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatalogEntry {
    /// The revision of the file.
    pub(crate) revision: FileRevision,
    /// Offset of the header of a durable commit, in bytes; 0 if none is known.
    pub(crate) header_at: u64,
}

/// The result of comparing a vBucket's entry with its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogVerdict {
    /// Lower bound of the offset of the newest header in the newest file.
    pub(crate) header_at: u64,
    /// The revision of a file that is missing without an explanation.
    pub(crate) missing: Option<FileRevision>,
}

/// The catalog, open for writing.
#[derive(Debug)]
pub(crate) struct FileCatalog {
    /// `None` if the disk had no space for it. The next start tries again.
    file: Option<Box<dyn File>>,
    has_notes: AtomicBool,
    was_damaged: bool,
}

impl FileCatalog {
    /// Compares the catalog in a directory with the files found there. A missing or damaged catalog is created from
    /// these files.
    ///
    /// # Errors
    /// `NewerCatalog` when a newer release wrote it; disk errors.
    pub(crate) fn open(
        disk: &dyn Disk,
        dir: &Path,
        stock: &[FoundFiles],
    ) -> Result<(Self, Vec<CatalogVerdict>), StorageError> {
        let path = dir.join(CATALOG_FILE);
        let bytes = match disk.exists(&path)? {
            true => Some(read_file(disk, &path)?),
            false => None,
        };
        if let Some(version) = bytes.as_deref().and_then(newer_version) {
            return Err(StorageError::NewerCatalog {
                file: path,
                version,
            });
        }
        let known = bytes.as_deref().map(|bytes| decode(bytes, stock.len()));
        let was_damaged = matches!(known, Some(None));
        let Some(known) = known.flatten() else {
            let file = made_anew(disk, &path, stock)?;
            let judged = vec![CatalogVerdict::default(); stock.len()];
            return Ok((Self::new(file, was_damaged), judged));
        };
        let catalog = Self::new(Some(disk.open(&path)?), false);
        let mut judged = Vec::with_capacity(stock.len());
        let mut explained = Vec::new();
        for ((entry, found), vb) in known.into_iter().zip(stock).zip(0..) {
            let verdict =
                entry.map_or_else(CatalogVerdict::default, |entry| check_entry(entry, *found));
            // From now on an administrator may remove the file that explains it.
            let is_put_away = entry.is_some_and(|entry| found.quarantine >= entry.revision);
            if is_put_away && !found.has_file() {
                explained.push(VbId(vb));
            }
            judged.push(verdict);
        }
        for vb in explained {
            catalog.forget(vb)?;
        }
        Ok((catalog, judged))
    }

    fn new(file: Option<Box<dyn File>>, was_damaged: bool) -> Self {
        Self {
            file,
            has_notes: AtomicBool::new(false),
            was_damaged,
        }
    }

    /// Returns `true` if the catalog was damaged.
    pub(crate) fn was_damaged(&self) -> bool {
        self.was_damaged
    }

    /// Records a durable commit, without a sync. If the write fails, the older entry remains, which is still a valid
    /// lower bound.
    pub(crate) fn note(&self, vb: VbId, entry: CatalogEntry) {
        let _ = self.write(vb, Some(entry));
    }

    /// Removes the entry of a vBucket durably.
    pub(crate) fn forget(&self, vb: VbId) -> Result<(), DiskError> {
        self.write(vb, None)?;
        // A concurrent sync by another thread may have begun before this write.
        self.file.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// Syncs new entries, if there are any. The caller ensures that no other thread calls it at the same time.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        match &self.file {
            Some(file) if self.has_notes.swap(false, Ordering::AcqRel) => file.sync_data(),
            _ => Ok(()),
        }
    }

    fn write(&self, vb: VbId, entry: Option<CatalogEntry>) -> Result<(), DiskError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let offset = HEADER_BYTES + ENTRY_BYTES * vb.index();
        self.has_notes.store(true, Ordering::Release);
        file.write_at(&encode_entry(vb, entry), offset as u64)
    }
}

/// Compares the entry of a vBucket with its files.
pub(crate) fn check_entry(entry: CatalogEntry, found: FoundFiles) -> CatalogVerdict {
    if found.revision < entry.revision && found.quarantine < entry.revision {
        return CatalogVerdict {
            missing: Some(entry.revision),
            ..CatalogVerdict::default()
        };
    }
    let is_it = found.has_file() && found.revision == entry.revision;
    CatalogVerdict {
        header_at: if is_it { entry.header_at } else { 0 },
        missing: None,
    }
}

/// Creates a catalog of the existing files. A full disk does not prevent serving them.
fn made_anew(
    disk: &dyn Disk,
    path: &Path,
    stock: &[FoundFiles],
) -> Result<Option<Box<dyn File>>, DiskError> {
    let entry = |found: &FoundFiles| {
        found.has_file().then_some(CatalogEntry {
            revision: found.revision,
            header_at: 0,
        })
    };
    let entries: Vec<Option<CatalogEntry>> = stock.iter().map(entry).collect();
    match replace_file(disk, path, &encode(&entries)) {
        Ok(()) => disk.open(path).map(Some),
        Err(error) if error.is_no_space() => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(entries: &[Option<CatalogEntry>]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    for (entry, vb) in entries.iter().zip(0..) {
        bytes.extend_from_slice(&encode_entry(VbId(vb), *entry));
    }
    bytes
}

fn encode_entry(vb: VbId, entry: Option<CatalogEntry>) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let (revision, header_at) = entry.map_or((0, 0), |it| (it.revision.0, it.header_at));
    bytes[4..6].copy_from_slice(&vb.get().to_le_bytes());
    bytes[8..16].copy_from_slice(&revision.to_le_bytes());
    bytes[16..24].copy_from_slice(&header_at.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes the entries of `vbuckets` vBuckets. Returns `None` if the bytes are no catalog of that size. A torn entry
/// counts as missing.
fn decode(bytes: &[u8], vbuckets: usize) -> Option<Vec<Option<CatalogEntry>>> {
    let read = read(bytes)?;
    let entries = read.into_iter().map(|entry| entry.ok().flatten());
    Some(entries.collect()).filter(|entries: &Vec<_>| entries.len() == vbuckets)
}

/// An entry with a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornEntry;

/// Decodes the entries of all vBuckets in a catalog. Returns `None` if the bytes are no catalog.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Result<Option<CatalogEntry>, TornEntry>>> {
    let header = sound_header(bytes)?;
    let vbuckets = u32_at(header, 12);
    let is_one = u32_at(header, 8) == VERSION
        && vbuckets <= VBUCKETS_MAX
        && bytes.len() == HEADER_BYTES + ENTRY_BYTES * vbuckets as usize;
    let entries = bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES);
    is_one.then(|| {
        let entry = |(bytes, vb)| decode_entry(bytes, VbId(vb));
        entries.zip(0..).map(entry).collect()
    })
}

/// Returns the header of a catalog of any version.
fn sound_header(bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.get(..HEADER_BYTES)?;
    let sum = crc32c::crc32c(&header[..16]);
    (header[..8] == *MAGIC && u32_at(header, 16) == sum).then_some(header)
}

/// Returns the version of a catalog of a newer release.
fn newer_version(bytes: &[u8]) -> Option<u32> {
    let version = u32_at(sound_header(bytes)?, 8);
    (version > VERSION).then_some(version)
}

fn decode_entry(bytes: &[u8], vb: VbId) -> Result<Option<CatalogEntry>, TornEntry> {
    let is_sound = u32_at(bytes, 0) == crc32c::crc32c(&bytes[4..])
        && u16::from_le_bytes([bytes[4], bytes[5]]) == vb.get();
    let entry = CatalogEntry {
        revision: FileRevision(u64_at(bytes, 8)),
        header_at: u64_at(bytes, 16),
    };
    if !is_sound {
        return Err(TornEntry);
    }
    Ok((entry.revision > FileRevision(0)).then_some(entry))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::SimDisk;

    fn entry(revision: u64, header_at: u64) -> CatalogEntry {
        CatalogEntry {
            revision: FileRevision(revision),
            header_at,
        }
    }

    fn file(revision: u64) -> FoundFiles {
        FoundFiles {
            revision: FileRevision(revision),
            ..FoundFiles::default()
        }
    }

    #[test]
    fn encoding_of_version_1_never_changes() {
        let bytes = encode(&[None, Some(entry(3, 0x2000))]);
        // The checksums come from a bitwise CRC-32C that shares no code with this one.
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|it| format!("{it:02x}")).collect() };
        assert_eq!(bytes.len(), 576);
        assert_eq!(
            hex(&bytes[..20]),
            "4b656467655662430100000002000000f5ca6779"
        );
        assert_eq!(
            hex(&bytes[544..]),
            "52b1ed5701000000030000000000000000200000000000000000000000000000"
        );
    }

    #[test]
    fn entries_round_trip_and_torn_ones_are_missing() {
        let entries = [Some(entry(1, 0)), None, Some(entry(u64::MAX, 1 << 40))];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes, 3).as_deref(), Some(&entries[..]));
        assert_eq!(decode(&bytes, 4), None, "another number of vBuckets");
        assert_eq!(decode(&bytes[..bytes.len() - 1], 3), None);
        for at in HEADER_BYTES..HEADER_BYTES + ENTRY_BYTES {
            let mut torn = bytes.clone();
            torn[at] ^= 0x10;
            let read = decode(&torn, 3).expect("a catalog");
            assert_eq!(read, [None, None, entries[2]], "byte {at}");
        }
    }

    #[test]
    fn missing_files_differ_from_replaced_deleted_and_quarantined_ones() {
        let deleted = |revision| FoundFiles {
            is_deleted: true,
            ..file(revision)
        };
        let quarantine = |quarantine| FoundFiles {
            quarantine: FileRevision(quarantine),
            ..FoundFiles::default()
        };
        for (found, missing, header_at) in [
            (file(3), false, 7),
            (file(4), false, 0),
            (deleted(3), false, 0),
            (quarantine(3), false, 0),
            (file(2), true, 0),
            (deleted(2), true, 0),
            (quarantine(2), true, 0),
            (FoundFiles::default(), true, 0),
        ] {
            let judged = check_entry(entry(3, 7), found);
            assert_eq!(
                judged.missing,
                missing.then_some(FileRevision(3)),
                "{found:?}"
            );
            assert_eq!(judged.header_at, header_at, "{found:?}");
        }
    }

    /// It counted as damaged, and was replaced by one of version 1.
    #[test]
    fn catalog_of_a_newer_release_is_refused() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let mut bytes = encode(&[None]);
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..16]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        replace_file(&disk, &dir.join(CATALOG_FILE), &bytes).expect("written");
        let opened = FileCatalog::open(&disk, dir, &[FoundFiles::default()]);
        let error = opened.map(drop).expect_err("it is newer");
        assert!(
            matches!(error, StorageError::NewerCatalog { version: 2, .. }),
            "{error}"
        );
    }

    #[test]
    fn catalog_is_created_from_existing_files() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let stock = [file(2), FoundFiles::default()];
        let (catalog, judged) = FileCatalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged, [CatalogVerdict::default(); 2]);
        catalog.note(VbId(0), entry(2, 4_096));
        catalog.note(VbId(1), entry(1, 8_192));
        catalog.sync().expect("sync");
        disk.crash(3);
        let (catalog, judged) = FileCatalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged[0].header_at, 4_096);
        assert_eq!(judged[1].missing, Some(FileRevision(1)));
        catalog.forget(VbId(1)).expect("forget");
        disk.crash(4);
        let (_, judged) = FileCatalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged[1], CatalogVerdict::default());
    }
}
