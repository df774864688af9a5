//! The catalog of a bucket's files: for each vBucket the newest revision that it had, and where its last commit stands.
//!
//! A file that is gone looks as if it had never been, and one that was cut looks as its older commits left it. The catalog
//! tells both from what is legal. Its format is in `docs/reference/formats/catalogs.md`.
//!
//! Invariants:
//! * An entry is a lower bound: it is written after the file and the commit that it names are durable. An entry that is
//!   lost, torn or old therefore makes no sound file a wrong one; it makes fewer wrong ones known.
//! * An entry is taken back, durably, before the name goes that it stands for, unless something else explains why there is
//!   no such file: a newer revision, the mark of a deletion, or the name of a file that was put away.
//! * Notes of commits are not synced: a killed process loses none, a loss of power those of the last seconds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_disk::{Disk, DiskError, File, read_file, replace_file};
use kedge_types::VbId;

use crate::names::{Revision, Stock};

/// The file in the bucket's directory.
pub(crate) const CATALOG_FILE: &str = "vbuckets.catalog";

const MAGIC: &[u8; 8] = b"KedgeVbC";
const VERSION: u32 = 1;
/// A sector of its own, so that no write of an entry touches the header.
const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 32;
/// Their numbers have 16 bits.
const VBUCKETS_MAX: u32 = 1 << 16;

/// The entry of a vBucket that has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its revision.
    pub(crate) revision: Revision,
    /// Where the header of a durable commit stands, in bytes; 0 if none is known of.
    pub(crate) header_at: u64,
}

/// What becomes of a vBucket by its entry and its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// The newest file has a header here or behind this.
    pub(crate) header_at: u64,
    /// There was this revision, and nothing says why it is not there.
    pub(crate) missing: Option<Revision>,
}

/// The catalog, open for writing.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// `None` when there was no room for it; the next start tries again.
    file: Option<Box<dyn File>>,
    has_notes: AtomicBool,
    was_damaged: bool,
}

impl Catalog {
    /// Compares the catalog in a directory with the files that were found there. One that is not there, or cannot be
    /// understood, is made of what was found.
    pub(crate) fn open(
        disk: &dyn Disk,
        dir: &Path,
        stock: &[Stock],
    ) -> Result<(Self, Vec<Judged>), DiskError> {
        let path = dir.join(CATALOG_FILE);
        let bytes = match disk.exists(&path)? {
            true => Some(read_file(disk, &path)?),
            false => None,
        };
        let known = bytes.as_deref().map(|bytes| decode(bytes, stock.len()));
        let was_damaged = matches!(known, Some(None));
        let Some(known) = known.flatten() else {
            let file = made_anew(disk, &path, stock)?;
            let judged = vec![Judged::default(); stock.len()];
            return Ok((Self::new(file, was_damaged), judged));
        };
        let catalog = Self::new(Some(disk.open(&path)?), false);
        let mut judged = Vec::with_capacity(stock.len());
        let mut explained = Vec::new();
        for ((entry, found), vb) in known.into_iter().zip(stock).zip(0..) {
            let verdict = entry.map_or_else(Judged::default, |entry| judge(entry, *found));
            // What explains it may be removed by hand from now on.
            let is_put_away = entry.is_some_and(|entry| found.put_away >= entry.revision);
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

    /// Returns whether one was found that could not be understood.
    pub(crate) fn was_damaged(&self) -> bool {
        self.was_damaged
    }

    /// Notes a commit that is durable, without a sync. A note that cannot be written leaves an older one, which is as true.
    pub(crate) fn note(&self, vb: VbId, entry: Entry) {
        let _ = self.write(vb, Some(entry));
    }

    /// Takes the entry of a vBucket back, durably.
    pub(crate) fn forget(&self, vb: VbId) -> Result<(), DiskError> {
        self.write(vb, None)?;
        // Another one that syncs at the same time may have begun before this was written.
        self.file.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// Makes all notes durable, if there are new ones. For one who has no others beside it.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        match &self.file {
            Some(file) if self.has_notes.swap(false, Ordering::AcqRel) => file.sync_data(),
            _ => Ok(()),
        }
    }

    fn write(&self, vb: VbId, entry: Option<Entry>) -> Result<(), DiskError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let offset = HEADER_BYTES + ENTRY_BYTES * vb.index();
        self.has_notes.store(true, Ordering::Release);
        file.write_at(&encode_entry(vb, entry), offset as u64)
    }
}

/// Returns whether a vBucket's files are as its entry says.
pub(crate) fn judge(entry: Entry, found: Stock) -> Judged {
    if found.revision < entry.revision && found.put_away < entry.revision {
        return Judged {
            missing: Some(entry.revision),
            ..Judged::default()
        };
    }
    let is_it = found.has_file() && found.revision == entry.revision;
    Judged {
        header_at: if is_it { entry.header_at } else { 0 },
        missing: None,
    }
}

