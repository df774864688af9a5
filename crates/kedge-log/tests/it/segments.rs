//! The life of segment files: small first, ready ahead, recycled, released.

use kedge_disk::{Disk, SimDisk, read_file};
use kedge_log::{LogConfig, Lsn, RecoveryMode};

use crate::support::{append, config, dir, open, open_with, records};

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list(dir()).expect("list")
}

#[test]
fn segments_grow_fourfold_and_ready_ones_are_used() {
    let disk = SimDisk::new(1);
    let config = LogConfig {
        first_segment_bytes: 8192,
        segment_bytes: 64 << 10,
        ..LogConfig::default()
    };
    let mut log = open_with(&disk, config, RecoveryMode::Strict)
        .expect("open")
        .log;
    assert!(!log.preparer().is_needed() || log.stats().size_bytes == 8192);
    let mut sizes = vec![log.stats().size_bytes];
    let mut n = 0;
    while log.stats().segments < 5 {
        n += 1;
        append(&mut log, &records(n, 1, 900)).expect("append");
        log.preparer().prepare_if_needed().expect("prepare");
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

#[test]
fn a_stopped_preparer_leaves_nothing_half_done() {
    let disk = SimDisk::new(1);
    let config = LogConfig {
        first_segment_bytes: 8192,
        segment_bytes: 64 << 10,
        ..LogConfig::default()
    };
    let mut log = open_with(&disk, config, RecoveryMode::Strict)
        .expect("open")
        .log;
    append(&mut log, &records(1, 3, 900)).expect("append");
    let preparer = log.preparer();
    assert!(preparer.is_needed());
    preparer.stop();
    preparer.prepare_if_needed().expect("prepare");
    assert_eq!(log.stats().prepared_segments, 0);
    assert_eq!(names(&disk).len(), 1, "{:?}", names(&disk));
    append(&mut log, &records(2, 5, 900)).expect("the log manages without");
}

#[test]
fn an_idle_log_stays_small() {
    let disk = SimDisk::new(1);
    let log = open_with(&disk, LogConfig::default(), RecoveryMode::Strict)
        .expect("open")
        .log;
    assert!(!log.preparer().prepare_if_needed().expect("prepare"));
    assert_eq!(disk.used_bytes(), 1 << 20);
    assert!(
        disk.operations() <= 10,
        "{} operations for an empty log",
        disk.operations()
    );
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_size() {
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
fn released_segments_are_recycled_up_to_a_number_and_leave_no_trace() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let mut end = Lsn(0);
    // All records of one size, so that recycled files have old records exactly where new ones go.
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
    let preparer = log.preparer();
    assert!(preparer.prepare_if_needed().expect("retire"));
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
    // Each write reaches to the end of its page, which needs no read then and has no old bytes.
    let last = names(&disk)
        .into_iter()
        .rfind(|name| name.ends_with(".log"))
        .expect("a segment");
    let bytes = read_file(&disk, &dir().join(last)).expect("read");
    let filler = [(n * 31) as u8; 64];
    let used = bytes
        .windows(64)
        .rposition(|window| window == filler)
        .expect("the last record");
    let page = (used + 64 + 8..bytes.len()).take_while(|at| at % 4096 != 0);
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
fn spares_survive_an_open_and_foreign_files_are_left_alone() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(0, 1, 3000)).expect("append");
    log.preparer().prepare_if_needed().expect("prepare");
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
