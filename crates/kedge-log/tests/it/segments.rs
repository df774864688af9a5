//! The life of segment files: small first, prepared in advance, recycled, released.

use kedge_disk::{Disk, Fault, Operation, SimDisk, read_file};
use kedge_log::{Log, LogConfig, Lsn, PreallocationStep, RecoveryMode};

use super::support::{
    HEADER_BYTES, Rec, append, catalog_path, config, dir, open, open_with, prepare, records,
};

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list(dir()).expect("list")
}

#[test]
fn segments_grow_fourfold_and_prepared_ones_are_used() {
    let disk = SimDisk::new(1);
    let mut log = open_sized(&disk, 8192, 64 << 10);
    assert!(!log.preallocator().is_needed() || log.stats().size_bytes == 8192);
    let mut sizes = vec![log.stats().size_bytes];
    let mut n = 0;
    while log.stats().segments < 5 {
        n += 1;
        append(&mut log, &records(n, 1, 900)).expect("append");
        prepare(&log.preallocator()).expect("prepare");
        let stats = log.stats();
        if stats.segments as usize > sizes.len() {
            sizes.push(stats.size_bytes - sizes.iter().sum::<u64>());
        }
    }
    assert_eq!(sizes, [8192, 32768, 65536, 65536, 65536]);
    let stats = log.stats();
    assert_eq!(
        (stats.ready_segments, stats.unready_segments),
        (4, 1),
        "all but the first"
    );
    assert_eq!(stats.prepared_segments, 5);
    drop(log);
    assert_eq!(open(&disk).expect("open").records.len(), n);
}

/// Replays the log after a crash, and checks that no unfinished files remain.
fn after_crash(disk: &SimDisk, seed: u64) -> Vec<Rec> {
    let disk = disk.fork();
    disk.crash(seed);
    let found = open(&disk).expect("open").records;
    let names = names(&disk);
    assert!(!names.iter().any(|name| name.starts_with("unfinished")));
    found
}

fn open_sized(disk: &SimDisk, first_segment_bytes: u64, segment_bytes: u64) -> Log {
    let config = LogConfig {
        first_segment_bytes,
        segment_bytes,
        max_spares: 0,
        ..config()
    };
    let opened = open_with(disk, config, RecoveryMode::Strict);
    opened.expect("open").log
}

/// A log that needs a segment of 2 MiB, which takes four steps to fill.
fn log_that_wants_a_segment(disk: &SimDisk) -> Log {
    let mut log = open_sized(disk, 512 << 10, 2 << 20);
    append(&mut log, &records(1, 3, 60_000)).expect("append");
    log
}

#[test]
fn segment_is_filled_stepwise_during_commits() {
    let disk = SimDisk::new(1);
    let mut log = log_that_wants_a_segment(&disk);
    let preallocator = log.preallocator();
    for n in 0..4 {
        assert!(preallocator.is_needed());
        assert_eq!(log.stats().spares, 0, "step {n}");
        assert_eq!(
            preallocator.step().expect("step"),
            PreallocationStep::Filled(512 << 10)
        );
        append(&mut log, &records(2 + n, 1, 100)).expect("append");
        assert_eq!(after_crash(&disk, n as u64).len(), 3 + n + 1);
    }
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Nothing
    );
    assert!(!preallocator.is_needed());
    let stats = log.stats();
    assert_eq!((stats.spares, stats.prepared_segments), (1, 1));
}

#[test]
fn filling_continues_although_another_segment_was_released() {
    let disk = SimDisk::new(1);
    let config = LogConfig {
        first_segment_bytes: 2 << 20,
        segment_bytes: 2 << 20,
        max_spares: 2,
        ..config()
    };
    let opened = open_with(&disk, config, RecoveryMode::Strict);
    let mut log = opened.expect("open").log;
    append(&mut log, &records(1, 1, 1000)).expect("append");
    let preallocator = log.preallocator();
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Filled(512 << 10)
    );
    assert_eq!(log.stats().spare_bytes, 2 << 20);
    log.end_segment().expect("end");
    append(&mut log, &records(2, 1, 1000)).expect("append");
    log.release_before(log.next_lsn());
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Renamed
    );
    assert_eq!(log.stats().spares, 1, "enough");
    assert!(preallocator.is_needed());
    assert!(prepare(&preallocator).expect("prepare"));
    assert!(!preallocator.is_needed());
    let stats = log.stats();
    assert_eq!((stats.spares, stats.spare_bytes), (2, 4 << 20));
}

