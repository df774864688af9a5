//! Damage to durable data is reported, or skipped and counted, and never overlooked.

use std::path::Path;

use kedge_disk::{Disk, SimDisk, read_file, replace_file};
use kedge_log::{CorruptionKind, LogError, Lsn};

use super::support::{
    HEADER_BYTES, RECORD_DAMAGE, Rec, append, catalog_path, dir, open, prepare, records, salvage,
    segment_path,
};

/// Creates a log of several batches in three segments. Returns the records per batch.
fn log_with_batches(disk: &SimDisk, is_closed: bool) -> Vec<Vec<Rec>> {
    let mut log = open(disk).expect("open").log;
    let batches: Vec<_> = (0..9)
        .map(|n| records(n, 1 + n % 3, 800 + 100 * n))
        .collect();
    for batch in &batches {
        append(&mut log, batch).expect("append");
    }
    assert_eq!(log.stats().segments, 2 + 1);
    if is_closed {
        log.close().expect("close");
    }
    batches
}

fn segments(disk: &SimDisk) -> Vec<std::path::PathBuf> {
    let names = disk.list(dir()).expect("list");
    names
        .iter()
        .filter(|name| name.ends_with(".log"))
        .map(|name| dir().join(name))
        .collect()
}

#[track_caller]
fn expect_corrupt(disk: &SimDisk, path: &Path, problem: CorruptionKind) -> u64 {
    match open(disk).map(|_| ()) {
        Err(LogError::Corrupt {
            file,
            offset,
            problem: found,
        }) => {
            assert_eq!((file.as_path(), found), (path, problem));
            offset
        }
        other => panic!("{problem:?} expected, {other:?} found"),
    }
}

#[test]
fn flip_of_any_byte_is_reported_or_harmless() {
    for is_closed in [true, false] {
        let disk = SimDisk::new(1);
        let batches = log_with_batches(&disk, is_closed);
        let all: Vec<Rec> = batches.concat();
        let last = batches[batches.len() - 1].len();
        let (mut named, mut cut) = (0, 0);
        for path in segments(&disk) {
            let len = disk.len(&path).expect("length");
            for offset in 0..len {
                let disk = disk.fork();
                disk.flip(&path, offset, 1 << (offset % 8));
                match open(&disk) {
                    Ok(opened) if opened.records == all => {}
                    Ok(opened) => {
                        // It looks like an unfinished append.
                        assert!(!is_closed, "{} {offset}", path.display());
                        assert_eq!(opened.records, all[..all.len() - last]);
                        assert!(opened.report.torn_tail.is_some(), "offset {offset}");
                        cut += 1;
                    }
                    Err(LogError::Corrupt {
                        file, offset: at, ..
                    }) => {
                        assert_eq!(file, path);
                        assert!(at <= offset + 8, "{at} for a flip at {offset}");
                        named += 1;
                        let rescued = salvage(&disk).expect("salvage");
                        assert!(rescued.records.len() < all.len());
                        assert!(rescued.records.iter().all(|record| all.contains(record)));
                        assert_eq!(rescued.report.skipped_places, 1);
                    }
                    Err(error) => panic!("{} {offset}: {error}", path.display()),
                }
            }
        }
        assert!(named > 5000, "{named} flips were named");
        assert_eq!(
            cut > 0,
            !is_closed,
            "{cut} flips were taken for a torn tail"
        );
    }
}

#[test]
fn open_protects_the_last_batch_like_close() {
    let disk = SimDisk::new(1);
    let batches = log_with_batches(&disk, false);
    let path = segments(&disk).pop().expect("a segment");
    let bytes = read_file(&disk, &path).expect("read");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("a record");
    assert!(batches[8][0].2.len() > 1000);
    open(&disk).expect("open");
    disk.flip(&path, end as u64 - 500, 4);
    expect_corrupt(&disk, &path, RECORD_DAMAGE);
}

