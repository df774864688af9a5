//! Failed syncs, failing devices and full disks.

use kedge_disk::{Disk, Fault, Operation, SimDisk};
use kedge_log::{Batch, LogError};

use super::support::{append, dir, fill, open, prepare, records, segment_path};

#[test]
fn failed_sync_makes_the_log_reject_all_operations() {
    let disk = SimDisk::new(3);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(1, 2, 100)).expect("append");
    disk.fail_next(Operation::Sync, Fault::Io);
    let error = append(&mut log, &records(2, 2, 3000)).expect_err("the sync fails");
    assert!(matches!(error, LogError::SyncFailed(_)), "{error}");
    let before = disk.operations();
    let error = append(&mut log, &records(3, 1, 10)).expect_err("closed");
    assert!(matches!(error, LogError::PreviousIo), "{error}");
    assert!(matches!(log.write_marker(), Err(LogError::PreviousIo)));
    assert!(matches!(
        log.append(&mut Batch::new()),
        Err(LogError::PreviousIo)
    ));
    assert!(matches!(log.close(), Err(LogError::PreviousIo)));
    assert_eq!(disk.operations(), before, "nothing more was written");
}

#[test]
fn recovery_rewrites_data_that_a_failed_sync_dropped() {
    // The batch is in the page cache and not on disk, and the kernel reports that there is nothing to sync. Without a
    // rewrite, recovery would publish records that the next crash removes.
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mut log = open(&disk).expect("open").log;
        append(&mut log, &records(1, 2, 100)).expect("append");
        disk.fail_next(Operation::Sync, Fault::Io);
        append(&mut log, &records(2, 3, 1000)).expect_err("the sync fails");
        disk.kill_process();
        let found = open(&disk).expect("open").records;
        assert_eq!(found.len(), 5, "the cache still has all of it");
        disk.crash(seed);
        assert_eq!(open(&disk).expect("open").records, found, "seed {seed}");
    }
}

#[test]
fn append_fails_on_a_full_disk_and_succeeds_with_space() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(20_000));
    let mut log = open(&disk).expect("open").log;
    let mut expected = Vec::new();
    let mut batch = Batch::new();
    let mut refused = 0;
    for n in 0..30 {
        let records = records(n, 2, 700);
        fill(&mut batch, &records);
        expected.extend(records);
        let next = log.next_lsn();
        if let Err(error) = log.append(&mut batch) {
            assert!(error.is_no_space(), "{error}");
            assert_eq!(log.next_lsn(), next);
            refused += 1;
            // Still rejected, nothing is lost, and a small batch that fits is accepted.
            assert!(
                log.append(&mut batch)
                    .expect_err("still full")
                    .is_no_space()
            );
            disk.set_capacity(Some(disk.used_bytes() + 17_000));
            log.append(&mut batch).expect("there is room");
        }
        assert!(batch.is_empty());
    }
    assert!(refused >= 2, "the disk was full {refused} times");
    let unfinished = |name: &String| name.starts_with("unfinished");
    assert!(
        !disk.list(dir()).expect("list").iter().any(unfinished),
        "no litter"
    );
    drop(log);
    disk.crash(1);
    assert_eq!(open(&disk).expect("open").records, expected);
}

#[test]
fn nearly_full_disk_gets_a_small_segment() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    disk.set_capacity(Some(8192 + 8192 + 100));
    for n in 0..6 {
        append(&mut log, &records(n, 1, 1000)).expect("the wanted 16 KiB do not fit, 8 KiB do");
    }
    assert_eq!(log.stats().size_bytes, 16384);
    append(&mut log, &records(9, 1, 100)).expect("append");
}

#[test]
fn full_disk_at_any_operation_loses_nothing() {
    let run = |number: Option<u64>| {
        let disk = SimDisk::new(5);
        let mut log = open(&disk).expect("open").log;
        let base = disk.operations();
        if let Some(number) = number {
            disk.fail_operation(base + number, Fault::NoSpace);
        }
        let mut expected = Vec::new();
        let mut batch = Batch::new();
        let mut has_failed = false;
        for n in 0..12 {
            let records = records(n, 2, 200 * n);
            fill(&mut batch, &records);
            expected.extend(records);
            match log.append(&mut batch) {
                Ok(_) => {}
                Err(LogError::NoSpace(_)) => drop(log.append(&mut batch).expect("room again")),
                // A sync that reports a full disk is a failed sync like any other.
                Err(LogError::SyncFailed(_)) => {
                    has_failed = true;
                    break;
                }
                Err(error) => panic!("operation {number:?}: {error}"),
            }
            if n % 4 == 0 {
                drop(prepare(&log.preallocator()));
            }
        }
        let operations = disk.operations() - base;
        drop(log);
        disk.crash(number.unwrap_or(0));
        let found = open(&disk)
            .unwrap_or_else(|e| panic!("operation {number:?}: {e}"))
            .records;
        // The batch of a failed sync may exist or not.
        let least = expected.len() - if has_failed { 2 } else { 0 };
        assert!(
            found.len() >= least,
            "operation {number:?}: {} of {least}",
            found.len()
        );
        assert_eq!(found, expected[..found.len()], "operation {number:?}");
        operations
    };
    let operations = run(None);
    for number in 1..=operations {
        run(Some(number));
    }
}

