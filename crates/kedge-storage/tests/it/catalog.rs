//! Missing or truncated files that the directory's catalog lists.
//!
//! A removed `N.couch.R` used to be served as an empty vBucket, and a truncated file showed an older commit, without an
//! error.

use kedge_disk::{Disk, SimDisk, read_file, replace_file};
use kedge_storage::{Storage, StorageError};
use kedge_types::VbId;

use crate::support::{
    VB, audit, catalog_path, contents, dir, documents, fill, names, open, path_of, state,
};

const OTHER: VbId = VbId(1);

/// Creates two files, the first with two commits. Returns the first one's bytes after one of them.
fn begun(disk: &SimDisk) -> Vec<u8> {
    let storage = open(disk).expect("open");
    fill(&storage, VB, 1..=3, 1);
    let first = read_file(disk, &path_of(disk, VB).expect("a file")).expect("read");
    fill(&storage, VB, 4..=6, 2);
    fill(&storage, OTHER, 1..=1, 2);
    first
}

/// Checks that nothing of the vBucket is read or written, and everything of the other is. Returns the error.
fn refused(storage: &Storage) -> StorageError {
    let items = documents(7..=7);
    let committed = storage.commit(VB, &items, &state(1, 7), 3).map(drop);
    for result in [
        committed,
        storage.view(VB).map(drop),
        storage.make_durable(VB),
    ] {
        let error = result.expect_err("its file is not what it was");
        assert!(error.is_damage() && error.is_unreadable(), "{error}");
        assert!(!error.is_fatal() && !error.is_no_space(), "{error}");
    }
    assert!(storage.load(OTHER).expect("sound").is_some());
    storage.load(VB).expect_err("its file is not what it was")
}

/// Gives the file up: the vBucket starts anew, now and after the next start.
fn give_up(disk: &SimDisk, storage: Storage, has_file: bool) {
    let quarantine = storage.quarantine(VB).expect("put away");
    assert_eq!(quarantine.is_some(), has_file);
    // It tells the next start that the log has a separate history of the vBucket.
    assert!(storage.quarantined().expect("names").contains(&VB));
    assert!(storage.load(VB).expect("nothing").is_none());
    drop(storage);
    disk.crash(3);
    let storage = open(disk).expect("open");
    assert!(storage.load(VB).expect("nothing").is_none());
    fill(&storage, VB, 1..=2, 4);
    drop(storage);
    if let Some(quarantine) = quarantine {
        disk.remove(&quarantine).expect("it is there");
    }
    let storage = open(disk).expect("open");
    assert_eq!(
        storage.load(VB).expect("sound").expect("a file").documents,
        2
    );
}

#[test]
fn missing_file_is_an_error_until_it_is_restored_or_quarantined() {
    for comes_back in [true, false] {
        let disk = SimDisk::new(1);
        begun(&disk);
        let path = path_of(&disk, VB).expect("a file");
        let bytes = read_file(&disk, &path).expect("read");
        disk.remove(&path).expect("it is there");
        for _ in 0..2 {
            let error = refused(&open(&disk).expect("open"));
            assert!(matches!(error, StorageError::Missing { .. }), "{error}");
            assert!(error.to_string().contains("0.couch.1"), "{error}");
        }
        let storage = open(&disk).expect("open");
        assert!(storage.remove(VB).is_err() && storage.delete(VB).is_err());
        assert!(storage.replace(VB, &state(2, 0), 3).is_err());
        if comes_back {
            drop(storage);
            replace_file(&disk, &path, &bytes).expect("write");
            let storage = open(&disk).expect("open");
            assert_eq!(
                storage.load(VB).expect("sound").expect("a file").documents,
                6
            );
        } else {
            give_up(&disk, storage, false);
        }
    }
}

