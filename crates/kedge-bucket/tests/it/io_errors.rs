//! The outcome of each call that the disk refuses: the table of `docs/reference/io-errors.md`, row by row.

mod nth_call;
mod starts;
mod switches;
mod vbucket_changes;

use crate::tools::*;
use kedge_bucket::{CompactionRequest, CompactionTicket, Outcome};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::Status;
use std::time::Duration;

/// The error numbers of Linux.
const EMFILE: Fault = Fault::Os(24);
const ENFILE: Fault = Fault::Os(23);
const EACCES: Fault = Fault::Os(13);
const EROFS: Fault = Fault::Os(30);
const EDQUOT: Fault = Fault::Os(122);

const CALLS: [Operation; 10] = [
    Operation::Read,
    Operation::Create,
    Operation::Open,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::Remove,
    Operation::SyncDir,
    Operation::SetLen,
    Operation::Allocate,
];
const FAULTS: [Fault; 7] = [
    Fault::NoSpace,
    EDQUOT,
    EMFILE,
    ENFILE,
    EACCES,
    EROFS,
    Fault::Io,
];

/// Returns whether the error is fatal according to the documented table.
fn is_fatal(op: Operation, fault: Fault, has_log: bool) -> bool {
    match op {
        Operation::Sync | Operation::SyncDir => true,
        // A failed write to the log leaves an unknown state. A vBucket's file is written after its valid contents.
        Operation::Write => has_log && !matches!(fault, Fault::NoSpace | EDQUOT),
        _ => false,
    }
}

/// Each call fails for a while, for each reason, during writes, an apply and compactions.
///
/// Bug: a lack of descriptors, a missing right to create a file and a failed rename ended the process, as did every error of
/// the log except a full disk.
#[test]
fn each_failing_disk_call_has_its_documented_outcome() {
    for has_log in [true, false] {
        for op in CALLS {
            for fault in FAULTS {
                one(op, fault, has_log);
            }
        }
    }
}

/// Returns the numbers of files that were compacted, and of those that could not be.
fn files(ticket: &CompactionTicket) -> (u32, u32) {
    let report = ticket
        .wait_for(Duration::ZERO)
        .expect("the compactions ended");
    (report.compacted, report.failed)
}

fn one(op: Operation, fault: Fault, has_log: bool) {
    let what = format!("{op}, {fault:?}, log: {has_log}");
    let disk = SimDisk::new(1);
    let mut site = sim(&disk);
    site.config.commit_log = has_log;
    site.config.log_bytes_max = 256 << 10;
    let (open, steps) = site.open_with_manual_tasks();
    let value = vec![b'x'; 20_000];
    for n in 0..8 {
        open.set(&format!("before-{n}"), &value).unwrap();
    }
    steps.pass(SEC * 30);
    // The log has a segment with room for the next write now.
    open.set("small", &value[..6_000]).unwrap();
    steps.pass(SEC * 30);
    disk.fail_every(op, fault);
    let mut taken = Vec::new();
    for n in 0..60 {
        let name = format!("key-{n}");
        let document = key(&name);
        match open.store(&write(&document), &value) {
            Ok(Outcome::Done(_)) => taken.push(name),
            Ok(Outcome::Parked) | Err(Status::TemporaryFailure) => {}
            Err(other) => panic!("{what}: {other:?}"),
        }
        steps.pass(MS * 20);
    }
    // A file that is not open, and one that is to be replaced.
    let compact = || {
        let compactions = open.bucket.persistence().compactions();
        compactions.compact(&CompactionRequest::default())
    };
    let ticket = compact();
    steps.pass(SEC * 30);
    let fatal = open.sink.fatal();
    assert_eq!(
        !fatal.is_empty(),
        is_fatal(op, fault, has_log),
        "{what}: {fatal:?}"
    );
    if fatal.is_empty() {
        let fails = matches!(
            op,
            Operation::Read
                | Operation::Create
                | Operation::Open
                | Operation::Write
                | Operation::Rename
        );
        let expected = if fails { (0, 4) } else { (4, 0) };
        assert_eq!(files(&ticket.unwrap()), expected, "{what}: compactions");
        assert_eq!(open.get("before-0").unwrap(), value, "{what}: reads go on");
        let refuses = open.figure("ep_disk_full") + open.figure("ep_disk_refuses");
        if refuses > 0 {
            assert_eq!(
                open.set("refused", b"1"),
                Err(Status::TemporaryFailure),
                "{what}"
            );
        }
        disk.clear_faults();
        // Retries happen within a few seconds.
        steps.pass(SEC * 10);
        assert_eq!(open.figure("ep_disk_full"), 0, "{what}");
        assert_eq!(open.figure("ep_disk_refuses"), 0, "{what}");
        open.set("after", b"1")
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        taken.push("after".to_owned());
        steps.pass(SEC * 30);
        assert!(
            open.sink.fatal().is_empty(),
            "{what}: {:?}",
            open.sink.fatal()
        );
        assert_eq!(open.figure("ep_queue_size"), 0, "{what}");
        let ticket = compact().unwrap();
        steps.pass(SEC * 30);
        assert_eq!(files(&ticket), (4, 0), "{what}: compactions without faults");
    } else {
        taken.clear();
        assert_eq!(
            open.set("refused", b"1"),
            Err(Status::TemporaryFailure),
            "{what}"
        );
        disk.clear_faults();
        open.bucket.shutdown();
    }
    disk.crash(7);
    if fatal.is_empty() {
        open.bucket.shutdown();
    }
    let (again, _steps) = site.open_with_manual_tasks();
    assert_eq!(again.get("before-7").unwrap(), value, "{what}");
    for name in taken {
        assert!(again.get(&name).is_ok(), "{what}: {name} is lost");
    }
    again.bucket.shutdown();
}
