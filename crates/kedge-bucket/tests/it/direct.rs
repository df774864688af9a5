//! Buckets without a commit log: changes are committed to the files directly.

use crate::tools::*;
use kedge_bucket::{Cookie, Outcome};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_executor::Pool;
use kedge_types::VbId;
use std::collections::BTreeMap;

fn direct(disk: &SimDisk) -> TestSite {
    let mut site = sim(disk);
    site.config.commit_log = false;
    site
}

fn commits(open: &Open) -> (u64, u64) {
    let items = open.figure("ep_storage_committed_items");
    (open.figure("ep_flush_commits"), items)
}

/// Returns a key of another vBucket.
fn elsewhere(name: &str) -> String {
    let mut names = (0..).map(|n| format!("other-{n}"));
    let vb = key(name).vbucket(4);
    names.find(|name| key(name).vbucket(4) != vb).unwrap()
}

#[test]
fn flusher_is_idle_after_all_changes_are_written() {
    let disk = SimDisk::new(3);
    let (open, steps) = direct(&disk).open_with_manual_tasks();
    steps.pass(SEC * 5);
    open.set("key", b"1").unwrap();
    steps.pass(MS * 20);
    assert_eq!(commits(&open), (1, 1));
    assert_idle(&disk, &open, &steps, "flush");
    open.bucket.shutdown();
}

