//! The catalog of a log: the range of segments that must exist.
//!
//! Without a catalog, a log whose last segments are gone would look like one that ended before them, and a log without
//! segments like a new one. The catalog lies beside the log's directory, so that it survives the loss of the directory:
//! `docs/reference/formats/catalogs.md`.
//!
//! Invariants:
//! * `last` is written without a sync, after that segment is durably in the sequence. A killed process loses no update,
//!   and a power loss those of the last seconds. So it is a lower bound, and a lost update never makes a sound log look
//!   damaged.
//! * `first` is durably above the number of a segment before that segment leaves the sequence.

use kedge_sync::{RankedMutex, RankedMutexGuard, ranks::LogCatalog};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kedge_disk::{Disk, DiskError, File, read_file, replace_file};

use crate::LogError;

const MAGIC: &[u8; 8] = b"KedgeLgC";
const VERSION: u32 = 1;
const BYTES: usize = 32;
/// Number that no segment reaches.
const LAST_MAX: u64 = 1 << 62;

/// The range of segments that must exist, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The result of reading a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatalogState {
    /// The catalog does not exist: an older version wrote the log, or there never was a log.
    Nothing,
    /// The catalog is damaged, so the range is unknown.
    Damaged,
    /// The range in the catalog.
    Segments(SegmentRange),
}

/// The catalog of an open log.
#[derive(Debug)]
pub(crate) struct SegmentCatalog {
    path: PathBuf,
    state: RankedMutex<LogCatalog, CatalogFile>,
}

#[derive(Debug, Default)]
struct CatalogFile {
    /// `None` until the catalog is created, and if the disk had no space for it.
    file: Option<Box<dyn File>>,
    range: SegmentRange,
}

/// Returns the path of the catalog of the log in `dir`.
#[must_use]
pub fn catalog_path(dir: &Path) -> PathBuf {
    let mut name = OsString::from(dir);
    name.push(".catalog");
    name.into()
}

impl SegmentCatalog {
    /// Reads the catalog of the log in `dir`.
    ///
    /// # Errors
    /// `UnsupportedVersion` when a newer release wrote it; disk errors.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<(Self, CatalogState), LogError> {
        let path = catalog_path(dir);
        let found = if disk.exists(&path)? {
            let bytes = read_file(disk, &path)?;
            if let Some(version) = newer_version(&bytes) {
                return Err(LogError::UnsupportedVersion {
                    file: path,
                    version,
                });
            }
            decode(&bytes).map_or(CatalogState::Damaged, CatalogState::Segments)
        } else {
            CatalogState::Nothing
        };
        let mut state = CatalogFile::default();
        if let CatalogState::Segments(range) = found {
            state.file = Some(disk.open(&path)?);
            state.range = range;
        }
        let catalog = Self {
            path,
            state: RankedMutex::new(state),
        };
        Ok((catalog, found))
    }

    /// Returns the number of the last segment that must exist, or 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.state().range.last
    }

    /// Writes the range. Creates a missing catalog durably, unless the disk is full or the system refuses the file.
    pub(crate) fn establish(&self, disk: &dyn Disk, range: SegmentRange) -> Result<(), DiskError> {
        let mut state = self.state();
        if state.file.is_some() {
            if state.range != range {
                state.write(range);
            }
            return Ok(());
        }
        match replace_file(disk, &self.path, &encode(range)) {
            Err(error) if error.is_no_space() || error.is_refusal() => return Ok(()),
            result => result?,
        }
        state.file = Some(disk.open(&self.path)?);
        state.range = range;
        Ok(())
    }

    /// Records a segment that is durably in the sequence. If the write fails, the older entry remains, which is still a
    /// valid lower bound.
    pub(crate) fn note_last(&self, last: u64) {
        let mut state = self.state();
        let range = SegmentRange {
            last,
            ..state.range
        };
        state.write(range);
    }

    /// Records that all segments before `first` are about to leave the sequence. The change is durable on return.
    pub(crate) fn note_first(&self, first: u64) -> Result<(), DiskError> {
        let mut state = self.state();
        let range = SegmentRange {
            first,
            ..state.range
        };
        if let Some(file) = &state.file {
            file.write_at(&encode(range), 0)?;
            file.sync_data()?;
        }
        state.range = range;
        Ok(())
    }

    fn state(&self) -> RankedMutexGuard<'_, LogCatalog, CatalogFile> {
        self.state.lock()
    }
}

impl CatalogFile {
    fn write(&mut self, range: SegmentRange) {
        if let Some(file) = &self.file {
            let _ = file.write_at(&encode(range), 0);
        }
        self.range = range;
    }
}

fn encode(range: SegmentRange) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&range.first.to_le_bytes());
    bytes[24..].copy_from_slice(&range.last.to_le_bytes());
    let crc = checksum(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes a catalog. Returns `None` if the bytes are not a catalog.
pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentRange> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let range = SegmentRange {
        first: u64_at(16),
        last: u64_at(24),
    };
    let is_one = bytes[..8] == *MAGIC
        && bytes[8..12] == VERSION.to_le_bytes()
        && bytes[12..16] == checksum(bytes).to_le_bytes()
        && range.first <= range.last
        && range.last < LAST_MAX;
    is_one.then_some(range)
}

/// Returns the version of a sound catalog of a newer release.
fn newer_version(bytes: &[u8]) -> Option<u32> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
    let is_sound = bytes[..8] == *MAGIC && bytes[12..16] == checksum(bytes).to_le_bytes();
    (is_sound && version > VERSION).then_some(version)
}

/// Returns the CRC-32C of all bytes except the checksum field.
fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_of_version_1_never_changes() {
        // The checksum comes from a bitwise CRC-32C that shares no code with this one.
        let bytes = encode(SegmentRange { first: 3, last: 7 });
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4b656467654c674301000000665aaa3e03000000000000000700000000000000"
        );
    }

    /// It counted as damaged, and was replaced by one of version 1.
    #[test]
    fn catalog_of_a_newer_release_is_refused() {
        let (disk, dir) = (kedge_disk::SimDisk::new(1), Path::new("/data/log"));
        disk.create_dir_all(dir).unwrap();
        let mut bytes = encode(SegmentRange { first: 3, last: 7 });
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        replace_file(&disk, &catalog_path(dir), &bytes).unwrap();
        let error = SegmentCatalog::read(&disk, dir).map(drop).unwrap_err();
        assert!(
            matches!(error, LogError::UnsupportedVersion { version: 2, .. }),
            "{error}"
        );
    }

    #[test]
    fn flip_of_any_bit_is_detected() {
        let range = SegmentRange { first: 1, last: 1 };
        let bytes = encode(range);
        assert_eq!(decode(&bytes), Some(range));
        for bit in 0..BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(decode(&bytes[1..]), None);
    }
}
