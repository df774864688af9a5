//! Power loss at every operation of a history, and of the recovery after it.

use kedge_disk::{Fault, SimDisk};
use kedge_log::{Log, LogError, Lsn, RecoveryMode};

use super::IS_ENCRYPTED;
use super::support::{Rec, TestKeys, append, config_with, open, open_with, prepare, records};

/// The state of a history of appends, background work and releases at a power loss.
#[derive(Default)]
struct Done {
    acknowledged: Vec<Rec>,
    in_flight: Vec<Rec>,
    /// The number of the oldest records that may be gone.
    released: usize,
}

type History = fn(&SimDisk, &mut Done) -> Result<(), LogError>;

const HISTORIES: [History; 3] = [varied_history, steady_history, history_of_keys];

/// A history with every kind of operation of the log: small and large batches, changes to prepared and new segments,
/// recycling, and a close and an open in the middle.
fn varied_history(disk: &SimDisk, done: &mut Done) -> Result<(), LogError> {
    let sizes = [
        (1, 30),
        (3, 500),
        (2, 3000),
        (1, 0),
        (9, 700),
        (1, 20_000),
        (4, 900),
        (2, 2000),
    ];
    let mut ends: Vec<(Lsn, usize)> = Vec::new();
    let mut n = 0;
    for round in 0..2 {
        let mut log = open(disk)?.log;
        for (count, payload_bytes) in sizes {
            n += 1;
            done.in_flight = records(n, count, payload_bytes);
            let end = append(&mut log, &done.in_flight)?;
            done.acknowledged.append(&mut done.in_flight);
            ends.push((end, done.acknowledged.len()));
            if n % 3 == 0 {
                prepare(&log.preallocator())?;
            }
            if n == 9 {
                log.end_segment()?;
                log.end_segment()?;
                done.released = done.acknowledged.len();
                log.release_before(end);
                assert_eq!((log.first_lsn(), log.stats().segments), (end, 1));
                log.preallocator().recycle()?;
            }
            if n == 6 || n == 12 {
                let (lsn, count) = ends[ends.len() - 3];
                done.released = count;
                log.release_before(lsn);
                prepare(&log.preallocator())?;
            }
        }
        finish(log, round)?;
    }
    Ok(())
}

/// A history of equal batches whose segments are recycled immediately, so that old records lie at the positions of new
/// ones.
fn steady_history(disk: &SimDisk, done: &mut Done) -> Result<(), LogError> {
    let mut log = open(disk)?.log;
    for n in 0..45 {
        done.in_flight = records(n, 1, 1600);
        let segments = log.stats().segments;
        append(&mut log, &done.in_flight)?;
        done.acknowledged.append(&mut done.in_flight);
        if log.stats().segments > segments {
            let kept = log.next_lsn();
            log.release_before(kept);
            done.released = done.acknowledged.len() - 1;
            prepare(&log.preallocator())?;
        }
    }
    assert!(log.stats().ready_segments > 2, "{:?}", log.stats());
    Ok(())
}

/// A history with changes of the active key, at open and between two opens.
fn history_of_keys(disk: &SimDisk, done: &mut Done) -> Result<(), LogError> {
    let keys = TestKeys::new(IS_ENCRYPTED.then_some(1));
    let open = || open_with(disk, config_with(keys.clone()), RecoveryMode::Strict);
    let mut log = open()?.log;
    for n in 0..12 {
        keys.activate([None, Some(2), Some(1), None, Some(3)][n % 5]);
        if n % 2 == 0 {
            log.use_active_key()?;
        } else {
            finish(log, n as u64 / 2 % 2)?;
            log = open()?.log;
        }
        for batch in 0..2 {
            done.in_flight = records(2 * n + batch, 2, 300 + 700 * batch);
            append(&mut log, &done.in_flight)?;
            done.acknowledged.append(&mut done.in_flight);
        }
        if n % 5 == 4 {
            done.released = done.acknowledged.len();
            log.release_before(log.next_lsn());
            prepare(&log.preallocator())?;
        }
    }
    Ok(())
}

fn finish(log: Log, round: u64) -> Result<(), LogError> {
    if round == 0 { log.close() } else { Ok(()) }
}

