//! The disk interface of Kedge: the [`Disk`] and [`File`] traits, the implementation on the operating system
//! ([`PosixDisk`]), one in memory that simulates crashes, torn writes and errors ([`SimDisk`]), and a wrapper that
//! reports the calls made to another disk ([`ObservedDisk`]).
//!
//! The traits promise no more than POSIX does, and document where callers may assume less:
//! * written data is durable once [`File::sync_data`] or [`File::sync_all`] has returned; before that, sectors become
//!   durable independently and in any order;
//! * the creation, renaming or removal of a name is durable once [`Disk::sync_dir`] of its directory has returned;
//!   before that, such changes become durable in any order;
//! * after a failed sync, the state of the data that it covered is unknown: the kernel may have dropped the data and
//!   report success for the next sync. A failed sync is therefore never repeated. Either the data is written again, or
//!   the process ends.
//!
//! The crate knows no file format.
//!
//! # Example
//!
//! A simulated disk loses power. Synced data survives, and a name survives if its directory was synced.
//!
//! ```
//! use std::path::Path;
//!
//! use kedge_disk::{Disk, File, SimDisk};
//!
//! let disk = SimDisk::new(1);
//! let (dir, path) = (Path::new("/data"), Path::new("/data/file"));
//! disk.create_dir_all(dir)?;
//! let file = disk.create(path)?;
//! file.write_at(b"durable", 0)?;
//! file.sync_all()?;
//! disk.sync_dir(dir)?;
//! file.write_at(b"perhaps", 0)?;
//!
//! disk.crash(7);
//!
//! let file = disk.open(path)?;
//! let mut bytes = [0; 7];
//! file.read_at(&mut bytes, 0)?;
//! assert!(bytes == *b"durable" || bytes == *b"perhaps", "a sector is written as a whole");
//! # Ok::<(), kedge_disk::DiskError>(())
//! ```

mod error;
mod helpers;
mod observed;
mod posix;
mod ring;
mod sim;

use std::any::Any;
use std::fmt;
use std::path::Path;

pub use error::{DiskError, Operation};
pub use helpers::{read_file, replace_file};
pub use observed::{DiskCall, DiskObserver, ObservedDisk};
pub use posix::PosixDisk;
pub use ring::{ReadRing, RingFile};
pub use sim::{Fault, Rng, SimDisk, seed, seeds};

/// A file system, or the part of one that Kedge uses. It is shared as `Arc<dyn Disk>`.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` as the kind of the source if the file does not exist, or another error of the system.
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError>;

    /// Creates a file, or truncates an existing one, and opens it for reading and writing. The name is durable after
    /// [`Disk::sync_dir`].
    ///
    /// # Errors
    /// The error of the system.
    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError>;

    /// Removes a file. Open handles remain valid. The removal is durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `NotFound` if the file does not exist, or another error of the system.
    fn remove(&self, path: &Path) -> Result<(), DiskError>;

    /// Renames a file atomically, replacing an existing file of that name. The change is durable after
    /// [`Disk::sync_dir`] of both directories.
    ///
    /// # Errors
    /// `NotFound` if `from` does not exist, or another error of the system.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Lists the names in a directory, sorted. Names that are not UTF-8 are omitted, because Kedge creates none.
    ///
    /// # Errors
    /// `NotFound` if the directory does not exist, or another error of the system.
    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError>;

    /// Creates a directory and its missing ancestors. Unlike other changes of names, this one is durable on return.
    ///
    /// # Errors
    /// The error of the system.
    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError>;

    /// Removes a directory and everything in it. The removal is not atomic: a crash may leave a part of it. It is
    /// durable after [`Disk::sync_dir`] of the parent directory. A missing directory is no error.
    ///
    /// # Errors
    /// The error of the system.
    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError>;

    /// Makes all creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// The error of the system, see [`DiskError::is_sync_failure`].
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Returns `true` if a file or directory of that name exists.
    ///
    /// # Errors
    /// The error of the system if it cannot determine that.
    fn exists(&self, path: &Path) -> Result<bool, DiskError>;

    /// Returns the length of a file in bytes.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist, or another error of the system.
    fn len(&self, path: &Path) -> Result<u64, DiskError>;

    /// Locks the data directory for this process until the result is dropped or the process ends, however it ends. The
    /// lock is a file `LOCK` in the directory.
    ///
    /// # Errors
    /// [`DiskError::is_locked`] if another process, or this one, has locked it already.
    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError>;

    /// Returns the number of bytes that an unprivileged process may still write on the file system of `dir`.
    ///
    /// # Errors
    /// The error of the system.
    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError>;
}

/// An open file. Offsets and lengths are in bytes. All methods may be called from several threads; callers order
/// overlapping writes themselves.
pub trait File: fmt::Debug + Send + Sync {
    /// Reads `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is too short, or another error of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError>;

    /// Writes all of `buf` at `offset`, extending the file if necessary. After an error, any part may have been
    /// written.
    ///
    /// # Errors
    /// [`DiskError::is_no_space`] on a full disk, or another error of the system.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Makes the contents durable, and the length as far as reads need it.
    ///
    /// # Errors
    /// The error of the system. The state of unsynced bytes is unknown then.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// Makes the contents and all metadata durable.
    ///
    /// # Errors
    /// The errors of [`File::sync_data`].
    fn sync_all(&self) -> Result<(), DiskError>;

    /// Advises the system that these bytes will not be read soon, so that it may drop them from the page cache. It is a
    /// hint without visible effect, which the system may ignore. Unsynced bytes stay cached.
    fn forget(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Advises the system to start writing these bytes back, so that a later sync has less to do. The call does not
    /// wait. It is a hint like [`File::forget`].
    fn begin_sync(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Returns the file for reads through a [`ReadRing`], or `None` where such reads are not available.
    fn for_ring(&self) -> Option<RingFile> {
        None
    }

    /// Truncates the file, or extends it with zeros that may occupy no space.
    ///
    /// # Errors
    /// The error of the system.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Preallocates: extends the file to `len` with zeros whose space is reserved, without writing them. A file that is
    /// as long already is unchanged. Falls back to [`File::set_len`] on file systems without preallocation.
    ///
    /// # Errors
    /// [`DiskError::is_no_space`] on a full disk, or another error of the system.
    fn allocate(&self, len: u64) -> Result<(), DiskError>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn len(&self) -> Result<u64, DiskError>;

    /// Returns `true` if the file is empty.
    ///
    /// # Errors
    /// The error of the system.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }
}

/// The lock of a data directory, released when dropped, see [`Disk::lock_dir`].
#[must_use = "the lock is given back when this is dropped"]
pub struct DirLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DirLock {
    /// Wraps the value that keeps the lock of a [`Disk`] implementation alive.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        DirLock {
            _held: Box::new(held),
        }
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}
