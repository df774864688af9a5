//! The stored map of a node, in its data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_cluster::{ClusterError, ClusterMap};
use kedge_disk::{Disk, read_file, replace_file};
use kedge_node::registry::ALONE_FILE;
use kedge_node::state_files::{self, StateFileError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The file in the data directory of a node of a cluster: its name and its map.
pub const MAP_FILE: &str = "cluster-map.json";

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct SavedMap<'a> {
    node: String,
    #[serde(borrow)]
    map: &'a RawValue,
}

/// The location of the stored map.
pub(super) struct MapStore {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The file of a standalone node.
    alone: PathBuf,
    node: String,
}

impl MapStore {
    pub(super) fn new(disk: Arc<dyn Disk>, data_dir: &Path, node: &str) -> Self {
        Self {
            disk,
            path: data_dir.join(MAP_FILE),
            alone: data_dir.join(ALONE_FILE),
            node: node.to_owned(),
        }
    }

    /// Loads the last saved map; `None` in an empty directory.
    ///
    /// # Errors
    /// `File` when the directory belongs to another node, or to a standalone one; `Missing`, `Damaged`, `Version`,
    /// `Map`; `Save` when the file cannot be read.
    pub(super) fn load(&self) -> Result<Option<ClusterMap>, ClusterError> {
        let io = |error: kedge_disk::DiskError| ClusterError::Save(Box::new(error));
        let dir = || self.path.parent().unwrap_or(&self.path).display();
        if is_there(&*self.disk, &self.alone)? {
            return Err(ClusterError::File(format!(
                "{} belongs to a server that ran alone; a node of a cluster begins with an empty directory",
                dir()
            )));
        }
        if !is_there(&*self.disk, &self.path)? {
            return Ok(None);
        }
        let bytes = read_file(&*self.disk, &self.path).map_err(io)?;
        let kept: SavedMap<'_> = serde_json::from_slice(&bytes).map_err(ClusterError::Damaged)?;
        if kept.node != self.node {
            let (owner, me) = (kept.node, &self.node);
            return Err(ClusterError::File(format!(
                "{} belongs to node \"{owner}\", and this is \"{me}\"",
                dir()
            )));
        }
        ClusterMap::from_json(kept.map.get().as_bytes()).map(Some)
    }

    /// Saves a map durably, in place of the one before.
    ///
    /// # Errors
    /// `Save`; the old one still exists.
    pub(super) fn save(&self, map: &ClusterMap) -> Result<(), ClusterError> {
        let json = String::from_utf8_lossy(&map.to_json()).into_owned();
        let map = RawValue::from_string(json).map_err(ClusterError::Damaged)?;
        let kept = SavedMap {
            node: self.node.clone(),
            map: &map,
        };
        let bytes = serde_json::to_vec(&kept).map_err(ClusterError::Damaged)?;
        replace_file(&*self.disk, &self.path, &bytes)
            .map_err(|error| ClusterError::Save(Box::new(error)))?;
        state_files::saved(&*self.disk, &self.path)
            .map_err(|error| ClusterError::Save(Box::new(error)))
    }
}

/// Returns whether a state file exists; one that is missing from the list is an error.
fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool, ClusterError> {
    state_files::is_there(disk, path).map_err(|error| match error {
        StateFileError::Disk(error) => ClusterError::Save(Box::new(error)),
        other => ClusterError::Missing(other.to_string()),
    })
}

