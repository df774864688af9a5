//! Starts that switch the commit log off or on, of which one disk call fails.

use super::nth_call::{FAULTS, FailedCall, NthCall, is_full};
use super::starts::{Left, check_documents, left_by_a_stop};
use super::{EROFS, Fault};
use crate::tools::*;
use kedge_bucket::Bucket;
use kedge_disk::{Operation, SimDisk};
use std::sync::Arc;

/// A start that changes the setting `commit_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    Off,
    On,
}

/// Returns whether the bucket loads according to the documented table; `None` for look-ups, which may be repeated.
fn loads(failed: &FailedCall, fault: Fault) -> Option<bool> {
    let name = failed.path.file_name().unwrap().to_string_lossy();
    if failed.is_sync() {
        return Some(false);
    }
    match failed.op {
        // No read reports a full disk. Documents are read after the switch, and a failure is that of their vBucket.
        Operation::Read if is_full(fault) || name.contains(".couch.") => None,
        Operation::Read => Some(false),
        Operation::Create | Operation::Write | Operation::Rename | Operation::Allocate => {
            let is_passing = is_full(fault) || failed.op != Operation::Write;
            Some(match &*name {
                "vbuckets.catalog" => true,
                "vbuckets.catalog.tmp" => is_full(fault),
                // Segments of the log, and its catalog: the log continues without.
                _ if failed.is_in_log() || name.starts_with("log.catalog") => {
                    is_passing || failed.is_segment_header()
                }
                _ => false,
            })
        }
        Operation::List | Operation::Open => (!is_full(fault)).then_some(false),
        _ => None,
    }
}

/// Checks that the bucket loads with all its documents.
fn reopen(disk: &SimDisk, has_log: bool, what: &str) {
    let mut site = sim(disk);
    site.config.commit_log = has_log;
    let (again, steps) = site.open_with_manual_tasks();
    assert_eq!(again.figure("ep_vb_quarantined"), 0, "{what}");
    check_documents(&again, &steps, what);
    again.set("new", b"1").unwrap();
    again.bucket.shutdown();
    assert!(again.sink.fatal().is_empty(), "{what}");
    assert_eq!(disk_has_log(disk, &site), has_log, "{what}");
}

fn disk_has_log(disk: &SimDisk, site: &TestSite) -> bool {
    kedge_disk::Disk::exists(disk, &site.dir.join("log")).unwrap()
}

/// Starts with a call that fails. Returns the call, or `None` if a start makes fewer.
fn start(
    before: &SimDisk,
    switch: Switch,
    left: Left,
    fault: Fault,
    number: u64,
) -> Option<FailedCall> {
    let disk = before.fork();
    let mut site = sim(&disk);
    site.config.commit_log = switch == Switch::On;
    let calls = NthCall::install(&mut site, &disk);
    let steps = site.manual_tasks();
    calls.fail_after(number, fault);
    let sink = Arc::new(Sink::default());
    let loaded = Bucket::open(site.setup(&sink)).and_then(|bucket| {
        steps.run();
        let report = bucket.wait_loaded();
        if report.is_err() {
            bucket.shutdown();
        }
        report.map(|_| bucket)
    });
    let failed = calls.failed()?;
    let what = format!("{failed:?}, {fault:?}, {switch:?}, {left:?}");
    if let Some(expected) = loads(&failed, fault) {
        let why = loaded.as_ref().err();
        assert_eq!(loaded.is_ok(), expected, "{what}: {why:?}");
    }
    assert!(failed.is_sync() || sink.fatal().is_empty(), "{what}");
    match loaded {
        Err(error) => {
            let path = failed.path.display().to_string();
            // A sync that fails while the log is applied ends the process with its reason.
            let whys = sink.fatal().into_iter().chain([error.to_string()]);
            let whys: Vec<String> = whys.collect();
            assert!(whys[0].contains(&path), "{what}: {whys:?}");
        }
        Ok(bucket) => {
            assert_eq!(disk_has_log(&disk, &site), switch == Switch::On, "{what}");
            let open = site.opened(bucket, sink);
            check_documents(&open, &steps, &what);
            open.bucket.shutdown();
        }
    }
    // The next start has the new setting, or the old one again, after a kill or a power failure.
    let killed = disk.fork();
    killed.kill_process();
    disk.crash(number);
    let has_log = number.is_multiple_of(2);
    reopen(&killed, has_log, &format!("{what}: killed, then {has_log}"));
    reopen(
        &disk,
        !has_log,
        &format!("{what}: crashed, then {}", !has_log),
    );
    Some(failed)
}

#[test]
fn each_failing_call_of_a_switch_of_the_commit_log_has_its_documented_outcome() {
    for switch in [Switch::Off, Switch::On] {
        for left in [Left::Clean, Left::Unclean] {
            let before = left_by_a_stop(switch == Switch::Off, left);
            for fault in FAULTS.into_iter().chain([EROFS]) {
                let starts = (0..).map_while(|number| start(&before, switch, left, fault, number));
                let count = starts.count();
                assert!(count > 15, "{switch:?}, {left:?}: it took {count} calls");
            }
        }
    }
}