#[test]
fn salvage_skips_and_counts_damage_and_later_opens_accept_it() {
    let disk = SimDisk::new(1);
    let batches = log_with_batches(&disk, true);
    let first = segment_path(1);
    // The second batch of the first segment, and the first batch of the second.
    let at = 4096 + HEADER_BYTES + (12 + 800_u64).next_multiple_of(8);
    disk.flip(&first, at + 100, 0xff);
    disk.flip(&segment_path(2), 4096 + 10, 0xff);
    expect_corrupt(&disk, &first, RECORD_DAMAGE);

    let rescued = salvage(&disk).expect("salvage");
    let lost_first = batches[1].clone();
    let expected: Vec<Rec> = batches
        .iter()
        .flatten()
        .filter(|record| rescued.records.contains(record))
        .cloned()
        .collect();
    assert_eq!(rescued.records, expected, "in order, none twice");
    assert!(
        lost_first
            .iter()
            .all(|record| !rescued.records.contains(record))
    );
    assert_eq!(rescued.report.skipped_places, 2);
    let lost_bytes = rescued.report.skipped_bytes;
    assert!(lost_bytes > 1000, "{lost_bytes}");
    let place = rescued.report.first_skipped.expect("a place");
    assert_eq!((place.file, place.offset), (first, at + HEADER_BYTES));

    // The log continues, and from now on the strict mode accepts the damage.
    let mut log = rescued.log;
    let more = records(50, 3, 300);
    append(&mut log, &more).expect("append");
    drop(log);
    disk.crash(9);
    let opened = open(&disk).expect("the damage is known");
    assert_eq!(opened.records, [expected, more.clone()].concat());
    assert_eq!(
        (opened.report.skipped_places, opened.report.skipped_bytes),
        (2, lost_bytes)
    );

    // Once the damaged segments are released, no segment records the damage.
    let mut log = opened.log;
    let next = log.next_lsn();
    log.release_before(next);
    while prepare(&log.preallocator()).expect("retire") {}
    drop(log);
    let opened = open(&disk).expect("open");
    assert_eq!(opened.report.skipped_places, 0);
    assert_eq!(opened.records, more);
    // New damage is not accepted.
    let path = segments(&disk).pop().expect("a segment");
    disk.flip(&path, 4096 + HEADER_BYTES + 4, 1);
    expect_corrupt(&disk, &path, RECORD_DAMAGE);
}

#[test]
fn missing_short_and_foreign_segments_are_reported() {
    type Damage = fn(&SimDisk);
    let cases: [(Damage, u64, CorruptionKind, u64); 6] = [
        (
            |disk| disk.remove(&segment_path(2)).expect("remove"),
            2,
            CorruptionKind::MissingSegment,
            0,
        ),
        (
            |disk| {
                disk.open(&segment_path(2))
                    .expect("open")
                    .set_len(9000)
                    .expect("cut");
            },
            2,
            CorruptionKind::SegmentLength,
            9000,
        ),
        (
            |disk| {
                disk.open(&segment_path(3))
                    .expect("open")
                    .set_len(5000)
                    .expect("cut");
            },
            3,
            CorruptionKind::SegmentLength,
            5000,
        ),
        (
            |disk| {
                [9, 2057]
                    .into_iter()
                    .for_each(|at| disk.flip(&segment_path(2), at, 1));
            },
            2,
            CorruptionKind::SegmentHeader,
            0,
        ),
        (
            |disk| {
                let bytes = read_file(disk, &segment_path(1)).expect("read");
                replace_file(disk, &segment_path(2), &bytes).expect("replace");
            },
            2,
            CorruptionKind::SegmentNumber,
            0,
        ),
        (
            |disk| {
                disk.open(&segment_path(3))
                    .expect("open")
                    .set_len(0)
                    .expect("cut");
            },
            3,
            CorruptionKind::SegmentHeader,
            0,
        ),
    ];
    for (damage, number, problem, offset) in cases {
        let disk = SimDisk::new(1);
        let batches = log_with_batches(&disk, true);
        let next = open(&disk.fork()).expect("open").log.next_lsn();
        damage(&disk);
        assert_eq!(
            expect_corrupt(&disk, &segment_path(number), problem),
            offset
        );
        if problem == CorruptionKind::SegmentNumber {
            continue;
        }
        let rescued = salvage(&disk).expect("salvage");
        let all = batches.concat();
        assert!(rescued.records.len() < all.len() && !rescued.records.is_empty());
        assert!(
            rescued.records.iter().all(|record| all.contains(record)),
            "{problem:?}"
        );
        let mut log = rescued.log;
        assert!(
            log.next_lsn() > Lsn(next.0 - 100),
            "{problem:?}: a position is used twice"
        );
        append(&mut log, &records(70, 1, 10)).expect("append");
        drop(log);
        let opened = open(&disk).expect("the damage is known");
        assert_eq!(
            opened.records.len(),
            rescued.records.len() + 1,
            "{problem:?}"
        );
        release_all(&disk.fork());
        // Released bit by bit, with a crash at any point, it never becomes unreadable.
        let mut log = opened.log;
        for lsn in opened.lsns {
            log.release_before(lsn);
            prepare(&log.preallocator()).expect("retire");
            let disk = disk.fork();
            disk.crash(lsn.0);
            open(&disk).unwrap_or_else(|error| panic!("{problem:?}, {lsn}: {error}"));
        }
        drop(log);
        release_all(&disk);
    }
}

