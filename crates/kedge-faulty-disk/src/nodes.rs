//! The numbers by which the kernel names files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

/// The paths of numbered files, within the file system. A number is never used again, and the kernel's notes that it has
/// forgotten one are ignored.
#[derive(Debug)]
pub(crate) struct Nodes {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    next: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            paths: HashMap::from([(ROOT, PathBuf::new())]),
            numbers: HashMap::from([(PathBuf::new(), ROOT)]),
            next: ROOT + 1,
        }
    }
}

impl Nodes {
    /// Returns the path of a file; `None` if it was removed.
    pub(crate) fn path(&self, number: u64) -> Option<&Path> {
        self.paths.get(&number).map(PathBuf::as_path)
    }

    /// Returns the number of the file with that path.
    pub(crate) fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(path.to_owned(), number);
        self.paths.insert(number, path.to_owned());
        number
    }

    /// Forgets the path of a removed file, which others may still have open.
    pub(crate) fn remove(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    /// Changes the paths of a file and of all below it.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        self.remove(to);
        for (number, path) in &mut self.paths {
            let Ok(below) = path.strip_prefix(from) else {
                continue;
            };
            let renamed = match below.as_os_str().is_empty() {
                true => to.to_owned(),
                false => to.join(below),
            };
            self.numbers.remove(path);
            self.numbers.insert(renamed.clone(), *number);
            *path = renamed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_renamed_files_and_end_with_removed_ones() {
        let mut nodes = Nodes::default();
        let path = |path: &str| PathBuf::from(path);
        let (dir, file) = (nodes.number(&path("a")), nodes.number(&path("a/1")));
        let other = nodes.number(&path("ab"));
        nodes.rename(&path("a"), &path("b"));
        assert_eq!(nodes.path(dir), Some(&*path("b")));
        assert_eq!(nodes.path(file), Some(&*path("b/1")));
        assert_eq!(nodes.path(other), Some(&*path("ab")));
        let replaced = nodes.number(&path("c"));
        nodes.rename(&path("b/1"), &path("c"));
        assert_eq!(nodes.path(replaced), None);
        assert_eq!(nodes.number(&path("c")), file);
        nodes.remove(&path("c"));
        assert_ne!(nodes.number(&path("c")), file);
    }
}
