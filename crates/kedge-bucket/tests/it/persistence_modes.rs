//! Behaviour that is the same with and without a commit log.

use crate::tools::*;
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::{Seqno, Status, VbId};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Mode {
    commit_log: bool,
    /// The kind of the task that makes changes durable.
    task: &'static str,
    /// The names of the counters of its commits and of written changes.
    commits: &'static str,
    items: &'static str,
}

const LOG: Mode = Mode {
    commit_log: true,
    task: "log_commit",
    commits: "ep_log_batches",
    items: "ep_log_records",
};

const DIRECT: Mode = Mode {
    commit_log: false,
    task: "flush",
    commits: "ep_flush_commits",
    items: "ep_storage_committed_items",
};

impl Mode {
    fn site(self, disk: &SimDisk) -> TestSite {
        eprintln!("{self:?}");
        let mut site = sim(disk);
        site.config.commit_log = self.commit_log;
        site
    }

    /// Opens a bucket that has become idle.
    fn at_rest(self, disk: &SimDisk) -> (Open, Steps) {
        let (open, steps) = self.site(disk).open_with_manual_tasks();
        steps.pass(SEC * 5);
        (open, steps)
    }

    fn written(self, open: &Open) -> (u64, u64) {
        (open.figure(self.commits), open.figure(self.items))
    }
}

#[test]
fn documents_survive_a_clean_restart() {
    for mode in [LOG, DIRECT] {
        let site = mode.site(&SimDisk::new(1));
        let open = site.open();
        for n in 0..500 {
            open.set(&format!("key-{n}"), format!("value-{n}").as_bytes())
                .unwrap();
        }
        open.persist("durable", b"1", 1).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        open.sink.wait(1).unwrap();
        let k = key("key-7");
        open.bucket
            .documents()
            .delete(open.ctx(), &write(&k))
            .unwrap();
        let before = branches(&open);
        open.bucket.shutdown();
        open.bucket.shutdown();
        assert_eq!(open.set("late", b"x"), Err(Status::TemporaryFailure));
        let has_log = site.disk.exists(&site.dir.join("log")).unwrap();
        assert_eq!(has_log, mode.commit_log);
        let again = site.open();
        let report = again.bucket.wait_loaded().unwrap();
        assert_eq!((report.documents, report.clean), (500, true));
        assert!(mode.commit_log || report.records == 0);
        for n in 0..500 {
            let expected = match n {
                7 => Err(Status::KeyNotFound),
                n => Ok(format!("value-{n}").into_bytes()),
            };
            assert_eq!(again.get(&format!("key-{n}")), expected);
        }
        assert_eq!(again.get("durable").unwrap(), b"1");
        assert_eq!(branches(&again), before, "no branch began");
        again.bucket.shutdown();
    }
}

#[test]
fn unclean_shutdown_begins_a_new_branch_of_each_vbucket() {
    for mode in [LOG, DIRECT] {
        let disk = SimDisk::new(2);
        let mut site = mode.site(&disk);
        site.config.log_interval_ms = 600_000;
        let open = site.open();
        open.set("a", b"1").unwrap();
        open.bucket.persistence().sync().unwrap();
        open.set("a", b"2").unwrap();
        disk.kill_process();
        let again = site.open();
        assert!(!again.bucket.wait_loaded().unwrap().clean);
        assert_eq!(again.get("a").unwrap(), b"1");
        let with_data = key("a").vbucket(4).index();
        for (vb, branches) in branches(&again).iter().enumerate() {
            assert_eq!(branches.len(), 2);
            assert_eq!(branches[0].1, Seqno(u64::from(vb == with_data)));
        }
        again.bucket.shutdown();
        open.bucket.shutdown();
    }
}

/// Makes five changes 3 ms apart, with keys from `key`, and checks that `items` changes are written after the interval.
fn check_interval(mode: Mode, key: impl Fn(u32) -> String, items: u64) {
    let (open, steps) = mode.at_rest(&SimDisk::new(3));
    let runs = open.runs(mode.task);
    for n in 0..5 {
        open.set(&key(n), format!("{n}").as_bytes()).unwrap();
        steps.pass(MS * 3);
    }
    steps.pass(MS * 4);
    assert_eq!(mode.written(&open), (0, 0));
    let woken = open.runs(mode.task);
    assert_eq!(woken, runs, "none is woken before the interval is over");
    steps.pass(MS);
    assert_eq!(mode.written(&open), (1, items), "together");
    open.set("key", b"later").unwrap();
    steps.pass(MS * 20);
    assert_eq!(mode.written(&open), (2, items + 1));
    open.bucket.shutdown();
}

