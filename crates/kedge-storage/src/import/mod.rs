//! Taking over the files of a directory of Couchbase's: `kedge import DIR`.
//!
//! Every file is checked before the first one is copied. A file is copied as a compaction does, entry by entry, into
//! the newest version of the format: so what is damaged is found now and not when it is read, and nothing of the old
//! file is needed any more. Statistics are counted on the way, as old releases did not keep all of them.
//!
//! Invariants:
//! * A file is taken over whole or not at all, also in a crash: it gets its name when it is complete and durable.
//! * Only a vBucket without documents gets a file. One that has those of the file already is left as it is, so an import
//!   that was interrupted is ended by doing it again.
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
use crate::names::{Revision, revision_of};
use crate::{Storage, StorageError};
use check::Candidate;
pub use place::{PlaceOf, vbuckets_of};

/// Why a file cannot be taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportProblem {
    /// The bucket has no such vBucket.
    #[error("the bucket has only {vbuckets} vBuckets")]
    NoSuchVbucket {
        /// vBuckets of the bucket.
        vbuckets: u16,
    },
    /// The bucket's vBucket has documents that are not from this file.
    #[error("the bucket's vBucket has documents already, up to seqno {high_seqno}")]
    NotEmpty {
        /// Its highest seqno.
        high_seqno: Seqno,
    },
    /// The node that wrote it would build it anew, as it was cut off between two consistent points.
    #[error("its snapshot from {start} to {end} does not contain its highest seqno {high_seqno}")]
    Snapshot {
        /// Where the snapshot starts.
        start: Seqno,
        /// Where it ends.
        end: Seqno,
        /// The highest seqno.
        high_seqno: Seqno,
    },
    /// Keys do not say their collection, as before version 7.
    #[error("its keys are without collections, as those of releases before 7.0 may be")]
    WithoutCollections,
    /// A key is not one of the file's vBucket.
    #[error(
        "the key \"{key}\" belongs to vBucket {belongs} of {vbuckets}, not to {vb}: the files are those of a bucket with \
         another number of vBuckets, or the file has the name of another"
    )]
    ForeignKey {
        /// The key, without its collection.
        key: String,
        /// The vBucket by the file's name.
        vb: VbId,
        /// That of the key.
        belongs: VbId,
        /// vBuckets of the bucket.
        vbuckets: u16,
    },
    /// The keys of the files fit no number of vBuckets.
    #[error("no number of vBuckets fits the keys of its files: they are not those of one bucket")]
    NoNumberFits,
    /// The keys of the files do not tell how many vBuckets the bucket had.
    #[error("its files have too few keys to tell how many vBuckets the bucket had ({}); say so with --vbuckets", fitting(.fit))]
    ManyNumbersFit {
        /// Numbers that fit, ascending; none if every number above that of the last file does.
        fit: Vec<u16>,
    },
    /// There is no file of a vBucket.
    #[error("no file of a vBucket is in it")]
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

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Files, in the order of their vBuckets.
    pub files: Vec<Imported>,
    /// Names in the directory that are not those of the newest file of a vBucket. Nothing was done about them.
    pub ignored: Vec<String>,
    /// The scopes and collections of the vBucket that is ahead in them.
    pub manifest: Manifest,
}

/// A file that was looked at by an import.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The file.
    pub file: PathBuf,
    /// Its vBucket.
    pub vb: VbId,
    /// What the vBucket was to its node. It is active now.
    pub was: VbState,
    /// Live documents.
    pub documents: u64,
    /// The highest seqno.
    pub high_seqno: Seqno,
    /// Its state did not say the highest CAS, as an old release left it: the vBucket has that of the documents.
    pub lacked_max_cas: bool,
    /// It was there already, from an earlier import, and was left as it is. The figures are those of the file.
    pub was_there: bool,
}

impl Storage {
    /// Takes over the files `N.couch.R` of a directory, of each vBucket the newest. `disk` is where the directory is.
    /// Every vBucket becomes active, with a new branch of its history, whose name `new_uuid` gives, above the old ones.
    /// `place_of` says which vBucket a key without its collection belongs to; a file that has one of another is refused.
    ///
    /// The vBuckets must not be in use, and must have no documents elsewhere, in a log say.
    ///
    /// # Errors
    /// [`StorageError::Import`] with file and reason; damage, encryption or an unknown version of a file; those of the
    /// disk. If it is a file's own fault nothing was taken over, unless it shows in a document only: then those of
    /// lower vBuckets were. [`StorageError::is_stopped`] after [`Storage::stop`].
    pub fn import(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        place_of: PlaceOf<'_>,
        new_uuid: &mut dyn FnMut(VbId) -> VbUuid,
    ) -> Result<Import, StorageError> {
        let (newest, ignored) = newest_files(disk, dir)?;
        let candidates = newest
            .into_iter()
            .map(|(vb, name)| Candidate::look_at(self, disk, dir.join(name), vb, place_of));
        let candidates: Vec<Candidate> = candidates.collect::<Result<_, _>>()?;
        let mut files = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let documents = match candidate.was_there {
                true => candidate.documents,
                false => copy::take_over(self, disk, candidate, place_of, new_uuid)?,
            };
            files.push(Imported {
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
        Ok(Import {
            files,
            ignored,
            manifest: newest.map_or_else(Manifest::default, FileManifest::manifest),
        })
    }
}

/// A vBucket, and the name of a file of it.
type Named = (VbId, String);

/// The newest file of each vBucket, by vBucket, and the names that are not one.
fn newest_files(disk: &dyn Disk, dir: &Path) -> Result<(Vec<Named>, Vec<String>), StorageError> {
    let mut found: Vec<(VbId, Revision, String)> = Vec::new();
    let mut ignored = Vec::new();
    for name in disk.list(dir)? {
        match revision_of(&name) {
            Some((vb, revision)) => found.push((vb, revision, name)),
            None => ignored.push(name),
        }
    }
    found.sort_unstable();
    let mut newest: Vec<Named> = Vec::new();
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