#[test]
fn prepared_segment_is_kept_after_a_failed_use() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(1, 1, 3000)).expect("append");
    prepare(&log.preallocator()).expect("prepare");
    disk.fail_next(Operation::Write, Fault::NoSpace);
    assert!(
        append(&mut log, &records(2, 1, 3000))
            .expect_err("ordered")
            .is_no_space()
    );
    assert_eq!(log.stats().spares, 1);
    append(&mut log, &records(2, 1, 3000)).expect("append");
    assert_eq!((log.stats().spares, log.stats().ready_segments), (0, 1));
    drop(log);
    assert_eq!(open(&disk).expect("open").records.len(), 2);
}

#[test]
fn failing_preallocator_does_not_affect_appends() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(1, 2, 1000)).expect("append");
    let preallocator = log.preallocator();
    assert!(preallocator.is_needed());
    for (op, fault) in [
        (Operation::Create, Fault::NoSpace),
        (Operation::Allocate, Fault::NoSpace),
        (Operation::Write, Fault::NoSpace),
        (Operation::Write, Fault::Io),
        (Operation::Sync, Fault::Io),
    ] {
        disk.fail_next(op, fault);
        let error = prepare(&preallocator).expect_err("ordered");
        assert_eq!(error.is_no_space(), fault == Fault::NoSpace, "{error}");
        assert_eq!(disk.list(dir()).expect("list").len(), 1, "no litter");
        append(&mut log, &records(2, 1, 10)).expect("append");
    }
    assert!(prepare(&preallocator).expect("now it works"));
    assert!(!prepare(&preallocator).expect("nothing more to do"));
    assert_eq!(log.stats().spares, 1);
}

/// A full disk used to prevent a start: an open rewrites the tail of the log and starts a new epoch after it, and
/// failed when one of these found no space.
#[test]
fn open_on_a_full_disk_replays_and_the_first_append_finishes_it() {
    let history = |disk: &SimDisk| {
        let mut log = open(disk).expect("open").log;
        for n in 0..6 {
            append(&mut log, &records(n, 2, 900)).expect("append");
        }
        records(0, 2, 900).len() * 6
    };
    for (op, number) in [
        (Operation::Write, None),
        (Operation::Create, None),
        (Operation::Allocate, None),
        (Operation::Rename, None),
        (Operation::Create, Some(24)),
        (Operation::Rename, Some(13)),
    ] {
        let fault = number.map_or(Fault::NoSpace, Fault::Os);
        for is_new in [false, true] {
            let disk = SimDisk::new(9);
            let count = if is_new { 0 } else { history(&disk) };
            disk.kill_process();
            disk.fail_every(op, fault);
            let opened = open(&disk).unwrap_or_else(|error| panic!("{op}: {error}"));
            assert_eq!(opened.records.len(), count, "{op}");
            assert_eq!(opened.report.is_new, is_new);
            let mut log = opened.log;
            // An open of an existing log only writes; a new log gets its first segment.
            let waits = is_new || op == Operation::Write;
            assert_eq!(log.is_waiting(), waits, "{op}");
            let mut batch = Batch::new();
            fill(&mut batch, &records(7, 1, 100));
            if log.is_waiting() {
                let error = log.append(&mut batch).expect_err("still refused");
                assert_eq!(error.is_no_space(), number.is_none(), "{error}");
                assert!(error.is_passing(), "{error}");
                // An empty log has no segment to end.
                assert_eq!(log.end_segment().is_ok(), is_new, "{op}");
            }
            disk.clear_faults();
            log.append(&mut batch).expect("there is room");
            assert!(!log.is_waiting());
            drop(log);
            disk.crash(1);
            assert_eq!(open(&disk).expect("open").records.len(), count + 1, "{op}");
        }
    }
}

