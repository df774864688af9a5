//! Read-only files: a tool must neither need nor use write permission.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use kedge_disk::{DiskError, File, Operation};

#[derive(Debug)]
struct ReadOnly {
    file: fs::File,
    path: PathBuf,
}

pub(super) fn open(path: &Path) -> Result<Box<dyn File>, DiskError> {
    let error = |source| DiskError::new(Operation::Open, path, source);
    let file = fs::File::open(path).map_err(error)?;
    // A directory can be opened, but not read as a file.
    if file.metadata().map_err(error)?.is_dir() {
        return Err(error(io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(ReadOnly {
        file,
        path: path.to_owned(),
    }))
}

impl ReadOnly {
    fn refuse(&self, op: Operation) -> DiskError {
        DiskError::new(op, &self.path, io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

impl File for ReadOnly {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| DiskError::at(Operation::Read, &self.path, offset, source))
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<(), DiskError> {
        Err(self.refuse(Operation::Write))
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        Err(self.refuse(Operation::Sync))
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        Err(self.refuse(Operation::Sync))
    }

    fn set_len(&self, _: u64) -> Result<(), DiskError> {
        Err(self.refuse(Operation::SetLen))
    }

    fn allocate(&self, _: u64) -> Result<(), DiskError> {
        Err(self.refuse(Operation::Allocate))
    }

    fn len(&self) -> Result<u64, DiskError> {
        let metadata = self.file.metadata();
        let metadata =
            metadata.map_err(|source| DiskError::new(Operation::Stat, &self.path, source))?;
        Ok(metadata.len())
    }
}