#[test]
fn changes_without_waiters_wait_for_the_interval() {
    check_interval(LOG, |n| format!("key-{n}"), 5);
    // Only the newest change of the key.
    check_interval(DIRECT, |_| "key".to_owned(), 1);
}

#[test]
fn changes_with_waiters_do_not_wait_for_the_interval() {
    for mode in [LOG, DIRECT] {
        let (open, steps) = mode.at_rest(&SimDisk::new(4));
        for round in 1..=3 {
            // Once while idle, and once in the middle of an interval.
            open.set("other", b"1").unwrap();
            steps.pass(MS * 5);
            open.persist("key", b"1", round).unwrap();
            open.bucket.persistence().writers().request_flush(false);
            assert!(open.sink.get(round).is_none());
            let (before, _) = mode.written(&open);
            steps.run();
            assert!(open.sink.wait(round).is_ok());
            assert_eq!(mode.written(&open).0, before + 1);
        }
        open.persist("key", b"2", 4).unwrap();
        open.bucket.persistence().writers().request_flush(true);
        assert!(open.sink.wait(4).is_ok(), "who leads needs no task");
        open.bucket.shutdown();
    }
}

/// Checks that the commit of a prepare is not written within `early`, and is written within `late`.
fn check_commit_delay(mode: Mode, log_interval_ms: u64, early: Duration, late: Duration) {
    let mut site = mode.site(&SimDisk::new(5));
    site.config.log_interval_ms = log_interval_ms;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    let written = || (mode.written(&open), open.figure("ep_queue_size"));
    let persist = |value: &[u8], cookie| {
        open.persist("key", value, cookie).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.run();
        assert!(open.sink.wait(cookie).is_ok());
    };
    persist(b"1", 1);
    assert_eq!(written(), ((1, 1), 1));
    steps.pass(early);
    assert_eq!(written(), ((1, 1), 1), "it waits for company");
    persist(b"2", 2);
    assert_eq!(written(), ((2, 3), 1), "the first commit went along");
    steps.pass(late);
    assert_eq!(written(), ((3, 4), 0), "nothing came");
    open.bucket.shutdown();
}

#[test]
fn commit_of_a_prepare_is_written_with_the_next_change_or_after_a_delay() {
    check_commit_delay(LOG, 600_000, SEC * 599, SEC * 601);
    check_commit_delay(DIRECT, 20, MS * 500, SEC * 2);
}

#[test]
fn commit_size_is_limited_unless_one_document_exceeds_the_limit() {
    for mode in [LOG, DIRECT] {
        let mut site = mode.site(&SimDisk::new(8));
        site.config.flush_batch_max_bytes = 2_500;
        let (open, _steps) = site.open_with_manual_tasks();
        let mut names = names_in(VbId(1));
        let mut commits_of = |sizes: &[usize]| {
            let commits = || (mode.written(&open).0, open.figure("ep_storage_commits"));
            let before = commits();
            for bytes in sizes {
                open.set(&names.next().unwrap(), &vec![b'v'; *bytes])
                    .unwrap();
            }
            open.bucket.persistence().apply().unwrap();
            let after = commits();
            (after.0 - before.0, after.1 - before.1)
        };
        assert_eq!(commits_of(&[1_000; 10]), (5, 5), "two documents in each");
        assert_eq!(commits_of(&[10_000, 1_000, 1_000]), (2, 2));
        open.bucket.shutdown();
    }
}

#[test]
fn write_to_a_full_disk_is_retried_after_a_delay() {
    for mode in [LOG, DIRECT] {
        let disk = SimDisk::new(6);
        let (open, steps) = mode.at_rest(&disk);
        disk.set_capacity(Some(disk.used_bytes()));
        open.persist("big", &vec![b'x'; 5 << 20], 1).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.run();
        assert_eq!(open.figure("ep_disk_full"), 1);
        assert_eq!(open.set("refused", b"1"), Err(Status::TemporaryFailure));
        let runs = open.runs(mode.task).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.pass(MS * 99);
        assert_eq!(
            open.runs(mode.task),
            Some(runs),
            "flush_requests don't make room"
        );
        steps.pass(MS * 901);
        assert_eq!(open.runs(mode.task), Some(runs + 10));
        assert!(open.sink.get(1).is_none());
        disk.set_capacity(None);
        steps.pass(MS * 100);
        assert!(open.sink.wait(1).is_ok());
        assert_eq!(open.figure("ep_disk_full"), 0);
        assert_eq!(open.set("taken", b"1").map(|_| ()), Ok(()));
        open.bucket.shutdown();
    }
}

