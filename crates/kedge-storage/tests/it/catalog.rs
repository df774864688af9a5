//! Files that are missing or cut although the directory's catalog has them.
//!
//! A removed `N.couch.R` was served as an empty vBucket, and a file that was cut showed an older commit, without a word.

use kedge_disk::{Disk, SimDisk, read_file, replace_file};
use kedge_storage::{Storage, StorageError};
use kedge_types::VbId;

use crate::support::{
    VB, audit, catalog_path, contents, dir, documents, fill, names, open, path_of, state,
};

const OTHER: VbId = VbId(1);

/// Two files, the first of two commits; what the first was with one of them.
fn begun(disk: &SimDisk) -> Vec<u8> {
    let storage = open(disk).expect("open");
    fill(&storage, VB, 1..=3, 1);
    let first = read_file(disk, &path_of(disk, VB).expect("a file")).expect("read");
    fill(&storage, VB, 4..=6, 2);
    fill(&storage, OTHER, 1..=1, 2);
    first
}

/// Nothing of the vBucket is read or written, all of the other is, and the error is returned.
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

/// Gives the file up: the vBucket begins anew, now and after the next start.
fn give_up(disk: &SimDisk, storage: Storage, has_file: bool) {
    let put_away = storage.put_away(VB).expect("put away");
    assert_eq!(put_away.is_some(), has_file);
    // What says at the next start that what a log has of it is a history of its own.
    assert!(storage.given_up().expect("names").contains(&VB));
    assert!(storage.load(VB).expect("nothing").is_none());
    drop(storage);
    disk.crash(3);
    let storage = open(disk).expect("open");
    assert!(storage.load(VB).expect("nothing").is_none());
    fill(&storage, VB, 1..=2, 4);
    drop(storage);
    if let Some(put_away) = put_away {
        disk.remove(&put_away).expect("it is there");
    }
    let storage = open(disk).expect("open");
    assert_eq!(
        storage.load(VB).expect("sound").expect("a file").documents,
        2
    );
}

#[test]
fn a_file_that_is_missing_is_an_error_that_names_it_until_it_is_back_or_given_up() {
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
fn a_file_that_was_cut_or_is_an_older_copy_is_an_error_that_names_it() {
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
fn an_older_revision_does_not_take_the_place_of_a_missing_one() {
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
fn a_killed_process_has_noted_every_commit_and_a_loss_of_power_makes_no_file_wrong() {
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
fn a_directory_without_a_catalog_or_with_a_damaged_one_opens_and_has_one_then() {
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
fn what_was_renamed_by_hand_is_given_up_and_needs_no_trace_later() {
    let disk = SimDisk::new(6);
    begun(&disk);
    let put_away = dir().join("0.couch.1.damaged");
    disk.rename(&dir().join("0.couch.1"), &put_away)
        .expect("it is there");
    for _ in 0..2 {
        let storage = open(&disk).expect("open");
        assert!(storage.load(VB).expect("nothing").is_none());
    }
    disk.remove(&put_away).expect("it is there");
    let storage = open(&disk).expect("open");
    assert!(storage.load(VB).expect("nothing").is_none());
}

#[test]
fn a_directory_on_a_full_disk_opens_without_a_catalog() {
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
