//! The file of a node in its data directory: its identity, and the map that it follows.
//!
//! With it, a node that cannot reach the coordination store continues after a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_cluster::{ClusterError, ClusterMap, ClusterSecret};
use kedge_coordination::{Revision, StorePosition};
use kedge_disk::{Disk, read_file, replace_file};
use kedge_node::registry::ALONE_FILE;
use kedge_node::state_files::{self, StateFileError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The file in the data directory of a node of a cluster.
pub const MAP_FILE: &str = "cluster-map.json";
/// The version of the file.
const VERSION: u32 = 3;
/// The version without the list of created buckets.
const VERSION_WITHOUT_BUCKETS: u32 = 2;

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedFile<'a> {
    version: u32,
    node: String,
    uuid: String,
    secret: ClusterSecret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<SavedPosition>,
    #[serde(default)]
    created: BTreeSet<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    map: Option<&'a RawValue>,
}

/// The version of a file; the first one had no such field.
#[derive(Deserialize)]
struct SavedVersion {
    #[serde(default = "first_version")]
    version: u32,
}

const fn first_version() -> u32 {
    1
}

/// The newest seen position of the coordination store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPosition {
    /// The identity of the store, in hexadecimal digits.
    id: String,
    revision: u64,
}

impl From<StorePosition> for SavedPosition {
    fn from(position: StorePosition) -> Self {
        Self {
            id: format!("{:x}", position.store),
            revision: position.revision.0,
        }
    }
}

impl SavedPosition {
    fn position(&self) -> Option<StorePosition> {
        Some(StorePosition {
            store: u64::from_str_radix(&self.id, 16).ok()?,
            revision: Revision(self.revision),
        })
    }
}

/// The identity of a node, and its map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedNode {
    /// The node's uuid.
    pub(super) uuid: String,
    /// The secret with which nodes log in to each other.
    pub(super) secret: ClusterSecret,
    /// The newest position of the coordination store that the node has seen.
    pub(super) seen: Option<StorePosition>,
    /// The uuids of the buckets of the map that the node has created: one that is missing got lost.
    pub(super) created: BTreeSet<String>,
    /// The followed map; `None` before the node is a member.
    pub(super) map: Option<ClusterMap>,
}

/// The file of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The file of a standalone node.
    alone: PathBuf,
    node: String,
}

impl NodeFile {
    pub(super) fn new(disk: Arc<dyn Disk>, data_dir: &Path, node: &str) -> Self {
        Self {
            disk,
            path: data_dir.join(MAP_FILE),
            alone: data_dir.join(ALONE_FILE),
            node: node.to_owned(),
        }
    }

    /// Returns the data directory.
    pub(super) fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Loads the file; `None` in an empty directory.
    ///
    /// # Errors
    /// `Membership` when the directory belongs to another node, or to a standalone one; `Missing`, `Damaged`,
    /// `Version`, `Map`; `Save` when the file cannot be read.
    pub(super) fn load(&self) -> Result<Option<SavedNode>, ClusterError> {
        let io = |error: kedge_disk::DiskError| ClusterError::Save(Box::new(error));
        let dir = || self.dir().display();
        if is_there(&*self.disk, &self.alone)? {
            return Err(ClusterError::Membership(format!(
                "{} belongs to a server that ran alone; a node of a cluster begins with an empty directory",
                dir()
            )));
        }
        if !is_there(&*self.disk, &self.path)? {
            return Ok(None);
        }
        let bytes = read_file(&*self.disk, &self.path).map_err(io)?;
        let SavedVersion { version } =
            serde_json::from_slice(&bytes).map_err(ClusterError::Damaged)?;
        if ![VERSION_WITHOUT_BUCKETS, VERSION].contains(&version) {
            return Err(ClusterError::Version {
                found: version,
                supported: VERSION,
            });
        }
        let saved: SavedFile<'_> = serde_json::from_slice(&bytes).map_err(ClusterError::Damaged)?;
        if saved.node != self.node {
            let (owner, me) = (saved.node, &self.node);
            return Err(ClusterError::Membership(format!(
                "{} belongs to node \"{owner}\", and this is \"{me}\"",
                dir()
            )));
        }
        let map = saved
            .map
            .map(|map| ClusterMap::from_json(map.get().as_bytes()));
        let map = map.transpose()?;
        let created = match version {
            VERSION_WITHOUT_BUCKETS => map.iter().flat_map(bucket_uuids).collect(),
            _ => saved.created,
        };
        Ok(Some(SavedNode {
            uuid: saved.uuid,
            secret: saved.secret,
            seen: saved.store.and_then(|store| store.position()),
            created,
            map,
        }))
    }

