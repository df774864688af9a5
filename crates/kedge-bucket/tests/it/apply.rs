//! Application of the log to the vBuckets' files, and recovery from them.

use crate::tools::*;
use kedge_bucket::{Bucket, BucketChange, Timing, VbState};
use kedge_disk::{Fault, ObservedDisk, Operation, SimDisk};
use kedge_types::{Status, VbId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The minimum growth of a couchstore file per commit.
const BLOCK_BYTES: usize = 4096;

/// Returns the bucket's couchstore files.
fn files(site: &TestSite) -> Vec<PathBuf> {
    let names = site.disk.list(&site.dir).unwrap().into_iter();
    let files = names.filter(|name| name.contains(".couch."));
    files.map(|name| site.dir.join(name)).collect()
}

fn applied(open: &Open) -> (u64, u64) {
    let commits = open.figure("ep_apply_commits");
    (commits, open.figure("ep_applied_items"))
}

#[test]
fn applied_changes_are_loaded_from_files_and_the_log_is_recycled() {
    let site = sim(&SimDisk::new(1));
    let open = site.open();
    let value = vec![b'v'; 100_000];
    for n in 0..100 {
        open.set(&format!("key-{}", n % 70), &value).unwrap();
        open.bucket.persistence().sync().unwrap();
    }
    let k = key("key-3");
    open.bucket
        .documents()
        .delete(open.ctx(), &write(&k))
        .unwrap();
    let before = open.figure("ep_log_bytes");
    assert!(before > 10_000_000, "{before}");
    open.bucket.persistence().apply().unwrap();
    assert_eq!(open.figure("ep_unapplied_items"), 0);
    assert_eq!(open.figure("ep_log_needed_bytes"), 0);
    assert!(open.figure("ep_log_bytes") < before / 2);
    assert_eq!(open.figure("ep_pinned_bytes"), 0);
    for vb in all_vbuckets() {
        let figures = open.bucket.vbucket_figures(vb).unwrap();
        assert_eq!(figures.applied_seqno, figures.high_seqno);
    }
    for n in 0..30 {
        open.set(&format!("short-{n}"), &value).unwrap();
    }
    open.bucket.shutdown();
    // A start after a clean shutdown finds its record, however long the log was.
    let open = site.open();
    let report = open.bucket.wait_loaded().unwrap();
    assert_eq!((report.records, report.documents), (1, 99));
    assert!(report.clean);
    open.bucket.shutdown();
    // Nothing is missing without the log.
    kedge_log::Log::remove(&*site.disk, &site.dir.join("log")).unwrap();
    let again = site.open();
    let report = again.bucket.wait_loaded().unwrap();
    assert_eq!((report.records, report.documents), (0, 99));
    for n in 0..70 {
        match again.get(&format!("key-{n}")) {
            Ok(found) => assert!(found == value && n != 3, "key-{n}"),
            Err(error) => assert_eq!((error, n), (Status::KeyNotFound, 3)),
        }
    }
    again.bucket.shutdown();
}

#[test]
fn change_is_applied_after_the_maximum_lag_and_then_the_applier_is_idle() {
    let disk = SimDisk::new(2);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    steps.pass(SEC * 30);
    open.set("key", b"1").unwrap();
    steps.pass(MS * 9_990);
    assert_eq!(applied(&open), (0, 0));
    steps.pass(MS * 100);
    assert_eq!(applied(&open), (1, 1));
    steps.pass(SEC);
    assert_idle(&disk, &open, &steps, "log_apply");
    open.bucket.shutdown();
}

#[test]
fn frequently_changed_document_is_applied_once() {
    let disk = SimDisk::new(3);
    let (open, steps) = sim(&disk).open_with_manual_tasks();
    for n in 0..9_000 {
        open.set("hot", format!("{n}").as_bytes()).unwrap();
        steps.pass(MS);
    }
    let pinned = open.figure("ep_pinned_bytes");
    assert!(pinned < 10_000, "{pinned} bytes of older versions");
    steps.pass(SEC * 3);
    assert_eq!(applied(&open), (1, 1));
    assert_eq!(open.figure("ep_pinned_bytes"), 0);
    let written = open.figure("ep_storage_written_bytes");
    assert!(written < 30_000, "{written} bytes for one document");
    open.bucket.shutdown();
}

#[test]
fn large_batch_is_applied_in_parts_and_vbuckets_take_turns() {
    let mut site = sim(&SimDisk::new(4));
    site.config.flusher_batch_max_items = 10;
    site.config.flush_batch_max_bytes = BLOCK_BYTES;
    let (open, steps) = site.open_with_manual_tasks();
    for n in 0..200 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    steps.pass(SEC * 9);
    let snapshot = |name: &str| open.bucket.timings().snapshot(name).unwrap();
    steps.pass(SEC * 30);
    let (commits, items) = applied(&open);
    assert_eq!(items, 200);
    assert!((20..=24).contains(&commits), "{commits}");
    assert_eq!(snapshot(Timing::ApplyCommit.name()).count, commits);
    assert_eq!(
        snapshot(Timing::ApplyBatchItems.name()).percentile(100.0),
        10
    );
    open.bucket.shutdown();
    let (again, _steps) = site.open_with_manual_tasks();
    assert_eq!(again.figure("curr_items"), 200);
    again.bucket.shutdown();
}

#[test]
fn vbucket_with_more_changes_moves_to_the_end_of_the_apply_queue() {
    let mut site = sim(&SimDisk::new(15));
    site.config.flusher_batch_max_items = 10;
    site.config.flush_batch_max_bytes = BLOCK_BYTES;
    let (states, ..) = turns_of_two(&mut site);
    let turns = [[0, 0], [10, 0], [10, 10], [20, 10], [20, 20], [30, 20]];
    assert_eq!(states[..6], turns);
    assert_eq!(states[6..], [[30, 30]]);
}

#[test]
fn apply_run_is_limited_by_the_flush_batch_bytes() {
    let mut site = sim(&SimDisk::new(18));
    site.config.flusher_batch_max_items = 10;
    let (states, commits, turns) = turns_of_two(&mut site);
    assert_eq!(states, [[0, 0], [30, 0], [30, 30]]);
    assert_eq!((commits, turns), (6, 2));
    let mut site = sim(&SimDisk::new(19));
    site.config.flusher_batch_max_items = 10;
    site.config.flush_batch_max_bytes = 2 * BLOCK_BYTES;
    let (states, commits, turns) = turns_of_two(&mut site);
    assert_eq!(states, [[0, 0], [20, 0], [20, 20], [30, 20], [30, 30]]);
    assert_eq!((commits, turns), (6, 4));
}

/// Applies 30 changes of each of two vBuckets. Returns the sequence of applied seqnos, and the numbers of commits and of
/// runs.
fn turns_of_two(site: &mut TestSite) -> (Vec<[u64; 2]>, u64, u64) {
    let (open, steps) = site.open_with_manual_tasks();
    let both = [VbId(1), VbId(2)];
    for name in both.into_iter().flat_map(|vb| names_in(vb).take(30)) {
        open.set(&name, b"1").unwrap();
    }
    let applied = || both.map(|vb| open.bucket.vbucket_figures(vb).unwrap().applied_seqno.get());
    steps.pass(SEC * 9);
    let mut states = vec![applied()];
    for _ in 0..2_000 {
        steps.pass(MS);
        states.push(applied());
    }
    states.dedup();
    let timings = open.bucket.timings();
    let turns = timings.snapshot(Timing::ApplyCommit.name()).unwrap().count;
    let commits = open.figure("ep_apply_commits");
    open.bucket.shutdown();
    (states, commits, turns)
}

#[test]
fn vbuckets_are_applied_early_when_pinned_memory_reaches_a_tenth_of_the_quota() {
    let mut site = sim(&SimDisk::new(16));
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.quota_bytes = 1 << 20;
    let tenth = site.config.quota_bytes / 10;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    let mut unapplied = 0;
    for n in 1..=30 {
        // The prepare stays in memory until its commit is applied.
        open.persist(&format!("key-{n}"), &[b'v'; 8_000], n)
            .unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.run();
        let pinned = open.figure("ep_pinned_bytes");
        assert!(pinned <= tenth, "{pinned}");
        if applied(&open) == (0, 0) {
            unapplied = pinned;
        }
    }
    assert!(unapplied > tenth / 10 * 8, "not earlier: {unapplied}");
    assert!(open.figure("ep_apply_commits") > 0);
    assert!(open.figure("mem_used") < open.figure("ep_mem_high_wat"));
    open.bucket.shutdown();
}

#[test]
fn long_log_is_applied_early_and_stays_bounded() {
    let mut site = sim(&SimDisk::new(5));
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.log_bytes_max = 8 << 20;
    let open = site.open();
    let value = vec![b'v'; 20_000];
    for n in 0..3_000 {
        open.set(&format!("key-{}", n % 50), &value).unwrap();
        if n % 10 == 0 {
            open.bucket.persistence().sync().unwrap();
            until("the log is given back", || {
                open.figure("ep_log_needed_bytes") <= 8 << 20
            });
        }
    }
    assert!(open.figure("ep_apply_commits") > 4);
    // In addition to the active segment and two spare ones.
    until("60 MB were written, and few stay", || {
        open.figure("ep_log_file_bytes") <= 16 << 20
    });
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(again.figure("curr_items"), 50);
    again.bucket.shutdown();
}

#[test]
fn applier_pauses_longer_than_it_works_until_the_log_is_nearly_full() {
    let mut site = sim(&SimDisk::new(15));
    site.config.num_shards = 1;
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.log_bytes_max = 8 << 20;
    let steps = site.manual_tasks();
    let slow = SlowSyncs::new(&steps, 10_000_000);
    site.disk = Arc::new(ObservedDisk::new(site.disk, Arc::clone(&slow)));
    let sink = Arc::new(Sink::default());
    let bucket = Bucket::open(site.setup(&sink)).unwrap();
    steps.run();
    let open = site.opened(bucket, sink);
    // Writes the given number of MiB to all four vBuckets.
    let write = |mib: usize| {
        for n in 0..mib * 16 {
            open.set(&format!("key-{n}"), &[b'v'; 64 << 10]).unwrap();
        }
        open.bucket.persistence().sync().unwrap();
    };
    let commits = || open.figure("ep_apply_commits");
    write(3);
    steps.run();
    assert_eq!(commits(), 0, "less than half full");
    write(2);
    steps.run();
    assert_eq!(commits(), 1, "a commit takes two syncs, 20 ms");
    steps.pass(MS * 19);
    assert_eq!(commits(), 1);
    let assert_idle = || open.figure("ep_apply_throttles");
    assert_eq!(
        assert_idle(),
        0,
        "but for the syncs at its end it took no time"
    );
    slow.write_ns.store(1_000_000, Ordering::Relaxed);
    steps.pass(SEC);
    assert_eq!(commits(), 4, "all have had their turn");
    let rested = assert_idle();
    assert!(rested >= 3, "within each commit: {rested}");
    write(8);
    steps.run();
    assert_eq!(commits(), 8, "nobody assert_idle");
    assert_eq!(assert_idle(), rested);
    open.bucket.shutdown();
}

#[test]
fn older_versions_do_not_fill_memory_before_they_are_applied() {
    let mut site = sim(&SimDisk::new(6));
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.quota_bytes = 20 << 20;
    let open = site.open();
    let value = vec![b'v'; 100_000];
    for _ in 0..200 {
        open.set("hot", &value).unwrap();
        open.bucket.persistence().sync().unwrap();
        let pinned = open.figure("ep_pinned_bytes");
        assert!(pinned < 200_000, "{pinned}");
    }
    assert_eq!(open.figure("ep_apply_commits"), 0);
    open.bucket.shutdown();
    let again = site.open();
    assert_eq!(again.get("hot").unwrap(), value);
    again.bucket.shutdown();
}

#[test]
fn changes_that_cannot_be_applied_stay_in_the_log_and_are_retried() {
    let disk = SimDisk::new(7);
    let site = sim(&disk);
    let mut manual_tasks = sim(&disk);
    let (open, steps) = manual_tasks.open_with_manual_tasks();
    open.set("a", b"1").unwrap();
    steps.pass(SEC * 2);
    disk.fail_next(Operation::Create, Fault::NoSpace);
    steps.pass(SEC * 8 + MS * 100);
    assert_eq!(open.figure("ep_apply_failures"), 1);
    assert_eq!(applied(&open), (0, 0));
    assert!(open.figure("ep_log_needed_bytes") > 0);
    assert_eq!(open.get("a").unwrap(), b"1");
    open.set("a", b"2").unwrap();
    steps.pass(SEC * 20);
    assert_eq!(applied(&open), (1, 1));
    assert!(open.sink.fatal().is_empty());
    disk.fail_next(Operation::Sync, Fault::Io);
    open.set("a", b"3").unwrap();
    open.bucket.persistence().sync().unwrap_err();
    assert_eq!(open.sink.fatal().len(), 1, "a failed sync ends the process");
    open.bucket.shutdown();
    disk.crash(1);
    let again = site.open();
    assert_eq!(again.get("a").unwrap(), b"2");
    again.bucket.shutdown();
}

#[test]
fn failed_sync_while_applying_ends_the_process() {
    let disk = SimDisk::new(8);
    let mut site = sim(&disk);
    let (open, steps) = site.open_with_manual_tasks();
    open.set("a", b"1").unwrap();
    steps.pass(SEC * 2);
    disk.fail_next(Operation::Sync, Fault::Io);
    steps.pass(SEC * 10);
    assert_eq!(open.sink.fatal().len(), 1);
    open.bucket.shutdown();
    disk.crash(1);
    let (again, _steps) = site.open_with_manual_tasks();
    assert_eq!(again.get("a").unwrap(), b"1", "the log has it");
    again.bucket.shutdown();
}

#[test]
fn flush_replaces_the_files() {
    let site = sim(&SimDisk::new(10));
    let open = site.open();
    for n in 0..100 {
        open.set(&format!("key-{n}"), &[b'v'; 1_000]).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    open.bucket.flush_all(open.ctx()).unwrap();
    open.set("after", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    let names = files(&site);
    assert_eq!(names.len(), 4);
    for name in &names {
        assert!(name.to_str().unwrap().ends_with(".couch.2"), "{name:?}");
        assert!(site.disk.len(name).unwrap() < 30_000);
    }
    let before = branches(&open);
    open.bucket.shutdown();
    kedge_log::Log::remove(&*site.disk, &site.dir.join("log")).unwrap();
    let again = site.open();
    assert_eq!(again.figure("curr_items"), 1);
    let after = branches(&again);
    for (before, after) in before.iter().zip(&after) {
        assert!(after.ends_with(before), "{before:?} {after:?}");
    }
    again.bucket.shutdown();
}

#[test]
fn apply_settings_can_change_at_runtime() {
    let (open, steps) = sim(&SimDisk::new(11)).open_with_manual_tasks();
    let change = BucketChange {
        apply_max_lag_ms: Some(100),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    open.set("key", b"1").unwrap();
    steps.pass(Duration::from_millis(200));
    assert_eq!(applied(&open), (1, 1));
    open.bucket.shutdown();
}

#[test]
fn shutdown_applies_the_log_within_a_time_limit() {
    let mut site = sim(&SimDisk::new(12));
    let (open, _steps) = site.open_with_manual_tasks();
    for n in 0..100 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    open.bucket.shutdown_within(Duration::ZERO);
    assert_eq!(files(&site), Vec::<PathBuf>::new());
    let (open, _steps) = site.open_with_manual_tasks();
    assert_eq!(open.bucket.wait_loaded().unwrap().documents, 100);
    open.bucket.shutdown();
    assert_eq!(files(&site).len(), 4);
    let (open, _steps) = site.open_with_manual_tasks();
    assert_eq!(open.bucket.wait_loaded().unwrap().documents, 100);
    assert_eq!(
        open.bucket.vbucket_figures(VbId(0)).unwrap().unapplied,
        0,
        "what the log has is in the files"
    );
    open.bucket.shutdown();
}

#[test]
fn deleted_vbucket_stays_deleted_until_it_is_created_again() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(14);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        let open = site.open();
        for n in 0..100 {
            open.set(&format!("key-{n}"), &[b'v'; 1_000]).unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        let vb = key("key-5").vbucket(4);
        let before = open.bucket.failover_log(open.ctx(), vb).unwrap();
        open.bucket.states().delete_vbucket(vb).unwrap();
        assert_eq!(open.get("key-5"), Err(Status::NotMyVbucket));
        assert_eq!(
            open.bucket.states().delete_vbucket(vb),
            Err(Status::NotMyVbucket)
        );
        assert_eq!(open.bucket.vbucket_figures(vb), None);
        assert_eq!(files(&site).len(), 3);
        disk.crash(5);
        open.bucket.shutdown();
        let again = site.open();
        for n in 0..100 {
            let name = format!("key-{n}");
            let there = key(&name).vbucket(4) != vb;
            let found = again.get(&name).map(|_| ());
            let expected = there.then_some(()).ok_or(Status::NotMyVbucket);
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(again.bucket.vbucket_state(vb), Err(Status::NotMyVbucket));
        assert_eq!(
            again
                .bucket
                .vbucket_seqnos(Some(VbState::Dead), false, None),
            []
        );
        again
            .bucket
            .states()
            .set_vbucket(vb, VbState::Active)
            .unwrap();
        assert_eq!(again.get("key-5"), Err(Status::KeyNotFound));
        let after = again.bucket.failover_log(again.ctx(), vb).unwrap();
        assert_eq!(after.len(), 1, "a new history, in which nothing happened");
        assert_ne!(after, before);
        assert_eq!(
            again.bucket.states().delete_vbucket(VbId(9)),
            Err(Status::NotMyVbucket)
        );
        again.set("key-5", b"new").unwrap();
        again.bucket.persistence().apply().unwrap();
        let names = files(&site);
        let new = |name: &&PathBuf| name.to_str().unwrap().ends_with(".couch.2");
        assert_eq!((names.len(), names.iter().filter(new).count()), (4, 1));
        let all = site.disk.list(&site.dir).unwrap();
        assert!(all.iter().all(|name| !name.contains("deleted")), "{all:?}");
        again.bucket.shutdown();
        let last = site.open();
        assert_eq!(last.get("key-5").unwrap(), b"new");
        last.bucket.shutdown();
    }
}
