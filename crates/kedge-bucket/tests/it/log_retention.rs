//! After an unclean shutdown the log is kept until the files are synced: contents of a file may exist only in the kernel's
//! memory, and a power loss would remove them.

use crate::tools::*;
use kedge_bucket::Bucket;
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_executor::Pool;
use kedge_types::VbId;
use std::sync::Arc;

const DOCUMENTS: u32 = 120;

const FIRST: VbId = VbId(0);
const OTHER: VbId = VbId(1);

/// Returns names of documents of a vBucket.
fn names(vb: VbId) -> Vec<String> {
    let names = (0..).map(|n| format!("key-{n}"));
    let wanted = names.filter(|name| key(name).vbucket(4) == vb);
    wanted.take(DOCUMENTS as usize).collect()
}

/// Creates a bucket whose log has several segments with documents of the first vBucket, and kills the process at the `nth`
/// operation of the commit that applies them to the file. The file has an earlier commit. Returns false if the commit has
/// fewer operations.
fn killed_in_a_commit(site: &mut TestSite, disk: &SimDisk, nth: u64) -> bool {
    site.config.log_bytes_max = 256 << 10;
    let (open, _steps) = site.open_with_manual_tasks();
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

/// Loads the bucket without syncing files.
fn load(site: &mut TestSite) -> (Open, Steps) {
    let steps = site.manual_tasks();
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(site.setup(&sink)).unwrap();
    while bucket.is_loading() {
        assert!(steps.run_one(Pool::Reader), "nothing is left to be loaded");
    }
    bucket.wait_loaded().unwrap();
    (site.opened(bucket, sink), steps)
}

/// Lets the log recycle the segments that the first vBucket no longer needs, while it waits to be applied: another vBucket is
/// written to and applied.
fn use_another(open: &Open) {
    for name in names(OTHER) {
        open.set(&name, &[b'w'; 2_000]).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    open.bucket.states().delete_vbucket(OTHER).unwrap();
}

#[test]
fn power_loss_after_a_kill_loses_nothing_from_files_that_are_not_synced() {
    let mut in_file = 0;
    for nth in 1.. {
        let disk = SimDisk::new(nth);
        let mut site = sim(&disk);
        if !killed_in_a_commit(&mut site, &disk, nth) {
            break;
        }
        let (open, steps) = load(&mut site);
        let applied = open.bucket.vbucket_figures(FIRST).unwrap().applied_seqno;
        if applied.get() == u64::from(DOCUMENTS) + 1 {
            // According to the file, nothing is left to be applied.
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
        // Now the files are synced.
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
fn failed_sync_of_files_at_the_start_fails_the_bucket_and_keeps_the_log() {
    let disk = SimDisk::new(1);
    let mut site = sim(&disk);
    assert!(!killed_in_a_commit(&mut site, &disk, 1_000));
    let (open, steps) = load(&mut site);
    use_another(&open);
    let before = open.figure("ep_log_segments");
    // The preallocation of the next log segment fails too, which is harmless.
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
