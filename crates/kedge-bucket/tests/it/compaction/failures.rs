//! Compactions that fail: the old files stay whole, others go on, and it is tried again.

use super::*;
use kedge_disk::{Fault, Operation, SimDisk};

#[test]
fn a_full_disk_fails_one_file_which_is_tried_again() {
    let disk = SimDisk::new(1);
    let mut place = sim(&disk);
    let (open, steps) = churned(&mut place, 3);
    disk.fail_next(Operation::Create, Fault::NoSpace);
    let report = compact(&open, &steps, &all());
    assert_eq!((report.compacted, report.failed), (3, 1));
    assert_eq!(open.figure("ep_compaction_failed"), 1);
    let names_now = names(&place);
    let old = names_now.iter().filter(|name| name.ends_with(".couch.1"));
    assert_eq!((old.count(), names_now.len()), (1, 4), "{names_now:?}");
    // That a file changes meanwhile puts nothing off.
    open.set("key-1", &noise(3 * KEYS + 1, 4_096)).unwrap();
    open.bucket.persistence().apply().unwrap();
    steps.pass(MS * 900);
    assert_eq!(open.figure("ep_compactions"), 3);
    steps.pass(MS * 200);
    assert_eq!(open.figure("ep_compactions"), 4);
    assert_eq!(names(&place), revision(2));
    check(&open, 3);
    assert!(open.sink.fatal().is_empty());
    open.bucket.shutdown();
}

/// On a disk without a byte left every compaction failed, unless the log had a segment to spare; without a log, always.
#[test]
fn room_is_kept_for_compactions_on_a_full_disk() {
    for has_log in [true, false] {
        let disk = SimDisk::new(5);
        let mut place = sim(&disk);
        place.config.commit_log = has_log;
        place.reserve_bytes = 1 << 20;
        let (open, steps) = churned(&mut place, 3);
        let kept = || open.figure("ep_compaction_reserve_bytes");
        let file = place.dir.join("compaction.reserve");
        let is_there = || place.disk.exists(&file).unwrap();
        // Of little room nothing is taken.
        disk.set_capacity(Some(disk.used_bytes() + (7 << 20)));
        steps.pass(SEC * 10);
        assert!(kept() == 0 && !is_there());
        disk.set_capacity(None);
        let change = || {
            open.set("key-1", &noise(3 * KEYS + 1, 4_096)).unwrap();
            open.bucket.persistence().apply().unwrap();
            steps.pass(SEC * 10);
        };
        change();
        assert!(kept() == 1 << 20 && is_there());
        // The log has no segment to spare when its writes have found the disk full.
        let large = noise(1, 1 << 20);
        for _ in 0..3 {
            disk.set_capacity(Some(disk.used_bytes()));
            until_refused(&open, &steps, &large);
        }
        assert!(is_there(), "it is not for writes");
        disk.set_capacity(Some(disk.used_bytes()));
        let report = compact(&open, &steps, &all());
        assert_eq!((report.compacted, report.failed), (4, 0), "{report:?}");
        assert!(kept() == 0 && !is_there());
        check(&open, 3);
        disk.set_capacity(None);
        steps.pass(SEC * 10);
        change();
        assert!(kept() == 1 << 20 && is_there(), "it is taken again");
        open.bucket.shutdown();
    }
}

/// Writes until there is no room.
fn until_refused(open: &Open, steps: &Steps, value: &[u8]) {
    let is_refused = (0..100).any(|n| {
        let refused = open.set(&format!("large-{n}"), value).is_err();
        steps.pass(MS * 100);
        refused
    });
    assert!(is_refused);
}

#[test]
fn a_full_disk_leaves_nothing_behind_wherever_it_is_met() {
    let disk = SimDisk::new(2);
    let mut place = sim(&disk);
    let (open, steps) = churned(&mut place, 3);
    let before = files(&place);
    let mut failed = 0;
    for room in (0..).step_by(5_000) {
        disk.set_capacity(Some(disk.used_bytes() + room));
        let report = compact(&open, &steps, &only(VbId(1)));
        disk.set_capacity(None);
        // What would be tried again is not wanted here.
        open.bucket
            .persistence()
            .compactions()
            .cancel(None)
            .unwrap();
        if report.failed == 0 {
            break;
        }
        failed += 1;
        let error = report.first_error.unwrap();
        assert!(error.contains("1.couch"), "{error}");
        assert_eq!(files(&place), before, "room for {room} bytes: {error}");
    }
    assert!(failed > 3, "{failed}");
    assert_eq!(open.figure("ep_compaction_failed"), failed);
    check(&open, 3);
    check_reopened(&mut place, &open, 3);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_tried_again_more_and_more_seldom() {
    let disk = SimDisk::new(3);
    let mut place = sim(&disk);
    let (open, steps) = churned(&mut place, 3);
    let file = file_of(&place, VbId(2));
    let middle = disk
        .used_bytes()
        .min(kedge_disk::Disk::len(&disk, &file).unwrap())
        * 2
        / 3;
    disk.make_unreadable(&file, middle);
    // The rest of the last version, wherever in the file it is.
    for offset in (middle..kedge_disk::Disk::len(&disk, &file).unwrap()).step_by(512) {
        disk.make_unreadable(&file, offset);
    }
    let report = compact(&open, &steps, &all());
    assert_eq!((report.compacted, report.failed), (3, 1));
    let error = report.first_error.unwrap();
    assert!(
        error.contains("2.couch.1") && error.contains("byte"),
        "{error}"
    );
    steps.pass(SEC * 8);
    // After 1, 3 and 7 seconds.
    assert_eq!(open.figure("ep_compaction_failed"), 4);
    steps.pass(SEC * 3_600);
    let failures = open.figure("ep_compaction_failed");
    assert!((10..=20).contains(&failures), "{failures}");
    check(&open, 3);
    assert!(open.sink.fatal().is_empty());
    let sorted = names(&place);
    assert_eq!(sorted, ["0.couch.2", "1.couch.2", "2.couch.1", "3.couch.2"]);
    open.bucket.shutdown();
}

#[test]
fn a_failed_sync_of_a_compaction_ends_the_process() {
    let disk = SimDisk::new(4);
    let mut place = sim(&disk);
    let (open, steps) = churned(&mut place, 3);
    disk.fail_next(Operation::Sync, Fault::Io);
    let report = compact(&open, &steps, &all());
    assert_eq!(open.sink.fatal().len(), 1);
    assert_eq!((report.failed, report.cancelled), (1, 3));
    open.bucket.shutdown();
    disk.crash(1);
    let (again, _steps) = place.open_by_hand();
    check(&again, 3);
    again.bucket.shutdown();
}
