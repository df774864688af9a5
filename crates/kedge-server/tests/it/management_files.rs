//! The outcome of each refused call when a management file is replaced: the sections "Management" and "A start" of
//! `docs/reference/io-errors.md`. `cluster-map.json` is tested beside the code that stores it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use kedge_auth::{Privileges, Roles, UserChange};
use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::ManifestEdit;
use kedge_disk::{
    Disk, DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, SimDisk, read_file,
};
use kedge_node::registry::{BucketRegistry, change_stored, stored_config};
use kedge_node::users::Users;

use crate::registry::open;

/// The calls that replace a file.
const CALLS: [Operation; 5] = [
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::SyncDir,
];
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// The error numbers: full, no descriptors, not allowed, device.
const ERRORS: [i32; 8] = [ENOSPC, EDQUOT, 24, 23, 13, 1, 30, 5];
const DATA: &str = "/data";

/// The calls of one thread that a disk refuses. The tasks of a bucket go on.
#[derive(Debug, Default)]
struct Refused {
    call: Mutex<Option<(ThreadId, Operation, i32)>>,
    count: AtomicU64,
}

impl DiskObserver for Refused {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let refused = *self.call.lock().unwrap();
        match refused {
            Some((thread, operation, error))
                if operation == asked.operation && thread == thread::current().id() =>
            {
                self.count.fetch_add(1, Ordering::SeqCst);
                let path = asked.path.unwrap_or(Path::new("an open file"));
                let error = io::Error::from_raw_os_error(error);
                Err(DiskError::new(operation, path, error))
            }
            _ => run(),
        }
    }
}

impl Refused {
    fn begin(&self, operation: Operation, error: i32) {
        *self.call.lock().unwrap() = Some((thread::current().id(), operation, error));
        self.count.store(0, Ordering::SeqCst);
    }

    fn end(&self) -> u64 {
        *self.call.lock().unwrap() = None;
        self.count.load(Ordering::SeqCst)
    }
}

fn new_disk() -> (SimDisk, Arc<ObservedDisk<Refused>>) {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new(DATA)).unwrap();
    let refusing = ObservedDisk::new(Arc::new(disk.clone()), Arc::default());
    (disk, Arc::new(refusing))
}

/// A state that is stored in a file.
trait Stored {
    /// Makes the `n`th change.
    fn change(&self, n: u32) -> Result<(), String>;
    /// The state in memory.
    fn state(&self) -> String;
    fn close(&self) {}
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct StoredUsers(Users);

impl StoredUsers {
    fn open(disk: Arc<dyn Disk>) -> Box<dyn Stored> {
        let users = Users::open(disk, Path::new(DATA).join("users.json")).unwrap();
        if !users.read().exists("ada") {
            users
                .change(|store| {
                    store.set_iterations(kedge_auth::ITERATIONS_MIN)?;
                    store.add("ada", "lovelace", Roles::admin(), 1)
                })
                .unwrap();
        }
        Box::new(Self(users))
    }
}

impl Stored for StoredUsers {
    fn change(&self, n: u32) -> Result<(), String> {
        let change = UserChange {
            name: Some(n.to_string()),
            ..UserChange::default()
        };
        let changed = self
            .0
            .change(|store| store.set_user("ada", &change, Privileges::ALL, 2));
        changed.map_err(text)
    }

    fn state(&self) -> String {
        self.0.read().to_json()
    }
}

fn registry(disk: Arc<dyn Disk>) -> BucketRegistry {
    let registry = open(disk, Path::new(DATA)).unwrap();
    if registry.get("b").is_none() {
        registry
            .create(BucketConfig::new("b", 4, 64 << 20))
            .unwrap();
    }
    registry
}

struct ClusterName(BucketRegistry);

impl Stored for ClusterName {
    fn change(&self, n: u32) -> Result<(), String> {
        let renamed = self.0.cluster().set_cluster_name(&n.to_string());
        renamed.map(drop).map_err(text)
    }

    fn state(&self) -> String {
        self.0.cluster().snapshot().state().cluster_name.clone()
    }

    fn close(&self) {
        self.0.shutdown();
    }
}

struct Quota(BucketRegistry);

fn quota(n: u32) -> BucketChange {
    BucketChange {
        quota_bytes: Some(u64::from(100 + n) << 20),
        ..BucketChange::default()
    }
}

impl Stored for Quota {
    fn change(&self, n: u32) -> Result<(), String> {
        self.0.update("b", &quota(n)).map_err(text)
    }

    fn state(&self) -> String {
        let bucket = self.0.get("b").unwrap();
        bucket.config().quota_bytes.to_string()
    }

