//! Files as the rest of Kedge sees them: the [`Disk`] and [`File`] traits, the real one
//! ([`PosixDisk`]), one in memory that crashes, tears and fails on command ([`SimDisk`]), and one that lets somebody
//! see what is asked of another ([`Observed`]).
//!
//! The traits promise no more than POSIX does, and say where less may be assumed:
//! * what was written is durable once [`File::sync_data`] or [`File::sync_all`] returned, in any
//!   order and sector by sector before that;
//! * a created, renamed or removed name is durable once [`Disk::sync_dir`] of its directory
//!   returned, in any order before that;
//! * after a failed sync nothing is known about the bytes it was asked to make durable: the
//!   kernel may have dropped them and call the next sync a success. A failed sync is therefore
//!   never repeated; what it covered is written again or the process ends.
//!
//! It knows no file format.
//!
//! # Example
//!
//! A simulated disk loses power. What was synced survives; a name survives when its directory was synced.
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
pub use observed::{Asked, Observed, Observer};
pub use posix::PosixDisk;
pub use ring::{ReadRing, RingFile};
pub use sim::{Fault, Rng, SimDisk, seed, seeds};

/// A file system, or the part of one that Kedge uses. Shared as `Arc<dyn Disk>`.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens an existing file to read and write it.
    ///
    /// # Errors
    /// `NotFound` as the source's kind if there is none, or what the system says.
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError>;

    /// Creates a file, or empties the one that is there, and opens it to read and write. The name
    /// is durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError>;

    /// Removes a file. Handles that are open keep working. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `NotFound` if there is none, or what the system says.
    fn remove(&self, path: &Path) -> Result<(), DiskError>;

    /// Gives a file another name in one step, replacing the file that has it. Durable after
    /// [`Disk::sync_dir`] of both directories.
    ///
    /// # Errors
    /// `NotFound` if `from` does not exist, or what the system says.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// The names in a directory, sorted. Names that are not UTF-8 are left out: Kedge makes none.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory, or what the system says.
    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError>;

    /// Creates a directory and the ones above it that are missing. Unlike the other changes of
    /// names this one is durable when it returns.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError>;

    /// Removes a directory and everything in it. Not atomic: a crash may leave a part of it.
    /// Durable after [`Disk::sync_dir`] of the directory above. A missing one is no error.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError>;

    /// Makes every create, rename and remove in a directory durable.
    ///
    /// # Errors
    /// What the system says; see [`DiskError::is_sync_failure`].
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Whether a file or directory of that name exists.
    ///
    /// # Errors
    /// What the system says, when it cannot tell.
    fn exists(&self, path: &Path) -> Result<bool, DiskError>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// `NotFound` if there is none, or what the system says.
    fn len(&self, path: &Path) -> Result<u64, DiskError>;

    /// Takes the data directory for this process until the result is dropped or the process ends,
    /// however it ends. The lock is a file `LOCK` in the directory.
    ///
    /// # Errors
    /// [`DiskError::is_locked`] if another process (or this one) has it already.
    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError>;

    /// Bytes that an unprivileged process may still write on the file system of `dir`.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError>;
}

/// An open file. Positions and lengths are in bytes. All methods may be called from several
/// threads; overlapping writes are the caller's to order.
pub trait File: fmt::Debug + Send + Sync {
    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before that, or what the system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError>;

    /// Writes all of `buf` at `offset`, extending the file where needed. On an error any part of
    /// it may have been written.
    ///
    /// # Errors
    /// [`DiskError::is_no_space`] on a full disk, or what the system says.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Makes the contents durable, and the length as far as it is needed to read them.
    ///
    /// # Errors
    /// What the system says: nothing is known about the unsynced bytes then.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// Makes contents and all metadata durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn sync_all(&self) -> Result<(), DiskError>;

    /// Tells the system that these bytes will not be read soon, so that memory which caches them may serve others. A
    /// hint: it changes nothing that can be seen, and may do nothing. Bytes that are not synced stay cached.
    fn forget(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Lets the system begin to make these bytes durable, so that a later sync has less to do, without waiting for it. A hint
    /// as [`File::forget`].
    fn begin_sync(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// The file for reads through a [`ReadRing`]; `None` where there are no such reads.
    fn for_ring(&self) -> Option<RingFile> {
        None
    }

    /// Cuts the file, or extends it with zeros that may take no space.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Extends the file to `len` with zeros that have space reserved, without writing them; no
    /// effect on a file that is as long. Where the file system cannot, it is [`File::set_len`].
    ///
    /// # Errors
    /// [`DiskError::is_no_space`] on a full disk, or what the system says.
    fn allocate(&self, len: u64) -> Result<(), DiskError>;

    /// The length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }
}

/// The right to use a data directory; given back when dropped. See [`Disk::lock_dir`].
#[must_use = "the lock is given back when this is dropped"]
pub struct DirLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl DirLock {
    /// Wraps what an implementation of [`Disk`] has to keep alive while the lock is held.
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