/// A new catalog of what there is. A full disk is no reason not to serve what is on it.
fn made_anew(
    disk: &dyn Disk,
    path: &Path,
    stock: &[Stock],
) -> Result<Option<Box<dyn File>>, DiskError> {
    let entry = |found: &Stock| {
        found.has_file().then_some(Entry {
            revision: found.revision,
            header_at: 0,
        })
    };
    let entries: Vec<Option<Entry>> = stock.iter().map(entry).collect();
    match replace_file(disk, path, &encode(&entries)) {
        Ok(()) => disk.open(path).map(Some),
        Err(error) if error.is_no_space() => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(entries: &[Option<Entry>]) -> Vec<u8> {
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

fn encode_entry(vb: VbId, entry: Option<Entry>) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let (revision, header_at) = entry.map_or((0, 0), |it| (it.revision.0, it.header_at));
    bytes[4..6].copy_from_slice(&vb.get().to_le_bytes());
    bytes[8..16].copy_from_slice(&revision.to_le_bytes());
    bytes[16..24].copy_from_slice(&header_at.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The entries of so many vBuckets; `None` if it is no catalog of so many. An entry that is torn is none.
fn decode(bytes: &[u8], vbuckets: usize) -> Option<Vec<Option<Entry>>> {
    let read = read(bytes)?;
    let entries = read.into_iter().map(|entry| entry.ok().flatten());
    Some(entries.collect()).filter(|entries: &Vec<_>| entries.len() == vbuckets)
}

/// An entry whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torn;

/// The entries of as many vBuckets as the catalog says; `None` if it is no catalog.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Result<Option<Entry>, Torn>>> {
    let header = bytes.get(..HEADER_BYTES)?;
    let vbuckets = u32_at(header, 12);
    let is_one = header[..8] == *MAGIC
        && u32_at(header, 8) == VERSION
        && u32_at(header, 16) == crc32c::crc32c(&header[..16])
        && vbuckets <= VBUCKETS_MAX
        && bytes.len() == HEADER_BYTES + ENTRY_BYTES * vbuckets as usize;
    let entries = bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES);
    is_one.then(|| {
        let entry = |(bytes, vb)| decode_entry(bytes, VbId(vb));
        entries.zip(0..).map(entry).collect()
    })
}

fn decode_entry(bytes: &[u8], vb: VbId) -> Result<Option<Entry>, Torn> {
    let is_sound = u32_at(bytes, 0) == crc32c::crc32c(&bytes[4..])
        && u16::from_le_bytes([bytes[4], bytes[5]]) == vb.get();
    let entry = Entry {
        revision: Revision(u64_at(bytes, 8)),
        header_at: u64_at(bytes, 16),
    };
    if !is_sound {
        return Err(Torn);
    }
    Ok((entry.revision > Revision(0)).then_some(entry))
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

    fn entry(revision: u64, header_at: u64) -> Entry {
        Entry {
            revision: Revision(revision),
            header_at,
        }
    }

    fn file(revision: u64) -> Stock {
        Stock {
            revision: Revision(revision),
            ..Stock::default()
        }
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        let bytes = encode(&[None, Some(entry(3, 0x2000))]);
        // The checksums were computed by a bitwise CRC-32C that shares no code with this one.
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
    fn entries_come_back_and_a_torn_one_is_none() {
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
    fn what_is_missing_is_told_from_what_was_replaced_deleted_or_put_away() {
        let deleted = |revision| Stock {
            is_deleted: true,
            ..file(revision)
        };
        let put_away = |put_away| Stock {
            put_away: Revision(put_away),
            ..Stock::default()
        };
        for (found, missing, header_at) in [
            (file(3), false, 7),
            (file(4), false, 0),
            (deleted(3), false, 0),
            (put_away(3), false, 0),
            (file(2), true, 0),
            (deleted(2), true, 0),
            (put_away(2), true, 0),
            (Stock::default(), true, 0),
        ] {
            let judged = judge(entry(3, 7), found);
            assert_eq!(judged.missing, missing.then_some(Revision(3)), "{found:?}");
            assert_eq!(judged.header_at, header_at, "{found:?}");
        }
    }

    #[test]
    fn a_catalog_is_made_of_what_is_found_and_kept() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let stock = [file(2), Stock::default()];
        let (catalog, judged) = Catalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged, [Judged::default(); 2]);
        catalog.note(VbId(0), entry(2, 4_096));
        catalog.note(VbId(1), entry(1, 8_192));
        catalog.sync().expect("sync");
        disk.crash(3);
        let (catalog, judged) = Catalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged[0].header_at, 4_096);
        assert_eq!(judged[1].missing, Some(Revision(1)));
        catalog.forget(VbId(1)).expect("forget");
        disk.crash(4);
        let (_, judged) = Catalog::open(&disk, dir, &stock).expect("open");
        assert_eq!(judged[1], Judged::default());
    }
}
