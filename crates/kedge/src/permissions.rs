//! File permissions: other users of the machine have no access.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fs, io};

use rustix::fs::Mode;

/// The access bits of group and others.
const OTHERS: u32 = 0o077;

/// Sets the umask so that every new file has mode 0600 and every new directory 0700: only the user who runs the server
/// may read documents, password hashes and logs. Must be called before the first thread starts.
pub(crate) fn keep_new_files_private() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Removes the access of group and others to a directory that an older version or an operator may have created. Returns
/// the old mode if it allowed access.
///
/// # Errors
///
/// The directory's mode cannot be read or changed, for example because it belongs to another user.
pub(crate) fn close_to_others(dir: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(dir)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(mode & !OTHERS))?;
    Ok(Some(mode))
}
