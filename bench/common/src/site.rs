//! A place on a file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::Disk;

use crate::counted::{CountedDisk, counted_disk};

/// A directory to work in, which goes away with this.
#[derive(Debug)]
pub struct Site {
    /// What the file system is called in the results.
    pub name: &'static str,
    /// How to get at it.
    pub disk: Arc<CountedDisk>,
    dir: PathBuf,
}

impl Site {
    /// Makes a directory in `parent` that is this process's own, so it must not be there yet.
    ///
    /// # Panics
    /// If that does not work.
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

    /// Where the file of this name is.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Removes a file.
    ///
    /// # Panics
    /// If that does not work.
    pub fn remove(&self, path: &Path) {
        self.disk.remove(path).expect("the file can be removed");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Nothing to be done about it if it does not work.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
