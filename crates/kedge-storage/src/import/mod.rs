//! Import of a directory of Couchbase files: `kedge import DIR`.
//!
//! Every file is validated before the first one is copied. A file is copied entry by entry, as in a compaction, into
//! the newest version of the format. So damage is found now and not in a later read, and the old file is no longer
//! needed. Statistics are computed during the copy, because old releases did not keep all of them.
//!
//! Invariants:
//! * A file is imported as a whole or not at all, also in a crash: it gets its name when it is complete and durable.
//! * Only a vBucket without documents gets a file. One that has those of the file already is unchanged, so an
//!   interrupted import is completed by repeating it.
//! * The source is only read.
//!
//! Source: couchstore file format, sections 3.4 and 3.5.

mod check;
mod copy;
mod place;

use std::path::{Path, PathBuf};

use kedge_disk::Disk;
use kedge_types::{Manifest, Seqno, VbId, VbUuid};
use kedge_vbucket::VbState;

use crate::manifest::FileManifest;
use crate::names::{FileRevision, revision_of};
use crate::{Storage, StorageError};
use check::ImportCandidate;
pub use place::{VbucketOfKey, vbuckets_of};

/// The reason why a file cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportProblem {
    /// The bucket has no such vBucket.
    #[error("the bucket has only {vbuckets} vBuckets")]
    NoSuchVbucket {
        /// Number of vBuckets of the bucket.
        vbuckets: u16,
    },
    /// The bucket's vBucket has documents that are not from this file.
    #[error("the bucket's vBucket has documents already, up to seqno {high_seqno}")]
    NotEmpty {
        /// The highest seqno of the vBucket.
        high_seqno: Seqno,
    },
    /// The file ends between two consistent points, so its own node would reset the vBucket.
    #[error("its snapshot from {start} to {end} does not contain its highest seqno {high_seqno}")]
    Snapshot {
        /// Start of the snapshot.
        start: Seqno,
        /// End of the snapshot.
        end: Seqno,
        /// The highest seqno.
        high_seqno: Seqno,
    },
    /// The keys have no collection ids, as before version 7.
    #[error("its keys have no collection ids, as in files of releases before 7.0")]
    WithoutCollections,
    /// A key does not belong to the file's vBucket.
    #[error(
        "the key \"{key}\" belongs to vBucket {belongs} of {vbuckets}, not to {vb}: the files are those of a bucket with \
         another number of vBuckets, or the file has the name of another"
    )]
    ForeignKey {
        /// The key, without its collection.
        key: String,
        /// The vBucket in the file's name.
        vb: VbId,
        /// The vBucket of the key.
        belongs: VbId,
        /// Number of vBuckets of the bucket.
        vbuckets: u16,
    },
    /// The keys of the files fit no number of vBuckets.
    #[error("no number of vBuckets fits the keys of its files: they are not those of one bucket")]
    NoNumberFits,
    /// The keys of the files do not determine the number of vBuckets.
    #[error("its files have too few keys to tell how many vBuckets the bucket had ({}); set the number with --vbuckets", fitting(.fit))]
    ManyNumbersFit {
        /// The fitting numbers in ascending order; empty if every number above that of the last file fits.
        fit: Vec<u16>,
    },
    /// The directory has no file of a vBucket.
    #[error("it has no vBucket files")]
    NothingThere,
}

fn fitting(fit: &[u16]) -> String {
    match fit {
        [] => "any number fits".to_owned(),
        fit => {
            let fit: Vec<String> = fit.iter().map(ToString::to_string).collect();
            format!("these fit: {}", fit.join(", "))
        }
    }
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// The files, in the order of their vBuckets.
    pub files: Vec<ImportedFile>,
    /// Names in the directory other than the newest file of each vBucket. They were ignored.
    pub ignored: Vec<String>,
    /// The scopes and collections of the vBucket with the newest manifest.
    pub manifest: Manifest,
}

/// A file of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedFile {
    /// The file.
    pub file: PathBuf,
    /// Its vBucket.
    pub vb: VbId,
    /// The state of the vBucket on its node. It is active now.
    pub was: VbState,
    /// Number of live documents.
    pub documents: u64,
    /// The highest seqno.
    pub high_seqno: Seqno,
    /// `true` if its state had no highest CAS, as in files of an old release. The vBucket has that of the documents.
    pub lacked_max_cas: bool,
    /// `true` if it had been imported before and was left unchanged. The figures are those of the file.
    pub was_there: bool,
}

impl Storage {
    /// Imports the files `N.couch.R` of a directory, the newest one of each vBucket. `disk` is the disk with the
    /// directory. Every vBucket becomes active, with a new branch of its history above the old ones, whose UUID
    /// `new_uuid` returns. `place_of` returns the vBucket of a key without its collection id; a file with a key of
    /// another vBucket is rejected.
    ///
    /// The vBuckets must not be in use, and must have no documents elsewhere, for example in a log.
    ///
    /// # Errors
    /// [`StorageError::Import`] with file and reason; damage, encryption or an unknown version of a file; disk errors.
    /// If a file is invalid, nothing was imported, unless the problem is in a document: then the files of lower
    /// vBuckets were. [`StorageError::is_stopped`] after [`Storage::stop`].
    pub fn import(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        place_of: VbucketOfKey<'_>,
        new_uuid: &mut dyn FnMut(VbId) -> VbUuid,
    ) -> Result<ImportReport, StorageError> {
        let (newest, ignored) = newest_files(disk, dir)?;
        let candidates = newest
            .into_iter()
            .map(|(vb, name)| ImportCandidate::look_at(self, disk, dir.join(name), vb, place_of));
        let candidates: Vec<ImportCandidate> = candidates.collect::<Result<_, _>>()?;
        let mut files = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let documents = match candidate.was_there {
                true => candidate.documents,
                false => copy::take_over(self, disk, candidate, place_of, new_uuid)?,
            };
            files.push(ImportedFile {
                file: candidate.path.clone(),
                vb: candidate.vb,
                was: candidate.was,
                documents,
                high_seqno: candidate.high_seqno,
                lacked_max_cas: candidate.lacks_max_cas,
                was_there: candidate.was_there,
            });
        }
        let manifests = candidates.iter().filter_map(|it| it.manifest.as_deref());
        let newest = manifests.max_by_key(|manifest| manifest.uid);
        Ok(ImportReport {
            files,
            ignored,
            manifest: newest.map_or_else(Manifest::default, FileManifest::manifest),
        })
    }
}

/// A vBucket, and the name of a file of it.
type SourceFile = (VbId, String);

/// Returns the newest file of each vBucket, by vBucket, and the other names.
fn newest_files(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<(Vec<SourceFile>, Vec<String>), StorageError> {
    let mut found: Vec<(VbId, FileRevision, String)> = Vec::new();
    let mut ignored = Vec::new();
    for name in disk.list(dir)? {
        match revision_of(&name) {
            Some((vb, revision)) => found.push((vb, revision, name)),
            None => ignored.push(name),
        }
    }
    found.sort_unstable();
    let mut newest: Vec<SourceFile> = Vec::new();
    for (vb, _, name) in found {
        match newest.last_mut() {
            Some(last) if last.0 == vb => ignored.push(std::mem::replace(&mut last.1, name)),
            _ => newest.push((vb, name)),
        }
    }
    ignored.sort_unstable();
    if newest.is_empty() {
        return Err(StorageError::Import {
            file: dir.to_owned(),
            problem: ImportProblem::NothingThere,
        });
    }
    Ok((newest, ignored))
}
