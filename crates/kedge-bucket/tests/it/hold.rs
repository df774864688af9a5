//! After a stop that was not clean the log is kept as it is until the files are durable: what a file says may be in the
//! kernel's memory only, and a loss of power would take it.

use crate::tools::*;
use kedge_bucket::Bucket;
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_executor::Pool;
use kedge_types::VbId;
use std::sync::Arc;

const DOCUMENTS: u32 = 120;

const FIRST: VbId = VbId(0);
const OTHER: VbId = VbId(1);

/// The names of documents of a vBucket.
fn names(vb: VbId) -> Vec<String> {
    let names = (0..).map(|n| format!("key-{n}"));
    let wanted = names.filter(|name| key(name).vbucket(4) == vb);
    wanted.take(DOCUMENTS as usize).collect()
}

/// A bucket whose log has several segments of documents of the first vBucket. The process is killed at the `nth`
/// operation of the commit that brings them into the file; an earlier commit is in the file. False when the commit has
/// fewer operations.
fn killed_in_a_commit(place: &mut Place, disk: &SimDisk, nth: u64) -> bool {
    place.config.log_bytes_max = 256 << 10;
    let (open, _steps) = place.open_by_hand();
    let names = names(FIRST);
    open.set(&names[0], b"old").unwrap();
    open.bucket.persistence().apply().unwrap();
    for name in &names {
        open.set(name, &[b'v'; 2_000]).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    assert!(open.figure("ep_log_segments") > 3);
    let at = disk.operations() + nth;
    disk.fail_operation(at, Fault::PowerLoss);
    drop(open.bucket.persistence().apply());
    let was_killed = disk.operations() >= at;
    disk.kill_process();
    open.bucket.shutdown_within(std::time::Duration::ZERO);
    was_killed
}

/// Loads the bucket, but makes no file durable.
fn load(place: &mut Place) -> (Open, Steps) {
    let steps = place.by_hand();
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(place.setup(&sink)).unwrap();
    while bucket.is_loading() {
        assert!(steps.run_one(Pool::Reader), "nothing is left to be loaded");
    }
    bucket.wait_loaded().unwrap();
    (place.opened(bucket, sink), steps)
}

/// Lets the log give back what the first vBucket does not need any more, while it waits to be applied: another one is
/// written to, and comes to an end.
fn use_another(open: &Open) {
    for name in names(OTHER) {
        open.set(&name, &[b'w'; 2_000]).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    open.bucket.states().delete_vbucket(OTHER).unwrap();
}

#[test]
fn a_loss_of_power_after_a_kill_takes_nothing_from_files_that_are_not_durable_yet() {
    let mut in_file = 0;
    for nth in 1.. {
        let disk = SimDisk::new(nth);
        let mut place = sim(&disk);
        if !killed_in_a_commit(&mut place, &disk, nth) {
            break;
        }
        let (open, steps) = load(&mut place);
        let applied = open.bucket.vbucket_figures(FIRST).unwrap().applied_seqno;
        if applied.get() == u64::from(DOCUMENTS) + 1 {
            // The file says that it has all, and nothing is left to be written into it.
            in_file += 1;
            let before = open.figure("ep_log_segments");
            use_another(&open);
            let now = open.figure("ep_log_segments");
            assert!(now > before, "{before} segments, and then {now}");
        }
        for seed in 0..4 {
            let fork = disk.fork();
            fork.crash(seed);
            let after = sim(&fork).open();
            for name in names(FIRST) {
                let found = after.get(&name);
                assert_eq!(found.as_deref(), Ok(&[b'v'; 2_000][..]), "{name} of {nth}");
            }
            after.bucket.shutdown();
        }
        // Now they are made durable.
        steps.run();
        open.bucket.persistence().apply().unwrap();
        assert_eq!(open.figure("ep_log_segments"), 1);
        disk.crash(nth);
        open.bucket.shutdown();
        let after = sim(&disk).open();
        for name in names(FIRST) {
            assert_eq!(
                after.get(&name).as_deref(),
                Ok(&[b'v'; 2_000][..]),
                "{name}"
            );
        }
        after.bucket.shutdown();
    }
    assert!(in_file > 0, "no kill came between a header and its sync");
}

#[test]
fn files_that_cannot_be_made_durable_end_the_bucket_and_leave_the_log() {
    let disk = SimDisk::new(1);
    let mut place = sim(&disk);
    assert!(!killed_in_a_commit(&mut place, &disk, 1_000));
    let (open, steps) = load(&mut place);
    use_another(&open);
    let before = open.figure("ep_log_segments");
    // The next segment of the log is made ready as well, and may do without.
    for _ in 0..4 {
        disk.fail_next(Operation::Sync, Fault::Io);
    }
    steps.run();
    assert_eq!(open.sink.fatal().len(), 1, "{:?}", open.sink.fatal());
    assert_eq!(open.figure("ep_log_segments"), before);
    disk.kill_process();
    open.bucket.shutdown();
    let again = sim(&disk).open();
    for name in names(FIRST) {
        assert_eq!(again.get(&name).unwrap().len(), 2_000, "{name}");
    }
    again.bucket.shutdown();
}
