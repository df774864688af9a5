//! The cluster state of a standalone node: `cluster.json`, and on a full disk marker files beside it.
//!
//! Each start has a revision of its own, which must be on disk before clients see it. A disk without space for the
//! document has space for a name: the empty file `cluster.json.rev-N` records that the last revision was N. The next
//! saved document supersedes it.

use std::path::PathBuf;
use std::sync::Arc;

use kedge_cluster::{ClusterState, SaveState};
use kedge_disk::{Disk, DiskError, read_file, replace_file};
use kedge_sync::{RankedMutex, ranks::AloneState};

use super::{ALONE_FILE, RegistryError};
use crate::state_files::{self, StateFileError};

/// The prefix of the name of a marker file; the revision follows.
const MARK_PREFIX: &str = "cluster.json.rev-";

/// The file and its markers.
pub(super) struct StateFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    kept: RankedMutex<AloneState, SavedState>,
}

/// The content of the file.
#[derive(Debug, Default)]
struct SavedState {
    state: Option<ClusterState>,
    marks: Vec<String>,
    /// True if a save was tried since the start.
    has_begun: bool,
}

impl StateFile {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self {
            disk,
            dir,
            kept: RankedMutex::default(),
        }
    }

    /// Loads the state of the last start, or creates a new one, with the last published revision.
    ///
    /// # Errors
    /// `Disk`, `Cluster`, `Random`.
    pub(super) fn load(&self) -> Result<ClusterState, RegistryError> {
        let mut kept = self.kept.lock();
        let path = self.dir.join(ALONE_FILE);
        if !state_files::is_there(&*self.disk, &path)? {
            let mut random = [0; 32];
            getrandom::fill(&mut random).map_err(|_| RegistryError::Random)?;
            return Ok(ClusterState::new(random));
        }
        let mut state = ClusterState::from_json(&read_file(&*self.disk, &path)?)?;
        kept.state = Some(state.clone());
        for name in self.disk.list(&self.dir)? {
            let Some(revision) = name.strip_prefix(MARK_PREFIX) else {
                continue;
            };
            if let Ok(revision) = revision.parse() {
                state.rev = state.rev.max(revision);
                kept.marks.push(name);
            }
        }
        Ok(state)
    }

    /// Returns the function that saves.
    pub(super) fn into_save(self) -> SaveState {
        Box::new(move |state| match self.save(state) {
            Err(StateFileError::Disk(error)) => Err(error.into()),
            saved => Ok(saved?),
        })
    }

    fn save(&self, state: &ClusterState) -> Result<(), StateFileError> {
        let mut kept = self.kept.lock();
        let is_first = !std::mem::replace(&mut kept.has_begun, true);
        let path = self.dir.join(ALONE_FILE);
        let saved = replace_file(&*self.disk, &path, &state.to_json());
        let error = match saved {
            Ok(()) => {
                kept.state = Some(state.clone());
                for mark in kept.marks.drain(..) {
                    // A remaining marker has a lower revision than the document.
                    let _ = self.disk.remove(&self.dir.join(mark));
                }
                return state_files::saved(&*self.disk, &path);
            }
            Err(error) if error.is_no_space() => error,
            Err(error) => return Err(error.into()),
        };
        let is_known = kept.state.as_ref().is_some_and(|known| {
            let mut known = known.clone();
            known.rev = state.rev;
            known == *state
        });
        let marked = is_known && self.mark(&mut kept, state.rev)?;
        if !marked && !is_first {
            return Err(error.into());
        }
        tracing::warn!(
            %error,
            rev = state.rev,
            marked,
            "the disk is full: the cluster state is not saved, which is tried again with its next change"
        );
        Ok(())
    }

    /// Records a revision without using space. False if not even that is possible.
    fn mark(&self, kept: &mut SavedState, rev: i64) -> Result<bool, DiskError> {
        let name = format!("{MARK_PREFIX}{rev}");
        match self.disk.create(&self.dir.join(&name)) {
            Err(error) if error.is_no_space() => return Ok(false),
            created => drop(created?),
        }
        self.disk.sync_dir(&self.dir)?;
        for older in kept.marks.drain(..).filter(|older| *older != name) {
            let _ = self.disk.remove(&self.dir.join(older));
        }
        kept.marks.push(name);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_cluster::{BucketEntry, ClusterView, Ports};
    use kedge_disk::{Fault, Operation, SimDisk};
    use std::path::Path;

    fn start(disk: &SimDisk) -> ClusterView {
        let file = StateFile::new(Arc::new(disk.clone()), PathBuf::from("/data"));
        let state = file.load().unwrap();
        ClusterView::new(state, Ports::plain(1, 2), [], file.into_save()).unwrap()
    }

    fn bucket(name: &str) -> BucketEntry {
        BucketEntry {
            name: name.to_owned(),
            uuid: [1; 16],
            vbuckets: 4,
            manifest_uid: 0,
        }
    }

    /// A full disk prevented the start: the revision of the start could not be saved. Publishing it unsaved would not
    /// do either: the next start would publish the same number with another content, which clients take for old.
    #[test]
    fn cluster_revision_increases_after_a_start_on_a_full_disk() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/data")).unwrap();
        let first = start(&disk);
        let identity = first.snapshot().state().clone();
        let mut last = first.revision();
        for crash in 0..4 {
            disk.fail_every(Operation::Write, Fault::NoSpace);
            let view = start(&disk);
            assert!(view.revision() > last, "{:?} and {last:?}", view.revision());
            last = view.put_bucket(bucket("a")).unwrap();
            last = last.max(view.remove_bucket("a").unwrap());
            // A change that a marker cannot record is refused as before.
            assert!(view.set_cluster_name("other").is_err());
            assert_eq!(view.revision(), last);
            disk.crash(crash);
        }
        let view = start(&disk);
        assert!(view.revision() > last);
        let mut state = view.snapshot().state().clone();
        state.rev = identity.rev;
        assert_eq!(state, identity);
        let left = disk.list(Path::new("/data")).unwrap();
        assert_eq!(
            left,
            [ALONE_FILE, state_files::FILES_LIST],
            "the marks are void"
        );
    }

    #[test]
    fn start_succeeds_on_a_disk_that_refuses_new_files() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/data")).unwrap();
        drop(start(&disk));
        disk.fail_every(Operation::Create, Fault::NoSpace);
        let view = start(&disk);
        assert!(view.put_bucket(bucket("a")).is_err(), "only a start passes");
        disk.clear_faults();
        view.put_bucket(bucket("a")).unwrap();
        disk.fail_every(Operation::Write, Fault::Io);
        assert!(view.put_bucket(bucket("b")).is_err());
    }
}
