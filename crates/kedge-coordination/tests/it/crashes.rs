//! Power failures at each operation of the disk, and processes that are killed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use kedge_coordination::embedded::{Embedded, EmbeddedOptions};
use kedge_coordination::{CoordinationError, Coordinator};
use kedge_disk::{Fault, SimDisk};

use crate::EmbeddedStore;
use crate::contract::{LONG, Store, increment, number};

fn open(disk: &SimDisk) -> Result<Embedded, CoordinationError> {
    let options = EmbeddedOptions::default();
    Embedded::open_on(Arc::new(disk.clone()), Path::new("/store"), options)
}

fn count(store: &dyn Coordinator) -> u64 {
    let snapshot = store
        .read(LONG)
        .expect("the store is readable after a crash");
    snapshot.entry("counter").map_or(0, number)
}

/// Increments the counter once; `None` when the power fails.
fn try_increment(store: &Embedded, to: u64) -> Option<()> {
    let put = kedge_coordination::Transaction::new().put("counter", to.to_string());
    store.transact(&put, LONG).ok().map(|_| ())
}

#[test]
fn an_acknowledged_change_survives_a_power_failure_at_each_operation() {
    for operation in 0.. {
        let disk = SimDisk::new(operation);
        disk.fail_after(operation, Fault::PowerLoss);
        let mut acknowledged = 0;
        let finished = open(&disk).ok().and_then(|store| {
            for to in 1..=12 {
                try_increment(&store, to)?;
                acknowledged = to;
            }
            Some(())
        });
        disk.crash(operation);
        disk.clear_faults();
        let found = count(&open(&disk).expect("it can be opened again"));
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "operation {operation}: {acknowledged} were acknowledged, {found} are there"
        );
        if finished.is_some() {
            assert!(operation > 20, "the test has seen few operations");
            return;
        }
    }
}

/// The writer fails at each operation, a sync included. What another process reads then survives a power failure.
#[test]
fn what_was_read_after_a_failed_change_survives_a_power_failure() {
    let mut failed = 0;
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let store = open(&disk).expect("opened");
        // The last file is created with its content, and later ones are overwritten.
        for to in 1..=seed % 4 {
            try_increment(&store, to).expect("the disk works");
        }
        let before = count(&store);
        disk.fail_after(seed / 4 % 6, Fault::Io);
        let is_done = try_increment(&store, before + 1).is_some();
        disk.clear_faults();
        let found = count(&open(&disk).expect("another process opens it"));
        assert!(found == before + 1 || !is_done, "seed {seed}: {found}");
        disk.crash(seed);
        let left = count(&open(&disk).expect("it can be opened again"));
        assert_eq!(left, found, "seed {seed}");
        failed += u64::from(!is_done);
    }
    assert!(failed > 50, "few changes failed: {failed}");
}

#[test]
fn a_full_disk_changes_nothing() {
    let disk = SimDisk::new(1);
    let store = open(&disk).expect("opened");
    try_increment(&store, 1).expect("there is space");
    for others in 0..4 {
        disk.fail_after(others, Fault::NoSpace);
        let before = count(&store);
        let put = kedge_coordination::Transaction::new().put("counter", (before + 1).to_string());
        let done = store.transact(&put, LONG);
        // Only a sync leaves it open.
        let is_unknown = matches!(done, Err(CoordinationError::OutcomeUnknown(_)));
        if done.is_err() && !is_unknown {
            assert_eq!(count(&store), before);
        }
        disk.clear_faults();
    }
    let before = count(&store);
    try_increment(&store, before + 1).expect("there is space again");
}

const CHILD_DIR: &str = "KEDGE_COORDINATION_CHILD_DIR";

/// Not a test by itself: the process that the next test starts and kills.
#[test]
fn child_that_increments_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let store = Embedded::open(Path::new(&dir), EmbeddedOptions::default()).expect("opened");
    loop {
        let counted = increment(&store, "counter");
        println!("\ncounted {counted}");
    }
}

#[test]
fn processes_that_are_killed_leave_a_store_that_others_continue_with() {
    const ROUNDS: usize = 12;
    let store = EmbeddedStore::new();
    let handle = store.open();
    let mut least = 0;
    for round in 0..ROUNDS {
        let me = std::env::current_exe().expect("the test has a file");
        let spawn = || {
            Command::new(&me)
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg("crashes::child_that_increments_until_it_is_killed")
                .env(CHILD_DIR, store.path())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the test can be started again")
        };
        let mut children = [spawn(), spawn()];
        for child in &mut children {
            let out = child.stdout.take().expect("it is piped");
            let counted = BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("counted ")?.parse::<u64>().ok());
            // The last that this child has reported before it is killed, at another point in each round.
            least = least.max(counted.take(1 + round % 5).last().unwrap_or(0));
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
        let found = count(&*handle);
        assert!(found >= least, "{least} were reported, {found} are there");
        least = increment(&*handle, "counter");
    }
    assert!(least as usize >= ROUNDS, "the children have counted");
}
