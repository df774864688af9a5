//! The catalog of a log: which segments have to be there.
//!
//! A log whose last segments are gone looks like one that ended before them, and one without any like a new one. The
//! catalog tells. It lies beside the log's directory, so that it is there when that is gone: `docs/reference/formats/catalogs.md`.
//!
//! Invariants:
//! * `last` is noted after that segment is in the sequence durably, and without a sync: a killed process loses no note, a
//!   loss of power those of the last seconds. So it is a lower bound, and what is lost of it makes no sound log wrong.
//! * `first` is above a segment, durably, before that segment leaves the sequence.

use kedge_sync::{RankedMutex, RankedMutexGuard, ranks::LogCatalog};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kedge_disk::{Disk, DiskError, File, read_file, replace_file};

const MAGIC: &[u8; 8] = b"KedgeLgC";
const VERSION: u32 = 1;
const BYTES: usize = 32;
/// No log comes so far.
const LAST_MAX: u64 = 1 << 62;

/// The segments that have to be there, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What was found of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// None, as a version before this one leaves it, or a log that was never there.
    Nothing,
    /// One that cannot be understood: what is missing is not known.
    Damaged,
    /// These segments were there.
    Segments(Range),
}

/// The catalog of an open log.
#[derive(Debug)]
pub(crate) struct Catalog {
    path: PathBuf,
    state: RankedMutex<LogCatalog, State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until it is established, and when there was no room for it.
    file: Option<Box<dyn File>>,
    range: Range,
}

/// Where the catalog of the log in `dir` is.
#[must_use]
pub fn catalog_path(dir: &Path) -> PathBuf {
    let mut name = OsString::from(dir);
    name.push(".catalog");
    name.into()
}

impl Catalog {
    /// Reads the catalog of the log in `dir`.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<(Self, Found), DiskError> {
        let path = catalog_path(dir);
        let found = if disk.exists(&path)? {
            decode(&read_file(disk, &path)?).map_or(Found::Damaged, Found::Segments)
        } else {
            Found::Nothing
        };
        let mut state = State::default();
        if let Found::Segments(range) = found {
            state.file = Some(disk.open(&path)?);
            state.range = range;
        }
        let catalog = Self {
            path,
            state: RankedMutex::new(state),
        };
        Ok((catalog, found))
    }

    /// The last segment that has to be there; 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        self.state().range.last
    }

    /// These segments are there. Makes a catalog if there is none, durably; without room, or when the system refuses, there is none.
    pub(crate) fn establish(&self, disk: &dyn Disk, range: Range) -> Result<(), DiskError> {
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

    /// A segment is in the sequence durably. A note that cannot be written leaves an older one, which is as true.
    pub(crate) fn note_last(&self, last: u64) {
        let mut state = self.state();
        let range = Range {
            last,
            ..state.range
        };
        state.write(range);
    }

    /// All segments before `first` are about to leave the sequence: durable when this returns.
    pub(crate) fn note_first(&self, first: u64) -> Result<(), DiskError> {
        let mut state = self.state();
        let range = Range {
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

    fn state(&self) -> RankedMutexGuard<'_, LogCatalog, State> {
        self.state.lock()
    }
}

impl State {
    fn write(&mut self, range: Range) {
        if let Some(file) = &self.file {
            let _ = file.write_at(&encode(range), 0);
        }
        self.range = range;
    }
}

fn encode(range: Range) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&range.first.to_le_bytes());
    bytes[24..].copy_from_slice(&range.last.to_le_bytes());
    let crc = checksum(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The segments that a catalog says were there; `None` if the bytes are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Range> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let range = Range {
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

/// CRC-32C of all but the place of the checksum itself.
fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_version_1_never_change() {
        // The checksum was computed by a bitwise CRC-32C that shares no code with this one.
        let bytes = encode(Range { first: 3, last: 7 });
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4b656467654c674301000000665aaa3e03000000000000000700000000000000"
        );
    }

    #[test]
    fn a_flip_of_any_bit_is_noticed() {
        let range = Range { first: 1, last: 1 };
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
