//! The one error of this crate: which operation, where, and what the system said.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What was being done when a [`DiskError`] arose.
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
#[error("{op} {}{}: {source}", path.display(), At(*offset))]
#[non_exhaustive]
pub struct DiskError {
    /// What was being done.
    pub op: Operation,
    /// The file or directory it was done to.
    pub path: PathBuf,
    /// The position in the file, in bytes, for reads and writes.
    pub offset: Option<u64>,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// An error of an operation that has no position in a file.
    pub fn new(op: Operation, path: &Path, source: io::Error) -> Self {
        DiskError {
            op,
            path: path.to_owned(),
            offset: None,
            source,
        }
    }

    /// An error of a read or write at `offset`.
    pub fn at(op: Operation, path: &Path, offset: u64, source: io::Error) -> Self {
        DiskError {
            op,
            path: path.to_owned(),
            offset: Some(offset),
            source,
        }
    }

    /// Whether the disk, or the quota of its owner, is full: the same may work later. Never true
    /// of a sync: what a sync could not write is in an unknown state.
    pub fn is_no_space(&self) -> bool {
        !self.is_sync_failure()
            && matches!(
                self.source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
    }

    /// Whether a sync of a file or directory failed: what it covered may be lost, also when a
    /// later sync succeeds.
    pub fn is_sync_failure(&self) -> bool {
        matches!(self.op, Operation::Sync | Operation::SyncDir)
    }

    /// Returns whether the system refused a file, a name or a length: nothing has changed, and the same may work later. False of
    /// syncs, of writes, of which a part may be done, and of reads, which say that the medium fails.
    pub fn is_refusal(&self) -> bool {
        !matches!(self.op, Operation::Read | Operation::Write) && !self.is_sync_failure()
    }

    /// Whether somebody else has the data directory. See [`crate::Disk::lock_dir`].
    pub fn is_locked(&self) -> bool {
        self.op == Operation::Lock && self.source.kind() == io::ErrorKind::ResourceBusy
    }

    /// Whether the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Prints the position of an error that has one.
struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// The error of a directory that is in use.
pub(crate) fn locked(path: &Path) -> DiskError {
    let text = "another process has this data directory open";
    DiskError::new(
        Operation::Lock,
        path,
        io::Error::new(io::ErrorKind::ResourceBusy, text),
    )
}
