//! The faults of the simulated disk: each of those that it documents must occur.

use std::collections::BTreeSet;
use std::path::Path;

use kedge_disk::{Disk, Fault, Operation, SimDisk, read_file, replace_file};

const DIR: &str = "/data";

fn path() -> &'static Path {
    Path::new("/data/file")
}

/// A disk with one durable file of two sectors of ones.
fn disk() -> SimDisk {
    let disk = SimDisk::new(7);
    disk.create_dir_all(Path::new(DIR))
        .expect("create directory");
    let file = disk.create(path()).expect("create");
    file.write_at(&[1; 1024], 0).expect("write");
    file.sync_data().expect("sync");
    disk.sync_dir(Path::new(DIR)).expect("sync directory");
    disk
}

fn found(disk: &SimDisk) -> Vec<u8> {
    read_file(disk, path()).expect("read")
}

/// Returns the distinct results of many crashes of the same state.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let crash = |seed| {
        let fork = disk.fork();
        fork.crash(seed);
        look(&fork)
    };
    (0..300).map(crash).collect()
}

#[test]
fn synced_data_survives_every_crash() {
    let disk = disk();
    disk.open(path())
        .expect("open")
        .write_at(&[2; 1024], 0)
        .expect("write");
    disk.open(path()).expect("open").sync_data().expect("sync");
    assert_eq!(outcomes(&disk, found), BTreeSet::from([vec![2; 1024]]));
}

#[test]
fn unsynced_sectors_survive_independently_in_any_version_and_may_tear() {
    let disk = disk();
    let file = disk.open(path()).expect("open");
    file.write_at(&[2; 1024], 0).expect("write");
    file.write_at(&[3; 512], 512).expect("write");
    let seen = outcomes(&disk, found);
    for first in [1, 2] {
        for second in [1, 2, 3] {
            let whole: Vec<u8> = [[first; 512], [second; 512]].concat();
            assert!(seen.contains(&whole), "{first} {second}");
        }
    }
    assert!(
        seen.iter()
            .any(|bytes| bytes[..512].iter().any(|b| *b != bytes[0])),
        "none torn"
    );
    assert_eq!(found(&disk)[512..], [3; 512], "the original is not touched");
    let again = outcomes(&disk, found);
    assert_eq!(seen, again, "the same seeds, the same outcomes");
}

#[test]
fn unsynced_length_may_be_lost() {
    let disk = disk();
    disk.open(path())
        .expect("open")
        .write_at(&[2; 10], 1024)
        .expect("write");
    assert_eq!(
        outcomes(&disk, |disk| found(disk).len()),
        BTreeSet::from([1024, 1034])
    );
}

#[test]
fn names_are_durable_only_after_sync_dir() {
    let dir = Path::new(DIR);
    let names = |disk: &SimDisk| disk.list(dir).expect("list");
    let disk = disk();
    disk.create(&dir.join("new")).expect("create");
    disk.rename(path(), &dir.join("moved")).expect("rename");
    let seen = outcomes(&disk, names);
    for expected in [
        vec!["file"],
        vec!["file", "new"],
        vec!["moved"],
        vec!["moved", "new"],
    ] {
        assert!(seen.contains(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()));
    }
    disk.sync_dir(dir).expect("sync");
    disk.remove(&dir.join("new")).expect("remove");
    let kept = vec!["moved".to_owned(), "new".to_owned()];
    assert_eq!(
        outcomes(&disk, names),
        BTreeSet::from([kept, vec!["moved".to_owned()]])
    );
    // A change that depends on a lost one is lost with it: never both names, never neither.
    disk.rename(&dir.join("moved"), &dir.join("a"))
        .expect("rename");
    disk.rename(&dir.join("a"), &dir.join("b")).expect("rename");
    for names in outcomes(&disk, names) {
        let places = ["moved", "a", "b"]
            .iter()
            .filter(|name| names.iter().any(|n| n == *name));
        assert_eq!(places.count(), 1, "{names:?}");
    }
}