/// Releases all segments, so that no damaged file remains, neither as a segment nor as a spare.
fn release_all(disk: &SimDisk) {
    let mut log = open(disk).expect("open").log;
    log.release_before(Lsn(u64::MAX));
    prepare(&log.preallocator()).expect("retire");
    assert_eq!(segments(disk).len(), 1);
    let stats = log.stats();
    let catalog_bytes = disk.len(&catalog_path()).expect("a catalog");
    assert_eq!(
        disk.used_bytes(),
        stats.size_bytes + stats.spare_bytes + catalog_bytes
    );
    let kept = open(&disk.fork()).expect("open").records.len();
    for n in 0..60 {
        append(&mut log, &records(n, 1, 1000)).expect("append");
    }
    drop(log);
    assert_eq!(open(disk).expect("open").records.len(), kept + 60);
}

#[test]
fn log_of_another_owner_or_version_is_rejected() {
    let disk = SimDisk::new(1);
    log_with_batches(&disk, true);
    let sim = std::sync::Arc::new(disk);
    let result = kedge_log::Log::open::<LogError>(
        sim,
        dir(),
        [0; 16],
        super::support::config(),
        kedge_log::RecoveryMode::Salvage,
        &mut |_| panic!("no record of another owner is replayed"),
    );
    assert!(matches!(result, Err(LogError::WrongOwner { file }) if file == segment_path(1)));
}

#[test]
fn unreadable_sectors_are_an_error_or_skipped() {
    let disk = SimDisk::new(1);
    let batches = log_with_batches(&disk, true);
    disk.make_unreadable(&segment_path(2), 6000);
    let error = open(&disk).map(|_| ()).expect_err("a bad sector");
    assert!(
        matches!(&error, LogError::Io(error) if error.path == segment_path(2)),
        "{error}"
    );
    let rescued = salvage(&disk).expect("salvage");
    assert!(
        rescued.report.unreadable_bytes >= 512,
        "{:?}",
        rescued.report
    );
    assert!(rescued.records.len() < batches.concat().len());
    assert!(rescued.records.ends_with(&batches[8]));
}

#[test]
fn log_without_any_segment_header_is_not_salvaged() {
    let disk = SimDisk::new(1);
    log_with_batches(&disk, true);
    for path in segments(&disk) {
        disk.flip(&path, 3, 1);
        disk.flip(&path, 2048 + 3, 1);
    }
    let result = salvage(&disk).map(|_| ());
    assert!(matches!(
        result,
        Err(LogError::Corrupt {
            problem: CorruptionKind::SegmentHeader,
            ..
        })
    ));
}

