//! Compositions of several operations of a [`Disk`].

use std::ffi::OsString;
use std::path::Path;

use crate::{Disk, DiskError};

/// Reads a whole file.
///
/// # Errors
/// The errors of [`Disk::open`] and [`crate::File::read_at`].
pub fn read_file(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = disk.open(path)?;
    let len = file.len()?;
    let mut bytes = vec![0; usize::try_from(len).expect("a file that fits the address space")];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces the contents of a file atomically and durably: after a crash the file has the old contents or the new,
/// never a mixture. It first writes a file whose name has `.tmp` appended.
///
/// # Errors
/// The errors of the [`Disk`]'s operations. The old file is unchanged then, unless the last step, the sync of the
/// directory, failed: the file may then be the old or the new one.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let mut temporary = OsString::from(path);
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let renamed = disk.create(temporary).and_then(|file| {
        file.write_at(bytes, 0)?;
        // Sync before the rename: the name may only point at durable contents.
        file.sync_all()?;
        disk.rename(temporary, path)
    });
    if let Err(error) = renamed {
        // On a full disk others need the space. If the removal fails, the next attempt overwrites the file.
        let _ = disk.remove(temporary);
        return Err(error);
    }
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
