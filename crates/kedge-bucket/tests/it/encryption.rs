//! Encryption at rest of a bucket: log, files, access log, and the life of its keys.

use crate::dcp::TestConnection;
use crate::tools::*;
use kedge_bucket::{BucketChange, CompactionRate, EncryptionChange, EvictionPolicy};
use kedge_disk::{Disk, SimDisk, read_file};
use kedge_encryption::{KEYRING_FILE, Keyring, LocalMasterKey, MasterKeys, Secret};
use kedge_types::{Status, VbId};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/data/bucket";
const VB: VbId = VbId(1);
/// A part of each key and value.
const MARKER: &[u8] = b"marker";

fn keyring(disk: &SimDisk) -> Arc<Keyring> {
    let master = LocalMasterKey::new(Secret::new([7; 32]));
    let masters = MasterKeys::new(Arc::new(master));
    let path = Path::new(DIR).join(KEYRING_FILE);
    Arc::new(Keyring::open(Arc::new(disk.clone()), &path, &masters).unwrap())
}

/// Returns a site with a master key, of a bucket that is encrypted or not.
fn site(disk: &SimDisk, is_encrypted: bool) -> TestSite {
    let mut site = sim(disk);
    let keyring = keyring(disk);
    site.config.encryption.enabled = is_encrypted;
    if is_encrypted {
        keyring.enable(1_700_000_000).unwrap();
    }
    site.config.compaction.throttle = CompactionRate::Off;
    site.keyring = Some(keyring);
    site
}

fn ids(site: &TestSite) -> Vec<String> {
    let keys = site.keyring.as_ref().unwrap().keys();
    keys.iter().map(|key| key.id().to_owned()).collect()
}

fn names(count: usize) -> Vec<String> {
    let names = (0..).map(|n| format!("marker-key-{n}"));
    names
        .filter(|name| key(name).vbucket(4) == VB)
        .take(count)
        .collect()
}

fn write_all(open: &Open, names: &[String], value: &str) {
    for name in names {
        open.set(name, format!("marker {value} {name}").as_bytes())
            .unwrap();
    }
}