#[test]
fn truncated_or_older_file_is_an_error() {
    for is_cut in [true, false] {
        let disk = SimDisk::new(2);
        let first = begun(&disk);
        let path = path_of(&disk, VB).expect("a file");
        if is_cut {
            let file = disk.open(&path).expect("open");
            file.set_len(first.len() as u64).expect("cut");
            file.sync_all().expect("sync");
        } else {
            replace_file(&disk, &path, &first).expect("write");
        }
        let storage = open(&disk).expect("open");
        let error = refused(&storage);
        assert!(matches!(error, StorageError::Behind { .. }), "{error}");
        assert!(error.to_string().contains("0.couch.1"), "{error}");
        give_up(&disk, storage, true);
    }
}

#[test]
fn older_revision_does_not_replace_a_missing_one() {
    let disk = SimDisk::new(3);
    begun(&disk);
    let old = path_of(&disk, VB).expect("a file");
    let bytes = read_file(&disk, &old).expect("read");
    let storage = open(&disk).expect("open");
    storage.replace(VB, &state(2, 0), 3).expect("replace");
    fill(&storage, VB, 1..=4, 4);
    drop(storage);
    disk.remove(&dir().join("0.couch.2")).expect("it is there");
    replace_file(&disk, &old, &bytes).expect("write");
    let storage = open(&disk).expect("open");
    let error = refused(&storage);
    assert!(error.to_string().contains("0.couch.2"), "{error}");
    give_up(&disk, storage, true);
    assert_eq!(names(&disk), ["0.couch.2", "1.couch.1"]);
}

#[test]
fn killed_process_loses_no_catalog_entry_and_power_loss_makes_no_file_wrong() {
    let disk = SimDisk::new(4);
    let first = begun(&disk);
    disk.kill_process();
    let cut = disk.fork();
    let path = path_of(&cut, VB).expect("a file");
    cut.open(&path)
        .and_then(|file| file.set_len(first.len() as u64))
        .expect("cut");
    refused(&open(&cut).expect("open"));
    for seed in 0..50 {
        let disk = disk.fork();
        disk.crash(seed);
        let storage = open(&disk).expect("open");
        assert!(contents(&storage, VB).expect("sound").is_some());
        audit(&disk, VB);
    }
}

#[test]
fn missing_or_damaged_catalog_is_rebuilt_at_open() {
    for damage in [true, false] {
        let disk = SimDisk::new(5);
        begun(&disk);
        if damage {
            disk.flip(&catalog_path(), 3, 0xff);
        } else {
            disk.remove(&catalog_path()).expect("it is there");
        }
        let storage = open(&disk).expect("open");
        assert_eq!(storage.was_catalog_damaged(), damage);
        assert_eq!(
            storage.load(VB).expect("sound").expect("a file").documents,
            6
        );
        drop(storage);
        let path = path_of(&disk, VB).expect("a file");
        disk.remove(&path).expect("it is there");
        let storage = open(&disk).expect("open");
        assert!(!storage.was_catalog_damaged());
        refused(&storage);
    }
}

#[test]
fn file_renamed_by_hand_is_quarantined() {
    let disk = SimDisk::new(6);
    begun(&disk);
    let quarantine = dir().join("0.couch.1.damaged");
    disk.rename(&dir().join("0.couch.1"), &quarantine)
        .expect("it is there");
    for _ in 0..2 {
        let storage = open(&disk).expect("open");
        assert!(storage.load(VB).expect("nothing").is_none());
    }
    disk.remove(&quarantine).expect("it is there");
    let storage = open(&disk).expect("open");
    assert!(storage.load(VB).expect("nothing").is_none());
}

#[test]
fn full_disk_opens_without_a_catalog() {
    let disk = SimDisk::new(7);
    begun(&disk);
    disk.remove(&catalog_path()).expect("it is there");
    disk.set_capacity(Some(disk.used_bytes()));
    let storage = open(&disk).expect("open");
    assert_eq!(
        storage.load(VB).expect("sound").expect("a file").documents,
        6
    );
    storage.remove(VB).expect("that takes no room");
    disk.set_capacity(None);
    fill(&storage, VB, 1..=2, 4);
}