#[test]
fn stopped_preallocator_leaves_no_partial_file() {
    for steps in 0..3 {
        let disk = SimDisk::new(1);
        let mut log = log_that_wants_a_segment(&disk);
        let preallocator = log.preallocator();
        for _ in 0..steps {
            preallocator.step().expect("step");
        }
        preallocator.stop();
        assert_eq!(
            log.preallocator().step().expect("step"),
            PreallocationStep::Nothing
        );
        assert_eq!(log.stats().prepared_segments, 0);
        assert_eq!(names(&disk).len(), 1, "{:?}", names(&disk));
        append(&mut log, &records(2, 5, 900)).expect("the log manages without");
    }
}

#[test]
fn failed_step_restarts_the_segment() {
    let disk = SimDisk::new(1);
    let log = log_that_wants_a_segment(&disk);
    let preallocator = log.preallocator();
    for op in [Operation::Write, Operation::Sync] {
        preallocator.step().expect("step");
        disk.fail_next(op, Fault::Io);
        preallocator.step().expect_err("ordered");
        assert_eq!(names(&disk).len(), 1, "{:?}", names(&disk));
    }
    assert!(prepare(&preallocator).expect("now it works"));
    assert_eq!(log.stats().spares, 1);
}

#[test]
fn idle_log_stays_small() {
    let disk = SimDisk::new(1);
    let config = LogConfig {
        keys: config().keys,
        ..LogConfig::default()
    };
    let log = open_with(&disk, config, RecoveryMode::Strict)
        .expect("open")
        .log;
    assert!(!prepare(&log.preallocator()).expect("prepare"));
    let catalog_bytes = disk.len(&catalog_path()).expect("a catalog");
    assert_eq!(disk.used_bytes(), (1 << 20) + catalog_bytes);
    // Five of them concern the catalog.
    assert!(
        disk.operations() <= 15,
        "{} operations for an empty log",
        disk.operations()
    );
}

#[test]
fn batch_larger_than_a_segment_gets_its_own_segment() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let mut expected = Vec::new();
    for (n, payload_bytes) in [(0, 10), (1, 100_000), (2, 10), (3, 40_000), (4, 16_384)] {
        let records = records(n, 1, payload_bytes);
        append(&mut log, &records).expect("append");
        expected.extend(records);
    }
    drop(log);
    disk.crash(1);
    assert_eq!(open(&disk).expect("open").records, expected);
}

#[test]
fn released_segments_are_recycled_up_to_max_spares() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let mut end = Lsn(0);
    // All records have one size, so that recycled files have old records at the positions of new ones.
    for n in 0..80 {
        end = append(&mut log, &records(n, 1, 1000)).expect("append");
    }
    let segments = log.stats().segments as usize;
    assert!(segments >= 5);
    assert_eq!(log.release_before(Lsn(0)), 0);
    assert_eq!(
        log.release_before(end),
        segments - 1,
        "the current one is kept"
    );
    assert_eq!(
        log.first_lsn(),
        open(&disk.fork())
            .expect("open")
            .log
            .first_lsn()
            .max(log.first_lsn())
    );
    assert_eq!(
        names(&disk).len(),
        segments,
        "the files go in the background"
    );
    let preallocator = log.preallocator();
    assert!(prepare(&preallocator).expect("retire"));
    assert_eq!(log.stats().spares, 1, "as many as the configuration keeps");
    assert_eq!(names(&disk).len(), 2);

    let mut kept = open(&disk.fork()).expect("open").records;
    let mut n = 100;
    while log.stats().ready_segments == 0 {
        n += 1;
        let records = records(n, 1, 1000);
        append(&mut log, &records).expect("append");
        kept.extend(records);
    }
    // Each write extends to the end of its page, which then needs no read and has no old bytes.
    let last = names(&disk)
        .into_iter()
        .rfind(|name| name.ends_with(".log"))
        .expect("a segment");
    let bytes = read_file(&disk, &dir().join(last)).expect("read");
    // It has one batch.
    let end = 4096 + HEADER_BYTES as usize + 1016;
    assert!(bytes[end - 64..end].iter().any(|byte| *byte != 0));
    let page = (end..bytes.len()).take_while(|at| at % 4096 != 0);
    assert!(page.clone().count() > 100);
    assert!(page.into_iter().all(|at| bytes[at] == 0));
    drop(log);
    for seed in 0..10 {
        let disk = disk.fork();
        disk.crash(seed);
        assert_eq!(open(&disk).expect("open").records, kept);
    }
}

