//! A place on a file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::counted::{CountedDisk, counted_disk};

/// A working directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct Site {
    /// The name of the file system in the results.
    pub name: &'static str,
    /// The disk.
    pub disk: Arc<CountedDisk>,
    dir: PathBuf,
}

impl Site {
    /// Creates a directory in `parent` for this process alone, so it must not exist yet.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn new(name: &'static str, parent: &Path) -> Self {
        let dir = parent.join(format!("kedge-bench-{}", std::process::id()));
        std::fs::create_dir_all(parent).expect("directories can be made");
        std::fs::create_dir(&dir).expect("the directory can be made");
        Site {
            name,
            disk: Arc::new(counted_disk()),
            dir,
        }
    }

    /// Returns the path of the file with this name.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Removes a file.
    ///
    /// # Panics
    /// If that fails.
    pub fn remove(&self, path: &Path) {
        self.disk.remove(path).expect("the file can be removed");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // An error cannot be handled here.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
