//! The compaction throttle follows the latency of commits with waiting clients.

use super::*;
use kedge_bucket::{Bucket, BucketChange, CompactionChange, CompactionRate};
use kedge_disk::{ObservedDisk, SimDisk};
use kedge_executor::Pool;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const US: u64 = 1_000;
const READ_US: u64 = 30_000;
const USUAL_US: u64 = 500;
/// The size of values, chosen so that a compaction asks the throttle many times.
const VALUE_BYTES: usize = 64 << 10;
const FILES: usize = 3;

/// Runs commits with a waiting client, led by this thread.
fn commit(open: &Open, count: u64) {
    for n in 0..count {
        let cookie = open.next_cookie();
        open.persist(&format!("key-{}", n % KEYS), b"1", cookie)
            .unwrap();
        open.bucket.persistence().writers().request_flush(true);
        open.sink.wait(cookie).unwrap();
    }
}

/// Compacts files one after the other, with commits in between whose sync takes `sync_us`. Returns the undisturbed duration of a
/// commit, and the number of times that compactions were throttled.
fn run(commit_log: bool, sync_us: u64) -> (u64, u64) {
    let mut site = sim(&SimDisk::new(1));
    site.config.commit_log = commit_log;
    site.config.compaction.fragmentation_percent = 100;
    let steps = site.manual_tasks();
    let slow = SlowSyncs::new(&steps, USUAL_US * US);
    site.disk = Arc::new(ObservedDisk::new(site.disk, Arc::clone(&slow)));
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(site.setup(&sink)).unwrap();
    steps.run();
    bucket.wait_loaded().unwrap();
    let open = site.opened(bucket, sink);
    let change = BucketChange {
        compaction: CompactionChange {
            throttle: Some(CompactionRate::Auto),
            ..CompactionChange::default()
        },
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    for n in 0..KEYS {
        let value = noise(n, VALUE_BYTES);
        open.set(&format!("large-{n}"), &value).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    commit(&open, 20);
    // The compactions are the next tasks.
    steps.run();
    let request = CompactionRequest {
        vbuckets: Some(all_vbuckets().take(FILES).collect()),
        ..all()
    };
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&request)
        .unwrap();
    while ticket.report().is_none() {
        // The rate increases as long as there are no commits.
        slow.read_ns.store(READ_US * US, Ordering::Relaxed);
        assert!(steps.run_one(Pool::AuxIo));
        slow.read_ns.store(0, Ordering::Relaxed);
        slow.sync_ns.store(sync_us * US, Ordering::Relaxed);
        commit(&open, 20);
    }
    assert_eq!(ticket.wait().compacted as usize, FILES);
    let figures = (
        open.figure("ep_compaction_undisturbed_us"),
        open.figure("ep_compaction_slowed_down"),
    );
    open.bucket.shutdown();
    figures
}

#[test]
fn slow_commits_throttle_compactions() {
    for commit_log in [true, false] {
        let (undisturbed_us, slowed_down) = run(commit_log, 20 * USUAL_US);
        assert!(slowed_down > 0, "{commit_log}");
        if commit_log {
            assert_eq!(undisturbed_us, USUAL_US, "one sync, that of the log");
        } else {
            assert!(undisturbed_us >= USUAL_US, "{undisturbed_us}");
        }
    }
}

#[test]
fn fast_commits_do_not_throttle_compactions() {
    assert_eq!(run(true, USUAL_US), (USUAL_US, 0));
}