/// Returns the files that have the marker in plain text.
fn plain_files(disk: &SimDisk) -> Vec<String> {
    let mut found = Vec::new();
    for dir in [Path::new(DIR).to_owned(), Path::new(DIR).join("log")] {
        for name in disk.list(&dir).unwrap_or_default() {
            let path = dir.join(&name);
            let bytes = read_file(disk, &path).unwrap_or_default();
            if bytes.windows(MARKER.len()).any(|it| it == MARKER) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn enable(open: &Open, enabled: bool) -> Result<(), String> {
    let change = BucketChange {
        encryption: EncryptionChange {
            enabled: Some(enabled),
            ..EncryptionChange::default()
        },
        ..BucketChange::default()
    };
    open.bucket.update(&change).map(drop)
}

/// Runs tasks for some seconds of their clock, until nothing is to be written again.
fn settle(open: &Open, steps: &Steps) {
    for _ in 0..40 {
        steps.pass(SEC);
        let status = open.bucket.persistence().encryption().status();
        assert_eq!(status.error, None);
        if !status.is_pending {
            return;
        }
    }
    panic!("{:?}", open.bucket.persistence().encryption().status());
}

#[test]
fn documents_reach_log_and_files_encrypted_and_survive_a_crash() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(1);
        let mut site = site(&disk, true);
        site.config.commit_log = commit_log;
        let (open, steps) = site.open_with_manual_tasks();
        let all = names(60);
        write_all(&open, &all[..40], "1");
        open.bucket.persistence().apply().unwrap();
        write_all(&open, &all[40..], "2");
        open.bucket.persistence().sync().unwrap();
        steps.run();
        assert_eq!(plain_files(&disk), [""; 0], "commit_log = {commit_log}");
        drop((open, steps));
        disk.crash(5);

        let (open, steps) = site.open_with_manual_tasks();
        let line = TestConnection::new(&open);
        let mut client = line.open(&open, VB, 0);
        client.drain();
        while client.copy.last < 60 {
            steps.run();
            client.drain();
        }
        let copied = client.copy.values();
        assert_eq!(copied.len(), 60, "a stream reads all");
        assert!(copied.values().all(|value| value.starts_with("marker")));
        assert_eq!(
            open.bucket
                .persistence()
                .encryption()
                .key_ids()
                .into_iter()
                .collect::<Vec<_>>(),
            ids(&site)
        );
        open.bucket.shutdown();
        assert_eq!(plain_files(&disk), [""; 0], "commit_log = {commit_log}");
    }
}

#[test]
fn bucket_that_gets_encrypted_has_no_plain_text_in_the_end() {
    let disk = SimDisk::new(2);
    let mut site = site(&disk, false);
    let (open, steps) = site.open_with_manual_tasks();
    let all = names(50);
    write_all(&open, &all[..40], "1");
    open.bucket.persistence().apply().unwrap();
    write_all(&open, &all[40..], "2");
    open.bucket.persistence().sync().unwrap();
    assert!(!plain_files(&disk).is_empty());
    enable(&open, true).unwrap();
    settle(&open, &steps);
    // Released segments of the log leave in steps.
    steps.pass(SEC * 60);
    assert_eq!(plain_files(&disk), [""; 0]);
    let status = open.bucket.persistence().encryption().status();
    assert!(status.is_enabled && !status.has_plain_log);
    assert_eq!((status.files.encrypted, status.files.plain), (1, 0));

    enable(&open, false).unwrap();
    settle(&open, &steps);
    steps.pass(SEC * 20);
    assert_eq!(ids(&site), [""; 0]);
    assert!(!disk.exists(&Path::new(DIR).join(KEYRING_FILE)).unwrap());
    for name in &all {
        assert!(open.get_by_hand(&steps, name).unwrap().starts_with(MARKER));
    }
    open.bucket.shutdown();
}

#[test]
fn rotation_replaces_the_key_of_files_and_log_and_removes_it() {
    let disk = SimDisk::new(3);
    let mut site = site(&disk, true);
    let (open, steps) = site.open_with_manual_tasks();
    let all = names(50);
    write_all(&open, &all, "1");
    open.bucket.persistence().apply().unwrap();
    let before = ids(&site);
    open.bucket.persistence().encryption().rotate().unwrap();
    assert_eq!(ids(&site).len(), 2, "data needs the old one");
    settle(&open, &steps);
    steps.pass(SEC * 60);
    let after = ids(&site);
    assert!(after.len() == 1 && after != before, "{after:?}");
    drop((open, steps));
    disk.crash(1);
    let (open, steps) = site.open_with_manual_tasks();
    for name in &all {
        assert!(open.get_by_hand(&steps, name).unwrap().starts_with(MARKER));
    }
    open.bucket.shutdown();
}

#[test]
fn keys_are_renewed_by_their_age() {
    let disk = SimDisk::new(4);
    let mut site = site(&disk, true);
    site.config.encryption.rotation_interval_secs = 86_400;
    site.config.encryption.key_lifetime_secs = 3 * 86_400;
    let (open, steps) = site.open_with_manual_tasks();
    write_all(&open, &names(10), "1");
    open.bucket.persistence().apply().unwrap();
    let first = ids(&site);
    for _ in 0..25 {
        steps.pass(SEC * 3_600);
    }
    let second = ids(&site);
    assert!(
        second.len() == 2 && second[..1] == first,
        "the file has the first key still"
    );
    for _ in 0..3 * 25 {
        steps.pass(SEC * 3_600);
    }
    assert!(!ids(&site).contains(&first[0]), "it is too old");
    assert_eq!(
        open.bucket
            .persistence()
            .encryption()
            .status()
            .files
            .replaced,
        0
    );
    open.bucket.shutdown();
}

#[test]
fn encryption_needs_a_master_key() {
    let open = sim(&SimDisk::new(5)).open();
    let error = enable(&open, true).unwrap_err();
    assert!(error.contains("encryption_master_key"), "{error}");
    assert!(!open.bucket.config().encryption.enabled);
    enable(&open, false).unwrap();
    open.bucket.shutdown();
}

#[test]
fn access_log_is_encrypted_and_removed_with_its_key() {
    let disk = SimDisk::new(6);
    let mut site = site(&disk, true);
    site.config.eviction_policy = EvictionPolicy::FullEviction;
    let open = site.open();
    for n in 0..1_000 {
        open.set(&format!("marker-{n}"), &[b'v'; 400]).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    open.bucket.shutdown();
    // Not all documents fit.
    site.config.quota_bytes = 200_000;
    let (open, steps) = site.open_with_manual_tasks();
    steps.run();
    let log = Path::new(DIR).join("access.log.0");
    open.bucket.shutdown();
    assert!(disk.exists(&log).unwrap());
    assert_eq!(plain_files(&disk), [""; 0]);

    let (open, steps) = site.open_with_manual_tasks();
    steps.run();
    let mut loaded = String::new();
    open.bucket.residency().warmup().stats(&mut |name, text| {
        if name == "ep_warmup_access_log" {
            text.clone_into(&mut loaded);
        }
    });
    open.bucket.persistence().encryption().rotate().unwrap();
    settle(&open, &steps);
    assert!(!disk.exists(&log).unwrap(), "it has the old key");
    assert_ne!(loaded, "0", "the start read it");
    open.bucket.shutdown();
}

/// Another node has other keys: its copy is made by DCP.
#[test]
fn encrypted_file_is_not_copied_to_another_node() {
    let disk = SimDisk::new(7);
    let (open, steps) = site(&disk, true).open_with_manual_tasks();
    write_all(&open, &names(10), "1");
    open.bucket.persistence().apply().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    open.bucket.copies().prepare(VB, move |prepared| {
        tell.send(prepared.map(drop)).unwrap();
    });
    steps.run();
    assert_eq!(told.try_recv(), Ok(Err(Status::EncryptionKeyNotAvailable)));
    open.bucket.shutdown();
}
