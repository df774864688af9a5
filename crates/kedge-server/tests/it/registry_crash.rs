//! Creations, drops and imports of buckets that fail, or lose power, at each of their disk operations.
//!
//! After a crash a directory is a bucket with all its documents, a remainder with its marker, or gone. It is never a
//! directory that the next start does not understand, nor a bucket that misses files. `KEDGE_SEEDS` is the number of crashes
//! at each operation (4).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_bucket::{Bucket, BucketConfig, Cookie, Outcome, Read, StoreArgs, StoreMode, Write};
use kedge_disk::{Disk, Fault, SimDisk, seeds};
use kedge_node::registry::{BucketRegistry, import, is_remainder};
use kedge_types::{Cas, CollectionId, Datatype, DocKey};

use crate::registry::open_with;

/// The number of vBuckets of all buckets.
const VBUCKETS: u16 = 4;
const DOCUMENTS: usize = 12;
/// The bucket that is dropped or imported.
pub(crate) const FULL: &str = "full";
/// The bucket that is created.
const NEW: &str = "new";

pub(crate) fn data_dir() -> &'static Path {
    Path::new("/data")
}

pub(crate) fn dir_of(name: &str) -> PathBuf {
    data_dir().join("buckets").join(name)
}

fn open(disk: &SimDisk) -> BucketRegistry {
    // A failure would end the process. Here the power is off.
    open_with(Arc::new(disk.clone()), data_dir(), |_| ()).unwrap()
}

fn config(name: &str) -> BucketConfig {
    BucketConfig::new(name, VBUCKETS, 64 << 20)
}

fn keys() -> impl Iterator<Item = DocKey> {
    let key = |n| DocKey::new(CollectionId::DEFAULT, format!("key-{n}").as_bytes()).unwrap();
    (0..DOCUMENTS).map(key)
}

fn fill(registry: &BucketRegistry, bucket: &Bucket) {
    for key in keys() {
        let write = Write {
            vb: key.vbucket(VBUCKETS),
            key: &key,
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(0),
        };
        let args = StoreArgs {
            mode: StoreMode::Set,
            value: b"value",
            datatype: Datatype::RAW,
            flags: 0,
            expiry: 0,
        };
        let stored = bucket.documents().store(registry.ctx(), &write, &args);
        assert!(matches!(stored, Ok(Outcome::Done(_))), "{stored:?}");
    }
}

/// Checks that a bucket has all documents.
pub(crate) fn check_documents(registry: &BucketRegistry, name: &str) {
    let bucket = registry.get(name).expect("the bucket");
    bucket.wait_loaded().unwrap();
    for key in keys() {
        let read = Read {
            vb: key.vbucket(VBUCKETS),
            key: &key,
            cookie: Cookie(0),
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = loop {
            let found = bucket
                .documents()
                .get(registry.ctx(), &read, |it| it.item.value().to_vec());
            match found.unwrap() {
                Outcome::Done(found) => break found,
                // The value is read from the file, and then in memory.
                Outcome::Parked => assert!(Instant::now() < deadline, "it is not read"),
            }
            std::thread::yield_now();
        };
        assert_eq!(found, b"value", "{name}");
    }
}

/// A disk with the bucket `FULL`, all of whose documents are in files.
pub(crate) fn disk_with_documents() -> SimDisk {
    let disk = SimDisk::new(1);
    let registry = open(&disk);
    let bucket = registry.create(config(FULL)).unwrap();
    bucket.wait_loaded().unwrap();
    fill(&registry, &bucket);
    registry.shutdown();
    disk
}

/// The kind of a bucket's directory, as a start sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Bucket,
    Remainder,
}

fn look(disk: &SimDisk, name: &str) -> Found {
    let names = names(disk, name);
    if names.is_empty() {
        Found::Nothing
    } else if names.iter().any(|it| it == "bucket.json") {
        Found::Bucket
    } else if is_remainder(&names) {
        Found::Remainder
    } else {
        panic!("the next start does not understand {name}: {names:?}");
    }
}

