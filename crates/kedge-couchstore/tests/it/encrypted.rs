//! Encrypted files, written and read by this crate.

use kedge_couchstore::{
    CreateOptions, EncryptionKey, Error, InvalidBatch, Options, Snapshot, Version, Writer,
};
use kedge_disk::SimDisk;

use crate::support::{Doc, by_id, disk, path, save};

fn key() -> EncryptionKey {
    EncryptionKey::new("some key", [0x42; 32])
}

fn options() -> Options {
    Options {
        keys: vec![EncryptionKey::new("another", [1; 32]), key()],
        ..Options::default()
    }
}

fn written(disk: &SimDisk) -> Vec<Doc> {
    let new = CreateOptions {
        version: Version::V14,
        encryption: Some(key()),
    };
    let mut writer = Writer::create(disk, path(), &new, &options()).expect("create");
    let docs: Vec<Doc> = (0..300)
        .map(|n| Doc::new(format!("key-{n:03}"), 1 + n))
        .collect();
    save(&mut writer, &docs[..150]).expect("save");
    writer
        .save_locals(&[(b"_local/vbstate", Some(b"{}"))])
        .expect("save");
    writer.commit(1).expect("commit");
    drop(writer);
    let mut writer = Writer::open(disk, path(), &options()).expect("open");
    save(&mut writer, &docs[150..]).expect("save");
    writer.commit(2).expect("commit");
    docs
}

#[test]
fn encrypted_file_is_read_with_its_key_only() {
    let disk = disk(1);
    let docs = written(&disk);
    let snapshot = Snapshot::open(&disk, path(), &options()).expect("open");
    assert!(snapshot.header().is_encrypted());
    assert_eq!(by_id(&snapshot).expect("scan"), docs);
    snapshot.check(&mut |_| {}).expect("sound");
    assert_eq!(snapshot.history().filter(Result::is_ok).count(), 3);
    let error = Snapshot::open(&disk, path(), &Options::default()).expect_err("no key");
    assert!(matches!(error, Error::KeyNeeded { key_id, .. } if key_id == "some key"));
    let wrong = Options {
        keys: vec![EncryptionKey::new("some key", [0x43; 32])],
        ..Options::default()
    };
    let snapshot = Snapshot::open(&disk, path(), &wrong).expect("headers are plain");
    assert!(by_id(&snapshot).expect_err("the wrong key").is_damage());
}

#[test]
fn encrypted_file_has_no_plain_text() {
    let disk = disk(1);
    written(&disk);
    let bytes = kedge_disk::read_file(&disk, path()).expect("read");
    for word in [&b"key-0"[..], b"body of", b"_local"] {
        assert!(!bytes.windows(word.len()).any(|window| window == word));
    }
    assert_eq!(bytes[0], 2, "the metadata header");
    assert!(bytes.windows(8).any(|window| window == b"some key"));
}

#[test]
fn file_states_the_key_that_it_needs() {
    let encrypted = disk(1);
    written(&encrypted);
    let snapshot = Snapshot::open(&encrypted, path(), &options()).expect("open");
    assert_eq!(snapshot.key_id(), Some("some key"));
    let needed = || Snapshot::needed_key(&encrypted, path()).expect("a look");
    assert_eq!(needed().as_deref(), Some("some key"));
    // Also when it is incomplete.
    let bytes = kedge_disk::read_file(&encrypted, path()).expect("read");
    let cut = crate::support::disk_with(&bytes[..100]);
    let needed = |disk: &SimDisk| Snapshot::needed_key(disk, path());
    assert_eq!(needed(&cut).expect("a look").as_deref(), Some("some key"));
    assert!(needed(&crate::support::disk_with(&bytes[..30])).is_err());

    let plain = disk(1);
    Writer::create(&plain, path(), &CreateOptions::default(), &options()).expect("create");
    let snapshot = Snapshot::open(&plain, path(), &options()).expect("open");
    assert_eq!(snapshot.key_id(), None);
    for other in [
        &plain,
        &crate::support::disk_with(b""),
        &crate::support::disk_with(b"text"),
    ] {
        assert_eq!(needed(other).expect("a look"), None);
    }
}

#[test]
fn damage_of_encrypted_files_is_detected() {
    let disk = disk(1);
    written(&disk);
    let bytes = kedge_disk::read_file(&disk, path()).expect("read");
    for at in [3, 12, 40, 50] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let disk = crate::support::disk_with(&damaged);
        let error = Snapshot::open(&disk, path(), &options()).expect_err("damage");
        assert!(matches!(error, Error::Corrupt { .. }), "byte {at}: {error}");
    }
}

#[test]
fn older_versions_cannot_be_encrypted() {
    let new = CreateOptions {
        version: Version::V13,
        encryption: Some(key()),
    };
    let refused = Writer::create(&disk(1), path(), &new, &options());
    assert!(matches!(
        refused,
        Err(Error::Refused(InvalidBatch::Version))
    ));
}
