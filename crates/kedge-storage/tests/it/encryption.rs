//! Encrypted files: keys of new files, compaction with another key, missing keys, keys that nothing needs.

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, Fault, SimDisk, read_file};
use kedge_encryption::{KEYRING_FILE, Keyring, LocalMasterKey, MasterKeys, Secret};
use kedge_storage::{EncryptedFiles, FileEncryption, Storage, StorageConfig, StorageError};
use kedge_types::VbId;

use crate::support::{VB, config, contents, dir, documents, open, open_with, state};
use crate::upkeep::{Hooks, keep_all, names};

fn keyring(disk: &SimDisk) -> Arc<Keyring> {
    disk.create_dir_all(dir()).expect("a directory");
    let master = LocalMasterKey::new(Secret::new([7; 32]));
    let masters = MasterKeys::new(Arc::new(master));
    let path = dir().join(KEYRING_FILE);
    let keyring = Keyring::open(Arc::new(disk.clone()), &path, &masters).expect("a keyring");
    Arc::new(keyring)
}

fn open_encrypted(disk: &SimDisk, keyring: &Arc<Keyring>) -> Storage {
    let config = StorageConfig {
        keyring: Some(Arc::clone(keyring)),
        ..config(4)
    };
    open_with(disk, &config).expect("open")
}

fn commit(storage: &Storage, vb: VbId, from: u64, to: u64) {
    let state = state(1, to);
    storage
        .commit(vb, &documents(from..=to), &state, 1)
        .expect("commit");
}

fn compact(storage: &Storage, vb: VbId) {
    let compacted = storage.compact(vb, &keep_all(), &mut Hooks::default());
    compacted.expect("compacted").expect("a file");
}

fn count(storage: &Storage, vb: VbId) -> usize {
    contents(storage, vb)
        .expect("a scan")
        .expect("a file")
        .len()
}

fn active(keyring: &Keyring) -> String {
    keyring.keys().active().expect("a key").id().to_owned()
}

/// Returns the files of vBuckets that have a part of a document in plain text.
fn plain_files(disk: &SimDisk) -> Vec<String> {
    let mut names = names(disk);
    names.retain(|name| {
        let bytes = read_file(disk, &dir().join(name)).expect("read");
        let has = |word: &[u8]| bytes.windows(word.len()).any(|it| it == word);
        has(b"value ") || has(b"key-0") || has(b"_local")
    });
    names
}

const fn files(encrypted: u64, plain: u64, replaced: u64) -> EncryptedFiles {
    EncryptedFiles {
        encrypted,
        plain,
        replaced,
    }
}

#[test]
fn files_of_an_encrypted_bucket_have_no_plain_text() {
    let disk = SimDisk::new(1);
    let keyring = keyring(&disk);
    keyring.enable(1).expect("enabled");
    let storage = open_encrypted(&disk, &keyring);
    commit(&storage, VB, 1, 300);
    commit(&storage, VB, 301, 400);
    assert_eq!(plain_files(&disk), [""; 0]);
    compact(&storage, VB);
    commit(&storage, VB, 401, 500);
    storage.replace(VbId(1), &state(2, 0), 1).expect("replaced");
    assert_eq!(plain_files(&disk), [""; 0]);
    assert_eq!(FileEncryption::of(&storage).counts(), files(2, 0, 0));
    drop(storage);
    disk.crash(3);
    let storage = open_encrypted(&disk, &keyring);
    assert_eq!(count(&storage, VB), 500);
}

#[test]
fn compaction_moves_a_file_to_the_active_key_and_to_none() {
    let disk = SimDisk::new(1);
    let keyring = keyring(&disk);
    let storage = open_encrypted(&disk, &keyring);
    commit(&storage, VB, 1, 200);
    assert!(!FileEncryption::of(&storage).is_of_another_key(VB));
    keyring.enable(1).expect("enabled");
    assert!(FileEncryption::of(&storage).is_of_another_key(VB));
    // Until a compaction it keeps its form.
    commit(&storage, VB, 201, 210);
    assert_eq!(FileEncryption::of(&storage).counts(), files(0, 1, 1));
    compact(&storage, VB);
    assert_eq!(FileEncryption::of(&storage).counts(), files(1, 0, 0));
    assert_eq!(plain_files(&disk), [""; 0]);

    let first = active(&keyring);
    keyring.rotate(2, false).expect("rotated");
    assert!(
        !FileEncryption::of(&storage).is_of_another_key(VB),
        "the key may stay"
    );
    keyring.rotate(3, true).expect("rotated");
    assert!(FileEncryption::of(&storage).is_of_another_key(VB));
    compact(&storage, VB);
    assert_eq!(
        FileEncryption::of(&storage)
            .vbucket_keys()
            .into_iter()
            .collect::<Vec<_>>(),
        [Some(active(&keyring))]
    );
    let bytes = read_file(&disk, &dir().join(&names(&disk)[1])).expect("read");
    assert!(!bytes.windows(first.len()).any(|it| it == first.as_bytes()));

    keyring.disable().expect("disabled");
    compact(&storage, VB);
    assert_eq!(FileEncryption::of(&storage).counts(), files(0, 1, 0));
    assert_eq!(count(&storage, VB), 210);
}