/// The error number for too many open files.
const EMFILE: Fault = Fault::Os(24);

#[test]
fn refused_log_segment_is_retried_after_doubling_pauses_of_up_to_3_2_seconds() {
    let disk = SimDisk::new(6);
    let (open, steps) = LOG.at_rest(&disk);
    disk.fail_every(Operation::Create, EMFILE);
    open.persist("big", &vec![b'x'; 5 << 20], 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(open.figure("ep_disk_refuses"), 1);
    assert_eq!(open.figure("ep_disk_full"), 0);
    for pause_ms in [100, 200, 400, 800, 1_600, 3_200, 3_200] {
        let runs = open.runs(LOG.task).unwrap();
        steps.pass(MS * (pause_ms - 1));
        assert_eq!(open.runs(LOG.task), Some(runs), "after {pause_ms} ms");
        steps.pass(MS);
        assert_eq!(open.runs(LOG.task), Some(runs + 1), "after {pause_ms} ms");
    }
    assert_eq!(open.set("refused", b"1"), Err(Status::TemporaryFailure));
    disk.clear_faults();
    steps.pass(MS * 3_200);
    assert!(open.sink.wait(1).is_ok());
    assert_eq!(open.figure("ep_disk_refuses"), 0);
    assert_eq!(open.set("taken", b"1").map(|_| ()), Ok(()));
    open.bucket.shutdown();
}

#[test]
fn file_that_is_refused_is_retried_every_second_and_writes_continue() {
    for mode in [LOG, DIRECT] {
        let disk = SimDisk::new(9);
        let mut site = mode.site(&disk);
        let (open, steps) = site.open_with_manual_tasks();
        steps.pass(SEC * 5);
        let failures = || {
            open.figure(if mode.commit_log {
                "ep_apply_failures"
            } else {
                "ep_flush_failures"
            })
        };
        disk.fail_every(Operation::Create, EMFILE);
        open.set("key", b"1").unwrap();
        let mut waited_ms = 0;
        while failures() == 0 {
            steps.pass(MS);
            waited_ms += 1;
            assert!(waited_ms < 30_000, "{mode:?}: no file is created");
        }
        for count in 1..=4 {
            steps.pass(MS * 980);
            assert_eq!(failures(), count, "{mode:?}");
            steps.pass(MS * 20);
            assert_eq!(failures(), count + 1, "{mode:?}");
        }
        open.set("key", b"2").unwrap();
        for figure in ["ep_disk_full", "ep_disk_refuses"] {
            assert_eq!(open.figure(figure), 0, "{mode:?}: {figure}");
        }
        disk.clear_faults();
        steps.pass(SEC * 30);
        assert_eq!(open.figure("ep_queue_size"), 0, "{mode:?}");
        disk.crash(1);
        open.bucket.shutdown();
        let (again, _steps) = site.open_with_manual_tasks();
        assert_eq!(again.get("key").unwrap(), b"2", "{mode:?}");
        again.bucket.shutdown();
    }
}

#[test]
fn sync_writes_of_many_threads_and_vbuckets_complete() {
    for mode in [LOG, DIRECT] {
        let mut site = mode.site(&SimDisk::new(7));
        site.config.num_shards = 2;
        let open = site.open();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let open = &open;
                scope.spawn(move || {
                    for n in 0..100 {
                        let cookie = thread * 1_000 + n + 1;
                        open.persist(&format!("key-{cookie}"), b"value", cookie)
                            .unwrap();
                        open.bucket
                            .persistence()
                            .writers()
                            .request_flush(!mode.commit_log && n % 2 == 0);
                        let mutated = open.sink.wait(cookie).unwrap();
                        assert!(mutated.seqno.get() > 0);
                    }
                });
            }
        });
        assert_eq!(open.figure("curr_items"), 800);
        assert_eq!(open.figure("ep_parked_commands"), 0);
        let count = |timing| open.bucket.timings().snapshot(timing).unwrap().count;
        assert_eq!(count("sync_write_commit_persist_to_majority"), 800);
        if !mode.commit_log {
            assert_eq!(count("apply_commit"), open.figure("ep_flush_commits"));
        }
        open.bucket.shutdown();
    }
}
