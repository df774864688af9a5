//! Files of the embedded store, and its lock.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kedge_coordination::embedded::{Embedded, EmbeddedOptions};
use kedge_coordination::{CoordinationError, Coordinator, ReadAgain, WatchEvent};
use kedge_disk::{Disk, SimDisk};

use crate::EmbeddedStore;
use crate::contract::{LONG, Store, put, value};

#[test]
fn nobody_else_can_read_the_files() {
    let store = EmbeddedStore::new();
    let dir = store.path().join("new");
    let opened = Embedded::open(&dir, EmbeddedOptions::default());
    put(&opened.expect("the directory can be made"), "a", "1");
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).expect("a directory") {
        let path = file.expect("a file").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_damaged_file_is_an_error_that_says_so() {
    let store = EmbeddedStore::new();
    put(&*store.open(), "a", "1");
    let path = store.path().join("coordination");
    let whole = fs::read(&path).expect("the file exists");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("it has bytes") ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], &whole[..50], b""] {
        fs::write(&path, damaged).expect("written");
        let error = store.open().read(LONG).expect_err("the file is damaged");
        assert!(matches!(error, CoordinationError::Damaged(_)), "{error}");
    }
}

#[test]
fn a_store_that_was_replaced_under_a_watch_is_noticed() {
    let store = EmbeddedStore::new();
    let handle = store.open();
    let path = store.path().join("coordination");
    put(&*handle, "a", "1");
    let backup = fs::read(&path).expect("the file exists");
    let revision = put(&*handle, "a", "2");
    let mut watch = handle.watch(revision).expect("watched");
    assert_eq!(watch.next(Duration::ZERO).expect("watched"), None);
    fs::write(&path, backup).expect("written");
    let event = watch.next(LONG).expect("watched");
    assert_eq!(event, Some(WatchEvent::ReadAgain(ReadAgain::WentBackwards)));
    let error = handle
        .read(LONG)
        .expect_err("it is older than what was seen");
    assert!(
        matches!(error, CoordinationError::WentBackwards { .. }),
        "{error}"
    );
}

#[test]
fn a_lock_that_another_holds_is_waited_for_until_the_timeout() {
    let disk = SimDisk::new(1);
    let dir = Path::new("/store");
    let options = EmbeddedOptions::default();
    let store = Embedded::open_on(Arc::new(disk.clone()), dir, options).expect("opened");
    put(&store, "a", "1");
    let lock = disk.lock_dir(dir).expect("nobody has it");
    let error = store
        .read(Duration::from_millis(10))
        .expect_err("it is locked");
    assert!(
        matches!(error, CoordinationError::Unreachable(_)),
        "{error}"
    );
    drop(lock);
    assert!(value(&store, "a").is_some());
}
