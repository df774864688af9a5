//! The identity of the lock on a data directory, by which a process knows that another one has ended.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The id of the present boot of the machine, of Linux.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The file that a process locks for as long as it uses the directory.
const LOCK: &str = "LOCK";

/// Returns a text that is the same for two processes only if both have locked the same file: the second one after the first
/// had ended. It is empty if that cannot be known.
///
/// A lock is one of the kernel that has booted, so the text has the id of that boot. Processes that share a store on one
/// machine, not a remote one, have ended with an earlier boot. The file is identified by device and inode, which is not given to
/// another file while a process has this one open.
pub(super) fn identity(data_dir: &Path, is_remote: bool) -> String {
    let boot = match is_remote {
        true => std::fs::read_to_string(BOOT_ID).ok(),
        false => Some("any boot".to_owned()),
    };
    let file = std::fs::metadata(data_dir.join(LOCK)).ok();
    match (boot, file) {
        (Some(boot), Some(file)) => format!("{} {}:{}", boot.trim(), file.dev(), file.ino()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn each_directory_has_a_lock_of_its_own() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        assert_eq!(identity(dirs[0].path(), true), "", "it is not locked");
        for dir in &dirs {
            std::fs::write(dir.path().join("LOCK"), "").expect("a file");
        }
        for is_remote in [false, true] {
            let of = |at: usize| identity(dirs[at].path(), is_remote);
            assert_eq!(of(0), of(0));
            assert_ne!(of(0), of(1));
            assert!(!of(0).is_empty());
        }
        let path = dirs[0].path();
        assert_ne!(identity(path, false), identity(path, true));
    }
}
