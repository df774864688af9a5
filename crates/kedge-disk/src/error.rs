//! The error type of this crate: the failed operation, its path and offset, and the error of the operating system.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The operation that failed with a [`DiskError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a file that exists.
    Open,
    /// Creating a file.
    Create,
    /// Removing a file or a directory.
    Remove,
    /// Renaming a file.
    Rename,
    /// Listing a directory.
    List,
    /// Creating a directory.
    CreateDir,
    /// Syncing a directory.
    SyncDir,
    /// Reading metadata: existence, length, free space.
    Stat,
    /// Locking a data directory.
    Lock,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Syncing a file.
    Sync,
    /// Setting a file's length.
    SetLen,
    /// Reserving space for a file.
    Allocate,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Create => "create",
            Operation::Remove => "remove",
            Operation::Rename => "rename",
            Operation::List => "list",
            Operation::CreateDir => "create directory",
            Operation::SyncDir => "sync directory",
            Operation::Stat => "stat",
            Operation::Lock => "lock",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::SetLen => "set length of",
            Operation::Allocate => "allocate space for",
        })
    }
}

/// An operation on the disk that failed.
#[derive(Debug, thiserror::Error)]
#[error("{op} {}{}: {source}", path.display(), ErrorOffset(*offset))]
#[non_exhaustive]
pub struct DiskError {
    /// The operation.
    pub op: Operation,
    /// The file or directory of the operation.
    pub path: PathBuf,
    /// The offset in the file, in bytes, of reads and writes.
    pub offset: Option<u64>,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// Creates an error of an operation without an offset.
    pub fn new(op: Operation, path: &Path, source: io::Error) -> Self {
        DiskError {
            op,
            path: path.to_owned(),
            offset: None,
            source,
        }
    }

    /// Creates an error of a read or write at `offset`.
    pub fn at(op: Operation, path: &Path, offset: u64, source: io::Error) -> Self {
        DiskError {
            op,
            path: path.to_owned(),
            offset: Some(offset),
            source,
        }
    }

    /// Returns `true` if the disk, or the quota of the files' owner, is full, so that the same operation may succeed
    /// later. It is always `false` for a sync, because the state of the data that it did not write is unknown.
    pub fn is_no_space(&self) -> bool {
        !self.is_sync_failure()
            && matches!(
                self.source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
    }

    /// Returns `true` if a sync of a file or directory failed. The data that it covered may be lost, even if a later
    /// sync succeeds.
    pub fn is_sync_failure(&self) -> bool {
        matches!(self.op, Operation::Sync | Operation::SyncDir)
    }

    /// Returns `true` if the system refused an operation on a file, a name or a length. Nothing has changed, and the
    /// same operation may succeed later. It is `false` for syncs, for writes, which may be partly done, and for reads,
    /// whose errors mean that the medium fails.
    pub fn is_refusal(&self) -> bool {
        !matches!(self.op, Operation::Read | Operation::Write) && !self.is_sync_failure()
    }

    /// Returns `true` if another process has locked the data directory, see [`crate::Disk::lock_dir`].
    pub fn is_locked(&self) -> bool {
        self.op == Operation::Lock && self.source.kind() == io::ErrorKind::ResourceBusy
    }

    /// Returns `true` if the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Formats the offset of an error that has one.
struct ErrorOffset(Option<u64>);

impl fmt::Display for ErrorOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// Creates the error of a directory that is in use.
pub(crate) fn locked(path: &Path) -> DiskError {
    let text = "another process has this data directory open";
    DiskError::new(
        Operation::Lock,
        path,
        io::Error::new(io::ErrorKind::ResourceBusy, text),
    )
}
