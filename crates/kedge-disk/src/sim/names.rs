//! The names of files: current, and after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rng::Rng;

/// Index of a file in the table of the disk.
pub(super) type InodeId = usize;

/// A change of names that no sync of the directory has covered yet.
#[derive(Debug, Clone)]
enum NameChange {
    Link {
        path: PathBuf,
        inode: InodeId,
    },
    Unlink {
        path: PathBuf,
        inode: InodeId,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        inode: InodeId,
    },
}

impl NameChange {
    fn paths(&self) -> [&Path; 2] {
        match self {
            NameChange::Link { path, .. } | NameChange::Unlink { path, .. } => [path, path],
            NameChange::Rename { from, to, .. } => [from, to],
        }
    }

    fn inode(&self) -> InodeId {
        match self {
            NameChange::Link { inode, .. }
            | NameChange::Unlink { inode, .. }
            | NameChange::Rename { inode, .. } => *inode,
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        self.paths().iter().any(|path| path.parent() == Some(dir))
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, InodeId>) {
        match self {
            NameChange::Link { path, inode } => {
                names.insert(path, inode);
            }
            NameChange::Unlink { path, .. } => {
                names.remove(&path);
            }
            NameChange::Rename { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

/// The names of all files, cached and durable, and the changes between the two.
#[derive(Debug, Clone, Default)]
pub(super) struct NameTable {
    live: BTreeMap<PathBuf, InodeId>,
    durable: BTreeMap<PathBuf, InodeId>,
    pending: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
}

impl NameTable {
    pub(super) fn get(&self, path: &Path) -> Option<InodeId> {
        self.live.get(path).copied()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&PathBuf, InodeId)> {
        self.live.iter().map(|(path, inode)| (path, *inode))
    }

    pub(super) fn has_dir(&self, dir: &Path) -> bool {
        self.dirs.contains(dir)
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.dirs.iter()
    }

    pub(super) fn add_dirs(&mut self, dir: &Path) {
        for above in dir.ancestors() {
            self.dirs.insert(above.to_owned());
        }
    }

    /// Removes a directory whose files were all unlinked. The removal is durable immediately, and with it all changes
    /// inside the directory.
    pub(super) fn remove_dir(&mut self, dir: &Path) {
        self.dirs.retain(|known| !known.starts_with(dir));
        self.make_durable(|change| change.paths().iter().any(|path| path.starts_with(dir)));
    }

    pub(super) fn link(&mut self, path: &Path, inode: InodeId) {
        self.change(NameChange::Link {
            path: path.to_owned(),
            inode,
        });
    }

    pub(super) fn unlink(&mut self, path: &Path) -> bool {
        let Some(inode) = self.get(path) else {
            return false;
        };
        self.change(NameChange::Unlink {
            path: path.to_owned(),
            inode,
        });
        true
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> bool {
        let Some(inode) = self.get(from) else {
            return false;
        };
        self.change(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            inode,
        });
        true
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        self.make_durable(|change| change.is_in(dir));
    }

    /// Simulates a power loss: each pending change survives or not, but one that depends on a lost change (of the same
    /// file or the same name) is lost, too.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        let mut lost_paths = BTreeSet::new();
        let mut lost_inodes = BTreeSet::new();
        for change in std::mem::take(&mut self.pending) {
            let builds_on_lost = lost_inodes.contains(&change.inode())
                || change.paths().iter().any(|path| lost_paths.contains(*path));
            if builds_on_lost || rng.coin() {
                lost_inodes.insert(change.inode());
                lost_paths.extend(change.paths().map(Path::to_owned));
            } else {
                change.apply(&mut self.durable);
            }
        }
        self.live = self.durable.clone();
    }

    fn make_durable(&mut self, is_covered: impl Fn(&NameChange) -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if is_covered(&change) {
                change.apply(&mut self.durable);
            } else {
                self.pending.push(change);
            }
        }
    }

    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.live);
        self.pending.push(change);
    }
}
