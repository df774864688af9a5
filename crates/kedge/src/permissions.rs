//! File permissions and core dumps: other users of the machine have no access to what the server has.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fs, io};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The access bits of group and others.
const OTHERS: u32 = 0o077;

/// The limit of core dumps with which the kernel writes none: a file needs at least a page, and the kernel does not start the program
/// of `kernel.core_pattern` for a process with the limit 1, which is that of such programs themselves. It does for one with 0.
const NO_CORE_DUMP: u64 = 1;

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

/// Prevents core dumps, which have the memory of the process, with documents and secrets.
///
/// # Errors
///
/// The system refuses the limit.
pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    let hard = getrlimit(Resource::Core).maximum;
    let limit = hard.map_or(NO_CORE_DUMP, |hard| hard.min(NO_CORE_DUMP));
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    Ok(setrlimit(Resource::Core, limit)?)
}
