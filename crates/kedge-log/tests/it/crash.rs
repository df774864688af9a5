//! Power loss at every single operation of a history, and of the recovery after it.

use kedge_disk::{Fault, SimDisk};
use kedge_log::{Log, LogError, Lsn};

use crate::support::{Rec, append, open, records};

/// What a history of appends, background work and releases had done when the power failed.
#[derive(Default)]
struct Done {
    acknowledged: Vec<Rec>,
    in_flight: Vec<Rec>,
    /// How many of the oldest records may be gone.
    released: usize,
}

/// A history in which every kind of operation of the log occurs: small and large batches, changes
/// of segments into ready and fresh files, recycling, a close and an open in the middle.
fn history(disk: &SimDisk, done: &mut Done) -> Result<(), LogError> {
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
                log.preparer().prepare_if_needed()?;
            }
            if n == 6 || n == 12 {
                let (lsn, count) = ends[ends.len() - 3];
                done.released = count;
                log.release_before(lsn);
                log.preparer().prepare_if_needed()?;
            }
        }
        finish(log, round)?;
    }
    Ok(())
}

fn finish(log: Log, round: u64) -> Result<(), LogError> {
    if round == 0 { log.close() } else { Ok(()) }
}

/// Checks what an open found, and gives it back in full for comparison with later opens.
fn check(done: &Done, found: &[Rec], what: &str) {
    let all: Vec<&Rec> = done.acknowledged.iter().chain(&done.in_flight).collect();
    let acknowledged = done.acknowledged.len();
    // The newest found is the last acknowledged, or the last of the whole batch in flight.
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

fn operations_of_history() -> u64 {
    let disk = SimDisk::new(1);
    history(&disk, &mut Done::default()).expect("nothing goes wrong");
    disk.operations()
}

#[test]
fn acknowledged_batches_survive_a_power_loss_at_every_operation() {
    let operations = operations_of_history();
    assert!(operations > 100, "the history does {operations} operations");
    for number in 1..=operations {
        let disk = SimDisk::new(number);
        disk.fail_operation(number, Fault::PowerLoss);
        let mut done = Done::default();
        history(&disk, &mut done).expect_err("the power fails");
        for seed in 0..12 {
            let what = format!("operation {number}, seed {seed}");
            let disk = disk.fork();
            disk.crash(seed);
            let opened = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&done, &opened.records, &what);
            // It goes on, and what this open delivered stays, whatever follows.
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
fn a_power_loss_at_every_operation_of_a_recovery_changes_nothing() {
    let operations = operations_of_history();
    for number in (1..=operations).step_by(3) {
        let disk = SimDisk::new(number);
        disk.fail_operation(number, Fault::PowerLoss);
        let mut done = Done::default();
        history(&disk, &mut done).expect_err("the power fails");
        disk.crash(number * 3);
        let undisturbed = disk.fork();
        let expected = open(&undisturbed).expect("open").records;
        check(&done, &expected, "undisturbed");
        let count = undisturbed.operations() - disk.operations();
        for step in 1..=count {
            let what = format!("operation {number}, then {step} of the recovery");
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
fn a_killed_process_loses_nothing_and_what_was_replayed_is_durable() {
    // The story: a process is killed between its write and its sync. The next one finds the batch
    // in the page cache and tells clients that it is persisted; then the power fails.
    let operations = operations_of_history();
    for number in 1..=operations {
        let disk = SimDisk::new(number);
        disk.fail_operation(number, Fault::Io);
        let mut done = Done::default();
        drop(history(&disk, &mut done));
        disk.kill_process();
        let opened = open(&disk).unwrap_or_else(|error| panic!("operation {number}: {error}"));
        check(&done, &opened.records, &format!("operation {number}"));
        for seed in 0..6 {
            let disk = disk.fork();
            disk.crash(seed);
            let again = open(&disk).unwrap_or_else(|error| panic!("operation {number}: {error}"));
            assert_eq!(
                again.records, opened.records,
                "operation {number}, seed {seed}"
            );
        }
    }
}
