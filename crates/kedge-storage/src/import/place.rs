//! The vBuckets of keys, and the number of vBuckets of the bucket with the files.
//!
//! A key with the hash h is in vBucket h mod n of n. So n divides h - v for each key in the file of vBucket v: all
//! numbers that fit divide the greatest common divisor of these differences, and are above the number of the last file.

use std::path::Path;

use kedge_couchstore::kv::DiskKey;
use kedge_couchstore::{Options, Snapshot};
use kedge_disk::Disk;
use kedge_types::VbId;

use super::check::refused;
use super::{ImportProblem, newest_files};
use crate::StorageError;
use crate::vb_metadata::VbMetadata;

/// A function from a key without its collection id to its vBucket; `None` if any is valid.
pub type VbucketOfKey<'a> = &'a dyn Fn(&[u8]) -> Option<VbId>;

/// Number of keys of each file that are checked before anything is copied.
const FIRST_KEYS: usize = 64;
/// Number of keys that suffice: the probability that their greatest common divisor is a multiple of the number is below
/// 2^-23.
const KEYS_ENOUGH: u64 = 24;

/// Returns the first document keys of a file, without their collection ids.
pub(super) fn first_keys(file: &Snapshot) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut keys = Vec::new();
    for entry in file.scan_seqnos(..)? {
        let entry = entry?;
        // Malformed keys are reported during the copy.
        if let Ok(DiskKey::Document { logical, .. }) = DiskKey::decode(entry.key()) {
            keys.push(logical.to_vec());
        }
        if keys.len() >= FIRST_KEYS {
            break;
        }
    }
    Ok(keys)
}

/// Returns an error if a key does not belong to this vBucket.
pub(super) fn check_place(
    key: &[u8],
    vb: VbId,
    vbuckets: u16,
    place_of: VbucketOfKey<'_>,
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

/// Derives the number of vBuckets of the bucket with the files `N.couch.R` in a directory, from their numbers and keys.
/// `hash` is the hash of a key without its collection id; its remainder is the vBucket.
///
/// # Errors
/// [`StorageError::Import`] if no number fits the keys, or too many do; damage of a file; disk errors.
pub fn vbuckets_of(
    disk: &dyn Disk,
    dir: &Path,
    hash: &dyn Fn(&[u8]) -> u16,
) -> Result<u16, StorageError> {
    let (newest, _) = newest_files(disk, dir)?;
    let mut numbers = VbucketCounts::default();
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

/// The constraints of files and keys on the number of vBuckets.
#[derive(Debug, Default)]
struct VbucketCounts {
    files: u64,
    last: u64,
    keys: u64,
    /// All numbers that fit divide it; 0 while every number does.
    divisible: u64,
}

impl VbucketCounts {
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
            // All files exist, up to a number that fits.
            [least, ..] if is_whole && u64::from(*least) == self.files => Ok(*least),
            _ => Err(ImportProblem::ManyNumbersFit { fit }),
        }
    }
}

/// Returns the greatest common divisor; with 0 it is the other number.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Derives the number from `keys` keys with different hashes of a bucket of `vbuckets`, whose files all exist.
    fn derived(vbuckets: u16, keys: u32) -> Result<u16, ImportProblem> {
        let mut numbers = VbucketCounts::default();
        (0..vbuckets).for_each(|vb| numbers.file(VbId(vb)));
        for n in 0..keys {
            // As evenly distributed as those of a checksum.
            let hash = (n.wrapping_mul(0x9e37_79b9) >> 17) as u16;
            numbers.key(VbId(hash % vbuckets), hash);
        }
        numbers.vbuckets()
    }

    #[test]
    fn derived_number_of_vbuckets_is_correct() {
        for vbuckets in [1, 2, 16, 48, 64, 100, 128, 1_000, 1_024] {
            assert_eq!(derived(vbuckets, 200), Ok(vbuckets));
        }
    }

    #[test]
    fn few_keys_suffice_if_all_files_exist() {
        assert_eq!(derived(16, 3), Ok(16));
        let nobody_knows = Err(ImportProblem::ManyNumbersFit { fit: Vec::new() });
        assert_eq!(derived(16, 0), nobody_knows);
        let mut numbers = VbucketCounts::default();
        numbers.file(VbId(3));
        numbers.key(VbId(3), 3 + 32);
        let fit = vec![4, 8, 16, 32];
        let some = Err(ImportProblem::ManyNumbersFit { fit });
        assert_eq!(numbers.vbuckets(), some);
        numbers.key(VbId(3), 3 + 64 + 5);
        assert_eq!(numbers.vbuckets(), Err(ImportProblem::NoNumberFits));
    }
}
