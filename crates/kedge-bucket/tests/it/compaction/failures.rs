//! Failing compactions: the old files stay intact, others continue, and failed ones are retried.

use super::*;
use kedge_disk::{Fault, Operation, SimDisk};

#[test]
fn compaction_of_one_file_fails_on_a_full_disk_and_is_retried() {
    let disk = SimDisk::new(1);
    let mut site = sim(&disk);
    let (open, steps) = churned(&mut site, 3);
    disk.fail_next(Operation::Create, Fault::NoSpace);
    let report = compact(&open, &steps, &all());
    assert_eq!((report.compacted, report.failed), (3, 1));
    assert_eq!(open.figure("ep_compaction_failed"), 1);
    let names_now = names(&site);
    let old = names_now.iter().filter(|name| name.ends_with(".couch.1"));
    assert_eq!((old.count(), names_now.len()), (1, 4), "{names_now:?}");
    // A change of the file does not delay the retry.
    open.set("key-1", &noise(3 * KEYS + 1, 4_096)).unwrap();
    open.bucket.persistence().apply().unwrap();
    steps.pass(MS * 900);
    assert_eq!(open.figure("ep_compactions"), 3);
    steps.pass(MS * 200);
    assert_eq!(open.figure("ep_compactions"), 4);
    assert_eq!(names(&site), revision(2));
    check(&open, 3);
    assert!(open.sink.fatal().is_empty());
    open.bucket.shutdown();
}

/// Bug: on a disk without free space every compaction failed, unless the log had a spare segment; without a log, always.
#[test]
fn disk_space_is_reserved_for_compactions() {
    for has_log in [true, false] {
        let disk = SimDisk::new(5);
        let mut site = sim(&disk);
        site.config.commit_log = has_log;
        site.reserve_bytes = 1 << 20;
        let (open, steps) = churned(&mut site, 3);
        let kept = || open.figure("ep_compaction_reserve_bytes");
        let file = site.dir.join("compaction.reserve");
        let is_there = || site.disk.exists(&file).unwrap();
        // Of little free space nothing is reserved.
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
        // The log has no spare segment when its writes have found the disk full.
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

/// Writes until there is no space.
fn until_refused(open: &Open, steps: &Steps, value: &[u8]) {
    let is_refused = (0..100).any(|n| {
        let refused = open.set(&format!("large-{n}"), value).is_err();
        steps.pass(MS * 100);
        refused
    });
    assert!(is_refused);
}

#[test]
fn compaction_that_meets_a_full_disk_leaves_no_file() {
    let disk = SimDisk::new(2);
    let mut site = sim(&disk);
    let (open, steps) = churned(&mut site, 3);
    let before = files(&site);
    let mut failed = 0;
    for room in (0..).step_by(5_000) {
        disk.set_capacity(Some(disk.used_bytes() + room));
        let report = compact(&open, &steps, &only(VbId(1)));
        disk.set_capacity(None);
        // Retries would disturb the test.
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
        assert_eq!(files(&site), before, "room for {room} bytes: {error}");
    }
    assert!(failed > 3, "{failed}");
    assert_eq!(open.figure("ep_compaction_failed"), failed);
    check(&open, 3);
    check_reopened(&mut site, &open, 3);
}

#[test]
fn compaction_of_an_unreadable_file_is_reported_and_retried_with_backoff() {
    let disk = SimDisk::new(3);
    let mut site = sim(&disk);
    let (open, steps) = churned(&mut site, 3);
    let file = file_of(&site, VbId(2));
    let middle = disk
        .used_bytes()
        .min(kedge_disk::Disk::len(&disk, &file).unwrap())
        * 2
        / 3;
    disk.make_unreadable(&file, middle);
    // The remains of the last version, wherever they are in the file.
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
    let sorted = names(&site);
    assert_eq!(sorted, ["0.couch.2", "1.couch.2", "2.couch.1", "3.couch.2"]);
    open.bucket.shutdown();
}

#[test]
fn failed_sync_of_a_compaction_ends_the_process() {
    let disk = SimDisk::new(4);
    let mut site = sim(&disk);
    let (open, steps) = churned(&mut site, 3);
    disk.fail_next(Operation::Sync, Fault::Io);
    let report = compact(&open, &steps, &all());
    assert_eq!(open.sink.fatal().len(), 1);
    assert_eq!((report.failed, report.cancelled), (1, 3));
    open.bucket.shutdown();
    disk.crash(1);
    let (again, _steps) = site.open_with_manual_tasks();
    check(&again, 3);
    again.bucket.shutdown();
}
