//! Starts of the buckets of a data directory, of which one disk call is refused: the table "A start" of
//! `docs/reference/io-errors.md`. The calls of each bucket are tested beside its code.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use kedge_bucket::{BucketConfig, DROPPING_FILE};
use kedge_disk::{Disk, DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, SimDisk};
use kedge_executor::Executor;

use crate::management_files::is_full;
use crate::registry::open_on;
use crate::registry_crash::{FULL, check_documents, data_dir, dir_of, disk_with_documents};
use crate::server::{FEW_THREADS, Kedge, Setup};

/// The error numbers of all classes: full (2), no descriptors, not allowed (2), device.
const ERRORS: [i32; 6] = [28, 122, 24, 13, 30, 5];
/// A directory with unknown files.
const UNKNOWN: &str = "unknown";

/// A disk that refuses one call of the thread that opens the buckets. The tasks of the buckets go on.
#[derive(Debug)]
struct RefusedCall {
    thread: ThreadId,
    error: i32,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// The number of calls before the one that is refused.
    left: u64,
    last_opened: PathBuf,
    refused: Option<(Operation, PathBuf)>,
}

impl RefusedCall {
    /// Returns the error if this call is to be refused.
    fn refuse(&self, asked: &DiskCall<'_>) -> Option<DiskError> {
        if thread::current().id() != self.thread {
            return None;
        }
        let mut calls = self.calls.lock().unwrap();
        if let Some(path) = asked.path
            && matches!(asked.operation, Operation::Open | Operation::Create)
        {
            path.clone_into(&mut calls.last_opened);
        }
        if calls.refused.is_some() {
            return None;
        }
        if calls.left > 0 {
            calls.left -= 1;
            return None;
        }
        let path = asked.path.unwrap_or(&calls.last_opened).to_owned();
        let error = io::Error::from_raw_os_error(self.error);
        let error = DiskError::new(asked.operation, &path, error);
        calls.refused = Some((asked.operation, path));
        Some(error)
    }
}

impl DiskObserver for RefusedCall {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        match self.refuse(asked) {
            Some(error) => Err(error),
            None => run(),
        }
    }
}

/// A data directory with a bucket, and the remainders of an interrupted creation, change and drop.
fn disk_with_remainders() -> SimDisk {
    let disk = disk_with_documents();
    for (name, file) in [
        ("creating", "creating"),
        ("dropping", DROPPING_FILE),
        (UNKNOWN, "bucket.json.copy"),
    ] {
        let dir = dir_of(name);
        disk.create_dir_all(&dir).unwrap();
        for file in [file, "0.couch.1"] {
            disk.create(&dir.join(file)).unwrap();
        }
        disk.sync_dir(&dir).unwrap();
    }
    let dir = dir_of(FULL);
    disk.create(&dir.join("creating")).unwrap();
    disk.remove(&dir.join("bucket.json.copy")).unwrap();
    disk.sync_dir(&dir).unwrap();
    disk
}

/// Returns whether the start continues according to the documented table; `None` for calls that need no space.
fn continues(operation: Operation, path: &Path, error: i32) -> Option<bool> {
    let is_replaced = path.extension().is_some_and(|it| it == "tmp");
    // It only selects the words of a message.
    let is_hint = path == dir_of(UNKNOWN).join("bucket.json.copy");
    match operation {
        Operation::Sync | Operation::SyncDir | Operation::CreateDir => Some(false),
        Operation::Stat if is_hint => Some(true),
        // A path that cannot be listed is removed as a file.
        Operation::List if path.ends_with("0.couch.1") => Some(true),
        Operation::Create | Operation::Write | Operation::Rename => {
            Some(is_full(error) && is_replaced)
        }
        _ => (!is_full(error)).then_some(false),
    }
}