/// Returns the names of the files in a bucket's directory.
fn names(disk: &SimDisk, name: &str) -> Vec<String> {
    match disk.list(&dir_of(name)) {
        Ok(names) => names,
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Calls `check` with the disk after a power failure, a few times, as different unsynced data survives.
fn after_crashes(disk: &SimDisk, check: impl Fn(SimDisk, u64)) {
    for seed in seeds(1, 4) {
        let disk = disk.fork();
        disk.crash(seed);
        check(disk, seed);
    }
}

/// Runs `step` with a power failure at each operation, up to the first run that does not reach it. The step returns
/// whether it was done, `check` gets that.
fn at_each_operation(
    base: &SimDisk,
    step: impl Fn(&SimDisk, &dyn Fn(&SimDisk)) -> bool,
    check: impl Fn(&SimDisk, bool),
) -> u64 {
    for number in 0.. {
        let disk = base.fork();
        let arm = |disk: &SimDisk| disk.fail_after(number, Fault::PowerLoss);
        let is_done = step(&disk, &arm);
        after_crashes(&disk, |disk, seed| {
            eprintln!("operation {number}, seed {seed}, done: {is_done}");
            check(&disk, is_done);
        });
        if is_done {
            return number;
        }
    }
    unreachable!("the loop ends when the step is done");
}

#[test]
fn power_failure_during_a_creation_leaves_a_bucket_or_a_remainder() {
    let base = SimDisk::new(1);
    open(&base).shutdown();
    let count = at_each_operation(
        &base,
        |disk, arm| {
            let registry = open(disk);
            arm(disk);
            let is_done = registry.create(config(NEW)).is_ok();
            registry.shutdown();
            is_done
        },
        |disk, is_done| {
            let found = look(disk, NEW);
            assert!(!is_done || found == Found::Bucket, "{found:?}");
            // Whatever was written to the bucket would be removed with a marker of its creation.
            let names = names(disk, NEW);
            let is_used = !names
                .iter()
                .all(|it| it == "creating" || it.starts_with("bucket.json"));
            assert!(
                !is_used || !names.iter().any(|it| it == "creating"),
                "{names:?}"
            );
            let registry = open(disk);
            assert!(registry.unserved().unwrap().is_empty());
            if found != Found::Bucket {
                assert_eq!(look(disk, NEW), Found::Nothing);
                registry.create(config(NEW)).unwrap();
            }
            let bucket = registry.get(NEW).expect("the bucket");
            bucket.wait_loaded().unwrap();
            fill(&registry, &bucket);
            check_documents(&registry, NEW);
            registry.shutdown();
        },
    );
    assert!(count > 8, "{count} operations");
}

#[test]
fn power_failure_during_a_drop_leaves_all_documents_or_none() {
    let base = disk_with_documents();
    let count = at_each_operation(
        &base,
        |disk, arm| {
            let registry = open(disk);
            registry.get(FULL).unwrap().wait_loaded().unwrap();
            arm(disk);
            let is_done = registry.drop_bucket(FULL).is_ok();
            registry.shutdown();
            is_done
        },
        |disk, is_done| {
            let found = look(disk, FULL);
            assert!(!is_done || found == Found::Nothing, "{found:?}");
            let registry = open(disk);
            if found == Found::Bucket {
                check_documents(&registry, FULL);
            } else {
                assert_eq!(look(disk, FULL), Found::Nothing);
                assert!(registry.list().is_empty());
            }
            assert!(registry.unserved().unwrap().is_empty());
            registry.shutdown();
        },
    );
    assert!(count > 8, "{count} operations");
}

#[test]
fn power_failure_during_an_import_leaves_all_documents_or_a_remainder() {
    let base = disk_with_documents();
    let imported = |disk: &SimDisk| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        import(&disk, data_dir(), &config(NEW), &dir_of(FULL))
    };
    let count = at_each_operation(
        &base,
        |disk, arm| {
            arm(disk);
            imported(disk).is_ok()
        },
        |disk, is_done| {
            let found = look(disk, NEW);
            assert!(!is_done || found == Found::Bucket, "{found:?}");
            if found != Found::Bucket {
                imported(disk).expect("it can be repeated");
            }
            let registry = open(disk);
            check_documents(&registry, NEW);
            registry.shutdown();
        },
    );
    assert!(count > 8, "{count} operations");
}

/// A failed sync of the settings left a directory that no creation replaced, with the advice to adopt it.
#[test]
fn failed_creation_leaves_nothing_in_the_way() {
    for number in 0.. {
        let disk = SimDisk::new(number);
        let registry = open(&disk);
        disk.fail_after(number, Fault::Io);
        let created = registry.create(config(NEW));
        disk.clear_faults();
        eprintln!("operation {number}: {:?}", created.as_ref().err());
        let is_done = created.is_ok();
        if !is_done {
            assert!(registry.get(NEW).is_none());
            assert!(registry.cluster().snapshot().bucket(NEW).is_none());
            registry.create(config(NEW)).unwrap();
        }
        registry.shutdown();
        look(&disk, NEW);
        if is_done {
            assert!(number > 8, "{number} operations");
            break;
        }
    }
}