#[test]
fn failed_sync_drops_bytes_that_reads_still_return() {
    let disk = disk();
    let file = disk.open(path()).expect("open");
    file.write_at(&[2; 1024], 0).expect("write");
    disk.fail_next(Operation::Sync, Fault::Io);
    let error = file.sync_data().expect_err("ordered");
    assert!(error.is_sync_failure() && !error.is_no_space());
    assert_eq!(found(&disk), [2; 1024], "the cache still shows it");
    file.sync_data().expect("and the next sync claims success");
    let survived = outcomes(&disk, found);
    assert_eq!(survived.len(), 1, "decided when the sync failed");
    assert_ne!(
        survived,
        BTreeSet::from([vec![2; 1024]]),
        "something was dropped with this seed"
    );
    file.write_at(&[2; 1024], 0).expect("write again");
    file.sync_data().expect("sync");
    assert_eq!(outcomes(&disk, found), BTreeSet::from([vec![2; 1024]]));
}

#[test]
fn power_loss_fails_all_operations_until_the_crash_and_invalidates_handles() {
    let disk = disk();
    let file = disk.open(path()).expect("open");
    disk.fail_operation(disk.operations() + 1, Fault::PowerLoss);
    file.write_at(&[2; 512], 0).expect_err("power loss");
    let mut buf = [0; 1];
    file.read_at(&mut buf, 0).expect_err("no power");
    disk.create(&Path::new(DIR).join("x"))
        .expect_err("no power");
    disk.open(path()).expect_err("no power");
    let survived = outcomes(&disk, |disk| found(disk)[..512].to_vec());
    assert!(survived.contains(&vec![2; 512]) && survived.contains(&vec![1; 512]));
    disk.crash(0);
    file.sync_data()
        .expect_err("the handle is from before the crash");
    disk.open(path()).expect("open").sync_data().expect("sync");
}

#[test]
fn full_disk_rejects_growth_only_and_recovers_with_space() {
    let disk = disk();
    disk.set_capacity(Some(1500));
    let file = disk.open(path()).expect("open");
    file.write_at(&[2; 1024], 0)
        .expect("an overwrite needs no space");
    let error = file.write_at(&[3; 1000], 1000).expect_err("full");
    assert!(error.is_no_space());
    assert_eq!(
        file.len().expect("length"),
        1500,
        "a part of it was written"
    );
    assert!(file.allocate(4096).expect_err("full").is_no_space());
    assert_eq!(disk.free_bytes(Path::new(DIR)).expect("free"), 0);
    disk.set_capacity(Some(8192));
    file.allocate(4096).expect("room again");
    assert_eq!(disk.used_bytes(), 4096);
}

#[test]
fn replace_file_leaves_the_old_or_the_new_contents_at_every_crash() {
    let base = disk();
    let counted = base.fork();
    replace_file(&counted, path(), &[2; 2000]).expect("replace");
    let operations = base.operations() + 1..=counted.operations();
    assert!(operations.clone().count() >= 5);
    for number in operations {
        let disk = base.fork();
        disk.fail_operation(number, Fault::PowerLoss);
        replace_file(&disk, path(), &[2; 2000]).expect_err("power loss");
        for bytes in outcomes(&disk, found) {
            assert!(
                bytes == [1; 1024] || bytes == [2; 2000],
                "operation {number}"
            );
        }
    }
    assert_eq!(outcomes(&counted, found), BTreeSet::from([vec![2; 2000]]));
}

#[test]
fn flipped_bytes_and_unreadable_sectors_are_local() {
    let disk = disk();
    disk.flip(path(), 600, 0x81);
    assert_eq!(found(&disk)[599..602], [1, 0x80, 1]);
    disk.make_unreadable(path(), 700);
    let file = disk.open(path()).expect("open");
    let mut buf = [0; 512];
    file.read_at(&mut buf, 0).expect("the first sector is well");
    file.read_at(&mut buf, 10)
        .expect_err("reaches into the bad one");
    file.write_at(&[5; 512], 512).expect("writing it again");
    file.read_at(&mut buf, 512).expect("heals it");
    assert_eq!(buf, [5; 512]);
}

#[test]
fn killed_process_leaves_the_cache_and_releases_the_lock() {
    let disk = disk();
    let lock = disk.lock_dir(Path::new(DIR)).expect("lock");
    disk.open(path())
        .expect("open")
        .write_at(&[9; 4], 0)
        .expect("write");
    disk.kill_process();
    let _mine = disk.lock_dir(Path::new(DIR)).expect("free");
    drop(lock);
    disk.lock_dir(Path::new(DIR))
        .expect_err("the dead owner's handle gives nothing back");
    assert_eq!(found(&disk)[..4], [9; 4]);
}