#[test]
fn surplus_segments_are_reused_or_truncated_stepwise() {
    let disk = SimDisk::new(1);
    let mut log = open_sized(&disk, 4 << 20, 4 << 20);
    for n in 0..3 {
        append(&mut log, &records(n, 1, 1000)).expect("append");
        log.end_segment().expect("end");
    }
    let kept = records(3, 1, 1000);
    append(&mut log, &kept).expect("append");
    assert_eq!(log.release_before(log.next_lsn()), 3);
    let preallocator = log.preallocator();
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Renamed
    );
    assert_eq!((log.stats().spares, names(&disk).len()), (0, 4));
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Renamed
    );
    assert_eq!((log.stats().spares, names(&disk).len()), (1, 4));
    for left in [6 << 20, 4 << 20, 2 << 20, 0] {
        let bytes = 2 << 20;
        assert!(preallocator.is_needed());
        assert_eq!(
            preallocator.step().expect("step"),
            PreallocationStep::Cut { bytes, left }
        );
        let catalog_bytes = disk.len(&catalog_path()).expect("a catalog");
        assert_eq!(disk.used_bytes(), (8 << 20) + left + catalog_bytes);
        assert_eq!(after_crash(&disk, left), kept);
    }
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Nothing
    );
    assert!(!preallocator.is_needed());
    assert_eq!(names(&disk).len(), 2);
    assert_eq!(log.stats().prepared_segments, 0, "none was needed");
}

#[test]
fn recycle_removes_surplus_segments_at_once() {
    let disk = SimDisk::new(1);
    let mut log = log_that_wants_a_segment(&disk);
    log.end_segment().expect("end");
    append(&mut log, &records(2, 1, 10)).expect("append");
    assert_eq!(log.release_before(log.next_lsn()), 1);
    let preallocator = log.preallocator();
    assert_eq!(
        preallocator.step().expect("step"),
        PreallocationStep::Renamed
    );
    assert_eq!(names(&disk).len(), 2);
    preallocator.stop();
    preallocator.recycle().expect("recycle");
    assert_eq!(names(&disk).len(), 1, "{:?}", names(&disk));
}

#[test]
fn spares_survive_an_open_and_foreign_files_are_untouched() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(0, 1, 3000)).expect("append");
    prepare(&log.preallocator()).expect("prepare");
    for name in [
        "README",
        "spare-1",
        "unfinished-00000000000000000077",
        "5.log",
    ] {
        disk.create(&dir().join(name)).expect("create");
    }
    disk.create(&dir().join("spare-00000000000000000050"))
        .expect("an empty spare is of no use");
    drop(log);
    let opened = open(&disk).expect("open");
    assert_eq!(opened.log.stats().spares, 1);
    let expected = [
        "00000000000000000001.log",
        "5.log",
        "README",
        "spare-00000000000000000002",
        "spare-1",
    ];
    assert_eq!(names(&disk), expected);
    let none = LogConfig {
        max_spares: 0,
        ..config()
    };
    drop(opened);
    open_with(&disk, none, RecoveryMode::Strict).expect("open");
    assert!(
        !names(&disk).contains(&expected[3].to_owned()),
        "more than are wanted"
    );
}
