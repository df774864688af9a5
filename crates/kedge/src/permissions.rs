//! Access of other users of the machine to files: none.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::Mode;

/// Access of group and others.
const OTHERS: u32 = 0o077;

/// Makes every file that this process creates from now on 0600 and every directory 0700, whatever umask the process was
/// started with: documents, password hashes and logs are for the user alone who runs the server. Call this before the
/// first thread starts.
pub(crate) fn keep_new_files_private() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Closes a directory that group or others can enter to them, as one that an older version or an operator created may be.
/// Returns the mode that it had if it was open.
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