#[test]
fn vbucket_without_waiters_is_flushed_too() {
    let (open, steps) = direct(&SimDisk::new(5)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    let plain = elsewhere("key");
    open.set(&plain, b"1").unwrap();
    for cookie in 1..=40 {
        open.persist("key", b"1", cookie).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.pass(MS);
        assert!(open.sink.wait(cookie).is_ok());
    }
    let figures = open.bucket.vbucket_figures(key(&plain).vbucket(4)).unwrap();
    assert_eq!(figures.persisted_seqno, figures.high_seqno);
    open.bucket.shutdown();
}

#[test]
fn unwritable_file_does_not_block_other_files() {
    let disk = SimDisk::new(8);
    let (open, steps) = direct(&disk).open_with_manual_tasks();
    steps.pass(SEC * 5);
    disk.fail_next(Operation::Write, Fault::Io);
    open.persist("key", b"1", 1).unwrap();
    open.persist(&elsewhere("key"), b"1", 2).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(open.figure("ep_flush_failures"), 1);
    let done = [1, 2].map(|cookie| open.sink.get(cookie).is_some());
    assert_ne!(done[0], done[1], "one of two vBuckets");
    steps.pass(SEC + MS * 10);
    assert!(open.sink.wait(1).is_ok() && open.sink.wait(2).is_ok());
    assert!(open.sink.fatal().is_empty());
    disk.fail_next(Operation::Sync, Fault::Io);
    open.persist("key", b"2", 3).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(open.sink.fatal().len(), 1, "a failed sync ends the process");
    open.bucket.shutdown();
}

#[test]
fn flush_empties_the_files_without_a_log() {
    let disk = SimDisk::new(9);
    let site = direct(&disk);
    let open = site.open();
    for n in 0..100 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    open.set("key-1", b"2").unwrap();
    open.bucket.flush_all(open.ctx()).unwrap();
    open.set("after", b"1").unwrap();
    open.bucket.persistence().sync().unwrap();
    disk.crash(1);
    let again = site.open();
    assert_eq!(again.bucket.wait_loaded().unwrap().documents, 1);
    assert_eq!(again.get("after").unwrap(), b"1");
    again.bucket.shutdown();
    open.bucket.shutdown();
}

/// Each start uses the other mode than the one before. Writes of every mode survive.
#[test]
fn commit_log_setting_can_change_at_each_start() {
    let disk = SimDisk::new(11);
    let mut site = sim(&disk);
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    let mut last = Vec::new();
    for round in 0..12 {
        site.config.commit_log = round % 2 == 0;
        let killed = round % 3 == 2;
        site.executor = executor();
        let open = site.open();
        let report = open.bucket.wait_loaded().unwrap();
        assert_eq!(report.clean, round == 0 || (round - 1) % 3 != 2, "{round}");
        for (name, value) in &expected {
            assert_eq!(open.get(name).unwrap(), value.as_bytes(), "{round}");
        }
        assert_eq!(open.figure("curr_items"), expected.len() as u64);
        if report.clean && round > 0 {
            assert_eq!(branches(&open), last, "{round}");
        }
        assert_eq!(
            site.disk.exists(&site.dir.join("log")).unwrap(),
            site.config.commit_log
        );
        for n in 0..20 {
            let (name, value) = (format!("key-{}", (n * 7 + round) % 50), format!("{round}"));
            open.set(&name, value.as_bytes()).unwrap();
            expected.insert(name, value);
        }
        open.persist("durable", b"1", round).unwrap();
        expected.insert("durable".to_owned(), "1".to_owned());
        open.bucket.persistence().writers().request_flush(false);
        open.sink.wait(round).unwrap();
        open.bucket.persistence().sync().unwrap();
        last = branches(&open);
        if killed {
            disk.kill_process();
        } else {
            open.bucket.shutdown();
        }
        site.executor.shutdown();
    }
}

#[test]
fn response_is_delayed_while_persistence_is_behind() {
    let mut site = direct(&SimDisk::new(12));
    site.config.quota_bytes = 100 << 20;
    site.config.log_interval_ms = 600_000;
    let open = site.open();
    let value = vec![b'x'; 1 << 20];
    for n in 1..=14 {
        let k = key(&format!("key-{n}"));
        let held = kedge_bucket::Write {
            cookie: Cookie(n),
            ..write(&k)
        };
        if open.store(&held, &value).unwrap() == Outcome::Parked {
            open.bucket.persistence().writers().request_flush(false);
            assert!(open.sink.wait(n).is_ok());
        }
    }
    assert!(commits(&open).0 > 0);
    open.bucket.shutdown();
}

/// The maximum number of changes in a run of a flusher.
const RUN: u64 = 4_096;

#[test]
fn flusher_run_is_short_and_shutdown_commits_each_file_once() {
    let (open, steps) = direct(&SimDisk::new(20)).open_with_manual_tasks();
    let mut names = names_in(VbId(1));
    for _ in 0..3 * RUN - 1 {
        open.set(&names.next().unwrap(), b"1").unwrap();
    }
    open.persist(&names.next().unwrap(), b"1", 1).unwrap();
    steps.run();
    assert_eq!(commits(&open), (0, 0), "nobody has requested");
    open.bucket.persistence().writers().request_flush(false);
    for run in 1..=3 {
        assert!(steps.run_one(Pool::Writer));
        assert_eq!(commits(&open), (run, run * RUN));
    }
    assert!(open.sink.wait(1).is_ok());
    steps.pass(SEC * 5);
    let before = commits(&open);
    for _ in 0..3 * RUN {
        open.set(&names.next().unwrap(), b"2").unwrap();
    }
    open.set(&elsewhere(&names.next().unwrap()), b"2").unwrap();
    open.bucket.shutdown();
    let now = commits(&open);
    assert_eq!(
        (now.0 - before.0, now.1 - before.1),
        (2, 3 * RUN + 1),
        "a commit for each file"
    );
}

/// Returns the persisted seqno of each vBucket.
fn persisted(open: &Open) -> [u64; 4] {
    let of = |vb| open.bucket.vbucket_figures(VbId(vb)).unwrap();
    [0, 1, 2, 3].map(|vb| of(vb).persisted_seqno.get())
}

#[test]
fn vbucket_with_more_changes_than_a_flusher_run_moves_to_the_end_of_the_queue() {
    let (open, steps) = direct(&SimDisk::new(21)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    let (mut many, mut few) = (names_in(VbId(1)), names_in(VbId(2)));
    for _ in 1..3 * RUN {
        open.set(&many.next().unwrap(), b"1").unwrap();
    }
    open.persist(&many.next().unwrap(), b"1", 1).unwrap();
    open.persist(&few.next().unwrap(), b"1", 2).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run_one(Pool::Writer);
    assert_eq!(persisted(&open), [0, RUN, 0, 0]);
    steps.run_one(Pool::Writer);
    assert_eq!(persisted(&open)[2], 1);
    assert!(persisted(&open)[1] < 3 * RUN && open.sink.get(1).is_none());
    steps.run();
    assert_eq!(persisted(&open), [0, 3 * RUN, 1, 0]);
    assert!(open.sink.wait(1).is_ok());
    open.bucket.shutdown();
}

#[test]
fn changes_without_waiters_share_syncs() {
    let (open, steps) = direct(&SimDisk::new(23)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    let mut names = [1, 2, 3].map(|vb| names_in(VbId(vb)));
    let mut many = |open: &Open| {
        for name in names[0].by_ref().take(3 * RUN as usize) {
            open.set(&name, b"1").unwrap();
        }
    };
    let commits = || open.figure("ep_flush_commits");
    many(&open);
    let before = commits();
    steps.pass(MS * 20);
    assert_eq!(persisted(&open), [0, 3 * RUN, 0, 0]);
    assert_eq!(commits() - before, 3);
    // A vBucket with another waiter of the same flusher gets one commit.
    many(&open);
    steps.jump(SEC);
    let mut persist = |vb: usize, opaque| {
        let name = names[vb - 1].next().unwrap();
        open.persist(&name, b"1", opaque).unwrap();
    };
    persist(2, 1);
    persist(3, 2);
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    let order = persisted(&open);
    assert!(order[2] > 0 && order[3] > 0 && open.sink.wait(2).is_ok());
    assert_eq!(order[1], 4 * RUN);
    steps.pass(SEC);
    assert_eq!(persisted(&open)[1], 6 * RUN);
    open.bucket.shutdown();
}

#[test]
fn vbuckets_with_waiters_are_flushed_before_due_ones() {
    let (open, steps) = direct(&SimDisk::new(22)).open_with_manual_tasks();
    steps.pass(SEC * 5);
    for vb in [0, 2, 3] {
        open.set(&names_in(VbId(vb)).next().unwrap(), b"1").unwrap();
    }
    steps.jump(SEC);
    // A run ends with this commit.
    let mut names = names_in(VbId(1));
    for _ in 1..RUN {
        open.set(&names.next().unwrap(), b"1").unwrap();
    }
    open.persist(&names.next().unwrap(), b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run_one(Pool::Writer);
    assert!(open.sink.get(1).is_some());
    assert_eq!(persisted(&open), [0, RUN, 0, 0]);
    steps.run();
    assert_eq!(persisted(&open)[..1], [1], "they were due");
    open.bucket.shutdown();
}

#[test]
fn each_shard_of_vbuckets_has_its_own_flusher() {
    for (commit_log, kind) in [(false, "flush"), (true, "log_apply")] {
        let mut site = direct(&SimDisk::new(23));
        site.config.commit_log = commit_log;
        site.config.num_shards = 3;
        let (open, _steps) = site.open_with_manual_tasks();
        assert_eq!(open.pools(kind), [Pool::Writer; 3], "{kind}");
        open.bucket.shutdown();
    }
}