/// Checks that a standalone server may use this directory: that of a cluster's node has copies of vBuckets that others
/// have written to since.
///
/// # Errors
/// `File` and `Missing`, with the remedy.
pub fn check_alone(disk: &dyn Disk, data_dir: &Path) -> Result<(), ClusterError> {
    if is_there(disk, &data_dir.join(MAP_FILE))? {
        return Err(ClusterError::File(format!(
            "{} belongs to a node of a cluster; give --cluster and --node-id",
            data_dir.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_cluster::{ClusterFile, ClusterFileNode};
    use kedge_disk::{DiskCall, DiskError, DiskObserver, Fault, ObservedDisk, Operation, SimDisk};
    use std::io;
    use std::sync::Mutex;

    fn cluster_file() -> ClusterFile {
        let node = ClusterFileNode {
            name: "a".to_owned(),
            host: "127.0.0.1".to_owned(),
            kv_port: 1,
            mgmt_port: 2,
            external: None,
        };
        ClusterFile {
            name: String::new(),
            replicas: 0,
            secret: "0123456789abcdef0123456789abcdef".to_owned(),
            nodes: vec![node],
        }
    }

    /// A node whose map got lost created a new cluster, or continued one that had gone on without it.
    #[test]
    fn missing_cluster_map_is_an_error_for_a_standalone_server_too() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let store = MapStore::new(disk.clone(), data_dir, "a");
        assert!(store.load().unwrap().is_none());
        store
            .save(&ClusterMap::new(&cluster_file(), 0, || [7; 16]))
            .unwrap();
        assert!(store.load().unwrap().is_some());
        let path = data_dir.join(MAP_FILE);
        disk.remove(&path).unwrap();
        for error in [
            store.load().map(drop).unwrap_err(),
            check_alone(&*disk, data_dir).unwrap_err(),
        ] {
            assert!(matches!(error, ClusterError::Missing(_)), "{error}");
            assert!(error.to_string().contains(MAP_FILE), "{error}");
        }
        disk.remove(&data_dir.join(state_files::FILES_LIST))
            .unwrap();
        assert!(store.load().unwrap().is_none());
    }

    /// Only a full disk was tested, and not each call.
    #[test]
    fn failed_save_keeps_the_previous_cluster_map() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let store = MapStore::new(disk.clone(), data_dir, "a");
        let mut map = ClusterMap::new(&cluster_file(), 0, || [7; 16]);
        store.save(&map).unwrap();
        let loaded = || store.load().unwrap().expect("a map").to_json();
        for operation in [
            Operation::Create,
            Operation::Write,
            Operation::Sync,
            Operation::Rename,
            Operation::SyncDir,
        ] {
            // Full, no descriptors, not allowed, read-only, device.
            for number in [28, 122, 24, 23, 13, 1, 30, 5] {
                let what = format!("{operation}, error number {number}");
                let before = loaded();
                map.revision.rev += 1;
                disk.fail_every(operation, Fault::Os(number));
                let refused = store.save(&map);
                assert!(matches!(refused, Err(ClusterError::Save(_))), "{what}");
                // A start needs none of these calls.
                let after = loaded();
                // The new file has its name when its directory is synced.
                let is_replaced = operation == Operation::SyncDir;
                assert_eq!(after != before, is_replaced, "{what}");
                disk.clear_faults();
                store.save(&map).unwrap();
                assert_eq!(loaded(), map.to_json(), "{what}");
            }
        }
    }

    /// The number of calls before the one that a disk refuses, and the error number.
    #[derive(Debug, Default)]
    struct RefusedCall(Mutex<Option<(u64, i32)>>);

    impl DiskObserver for RefusedCall {
        fn around<R>(
            &self,
            asked: &DiskCall<'_>,
            run: impl FnOnce() -> Result<R, DiskError>,
        ) -> Result<R, DiskError> {
            let mut left = self.0.lock().unwrap();
            match &mut *left {
                Some((0, number)) => {
                    let error = io::Error::from_raw_os_error(*number);
                    *left = None;
                    let path = asked.path.unwrap_or(Path::new("/data/an open file"));
                    Err(DiskError::new(asked.operation, path, error))
                }
                Some((calls, _)) => {
                    *calls -= 1;
                    run()
                }
                None => run(),
            }
        }
    }

    #[test]
    fn each_refused_call_of_reading_the_cluster_map_fails_the_start() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let map = ClusterMap::new(&cluster_file(), 0, || [7; 16]);
        let refusing = Arc::new(ObservedDisk::new(disk, Arc::new(RefusedCall::default())));
        let store = MapStore::new(refusing.clone(), data_dir, "a");
        store.save(&map).unwrap();
        // No descriptors, not allowed, read-only, device.
        for error in [24, 23, 13, 1, 30, 5] {
            for number in 0.. {
                *refusing.observer().0.lock().unwrap() = Some((number, error));
                let loaded = store.load();
                let unused = refusing.observer().0.lock().unwrap().take();
                if unused.is_some() {
                    assert!(number > 5, "it took {number} calls");
                    break;
                }
                let what = format!("call {number}, error number {error}");
                let refused = loaded.map(drop).expect_err(&what);
                assert!(matches!(refused, ClusterError::Save(_)), "{what}");
                assert!(refused.to_string().contains("/data/"), "{refused}");
                let again = store.load().unwrap().expect("a map");
                assert_eq!(again.to_json(), map.to_json(), "{what}");
            }
        }
    }
}
