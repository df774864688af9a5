//! Where keys belong, and how many vBuckets the bucket had that files are from.
//!
//! A key with the hash h is in vBucket h mod n of n. So n divides h - v for each key of the file of vBucket v: all numbers
//! that fit are divisors of the greatest common divisor of these, above the number of the last file.

use std::path::Path;

use kedge_couchstore::kv::DiskKey;
use kedge_couchstore::{Options, Snapshot};
use kedge_disk::Disk;
use kedge_types::VbId;

use super::check::refused;
use super::{ImportProblem, newest_files};
use crate::StorageError;
use crate::vb_metadata::VbMetadata;

/// Which vBucket a key, without its collection, belongs to; `None` if any will do.
pub type PlaceOf<'a> = &'a dyn Fn(&[u8]) -> Option<VbId>;

/// Keys of each file that are looked at before anything is copied.
const FIRST_KEYS: usize = 64;
/// That so many keys leave a multiple of the number as their greatest common divisor has a probability below 2^-23.
const KEYS_ENOUGH: u64 = 24;

/// The first keys of documents of a file, without their collections.
pub(super) fn first_keys(file: &Snapshot) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut keys = Vec::new();
    for entry in file.scan_seqnos(..)? {
        let entry = entry?;
        // What cannot be understood is named when it is copied.
        if let Ok(DiskKey::Document { logical, .. }) = DiskKey::decode(entry.key()) {
            keys.push(logical.to_vec());
        }
        if keys.len() >= FIRST_KEYS {
            break;
        }
    }
    Ok(keys)
}

/// An error if a key does not belong to this vBucket.
pub(super) fn check_place(
    key: &[u8],
    vb: VbId,
    vbuckets: u16,
    place_of: PlaceOf<'_>,
) -> Result<(), ImportProblem> {
    match place_of(key) {
        Some(belongs) if belongs != vb => Err(ImportProblem::ForeignKey {
            key: key.escape_ascii().to_string(),
            vb,
            belongs,
            vbuckets,
        }),
        _ => Ok(()),
    }
}

/// How many vBuckets the bucket had that the files `N.couch.R` of a directory are from, by their numbers and keys. `hash` is
/// the hash of a key without its collection whose remainder is its vBucket.
///
/// # Errors
/// [`StorageError::Import`] if the keys fit no number, or too many; damage; those of the disk.
pub fn vbuckets_of(
    disk: &dyn Disk,
    dir: &Path,
    hash: &dyn Fn(&[u8]) -> u16,
) -> Result<u16, StorageError> {
    let (newest, _) = newest_files(disk, dir)?;
    let mut numbers = Numbers::default();
    for (vb, name) in newest {
        let path = dir.join(name);
        let file = Snapshot::open(disk, &path, &Options::default())?;
        if !VbMetadata::read(&file)?.document.namespaces_supported {
            return Err(refused(path, ImportProblem::WithoutCollections));
        }
        numbers.file(vb);
        for key in first_keys(&file)? {
            numbers.key(vb, hash(&key));
        }
    }
    numbers
        .vbuckets()
        .map_err(|problem| refused(dir.to_owned(), problem))
}

/// What files and keys say of the number of vBuckets.
#[derive(Debug, Default)]
struct Numbers {
    files: u64,
    last: u64,
    keys: u64,
    /// All numbers that fit divide it; 0 as long as any does.
    divisible: u64,
}

impl Numbers {
    fn file(&mut self, vb: VbId) {
        self.files += 1;
        self.last = self.last.max(u64::from(vb.get()));
    }

    fn key(&mut self, vb: VbId, hash: u16) {
        self.keys += 1;
        let multiple = u64::from(hash.abs_diff(vb.get()));
        self.divisible = divisor(self.divisible, multiple);
    }

    fn vbuckets(&self) -> Result<u16, ImportProblem> {
        if self.divisible == 0 {
            return Err(ImportProblem::ManyNumbersFit { fit: Vec::new() });
        }
        let fits = |number: &u64| self.divisible.is_multiple_of(*number) && *number > self.last;
        let all = 1..=self.divisible.min(u64::from(u16::MAX));
        // The loop ends after 65,535 numbers.
        let fit: Vec<u16> = all.filter(fits).map(|number| number as u16).collect();
        let is_whole = self.files == self.last + 1;
        match fit.as_slice() {
            [] => Err(ImportProblem::NoNumberFits),
            [only] => Ok(*only),
            [.., largest] if self.keys >= KEYS_ENOUGH => Ok(*largest),
            // All files are there, up to a number that fits.
            [least, ..] if is_whole && u64::from(*least) == self.files => Ok(*least),
            _ => Err(ImportProblem::ManyNumbersFit { fit }),
        }
    }
}

/// The greatest common divisor; with 0 it is the other number.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is derived from so many keys with different hashes of a bucket of `vbuckets`, whose files are all there.
    fn derived(vbuckets: u16, keys: u32) -> Result<u16, ImportProblem> {
        let mut numbers = Numbers::default();
        (0..vbuckets).for_each(|vb| numbers.file(VbId(vb)));
        for n in 0..keys {
            // As spread as those of a checksum.
            let hash = (n.wrapping_mul(0x9e37_79b9) >> 17) as u16;
            numbers.key(VbId(hash % vbuckets), hash);
        }
        numbers.vbuckets()
    }

    #[test]
    fn the_number_is_that_of_the_bucket_whatever_it_is() {
        for vbuckets in [1, 2, 16, 48, 64, 100, 128, 1_000, 1_024] {
            assert_eq!(derived(vbuckets, 200), Ok(vbuckets));
        }
    }

    #[test]
    fn few_keys_tell_it_if_all_files_are_there_and_none_do_not() {
        assert_eq!(derived(16, 3), Ok(16));
        let nobody_knows = Err(ImportProblem::ManyNumbersFit { fit: Vec::new() });
        assert_eq!(derived(16, 0), nobody_knows);
        let mut numbers = Numbers::default();
        numbers.file(VbId(3));
        numbers.key(VbId(3), 3 + 32);
        let fit = vec![4, 8, 16, 32];
        let some = Err(ImportProblem::ManyNumbersFit { fit });
        assert_eq!(numbers.vbuckets(), some);
        numbers.key(VbId(3), 3 + 64 + 5);
        assert_eq!(numbers.vbuckets(), Err(ImportProblem::NoNumberFits));
    }
}