#[test]
fn file_whose_key_is_missing_is_a_clear_error_and_stays() {
    let disk = SimDisk::new(1);
    let keyring = keyring(&disk);
    keyring.enable(1).expect("enabled");
    let storage = open_encrypted(&disk, &keyring);
    commit(&storage, VB, 1, 10);
    drop(storage);
    let before = names(&disk);
    let error = open(&disk).expect("open").load(VB).expect_err("no keys");
    let StorageError::KeyMissing { key_id, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*key_id, active(&keyring));
    assert!(
        !error.is_damage() && !error.is_unreadable(),
        "it is not quarantined"
    );
    assert!(error.to_string().contains(KEYRING_FILE), "{error}");
    assert_eq!(names(&disk), before);
    assert_eq!(count(&open_encrypted(&disk, &keyring), VB), 10);
}

#[test]
fn keys_of_quarantined_and_incomplete_files_are_in_use() {
    let disk = SimDisk::new(1);
    let keyring = keyring(&disk);
    keyring.enable(1).expect("enabled");
    let storage = open_encrypted(&disk, &keyring);
    commit(&storage, VB, 1, 10);
    commit(&storage, VbId(1), 1, 10);
    let first = active(&keyring);
    let unused = |storage: &Storage| {
        FileEncryption::of(storage)
            .unused_keys(keyring.unleased())
            .expect("a search")
    };
    keyring.rotate(2, true).expect("rotated");
    assert_eq!(unused(&storage), [""; 0]);
    compact(&storage, VB);
    assert_eq!(unused(&storage), [""; 0], "of another vBucket");
    let quarantined = storage
        .quarantine(VbId(1))
        .expect("quarantined")
        .expect("a file");
    assert_eq!(unused(&storage), [""; 0], "of a quarantined file");
    disk.remove(&quarantined).expect("removed");
    assert_eq!(unused(&storage), [first]);
    // Whatever cannot be read may need any key.
    disk.create(Path::new("/data/bucket/1.couch.7"))
        .expect("made")
        .write_at(b"\x02??", 0)
        .expect("written");
    assert!(
        FileEncryption::of(&storage)
            .unused_keys(keyring.unleased())
            .is_err()
    );
}

#[test]
fn key_of_a_file_that_is_being_created_is_leased() {
    let disk = SimDisk::new(1);
    let keyring = keyring(&disk);
    keyring.enable(1).expect("enabled");
    let storage = open_encrypted(&disk, &keyring);
    commit(&storage, VB, 1, 10);
    let before = active(&keyring);
    let mut hooks = Hooks::on_bytes(|_| {
        if active(&keyring) == before {
            // Of another thread, as the compaction has a lock.
            let rotate = || keyring.rotate(2, true).expect("rotated");
            std::thread::scope(|scope| scope.spawn(rotate).join().expect("no panic"));
        }
        assert_eq!(keyring.unleased(), [""; 0], "the compaction has the key");
    });
    storage
        .compact(VB, &keep_all(), &mut hooks)
        .expect("compacted");
    drop(hooks);
    assert_eq!(keyring.unleased(), [before]);
    assert!(
        FileEncryption::of(&storage).is_of_another_key(VB),
        "the key was retired meanwhile"
    );
    assert_eq!(count(&storage, VB), 10);
}

#[test]
fn failed_compaction_leaves_the_file_with_its_key() {
    for others in 0.. {
        let disk = SimDisk::new(1);
        let keyring = keyring(&disk);
        let storage = open_encrypted(&disk, &keyring);
        commit(&storage, VB, 1, 50);
        keyring.enable(1).expect("enabled");
        disk.fail_after(others, Fault::PowerLoss);
        let compacted = storage.compact(VB, &keep_all(), &mut Hooks::default());
        let is_done = compacted.is_ok();
        drop(storage);
        disk.crash(others);
        let storage = open_encrypted(&disk, &keyring);
        assert_eq!(count(&storage, VB), 50, "call {others}");
        if is_done {
            assert_eq!(FileEncryption::of(&storage).counts(), files(1, 0, 0));
            return;
        }
    }
}
