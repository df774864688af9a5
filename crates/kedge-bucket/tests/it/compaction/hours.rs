//! Compaction within allowed hours of the day. The manual clock starts at 22:13:20.

use super::*;
use kedge_bucket::{BucketChange, CompactionChange, CompactionHours};
use kedge_disk::{Disk, SimDisk};

fn hours(from: (u16, u16), to: (u16, u16), abort_outside: bool) -> Option<CompactionHours> {
    Some(CompactionHours {
        from_minute: from.0 * 60 + from.1,
        to_minute: to.0 * 60 + to.1,
        abort_outside,
    })
}

const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn automatic_compactions_wait_for_the_allowed_hours_and_requested_ones_do_not() {
    let mut site = sim(&SimDisk::new(31));
    site.config.compaction.hours = hours((23, 0), (0, 30), false);
    let (open, steps) = churned(&mut site, 60);
    steps.pass(MINUTE * 45);
    assert_eq!(names(&site), revision(1), "it is 22:58");
    assert_eq!(compact(&open, &steps, &only(VbId(0))).compacted, 1);
    assert_eq!(open.figure("ep_compactions"), 1);
    steps.pass(MINUTE * 2);
    assert_eq!(names(&site), revision(2), "it is 23:00");
    check(&open, 60);
    // No compaction starts after the end of the hours.
    steps.pass(MINUTE * 91);
    churn(&open, 60);
    steps.pass(MINUTE);
    assert_eq!(open.figure("ep_compactions"), 4);
    check_reopened(&mut site, &open, 60);
}

#[test]
fn compactions_are_aborted_outside_the_allowed_hours_if_configured() {
    for abort_outside in [false, true] {
        let disk = SimDisk::new(32);
        let mut site = sim(&disk);
        site.config.compaction.hours = hours((22, 0), (23, 0), abort_outside);
        let (open, steps) = churned(&mut site, 60);
        let file = file_of(&site, VbId(2));
        let len = disk.len(&file).unwrap();
        for offset in (len * 2 / 3..len).step_by(512) {
            disk.make_unreadable(&file, offset);
        }
        // The compaction fails and is retried.
        steps.pass(MINUTE * 45);
        assert_eq!(open.figure("ep_compactions_queued"), 1);
        assert_eq!(open.figure("ep_compactions"), 3);
        steps.pass(MINUTE * 15);
        let queued = open.figure("ep_compactions_queued");
        assert_eq!(queued, u64::from(!abort_outside), "it is 23:13");
        let before = open.figure("ep_compaction_failed");
        steps.pass(MINUTE * 60);
        let failed = open.figure("ep_compaction_failed") > before;
        assert_eq!(failed, !abort_outside);
        // The next day it is retried.
        steps.pass(MINUTE * 60 * 22);
        assert!(open.figure("ep_compaction_failed") > before);
        assert_eq!(open.figure("ep_compactions_queued"), 1, "it is 22:13");
        open.bucket.shutdown();
    }
}

#[test]
fn waiting_compactions_start_when_the_allowed_hours_are_removed() {
    let mut site = sim(&SimDisk::new(33));
    site.config.compaction.hours = hours((12, 0), (13, 0), false);
    let (open, steps) = churned(&mut site, 60);
    steps.pass(MINUTE);
    assert_eq!(names(&site), revision(1), "it is 22:14");
    let compaction = CompactionChange {
        hours: Some(None),
        ..CompactionChange::default()
    };
    let change = BucketChange {
        compaction,
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    steps.pass(SEC * 11);
    assert_eq!(names(&site), revision(2), "it is 22:14 still");
    check_reopened(&mut site, &open, 60);
}
