//! The errors of the crate, by the reaction that they require.

use std::path::PathBuf;

use kedge_disk::DiskError;
use kedge_types::Seqno;

use crate::kv::KvError;
use crate::{DamageKind, Offset};

/// A failed operation on a couchstore file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk is full. The last commit is intact and readable. The writer rejects all further operations, and a new
    /// one can continue when there is space.
    #[error("no space for a couchstore file: {0}")]
    NoSpace(#[source] DiskError),
    /// A sync failed. The data that it covered may be lost, even if a later sync succeeds.
    #[error("a sync of a couchstore file failed, so the durable state is unknown: {0}")]
    SyncFailed(#[source] DiskError),
    /// Another operation of the disk failed.
    #[error("a couchstore file cannot be read or written: {0}")]
    Io(#[source] DiskError),
    /// An earlier operation of this writer failed, so it rejects this one. Open the file again.
    #[error("{} is closed for writing by an earlier error", file.display())]
    PreviousIo {
        /// The file.
        file: PathBuf,
    },
    /// The file is damaged, or is not a couchstore file.
    #[error("{} is damaged at byte {}: {problem}", file.display(), offset.0)]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// The offset of the damaged header, block or chunk.
        offset: Offset,
        /// The kind of the damage.
        problem: DamageKind,
    },
    /// The file has no header: nothing was ever committed, or it is not a couchstore file.
    #[error("{} has no header: expected one at a multiple of 4096 bytes", file.display())]
    NoHeader {
        /// The file.
        file: PathBuf,
    },
    /// The file has a newer format version.
    #[error("{} has a header of version {version} at byte {}, only 11 to 14 are known", file.display(), offset.0)]
    UnknownVersion {
        /// The file.
        file: PathBuf,
        /// The offset of the header.
        offset: Offset,
        /// The version in the header.
        version: u8,
    },
    /// The file is encrypted, and none of the given keys has this name.
    #[error("{} is encrypted with the key {key_id:?}, which was not given", file.display())]
    KeyNeeded {
        /// The file.
        file: PathBuf,
        /// The name of the key.
        key_id: String,
    },
    /// A file of this name exists already.
    #[error("{} exists already", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A local document does not have the format that its name requires.
    #[error("{} has a local document {name} that cannot be decoded: {reason}", file.display())]
    Local {
        /// The file.
        file: PathBuf,
        /// The name of the document.
        name: String,
        /// The reason.
        #[source]
        reason: KvError,
    },
    /// The hooks of a compaction stopped it.
    #[error("the compaction was stopped")]
    Stopped,
    /// The batch cannot be stored. Nothing was changed.
    #[error("refused: {0}")]
    Refused(#[from] InvalidBatch),
}

/// The reason why a batch or a document cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBatch {
    /// Two documents of a batch have the same key.
    #[error("documents {0} and {1} of the batch have the same key")]
    DuplicateKey(usize, usize),
    /// Two documents of a batch have the same seqno.
    #[error("two documents of the batch have the seqno {0}")]
    DuplicateSeqno(Seqno),
    /// A seqno is not above those in the file.
    #[error("the seqno {seqno} is not above {newest}, which the file has reached")]
    OldSeqno {
        /// The seqno.
        seqno: Seqno,
        /// The highest seqno in the file.
        newest: Seqno,
    },
    /// Keys are not in ascending order.
    #[error("key or seqno number {0} is not above the one before it")]
    NotAscending(u64),
    /// A key is empty or too long.
    #[error("document {0} has an empty key, or one of more than 4095 bytes")]
    KeyLength(usize),
    /// A body is too long.
    #[error("document {0} has a body that is too large")]
    BodyLength(usize),
    /// Private metadata or a local document is too long.
    #[error("document {0} has metadata or contents that are too large")]
    ValueLength(usize),
    /// A number does not fit into its 48 bits.
    #[error("document {0} has a seqno of 0, or a seqno or revision above 2^48 - 1")]
    NumberRange(usize),
    /// The batch has more documents than one save allows.
    #[error("a batch of more than 2^32 - 1 documents")]
    BatchLength,
    /// The file would grow beyond the range of its pointers.
    #[error("the file has reached 2^47 bytes")]
    FileFull,
    /// The version does not allow this: encryption needs version 14, and new files have version 13 or 14.
    #[error("this version of the format does not support the operation")]
    Version,
    /// The snapshot to catch up with is not a later state of the copied file.
    #[error("the snapshot is not a later state of the copied file")]
    NotNewer,
    /// The writer has uncommitted changes.
    #[error("there are uncommitted changes")]
    Uncommitted,
}

impl Error {
    /// Returns `true` if the disk was full. A new writer can continue when there is space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace(_))
    }

    /// Returns `true` if a sync failed, so that the durable state is unknown.
    #[must_use]
    pub fn is_sync_failure(&self) -> bool {
        matches!(self, Error::SyncFailed(_))
    }

    /// Returns `true` if the contents of the file are wrong, as opposed to a failed operation.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. } | Error::NoHeader { .. } | Error::Local { .. }
        )
    }

    /// Returns `true` if the file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io(error) if error.is_not_found())
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        if error.is_sync_failure() {
            Error::SyncFailed(error)
        } else if error.is_no_space() {
            Error::NoSpace(error)
        } else {
            Error::Io(error)
        }
    }
}