    fn close(&self) {
        self.0.shutdown();
    }
}

struct Collections(BucketRegistry);

impl Stored for Collections {
    fn change(&self, n: u32) -> Result<(), String> {
        let create = ManifestEdit::CreateCollection {
            scope: "_default".to_owned(),
            collection: n.to_string(),
            max_ttl: None,
        };
        let edited = self.0.edit_manifest("b", &create);
        edited.map(drop).map_err(text)
    }

    fn state(&self) -> String {
        format!("{:?}", self.0.manifest("b").unwrap())
    }

    fn close(&self) {
        self.0.shutdown();
    }
}

type Open = fn(Arc<dyn Disk>) -> Box<dyn Stored>;

/// Each file below the data directory, and whether a change that is not saved holds until the next start.
const FILES: [(&str, bool, Open); 4] = [
    ("users.json", false, StoredUsers::open),
    ("cluster.json", false, |disk| {
        Box::new(ClusterName(registry(disk)))
    }),
    ("buckets/b/bucket.json", true, |disk| {
        Box::new(Quota(registry(disk)))
    }),
    ("buckets/b/manifest.json", false, |disk| {
        Box::new(Collections(registry(disk)))
    }),
];

/// Only a full disk was tested, and not each call.
#[test]
fn refused_call_refuses_the_change_of_a_management_file() {
    for (name, holds, open) in FILES {
        let (disk, refusing) = new_disk();
        let file = Path::new(DATA).join(name);
        let stored = open(refusing.clone());
        let mut n = 0;
        let mut change = || {
            n += 1;
            stored.change(n)
        };
        change().unwrap();
        for call in CALLS {
            for error in ERRORS {
                let what = format!("{name}: {call}, error number {error}");
                let before = (stored.state(), read_file(&disk, &file).unwrap());
                refusing.observer().begin(call, error);
                let refused = change();
                assert!(refusing.observer().end() > 0, "{what}: it was not called");
                assert!(refused.is_err(), "{what}");
                let after = (stored.state(), read_file(&disk, &file).unwrap());
                assert_eq!(before.0 != after.0, holds, "{what}: the state");
                // The new file has its name when its directory is synced.
                let is_replaced = call == Operation::SyncDir;
                assert_eq!(before.1 != after.1, is_replaced, "{what}: the file");
                change().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(!disk.exists(&temporary(&file)).unwrap(), "{what}");
            }
        }
        let last = stored.state();
        stored.close();
        drop(stored);
        disk.crash(1);
        let again = open(Arc::new(disk));
        assert_eq!(again.state(), last, "{name}");
        again.close();
    }
}

fn temporary(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

pub(crate) fn is_full(error: i32) -> bool {
    [ENOSPC, EDQUOT].contains(&error)
}

/// A full disk does not prevent a start, any other refused call does.
#[test]
fn start_continues_on_a_full_disk_only() {
    for call in CALLS {
        for error in ERRORS {
            let what = format!("{call}, error number {error}");
            // A failed sync leaves an unknown state.
            let is_sync = matches!(call, Operation::Sync | Operation::SyncDir);
            let continues = is_full(error) && !is_sync;
            let (disk, refusing) = new_disk();
            let refused = refusing.observer();

            StoredUsers::open(refusing.clone());
            let users = Users::open(refusing.clone(), Path::new(DATA).join("users.json")).unwrap();
            refused.begin(call, error);
            let changed = users.change_at_start(|store| store.set_password("ada", "byron", 2));
            assert!(refused.end() > 0, "{what}");
            assert_eq!(changed.is_ok(), continues, "{what}: users.json");
            assert_eq!(
                users.read().verify_password("ada", b"byron"),
                continues,
                "{what}"
            );

            registry(refusing.clone()).shutdown();
            let is = stored_config(&disk, Path::new(DATA), "b").unwrap().unwrap();
            refused.begin(call, error);
            let changed = change_stored(&*refusing, Path::new(DATA), &is, &quota(7));
            assert!(refused.end() > 0, "{what}");
            let changed = changed.expect_err(&what);
            assert_eq!(changed.is_no_space(), continues, "{what}: bucket.json");

            refused.begin(call, error);
            let started = open(refusing.clone(), Path::new(DATA));
            assert!(refused.end() > 0, "{what}");
            match started {
                Ok(registry) => {
                    assert!(continues, "{what}: cluster.json");
                    assert!(registry.get("b").is_some(), "{what}");
                    registry.shutdown();
                }
                Err(error) => assert!(!continues, "{what}: {error}"),
            }
        }
    }
}
