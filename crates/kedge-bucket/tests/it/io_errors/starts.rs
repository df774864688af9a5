//! Starts of a bucket, of which one disk call fails.

use super::nth_call::{FAULTS, FailedCall, NthCall, is_full};
use crate::tools::*;
use kedge_bucket::Bucket;
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::Status;
use std::sync::Arc;

/// The state that a stop has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Clean,
    Unclean,
}

pub(super) fn left_by_a_stop(has_log: bool, left: Left) -> SimDisk {
    let disk = SimDisk::new(4);
    let mut site = sim(&disk);
    if left == Left::Nothing {
        return disk;
    }
    site.config.commit_log = has_log;
    let (open, _steps) = site.open_with_manual_tasks();
    for vb in all_vbuckets() {
        for (name, is_applied) in names_in(vb).zip([true, false]) {
            open.set(&name, b"value").unwrap();
            if is_applied {
                open.bucket.persistence().apply().unwrap();
            }
        }
    }
    open.bucket.persistence().sync().unwrap();
    if left == Left::Clean {
        open.bucket.shutdown();
        return disk;
    }
    let killed = disk.fork();
    killed.kill_process();
    killed
}

/// Returns whether the bucket loads according to the documented table; `None` for look-ups, which may be repeated.
fn loads(failed: &FailedCall, fault: Fault, has_log: bool) -> Option<bool> {
    let name = failed.path.file_name().unwrap().to_string_lossy();
    let is_vbucket_file = name.contains(".couch.");
    if failed.is_sync() {
        // With a log the files are synced later.
        return Some(has_log && is_vbucket_file);
    }
    match failed.op {
        // No read reports a full disk.
        Operation::Read if is_full(fault) => None,
        // Without a log the files are read again to be synced.
        Operation::Read if is_vbucket_file => has_log.then_some(true),
        Operation::Read => Some(false),
        Operation::Create | Operation::Write | Operation::Rename | Operation::Allocate => {
            let is_refusal = failed.op != Operation::Write;
            Some(
                is_full(fault)
                    || match &*name {
                        "direct.tmp" | "vbuckets.catalog" => true,
                        "vbuckets.catalog.tmp" => false,
                        _ if is_vbucket_file => has_log,
                        // A segment of the log, or the log's catalog.
                        _ => is_refusal || failed.is_segment_header(),
                    },
            )
        }
        // With a log the files are opened again to be synced later.
        Operation::Open if is_vbucket_file && has_log => None,
        Operation::List | Operation::Open => (!is_full(fault)).then_some(false),
        _ => None,
    }
}

/// Checks all documents, except those of a vBucket in quarantine.
pub(super) fn check_documents(open: &Open, steps: &Steps, what: &str) {
    for vb in all_vbuckets() {
        for name in names_in(vb).take(2) {
            match open.get_by_hand(steps, &name) {
                Ok(value) => assert_eq!(value, b"value", "{what}"),
                Err(error) => {
                    assert_eq!(error, Status::TemporaryFailure, "{what}: {name}");
                    assert_eq!(open.figure("ep_vb_quarantined"), 1, "{what}: {name}");
                }
            }
        }
    }
}

/// The call that failed, and whether the bucket loaded, and then whether in the histories of the stop.
struct Started {
    failed: FailedCall,
    is_clean: Option<bool>,
}

/// Starts with a call that fails. Returns `None` if a start makes fewer calls.
fn start(
    before: &SimDisk,
    has_log: bool,
    left: Left,
    fault: Fault,
    number: u64,
) -> Option<Started> {
    let disk = before.fork();
    let mut site = sim(&disk);
    site.config.commit_log = has_log;
    let calls = NthCall::install(&mut site, &disk);
    let steps = site.manual_tasks();
    calls.fail_after(number, fault);
    let sink = Arc::new(Sink::default());
    let opened = Bucket::open(site.setup(&sink));
    let loaded = opened.and_then(|bucket| {
        steps.run();
        let report = bucket.wait_loaded();
        if report.is_err() {
            bucket.shutdown();
        }
        report.map(|report| (bucket, report.clean))
    });
    let failed = calls.failed()?;
    let what = format!("{failed:?}, {fault:?}, log: {has_log}, {left:?}");
    if let Some(expected) = loads(&failed, fault, has_log) {
        let why = loaded.as_ref().err();
        assert_eq!(loaded.is_ok(), expected, "{what}: {why:?}");
    }
    let is_clean = loaded.as_ref().ok().map(|(_, is_clean)| *is_clean);
    let is_fatal = loaded.is_ok() && failed.is_sync();
    assert_eq!(!sink.fatal().is_empty(), is_fatal, "{what}");
    match loaded {
        Err(error) => {
            let path = failed.path.display().to_string();
            assert!(error.to_string().contains(&path), "{what}: {error}");
        }
        Ok((bucket, is_clean)) => {
            // Changes may be lost from now on, and nothing notes it.
            let is_noted = !failed.path.ends_with("direct.tmp");
            assert!(is_noted || !is_clean, "{what}: no new branch");
            let open = site.opened(bucket, sink);
            if !is_fatal && left != Left::Nothing {
                check_documents(&open, &steps, &what);
            }
            open.bucket.shutdown();
        }
    }
    disk.crash(number);
    let (again, steps) = site.open_with_manual_tasks();
    assert_eq!(again.figure("ep_vb_quarantined"), 0, "{what}");
    if left != Left::Nothing {
        check_documents(&again, &steps, &what);
    }
    again.set("new", b"1").unwrap();
    again.bucket.shutdown();
    Some(Started { failed, is_clean })
}

#[test]
fn each_failing_call_of_a_start_has_its_documented_outcome() {
    for has_log in [true, false] {
        for left in [Left::Nothing, Left::Clean, Left::Unclean] {
            let before = left_by_a_stop(has_log, left);
            for fault in FAULTS {
                let starts = (0..).map_while(|number| start(&before, has_log, left, fault, number));
                let starts: Vec<Started> = starts.collect();
                assert!(starts.len() > 15, "it took {} calls", starts.len());
                let is_unnoted = |it: &&Started| {
                    let is_record = it.failed.op == Operation::Write && it.failed.is_in_log();
                    is_record && it.is_clean == Some(false)
                };
                if has_log && left == Left::Clean {
                    // The record behind the clean end could not be written, or the bucket does not load.
                    let count = starts.iter().filter(is_unnoted).count();
                    assert_eq!(count, usize::from(is_full(fault)), "{fault:?}");
                }
            }
        }
    }
}