/// Starts with a call that is refused. Returns false if a start makes fewer calls.
fn start(before: &SimDisk, has_bucket: bool, error: i32, number: u64) -> bool {
    let disk = before.fork();
    let refused = RefusedCall {
        thread: thread::current().id(),
        error,
        calls: Mutex::new(Calls {
            left: number,
            ..Calls::default()
        }),
    };
    let refusing = Arc::new(ObservedDisk::new(Arc::new(disk.clone()), Arc::new(refused)));
    let executor = Executor::new(FEW_THREADS).unwrap();
    let started = open_on(&executor, refusing.clone(), data_dir(), |_| ());
    let refused = refusing.observer().calls.lock().unwrap().refused.take();
    let Some((operation, path)) = refused else {
        started.unwrap().shutdown();
        executor.shutdown();
        return false;
    };
    let what = format!("{operation} {}, error number {error}", path.display());
    if let Some(expected) = continues(operation, &path, error) {
        let why = started.as_ref().err();
        assert_eq!(started.is_ok(), expected, "{what}: {why:?}");
    }
    match started {
        Ok(registry) => {
            if has_bucket {
                check_documents(&registry, FULL);
            }
            registry.shutdown();
        }
        Err(error) => {
            let path = path.display().to_string();
            assert!(error.to_string().contains(&path), "{what}: {error}");
        }
    }
    let after = disk.fork();
    executor.shutdown();
    if number.is_multiple_of(2) {
        after.kill_process();
    } else {
        after.crash(number);
    }
    let executor = Executor::new(FEW_THREADS).unwrap();
    let registry = open_on(&executor, Arc::new(after.clone()), data_dir(), |_| ())
        .unwrap_or_else(|error| panic!("{what}: the next start: {error}"));
    if has_bucket {
        check_documents(&registry, FULL);
        let unserved = registry.unserved().unwrap();
        let unserved: Vec<&str> = unserved.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(unserved, [UNKNOWN], "{what}");
        let files = after.list(&dir_of(UNKNOWN)).unwrap();
        assert_eq!(files, ["0.couch.1", "bucket.json.copy"], "{what}");
    }
    registry.shutdown();
    executor.shutdown();
    true
}

/// The creation of directories and the removal of remainders were not tested, and only a full disk for each call.
#[test]
fn each_refused_call_of_a_start_has_its_documented_outcome() {
    let empty = SimDisk::new(1);
    empty.create_dir_all(data_dir()).unwrap();
    for (before, has_bucket, at_least) in [(empty, false, 10), (disk_with_remainders(), true, 40)] {
        for error in ERRORS {
            let starts = (0..).take_while(|number| start(&before, has_bucket, error, *number));
            let count = starts.count();
            assert!(count >= at_least, "it took {count} calls");
        }
    }
}

/// A disk that refuses one kind of call about a path.
#[derive(Debug)]
struct RefusedPath {
    operation: Operation,
    path: PathBuf,
    error: i32,
}

impl DiskObserver for RefusedPath {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        if asked.operation != self.operation || asked.path != Some(&self.path) {
            return run();
        }
        let error = io::Error::from_raw_os_error(self.error);
        Err(DiskError::new(asked.operation, &self.path, error))
    }
}

fn setup(disk: Arc<dyn Disk>, bucket: &str) -> Setup {
    Setup {
        disk,
        bucket: BucketConfig::new(bucket, 4, 64 << 20),
        ..Setup::default()
    }
}

#[test]
fn bucket_of_a_first_start_is_left_out_on_a_full_disk_only() {
    let before = SimDisk::new(1);
    drop(Kedge::with(setup(Arc::new(before.clone()), "other")));
    let dir = dir_of("new");
    for (operation, path) in [
        (Operation::CreateDir, dir.clone()),
        (Operation::Create, dir.join("creating")),
        (Operation::Create, dir.join("bucket.json.tmp")),
        (Operation::Rename, dir.join("bucket.json.tmp")),
    ] {
        for error in ERRORS {
            let what = format!("{operation} {}, error number {error}", path.display());
            let disk = before.fork();
            let refused = RefusedPath {
                operation,
                path: path.clone(),
                error,
            };
            let refusing = ObservedDisk::new(Arc::new(disk.clone()), Arc::new(refused));
            match Kedge::try_begin(setup(Arc::new(refusing), "new")) {
                Ok(kedge) => {
                    assert!(is_full(error), "{what}");
                    kedge.server().wait_loaded().unwrap();
                    let names = kedge.server().registry().list();
                    let names: Vec<&str> = names.iter().map(|it| it.name()).collect();
                    assert_eq!(names, ["other"], "{what}");
                }
                Err(why) => {
                    assert!(!is_full(error), "{what}: {why}");
                    let path = path.display().to_string();
                    assert!(why.to_string().contains(&path), "{what}: {why}");
                }
            }
            disk.crash(1);
            let kedge = Kedge::with(setup(Arc::new(disk), "new"));
            let names = kedge.server().registry().list();
            let names: Vec<&str> = names.iter().map(|it| it.name()).collect();
            assert_eq!(names, ["new", "other"], "{what}");
        }
    }
}
