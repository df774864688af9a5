//! The contents of a simulated file: those that programs see, those on the medium, and the unsynced writes between
//! them.

use std::collections::BTreeMap;

use super::rng::Rng;

/// The unit of atomic writes of a disk, in bytes.
pub(super) const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// The contents of a file, cached and durable.
///
/// Invariant: a sector that is not in `dirty` is the same in `cache` and `durable`, unless a sync that failed dropped
/// it: the cache then still has bytes that are not on the disk, like that of a kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    cache: Vec<u8>,
    durable: Vec<u8>,
    /// For each unsynced sector, its contents after each write since the last sync. After a crash the sector has any of
    /// these, or the durable contents.
    dirty: BTreeMap<usize, Vec<Sector>>,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.cache.len() as u64
    }

    /// Returns the bytes at `offset`, or `None` past the end.
    pub(super) fn read(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.cache.get(start..start.checked_add(len)?)
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if end > self.cache.len() {
            self.cache.resize(end, 0);
        }
        self.cache[offset..end].copy_from_slice(bytes);
        self.mark_dirty(offset, end);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let before = self.cache.len();
        self.cache.resize(len, 0);
        // Truncated bytes read as zeros if the file grows over them again.
        self.mark_dirty(len.min(before), len.max(before));
    }

    /// Extends the file with preallocated zeros. Only the length becomes dirty.
    pub(super) fn allocate(&mut self, len: usize) {
        if len > self.cache.len() {
            self.cache.resize(len, 0);
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.cache.len(), 0);
        for index in std::mem::take(&mut self.dirty).into_keys() {
            let sector = sector_of(&self.cache, index);
            put_sector(&mut self.durable, index, &sector);
        }
    }

    /// Simulates a failed sync: some sectors reach the disk, the others are lost unless they are written again, and all
    /// count as clean.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        self.durable.resize(self.cache.len(), 0);
        for index in std::mem::take(&mut self.dirty).into_keys() {
            if rng.coin() {
                let sector = sector_of(&self.cache, index);
                put_sector(&mut self.durable, index, &sector);
            }
        }
    }

    /// Simulates a power loss: each unsynced sector has any of its versions, and occasionally a mixture of two.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        let len = if rng.coin() {
            self.durable.len()
        } else {
            self.cache.len()
        };
        self.durable.resize(len, 0);
        for (index, versions) in std::mem::take(&mut self.dirty) {
            let before = sector_of(&self.durable, index);
            let pick = |rng: &mut Rng| match rng.below(versions.len() as u64 + 1) as usize {
                0 => before,
                n => versions[n - 1],
            };
            let mut found = pick(rng);
            if rng.below(8) == 0 {
                let torn_at = rng.below(SECTOR as u64) as usize;
                found[torn_at..].copy_from_slice(&pick(rng)[torn_at..]);
            }
            put_sector(&mut self.durable, index, &found);
        }
        self.cache = self.durable.clone();
    }

    /// Changes one durable byte, like a failing medium. Returns `false` if the file is too short.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) -> bool {
        for copy in [&mut self.cache, &mut self.durable] {
            match copy.get_mut(offset) {
                Some(byte) => *byte ^= mask,
                None => return false,
            }
        }
        true
    }

    fn mark_dirty(&mut self, start: usize, end: usize) {
        for index in start / SECTOR..end.div_ceil(SECTOR) {
            let sector = sector_of(&self.cache, index);
            self.dirty.entry(index).or_default().push(sector);
        }
    }
}

/// Returns the bytes of a sector. Bytes past the end of the file are zero.
fn sector_of(bytes: &[u8], index: usize) -> Sector {
    let mut sector = [0; SECTOR];
    let start = (index * SECTOR).min(bytes.len());
    let end = (start + SECTOR).min(bytes.len());
    sector[..end - start].copy_from_slice(&bytes[start..end]);
    sector
}

/// Writes a sector up to the end of the file.
fn put_sector(bytes: &mut [u8], index: usize, sector: &Sector) {
    let start = (index * SECTOR).min(bytes.len());
    let end = (start + SECTOR).min(bytes.len());
    bytes[start..end].copy_from_slice(&sector[..end - start]);
}