    /// Saves the file durably, in place of the one before.
    ///
    /// # Errors
    /// `Save`; the old one still exists.
    pub(super) fn save(&self, saved: &SavedNode) -> Result<(), ClusterError> {
        let raw = |map: &ClusterMap| {
            let json = String::from_utf8_lossy(&map.to_json()).into_owned();
            RawValue::from_string(json).map_err(ClusterError::Damaged)
        };
        let map = saved.map.as_ref().map(raw).transpose()?;
        let file = SavedFile {
            version: VERSION,
            node: self.node.clone(),
            uuid: saved.uuid.clone(),
            secret: saved.secret.clone(),
            store: saved.seen.map(SavedPosition::from),
            created: saved.created.clone(),
            map: map.as_deref(),
        };
        let bytes = serde_json::to_vec(&file).map_err(ClusterError::Damaged)?;
        replace_file(&*self.disk, &self.path, &bytes)
            .map_err(|error| ClusterError::Save(Box::new(error)))?;
        state_files::saved(&*self.disk, &self.path)
            .map_err(|error| ClusterError::Save(Box::new(error)))
    }
}

/// Returns the uuids of the buckets of a map.
fn bucket_uuids(map: &ClusterMap) -> impl Iterator<Item = String> {
    let uuids = map.buckets.iter().filter_map(|bucket| bucket.uuid());
    uuids.map(str::to_owned)
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
        return Err(ClusterError::Membership(format!(
            "{} belongs to a node of a cluster; give --coordinator and --node-name",
            data_dir.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::{DiskCall, DiskError, DiskObserver, Fault, ObservedDisk, Operation, SimDisk};
    use std::io;
    use std::sync::Mutex;

    fn saved() -> SavedNode {
        SavedNode {
            uuid: "00".repeat(16),
            secret: ClusterSecret::new([1; 24]),
            seen: Some(StorePosition {
                store: u64::MAX,
                revision: Revision(7),
            }),
            created: BTreeSet::new(),
            map: Some(crate::cluster::testing::map(&["a"])),
        }
    }

    #[test]
    fn file_of_another_node_or_version_is_refused() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let store = NodeFile::new(disk.clone(), data_dir, "a");
        let waiting = SavedNode {
            map: None,
            seen: None,
            ..saved()
        };
        store.save(&waiting).unwrap();
        assert_eq!(store.load().unwrap(), Some(waiting));
        let other = NodeFile::new(disk.clone(), data_dir, "b");
        let error = other.load().unwrap_err().to_string();
        assert!(error.contains("belongs to node \"a\""), "{error}");
        let first = br#"{"node":"a","map":{}}"#;
        replace_file(&*disk, &data_dir.join(MAP_FILE), first).unwrap();
        let error = store.load().unwrap_err();
        let is_first = matches!(error, ClusterError::Version { found: 1, .. });
        assert!(is_first, "{error}");
    }

    #[test]
    fn buckets_of_a_file_without_a_list_count_as_created() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let store = NodeFile::new(disk.clone(), data_dir, "a");
        let mut node = saved();
        let map = node.map.as_mut().expect("a map");
        let settings = serde_json::json!({ "uuid": "1" });
        map.add_bucket("bucket", settings, 4, 0).unwrap();
        store.save(&node).unwrap();
        assert_eq!(store.load().unwrap().expect("a node"), node);
        let path = data_dir.join(MAP_FILE);
        let text = String::from_utf8(read_file(&*disk, &path).unwrap()).unwrap();
        let second =
            text.replacen("\"version\":3", "\"version\":2", 1)
                .replacen("\"created\":[],", "", 1);
        assert!(second.len() < text.len(), "{text}");
        replace_file(&*disk, &path, second.as_bytes()).unwrap();
        node.created.insert("1".to_owned());
        assert_eq!(store.load().unwrap().expect("a node"), node);
    }

    /// A node whose map got lost created a new cluster, or continued one that had gone on without it.
    #[test]
    fn missing_cluster_map_is_an_error_for_a_standalone_server_too() {
        let (disk, data_dir) = (Arc::new(SimDisk::new(1)), Path::new("/data"));
        disk.create_dir_all(data_dir).unwrap();
        let store = NodeFile::new(disk.clone(), data_dir, "a");
        assert!(store.load().unwrap().is_none());
        let node = saved();
        store.save(&node).unwrap();
        assert_eq!(store.load().unwrap(), Some(node));
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
        let store = NodeFile::new(disk.clone(), data_dir, "a");
        let mut node = saved();
        store.save(&node).unwrap();
        let loaded = || store.load().unwrap().expect("a node");
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
                node.map.as_mut().expect("a map").revision.rev += 1;
                disk.fail_every(operation, Fault::Os(number));
                let refused = store.save(&node);
                assert!(matches!(refused, Err(ClusterError::Save(_))), "{what}");
                // A start needs none of these calls.
                let after = loaded();
                // The new file has its name when its directory is synced.
                let is_replaced = operation == Operation::SyncDir;
                assert_eq!(after != before, is_replaced, "{what}");
                disk.clear_faults();
                store.save(&node).unwrap();
                assert_eq!(loaded(), node, "{what}");
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
        let node = saved();
        let refusing = Arc::new(ObservedDisk::new(disk, Arc::new(RefusedCall::default())));
        let store = NodeFile::new(refusing.clone(), data_dir, "a");
        store.save(&node).unwrap();
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
                let again = store.load().unwrap().expect("a node");
                assert_eq!(again, node, "{what}");
            }
        }
    }
}