/// A new segment that could not be created for lack of descriptors used to end the process.
#[test]
fn batch_is_appended_later_after_a_refusal_of_the_system() {
    const EMFILE: Fault = Fault::Os(24);
    const EACCES: Fault = Fault::Os(13);
    for (op, fault) in [
        (Operation::Create, EMFILE),
        (Operation::Create, EACCES),
        (Operation::Allocate, Fault::Io),
        (Operation::Write, Fault::Io),
        (Operation::Rename, EACCES),
        (Operation::Rename, Fault::Io),
        (Operation::Open, EMFILE),
    ] {
        let disk = SimDisk::new(2);
        let mut log = open(&disk).expect("open").log;
        append(&mut log, &records(1, 1, 3000)).expect("append");
        if op == Operation::Open {
            prepare(&log.preallocator()).expect("a spare");
        }
        // The next batch needs another segment, whose header is written first.
        let mut batch = Batch::new();
        fill(&mut batch, &records(2, 1, 3000));
        for _ in 0..3 {
            disk.fail_next(op, fault);
            let error = log.append(&mut batch).expect_err("ordered");
            assert!(matches!(error, LogError::Refused(_)), "{op}: {error}");
        }
        log.append(&mut batch)
            .unwrap_or_else(|error| panic!("{op}: {error}"));
        let names = disk.list(dir()).expect("list");
        assert_eq!(names.len(), 2, "{op}: no litter: {names:?}");
        drop(log);
        disk.crash(2);
        assert_eq!(open(&disk).expect("open").records.len(), 2, "{op}");
    }
}

#[test]
fn failed_write_of_a_batch_closes_the_log() {
    let disk = SimDisk::new(2);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(1, 1, 100)).expect("append");
    disk.fail_next(Operation::Write, Fault::Io);
    let error = append(&mut log, &records(2, 1, 100)).expect_err("ordered");
    assert!(matches!(error, LogError::Io(_)), "{error}");
    let error = append(&mut log, &records(2, 1, 100)).expect_err("closed");
    assert!(matches!(error, LogError::PreviousIo), "{error}");
}

/// The origin of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The open of a new log created it.
    Open,
    /// The append created it.
    Append,
    /// The preallocator created it.
    Preallocator,
}

/// Bug: errors named the file by its name before it became a segment, `unfinished-…` or `spare-…`, which nobody finds.
#[test]
fn errors_of_an_append_name_the_present_file_of_the_segment() {
    for (op, fault) in [
        (Operation::Write, Fault::Io),
        (Operation::Write, Fault::NoSpace),
        (Operation::Sync, Fault::Io),
    ] {
        for origin in [Origin::Open, Origin::Append, Origin::Preallocator] {
            let disk = SimDisk::new(2);
            let mut log = open(&disk).expect("open").log;
            append(&mut log, &records(1, 1, 3000)).expect("append");
            if origin == Origin::Preallocator {
                prepare(&log.preallocator()).expect("a spare");
            }
            if origin != Origin::Open {
                append(&mut log, &records(2, 1, 3000)).expect("append");
            }
            let is_ready = u64::from(origin == Origin::Preallocator);
            assert_eq!(log.stats().ready_segments, is_ready);
            disk.fail_next(op, fault);
            let error = append(&mut log, &records(3, 1, 100)).expect_err("ordered");
            let (LogError::Io(error) | LogError::NoSpace(error) | LogError::SyncFailed(error)) =
                error
            else {
                panic!("{error}");
            };
            let number = if origin == Origin::Open { 1 } else { 2 };
            assert_eq!(error.path, segment_path(number), "{op}, {origin:?}");
            assert!(disk.exists(&error.path).expect("a look"));
        }
    }
}

#[test]
fn give_up_space_frees_unused_files() {
    let disk = SimDisk::new(4);
    let mut log = open(&disk).expect("open").log;
    let mut last = log.next_lsn();
    for n in 0..12 {
        last = append(&mut log, &records(n, 1, 7000)).expect("append");
    }
    let preallocator = log.preallocator();
    prepare(&preallocator).expect("a spare");
    log.release_before(last);
    let before = disk.used_bytes();
    let freed = preallocator.give_up_space().expect("it works");
    assert_eq!(before - disk.used_bytes(), freed);
    assert!(freed >= 5 * 16384, "{freed}");
    assert!(!preallocator.is_needed(), "nothing is made ready meanwhile");
    assert_eq!(log.stats().spares, 0);
    append(&mut log, &records(13, 1, 7000)).expect("append");
    append(&mut log, &records(14, 1, 7000)).expect("append");
    assert!(!preallocator.is_needed());
    preallocator.go_on();
    assert!(preallocator.is_needed());
    assert!(prepare(&preallocator).expect("now"));
    assert_eq!(log.stats().spares, 1);
}
