//! The errors of the storage, by the reaction that they require.

use std::path::PathBuf;

use kedge_couchstore::Error as FileError;
use kedge_couchstore::kv::KvError;
use kedge_disk::{DiskError, Operation};
use kedge_types::{Seqno, VbId};

use crate::import::ImportProblem;

/// A failed operation on the files of a bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A file cannot be read or written, or is damaged. The error names the file and the offset.
    #[error(transparent)]
    File(#[from] FileError),
    /// A name could not be changed or looked up, or a directory could not be synced.
    #[error("a directory of couchstore files cannot be read or changed: {0}")]
    Directory(#[source] DiskError),
    /// A file has no state of its vBucket, or an invalid one.
    #[error("{} has no valid vBucket state: {reason}", file.display())]
    State {
        /// The file.
        file: PathBuf,
        /// The problem of the state.
        reason: String,
    },
    /// The key or the metadata of a document is malformed.
    #[error("{} has an entry that cannot be decoded, seqno {seqno}, body at byte {offset}: {reason}", file.display())]
    Entry {
        /// The file.
        file: PathBuf,
        /// The seqno of the document.
        seqno: Seqno,
        /// Offset of its body, in bytes; 0 if it has none.
        offset: u64,
        /// The reason.
        #[source]
        reason: KvError,
    },
    /// The catalog has a newer format version.
    #[error(
        "{} has format version {version}, and this release reads version {}: use the release that wrote it",
        file.display(), crate::catalog::VERSION
    )]
    NewerCatalog {
        /// The file.
        file: PathBuf,
        /// The version in its header.
        version: u32,
    },
    /// A file of a vBucket is missing without an explanation.
    #[error(
        "{} is missing: the bucket's catalog has it. Put it back while the server is stopped, or give it up with kedge \
         vbucket reset",
        file.display()
    )]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// A file of a vBucket lacks a durable commit: it was truncated, or replaced with an older copy.
    #[error(
        "{} ends with a commit at byte {found_at}, and the bucket's catalog has one at byte {committed_at} that was \
         durable: the file was cut, or is an older copy. Put the right one there while the server is stopped, or give \
         it up with kedge vbucket reset",
        file.display()
    )]
    Behind {
        /// The file.
        file: PathBuf,
        /// Offset of its newest header, in bytes.
        found_at: u64,
        /// Offset of the newest header according to the catalog, in bytes.
        committed_at: u64,
    },
    /// The bucket's keyring does not have the key of a file.
    #[error(
        "{} is encrypted with the data key {key_id}, which is not in the bucket's {}: put the right one there from a backup \
         while the server is stopped. The file stays as it is",
        file.display(), kedge_encryption::KEYRING_FILE
    )]
    KeyMissing {
        /// The file.
        file: PathBuf,
        /// The name of the key.
        key_id: String,
    },
    /// An exclusive operation on the vBucket's file is in progress. The call may succeed later.
    #[error("the file of vBucket {vb} is being compacted, rolled back or replaced already")]
    Busy {
        /// The vBucket.
        vb: VbId,
    },
    /// A file of another node cannot be imported.
    #[error("{} cannot be imported: {problem}", file.display())]
    Import {
        /// The file, or the directory.
        file: PathBuf,
        /// The reason.
        problem: ImportProblem,
    },
}

impl StorageError {
    /// Returns `true` if the disk was full. The same operation may succeed when there is space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_no_space(),
            StorageError::Directory(error) => error.is_no_space(),
            _ => false,
        }
    }

    /// Returns `true` if a sync failed, so that the durable state is unknown. The process has to end; its next start
    /// reads the state from disk.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_sync_failure(),
            StorageError::Directory(error) => error.is_sync_failure(),
            _ => false,
        }
    }

    /// Returns `true` if the contents of a file are wrong, as opposed to a failed operation.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_damage(),
            StorageError::Directory(_)
            | StorageError::NewerCatalog { .. }
            | StorageError::KeyMissing { .. }
            | StorageError::Busy { .. }
            | StorageError::Import { .. } => false,
            StorageError::State { .. }
            | StorageError::Entry { .. }
            | StorageError::Missing { .. }
            | StorageError::Behind { .. } => true,
        }
    }

    /// Returns `true` if the file cannot be read: it is damaged, or reads from disk fail.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let disk = match self {
            StorageError::File(FileError::Io(error)) => error.op == Operation::Read,
            _ => false,
        };
        disk || self.is_damage()
    }

    /// Returns `true` if a running compaction was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self, StorageError::File(FileError::Stopped))
    }
}

/// All other disk errors are wrapped in file errors, so these concern names and directories.
impl From<DiskError> for StorageError {
    fn from(error: DiskError) -> Self {
        StorageError::Directory(error)
    }
}
