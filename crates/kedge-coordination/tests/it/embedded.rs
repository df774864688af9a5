//! Files of the embedded store, and its lock.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kedge_coordination::embedded::{Embedded, EmbeddedOptions};
use kedge_coordination::{CoordinationError, Coordinator, ReadAgain, Transaction, WatchEvent};
use kedge_disk::{Disk, SimDisk};

use crate::EmbeddedStore;
use crate::contract::{LONG, Store, put, value};

/// The files, which take turns.
const FILES: [&str; 2] = ["coordination-a", "coordination-b"];

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
    let [older, newer] = FILES.map(|name| store.path().join(name));
    let whole = fs::read(&newer).expect("the file exists");
    let mut flipped = whole.clone();
    flipped[90] ^= 1;
    for damaged in [&flipped[..], &whole[..90], &whole[..50], b""] {
        fs::write(&newer, damaged).expect("written");
        // It was not finished: the other one counts.
        assert_eq!(value(&*store.open(), "a"), None);
    }
    fs::write(&newer, &flipped).expect("written");
    fs::write(&older, &flipped).expect("written");
    let error = store.open().read(LONG).expect_err("both are damaged");
    assert!(matches!(error, CoordinationError::Damaged(_)), "{error}");
}

#[test]
fn state_of_usual_size_is_changed_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let options = EmbeddedOptions::default();
    let store = Embedded::open_on(Arc::new(disk.clone()), Path::new("/store"), options);
    let store = store.expect("opened");
    for n in 0..4 {
        put(&store, "a", &n.to_string());
    }
    let space = |disk: &SimDisk| FILES.map(|name| disk.len(&Path::new("/store").join(name)));
    let before = space(&disk).map(|len| len.expect("both files exist"));
    for n in 1..2_000 {
        put(&store, "a", &format!("{n:0100}"));
    }
    assert_eq!(
        space(&disk).map(|len| len.expect("both files exist")),
        before
    );
}

#[test]
fn a_store_that_was_replaced_under_a_watch_is_noticed() {
    let store = EmbeddedStore::new();
    let handle = store.open();
    put(&*handle, "a", "1");
    let files = FILES.map(|name| store.path().join(name));
    let backup = files
        .clone()
        .map(|path| fs::read(path).expect("the file exists"));
    let revision = put(&*handle, "a", "2");
    let mut watch = handle.watch(revision).expect("watched");
    assert_eq!(watch.next(Duration::ZERO).expect("watched"), None);
    for (path, bytes) in files.iter().zip(backup) {
        fs::write(path, bytes).expect("written");
    }
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
    let put = Transaction::new().put("a", "2");
    let error = store
        .transact(&put, Duration::from_millis(10))
        .expect_err("it is locked");
    assert!(
        matches!(error, CoordinationError::Unreachable(_)),
        "{error}"
    );
    assert!(value(&store, "a").is_some(), "reads need no lock");
    drop(lock);
    store.transact(&put, LONG).expect("it is not locked");
}