#[test]
fn last_segment_is_salvaged_up_to_its_damage() {
    let disk = SimDisk::new(1);
    let batches = log_with_batches(&disk, true);
    for at in [0, 2048] {
        disk.flip(&segment_path(3), at, 1);
    }
    expect_corrupt(&disk, &segment_path(3), CorruptionKind::SegmentHeader);
    let rescued = salvage(&disk).expect("salvage");
    let all = batches.concat();
    assert_eq!(rescued.records, all[..rescued.records.len()]);
    let before = rescued.log.next_lsn();
    let mut log = rescued.log;
    let end = append(&mut log, &records(1, 1, 1)).expect("append");
    assert!(end > before);
    drop(log);
    assert_eq!(
        open(&disk).expect("open").records.len(),
        rescued.records.len() + 1
    );
}

/// Removes segments of a log that has released its first one. Returns the number of remaining records.
fn without(removed: &[u64]) -> (SimDisk, usize) {
    let disk = SimDisk::new(1);
    log_with_batches(&disk, true);
    let mut log = open(&disk).expect("open").log;
    let end = log.oldest_end().expect("sealed segments");
    log.release_before(end);
    prepare(&log.preallocator()).expect("retire");
    for n in 9..17 {
        append(&mut log, &records(n, 2, 1500)).expect("append");
    }
    log.close().expect("close");
    assert_eq!(segments(&disk).len(), 5);
    assert_eq!(segments(&disk)[0], segment_path(2));
    for number in removed {
        disk.remove(&segment_path(*number)).expect("it is there");
    }
    let left = salvage(&disk.fork()).expect("salvage").records.len();
    (disk, left)
}

#[test]
fn missing_segments_at_either_end_are_reported_and_salvaged_once() {
    // The only segment of a log was removed, and the bucket used to be served as if it were new.
    let (disk, all) = without(&[]);
    assert_eq!(open(&disk).expect("it is whole").records.len(), all);
    for removed in [
        &[2][..],
        &[2, 3],
        &[6],
        &[5, 6],
        &[2, 6],
        &[3, 6],
        &[2, 3, 4, 5, 6],
    ] {
        let (disk, left) = without(removed);
        assert!(left < all, "{removed:?}");
        expect_corrupt(
            &disk,
            &segment_path(removed[0]),
            CorruptionKind::MissingSegment,
        );
        let rescued = salvage(&disk).expect("salvage");
        assert!(rescued.report.skipped_places > 0 && !rescued.report.is_new);
        assert_eq!(rescued.records.len(), left, "{removed:?}");
        let mut log = rescued.log;
        append(&mut log, &records(70, 1, 10)).expect("append");
        drop(log);
        for seed in 0..10 {
            let disk = disk.fork();
            disk.crash(seed);
            let opened = open(&disk).expect("the loss is known");
            assert_eq!(opened.records.len(), left + 1, "{removed:?}");
            drop(opened);
            release_all(&disk);
        }
    }
}

#[test]
fn missing_log_directory_is_reported() {
    let (disk, _) = without(&[]);
    disk.remove_dir_all(dir()).expect("remove");
    expect_corrupt(&disk, &segment_path(2), CorruptionKind::MissingSegment);
    let rescued = salvage(&disk).expect("salvage");
    assert!(rescued.records.is_empty() && !rescued.report.is_new);
}

#[test]
fn missing_or_damaged_catalog_is_rebuilt_at_open() {
    for is_damaged in [true, false] {
        let (disk, all) = without(&[]);
        if is_damaged {
            disk.flip(&catalog_path(), 17, 1);
        } else {
            disk.remove(&catalog_path()).expect("it is there");
        }
        let opened = open(&disk).expect("nobody knows what is missing");
        assert_eq!(opened.records.len(), all);
        assert_eq!(opened.report.is_catalog_damaged, is_damaged);
        drop(opened);
        disk.remove(&segment_path(6)).expect("it is there");
        expect_corrupt(&disk, &segment_path(6), CorruptionKind::MissingSegment);
    }
}

#[test]
fn removed_log_leaves_nothing() {
    let (disk, _) = without(&[]);
    kedge_log::Log::remove(&disk, dir()).expect("remove");
    disk.crash(1);
    assert!(!kedge_log::Log::is_there(&disk, dir()).expect("look"));
    assert_eq!(disk.used_bytes(), 0);
    assert!(open(&disk).expect("open").report.is_new);
}
