//! What holds with a commit log and without one.

use crate::tools::*;
use kedge_disk::SimDisk;
use kedge_types::{Seqno, Status, VbId};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Mode {
    commit_log: bool,
    /// The task that makes changes durable.
    task: &'static str,
    /// How often it did, and how many changes.
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
    fn place(self, disk: &SimDisk) -> Place {
        eprintln!("{self:?}");
        let mut place = sim(disk);
        place.config.commit_log = self.commit_log;
        place
    }

    /// A bucket that has come to rest.
    fn at_rest(self, disk: &SimDisk) -> (Open, Steps) {
        let (open, steps) = self.place(disk).open_by_hand();
        steps.pass(SEC * 5);
        (open, steps)
    }

    fn written(self, open: &Open) -> (u64, u64) {
        (open.figure(self.commits), open.figure(self.items))
    }
}

#[test]
fn what_was_written_is_there_after_a_clean_restart() {
    for mode in [LOG, DIRECT] {
        let place = mode.place(&SimDisk::new(1));
        let open = place.open();
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
        let has_log = place.disk.exists(&place.dir.join("log")).unwrap();
        assert_eq!(has_log, mode.commit_log);
        let again = place.open();
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
fn an_unclean_stop_begins_a_branch_of_each_vbucket() {
    for mode in [LOG, DIRECT] {
        let disk = SimDisk::new(2);
        let mut place = mode.place(&disk);
        place.config.log_interval_ms = 600_000;
        let open = place.open();
        open.set("a", b"1").unwrap();
        open.bucket.persistence().sync().unwrap();
        open.set("a", b"2").unwrap();
        disk.kill_process();
        let again = place.open();
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

/// Five changes 3 ms apart, each of the key that `key` gives, of which `items` are written.
fn waits_for_the_interval(mode: Mode, key: impl Fn(u32) -> String, items: u64) {
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
fn what_nobody_waits_for_waits_for_the_interval() {
    waits_for_the_interval(LOG, |n| format!("key-{n}"), 5);
    // The newest of the key.
    waits_for_the_interval(DIRECT, |_| "key".to_owned(), 1);
}

#[test]
fn who_waits_does_not_wait_for_the_interval() {
    for mode in [LOG, DIRECT] {
        let (open, steps) = mode.at_rest(&SimDisk::new(4));
        for round in 1..=3 {
            // Once from rest, and in the middle of an interval.
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

/// The commit of a prepare does not follow within `early`, and does within `late`.
fn goes_along_or_follows(mode: Mode, log_interval_ms: u64, early: Duration, late: Duration) {
    let mut place = mode.place(&SimDisk::new(5));
    place.config.log_interval_ms = log_interval_ms;
    let (open, steps) = place.open_by_hand();
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
fn the_commit_of_a_prepare_goes_with_the_next_change_or_follows_by_itself() {
    goes_along_or_follows(LOG, 600_000, SEC * 599, SEC * 601);
    goes_along_or_follows(DIRECT, 20, MS * 500, SEC * 2);
}

#[test]
fn a_commit_has_no_more_bytes_than_it_may_unless_one_document_has() {
    for mode in [LOG, DIRECT] {
        let mut place = mode.place(&SimDisk::new(8));
        place.config.flush_batch_max_bytes = 2_500;
        let (open, _steps) = place.open_by_hand();
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
fn a_full_disk_is_tried_again_after_a_while() {
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

#[test]
fn many_threads_wait_for_many_vbuckets() {
    for mode in [LOG, DIRECT] {
        let mut place = mode.place(&SimDisk::new(7));
        place.config.num_shards = 2;
        let open = place.open();
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