/// Checks the records that an open replayed.
fn check(done: &Done, found: &[Rec], what: &str) {
    let all: Vec<&Rec> = done.acknowledged.iter().chain(&done.in_flight).collect();
    let acknowledged = done.acknowledged.len();
    // The newest replayed record is the last acknowledged one, or the last one of the batch in flight.
    let ends = [acknowledged, all.len()];
    let is_right = ends.into_iter().any(|end| {
        let start = end.checked_sub(found.len());
        start.is_some_and(|start| {
            start <= done.released && all[start..end].iter().copied().eq(found)
        })
    });
    assert!(
        is_right,
        "{what}: {} records of {acknowledged} + {}",
        found.len(),
        done.in_flight.len()
    );
}

/// Each history stopped at each of its operations: the disk, and the state of the history.
fn stopped_histories(fault: Fault) -> impl Iterator<Item = (SimDisk, Done, String)> {
    HISTORIES
        .into_iter()
        .enumerate()
        .flat_map(move |(index, history)| {
            let disk = SimDisk::new(1);
            history(&disk, &mut Done::default()).expect("nothing goes wrong");
            let operations = disk.operations();
            assert!(operations > 100, "the history does {operations} operations");
            (1..=operations).map(move |number| {
                let disk = SimDisk::new(number);
                disk.fail_operation(number, fault);
                let mut done = Done::default();
                let result = history(&disk, &mut done);
                assert!(fault != Fault::PowerLoss || result.is_err());
                (disk, done, format!("history {index}, operation {number}"))
            })
        })
}

#[test]
fn acknowledged_batches_survive_a_power_loss_at_every_operation() {
    for (disk, done, what) in stopped_histories(Fault::PowerLoss) {
        for seed in 0..12 {
            let what = format!("{what}, seed {seed}");
            let disk = disk.fork();
            disk.crash(seed);
            let opened = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&done, &opened.records, &what);
            // The log continues, and replayed records stay, whatever follows.
            let mut log = opened.log;
            let more = records(1000, 2, 50);
            append(&mut log, &more).expect("append");
            drop(log);
            disk.crash(seed + 100);
            let again = open(&disk).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            let expected: Vec<&Rec> = opened.records.iter().chain(&more).collect();
            assert!(
                again.records.iter().eq(expected),
                "{what}: not what the first open gave"
            );
        }
    }
}

#[test]
fn power_loss_at_every_operation_of_recovery_loses_nothing() {
    for (disk, done, what) in stopped_histories(Fault::PowerLoss).step_by(3) {
        disk.crash(disk.operations() * 3);
        let undisturbed = disk.fork();
        let expected = open(&undisturbed).expect("open").records;
        check(&done, &expected, &what);
        let count = undisturbed.operations() - disk.operations();
        for step in 1..=count {
            let what = format!("{what}, then {step} of the recovery");
            let disk = disk.fork();
            for seed in 0..3 {
                disk.fail_operation(disk.operations() + step, Fault::PowerLoss);
                // A repeated recovery may have less to do.
                drop(open(&disk));
                disk.crash(seed);
            }
            let opened = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(opened.records, expected, "{what}");
        }
    }
}

#[test]
fn replayed_records_of_a_killed_process_are_durable() {
    // A process is killed between a write and its sync. The next process finds the batch in the page cache and reports
    // it as persisted. Then the power fails.
    for (disk, done, what) in stopped_histories(Fault::Io) {
        disk.kill_process();
        let killed = disk.fork();
        let opened = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&done, &opened.records, &what);
        for seed in 0..6 {
            let disk = disk.fork();
            disk.crash(seed);
            let again = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(again.records, opened.records, "{what}, seed {seed}");
        }
        // Or the power fails during that recovery. Nothing was replayed yet, so the batch in flight may be lost, but
        // that is no damage.
        for step in 1..=disk.operations() - killed.operations() {
            let what = format!("{what}, then {step} of the recovery");
            let disk = killed.fork();
            disk.fail_operation(disk.operations() + step, Fault::PowerLoss);
            drop(open(&disk));
            for seed in 0..6 {
                let disk = disk.fork();
                disk.crash(seed);
                let again = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&done, &again.records, &what);
            }
        }
    }
}
