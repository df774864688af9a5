//! The disk of the operating system.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rustix::fs::FallocateFlags;

use crate::error::locked;
use crate::{DirLock, Disk, DiskError, File, Operation, RingFile};

/// The file system of the operating system, through pread, pwrite and fdatasync.
#[derive(Debug, Clone, Copy, Default)]
pub struct PosixDisk;

/// An open file of the operating system.
#[derive(Debug)]
struct PosixFile {
    file: Arc<fs::File>,
    path: PathBuf,
}

impl PosixFile {
    fn error(&self, op: Operation) -> impl FnOnce(io::Error) -> DiskError {
        move |source| DiskError::new(op, &self.path, source)
    }

    fn error_at(&self, op: Operation, offset: u64) -> impl FnOnce(io::Error) -> DiskError {
        move |source| DiskError::at(op, &self.path, offset, source)
    }
}

fn error(op: Operation, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::new(op, path, source)
}

/// Returns the directory of a path, which may be a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Disables updates of the file's access time, which cost a part of each read and, after each change of the file, a
/// write. Only the owner of the file may disable them; for others the call has no effect.
fn disable_access_time_updates(file: &fs::File) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::NOATIME);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = file;
}

impl Disk for PosixDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(error(Operation::Open, path))?;
        disable_access_time_updates(&file);
        Ok(Box::new(PosixFile {
            file: Arc::new(file),
            path: path.to_owned(),
        }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>, DiskError> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(error(Operation::Create, path))?;
        disable_access_time_updates(&file);
        Ok(Box::new(PosixFile {
            file: Arc::new(file),
            path: path.to_owned(),
        }))
    }

    fn remove(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_file(path).map_err(error(Operation::Remove, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::rename(from, to).map_err(error(Operation::Rename, from))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(error(Operation::List, dir))? {
            let entry = entry.map_err(error(Operation::List, dir))?;
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        if dir.is_dir() {
            return Ok(());
        }
        let above = parent(dir);
        self.create_dir_all(above)?;
        match fs::create_dir(dir) {
            Ok(()) => {}
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(source) => return Err(DiskError::new(Operation::CreateDir, dir, source)),
        }
        self.sync_dir(above)
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        match fs::remove_dir_all(dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DiskError::new(Operation::Remove, dir, source))
            }
            _ => Ok(()),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        fs::File::open(dir)
            .and_then(|handle| handle.sync_all())
            .map_err(error(Operation::SyncDir, dir))
    }

    fn exists(&self, path: &Path) -> Result<bool, DiskError> {
        path.try_exists().map_err(error(Operation::Stat, path))
    }

    fn len(&self, path: &Path) -> Result<u64, DiskError> {
        Ok(fs::metadata(path)
            .map_err(error(Operation::Stat, path))?
            .len())
    }

    fn lock_dir(&self, dir: &Path) -> Result<DirLock, DiskError> {
        let path = dir.join("LOCK");
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(error(Operation::Lock, &path))?;
        // The system releases the lock when the process ends, so a stale file does no harm. It is never removed,
        // because then two processes could lock two files of one name.
        match file.try_lock() {
            Ok(()) => Ok(DirLock::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(locked(&path)),
            Err(fs::TryLockError::Error(source)) => {
                Err(DiskError::new(Operation::Lock, &path, source))
            }
        }
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        let stat = rustix::fs::statvfs(dir)
            .map_err(|errno| DiskError::new(Operation::Stat, dir, errno.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl File for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(self.error_at(Operation::Read, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .write_all_at(buf, offset)
            .map_err(self.error_at(Operation::Write, offset))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(self.error(Operation::Sync))
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.file.sync_all().map_err(self.error(Operation::Sync))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn forget(&self, offset: u64, len: u64) {
        let Some(len) = std::num::NonZeroU64::new(len) else {
            return;
        };
        // It is a hint: a failure has no effect.
        let _ = rustix::fs::fadvise(&*self.file, offset, Some(len), rustix::fs::Advice::DontNeed);
    }

    fn begin_sync(&self, offset: u64, len: u64) {
        // Linux starts writeback of the dirty pages in the range, and drops no page before it is written.
        self.forget(offset, len);
    }

    fn for_ring(&self) -> Option<RingFile> {
        #[cfg(target_os = "linux")]
        return Some(RingFile::new(&self.file));
        #[cfg(not(target_os = "linux"))]
        None
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file
            .set_len(len)
            .map_err(self.error(Operation::SetLen))
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        let now = self.len()?;
        if now >= len {
            return Ok(());
        }
        match rustix::fs::fallocate(&*self.file, FallocateFlags::empty(), now, len - now) {
            Ok(()) => Ok(()),
            // On a file system without preallocation, a full disk shows at the write, which callers have to expect
            // anyway.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.set_len(len),
            Err(errno) => Err(DiskError::new(
                Operation::Allocate,
                &self.path,
                errno.into(),
            )),
        }
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self
            .file
            .metadata()
            .map_err(self.error(Operation::Stat))?
            .len())
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn access_time_updates_are_disabled_for_the_owner_of_a_file() {
        let file = tempfile::tempfile().expect("a temporary file");
        let notes_none = || {
            let flags = rustix::fs::fcntl_getfl(&file).expect("the flags can be read");
            flags.contains(rustix::fs::OFlags::NOATIME)
        };
        assert!(!notes_none());
        disable_access_time_updates(&file);
        assert!(notes_none());
    }
}
