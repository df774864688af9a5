//! What can go wrong, told apart by what the caller can do.

use std::path::PathBuf;

use kedge_couchstore::Error as FileError;
use kedge_couchstore::kv::KvError;
use kedge_disk::{DiskError, Operation};
use kedge_types::{Seqno, VbId};

use crate::import::ImportProblem;

/// An operation on the files of a bucket that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A file cannot be read or written, or is damaged. The error names the file, and the place in it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A name could not be changed or looked up, or a directory not be synced.
    #[error("a directory of couchstore files cannot be read or changed: {0}")]
    Directory(#[source] DiskError),
    /// A file does not say what its vBucket is, or says what cannot be.
    #[error("{} has no usable state of a vBucket: {reason}", file.display())]
    State {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The key or metadata of a document cannot be understood.
    #[error("{} has an entry with seqno {seqno}, its body at byte {offset}, that cannot be understood: {reason}", file.display())]
    Entry {
        /// The file.
        file: PathBuf,
        /// The seqno of the document.
        seqno: Seqno,
        /// Where its body is, in bytes from the start; 0 if it has none.
        offset: u64,
        /// What was expected.
        #[source]
        reason: KvError,
    },
    /// A file of a vBucket is not there, and nothing says why.
    #[error(
        "{} is missing: the bucket's catalog has it. Put it back while the server is stopped, or give it up with kedge \
         vbucket reset",
        file.display()
    )]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// A file of a vBucket lacks a commit that was durable: it was cut, or an older copy was put in its place.
    #[error(
        "{} ends with a commit at byte {found_at}, and the bucket's catalog has one at byte {committed_at} that was \
         durable: the file was cut, or is an older copy. Put the right one there while the server is stopped, or give \
         it up with kedge vbucket reset",
        file.display()
    )]
    Behind {
        /// The file.
        file: PathBuf,
        /// Where its newest header is, in bytes.
        found_at: u64,
        /// Where one was, in bytes.
        committed_at: u64,
    },
    /// Something that excludes others is done to the vBucket's file already. The same may work later.
    #[error("the file of vBucket {vb} is being compacted, rolled back or replaced already")]
    Busy {
        /// The vBucket.
        vb: VbId,
    },
    /// A file of another node cannot be taken over.
    #[error("{} cannot be imported: {problem}", file.display())]
    Import {
        /// The file, or the directory.
        file: PathBuf,
        /// Why.
        problem: ImportProblem,
    },
}

impl StorageError {
    /// Whether the disk was full. The same may work when there is room.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_no_space(),
            StorageError::Directory(error) => error.is_no_space(),
            _ => false,
        }
    }

    /// Whether a sync failed, so that nobody knows what is durable. The process has to end, and find out at its next
    /// start.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_sync_failure(),
            StorageError::Directory(error) => error.is_sync_failure(),
            _ => false,
        }
    }

    /// Whether what is in a file is wrong, rather than an operation on it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            StorageError::File(error) => error.is_damage(),
            StorageError::Directory(_)
            | StorageError::Busy { .. }
            | StorageError::Import { .. } => false,
            StorageError::State { .. }
            | StorageError::Entry { .. }
            | StorageError::Missing { .. }
            | StorageError::Behind { .. } => true,
        }
    }

    /// Whether the file cannot be read: it is damaged, or the disk does not give what it has.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let disk = match self {
            StorageError::File(FileError::Io(error)) => error.op == Operation::Read,
            _ => false,
        };
        disk || self.is_damage()
    }

    /// Whether something stopped a compaction that was under way.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self, StorageError::File(FileError::Stopped))
    }
}

/// Only errors of names and directories come without a file around them.
impl From<DiskError> for StorageError {
    fn from(error: DiskError) -> Self {
        StorageError::Directory(error)
    }
}
