//! Disks that fail and fill up: the writer returns errors and rejects further operations, and committed data stays.

use kedge_couchstore::{Error, Options, Writer};
use kedge_disk::{Disk, Fault, Operation};

use crate::support::{Doc, by_id, create, disk, open, path, save};

fn docs(from: u64, count: u64) -> Vec<Doc> {
    (from..from + count)
        .map(|n| Doc::new(format!("k{n:05}"), n))
        .collect()
}

#[test]
fn full_disk_keeps_the_last_commit_and_recovers_with_space() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let first = docs(1, 50);
    save(&mut writer, &first).expect("save");
    writer.commit(1).expect("commit");
    for room in [0, 100, 5000, 20_000] {
        let used = disk.used_bytes();
        disk.set_capacity(Some(used + room));
        let more = docs(1000, 2000);
        let failed = save(&mut writer, &more)
            .and_then(|()| writer.commit(2).map(|_| ()))
            .expect_err("it is full");
        assert!(failed.is_no_space(), "{failed}");
        let refused = save(&mut writer, &docs(5000, 1)).expect_err("it failed before");
        assert!(matches!(refused, Error::PreviousIo { .. }));
        for refused in [
            writer.commit(3).expect_err("it failed before"),
            writer.sync().expect_err("it failed before"),
            writer.save_locals(&[]).expect_err("it failed before"),
            writer
                .rewind(&writer.header().clone())
                .expect_err("it failed before"),
        ] {
            assert!(matches!(refused, Error::PreviousIo { .. }));
        }
        // Existing and new readers see the last commit.
        assert_eq!(by_id(&writer.snapshot()).expect("scan"), first);
        assert_eq!(by_id(&open(&disk).expect("open")).expect("scan"), first);
        disk.set_capacity(None);
        writer = Writer::open(&disk, path(), &Options::default()).expect("open");
    }
    save(&mut writer, &docs(1000, 2000)).expect("save");
    writer.commit(4).expect("commit");
    let snapshot = open(&disk).expect("open");
    assert_eq!(snapshot.check(&mut |_| {}).expect("sound").live, 2050);
}

#[test]
fn failed_operation_is_reported_and_final() {
    // The operations of one save and commit, each failing in turn.
    for step in 1..40 {
        let disk = disk(step);
        let mut writer = create(&disk);
        let first = docs(1, 20);
        save(&mut writer, &first).expect("save");
        writer.commit(1).expect("commit");
        let before = disk.operations();
        disk.fail_operation(before + step, Fault::Io);
        let more = docs(100, 300);
        let result = save(&mut writer, &more).and_then(|()| writer.commit(2).map(|_| ()));
        if disk.operations() < before + step {
            assert!(step > 4, "a commit is two writes and two syncs at least");
            assert!(result.is_ok());
            return;
        }
        let error = result.expect_err("an operation failed");
        assert!(
            matches!(error, Error::Io(_) | Error::SyncFailed(_)),
            "{error}"
        );
        let refused = writer.commit(3).expect_err("it failed before");
        assert!(matches!(refused, Error::PreviousIo { .. }));
        let snapshot = open(&disk).expect("open");
        let live = snapshot.check(&mut |_| {}).expect("sound").live;
        assert!(live == 20 || live == 320, "{live}");
    }
    panic!("a commit of 300 documents takes more than 40 operations");
}

#[test]
fn failed_sync_has_its_own_error() {
    let disk = disk(1);
    let mut writer = create(&disk);
    save(&mut writer, &docs(1, 20)).expect("save");
    disk.fail_next(Operation::Sync, Fault::Io);
    let error = writer.commit(1).expect_err("the sync failed");
    assert!(error.is_sync_failure());
    assert!(error.to_string().contains("/data/0.couch.1"), "{error}");
}

#[test]
fn unreadable_medium_is_a_disk_error() {
    let disk = disk(1);
    let mut writer = create(&disk);
    save(&mut writer, &docs(1, 500)).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = open(&disk).expect("open");
    for sector in (0..disk.len(path()).expect("a length") - 4096).step_by(512) {
        let disk = disk.fork();
        disk.make_unreadable(path(), sector);
        let opened = open(&disk).expect("headers are elsewhere or the block is skipped");
        if opened.header() != snapshot.header() {
            continue;
        }
        match opened.check(&mut |_| {}) {
            Ok(checked) => assert_eq!(checked.live, 500),
            Err(error) => assert!(matches!(error, Error::Io(_)), "{error}"),
        }
    }
}

#[test]
fn damage_of_the_old_tree_keeps_the_writer_usable() {
    let disk = disk(1);
    let mut writer = create(&disk);
    save(&mut writer, &docs(1, 500)).expect("save");
    writer.commit(1).expect("commit");
    drop(writer);
    // The root of the tree by id is its last written node: damage a node that every update has to read.
    let bytes = kedge_disk::read_file(&disk, path()).expect("read");
    let mut hits = 0;
    for at in (4096 * 4..bytes.len() as u64 - 4096).step_by(97) {
        let disk = disk.fork();
        disk.flip(path(), at, 0x10);
        let Ok(mut writer) = Writer::open(&disk, path(), &Options::default()) else {
            continue;
        };
        if let Err(error) = save(&mut writer, &docs(1000, 1)) {
            assert!(error.is_damage(), "{error}");
            assert!(!writer.has_changes());
            writer
                .save_locals(&[(b"_local/a", Some(b"1"))])
                .expect("the other tree is whole");
            writer.commit(2).expect("commit");
            hits += 1;
        }
    }
    assert!(hits > 0, "no damage was met");
}
