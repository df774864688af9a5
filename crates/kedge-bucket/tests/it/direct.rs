//! Without a commit log: files are committed at once.

use crate::tools::*;
use kedge_bucket::{Cookie, Outcome};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_types::{Seqno, Status, VbUuid};
use std::collections::BTreeMap;

fn direct(disk: &SimDisk) -> Place {
    let mut place = sim(disk);
    place.config.commit_log = false;
    place
}

fn commits(open: &Open) -> (u64, u64) {
    let items = open.figure("ep_storage_committed_items");
    (open.figure("ep_flush_commits"), items)
}

/// A key of another vBucket.
fn elsewhere(name: &str) -> String {
    let mut names = (0..).map(|n| format!("other-{n}"));
    let vb = key(name).vbucket(4);
    names.find(|name| key(name).vbucket(4) != vb).unwrap()
}

fn branches(open: &Open) -> Vec<Vec<(VbUuid, Seqno)>> {
    let log = |vb| open.bucket.failover_log(open.ctx(), vb).unwrap();
    all_vbuckets().map(log).collect()
}

#[test]
fn what_was_written_is_there_after_a_restart_and_there_is_no_log() {
    let place = direct(&SimDisk::new(1));
    let open = place.open();
    for n in 0..500 {
        open.set(&format!("key-{n}"), format!("{n}").as_bytes())
            .unwrap();
    }
    open.persist("durable", b"1", 1).unwrap();
    open.bucket.kick(false);
    open.sink.wait(1).unwrap();
    let k = key("key-7");
    open.bucket.delete(open.ctx(), &write(&k)).unwrap();
    let before = branches(&open);
    open.bucket.shutdown();
    assert!(!place.disk.exists(&place.dir.join("log")).unwrap());
    let again = place.open();
    let report = again.bucket.wait_loaded().unwrap();
    assert_eq!(
        (report.documents, report.records, report.clean),
        (500, 0, true)
    );
    assert_eq!(again.get("key-499").unwrap(), b"499");
    assert_eq!(again.get("durable").unwrap(), b"1");
    assert_eq!(again.get("key-7"), Err(Status::KeyNotFound));
    assert_eq!(branches(&again), before, "no branch began");
    again.bucket.shutdown();
}

#[test]
fn an_unclean_stop_begins_a_branch() {
    let disk = SimDisk::new(2);
    let place = direct(&disk);
    let open = place.open();
    open.set("a", b"1").unwrap();
    open.bucket.sync().unwrap();
    open.set("a", b"2").unwrap();
    disk.kill_process();
    let again = place.open();
    assert!(!again.bucket.wait_loaded().unwrap().clean);
    assert_eq!(again.get("a").unwrap(), b"1");
    let with_data = key("a").vbucket(4).index();
    for (vb, branches) in branches(&again).iter().enumerate() {
        assert_eq!(branches.len(), if vb == with_data { 2 } else { 1 });
    }
    again.bucket.shutdown();
    open.bucket.shutdown();
}

#[test]
fn what_nobody_waits_for_waits_for_the_interval() {
    let (open, steps) = direct(&SimDisk::new(3)).open_by_hand();
    steps.pass(SEC * 5);
    let runs = open.runs("flush");
    for n in 0..5 {
        open.set("key", format!("{n}").as_bytes()).unwrap();
        steps.pass(MS * 3);
    }
    steps.pass(MS * 4);
    assert_eq!((commits(&open), open.runs("flush")), ((0, 0), runs));
    steps.pass(MS);
    assert_eq!(commits(&open), (1, 1), "the newest of the key");
    let runs = open.runs("flush");
    steps.pass(SEC * 3_600);
    assert_eq!((commits(&open), open.runs("flush")), ((1, 1), runs));
    open.bucket.shutdown();
}

#[test]
fn who_waits_is_written_at_once_and_alone() {
    let (open, steps) = direct(&SimDisk::new(4)).open_by_hand();
    steps.pass(SEC * 5);
    for round in 1..=3 {
        open.set("other", b"1").unwrap();
        steps.pass(MS * 5);
        open.persist("key", b"1", round).unwrap();
        open.bucket.kick(false);
        assert!(open.sink.get(round).is_none());
        let before = commits(&open).0;
        steps.run();
        assert!(open.sink.wait(round).is_ok());
        assert_eq!(commits(&open).0, before + 1);
    }
    open.persist("key", b"2", 4).unwrap();
    open.bucket.kick(true);
    assert!(open.sink.wait(4).is_ok(), "who leads needs no task");
    open.bucket.shutdown();
}

#[test]
fn a_vbucket_that_nobody_waits_for_has_its_turn_all_the_same() {
    let (open, steps) = direct(&SimDisk::new(5)).open_by_hand();
    steps.pass(SEC * 5);
    let plain = elsewhere("key");
    open.set(&plain, b"1").unwrap();
    for cookie in 1..=40 {
        open.persist("key", b"1", cookie).unwrap();
        open.bucket.kick(false);
        steps.pass(MS);
        assert!(open.sink.wait(cookie).is_ok());
    }
    let figures = open.bucket.vbucket_figures(key(&plain).vbucket(4)).unwrap();
    assert_eq!(figures.persisted_seqno, figures.high_seqno);
    open.bucket.shutdown();
}

#[test]
fn the_commit_of_a_prepare_goes_with_the_next_change_or_follows_by_itself() {
    let (open, steps) = direct(&SimDisk::new(6)).open_by_hand();
    steps.pass(SEC * 5);
    open.persist("key", b"1", 1).unwrap();
    open.bucket.kick(false);
    steps.run();
    assert!(open.sink.wait(1).is_ok());
    assert_eq!(commits(&open), (1, 1));
    steps.pass(MS * 500);
    assert_eq!(commits(&open), (1, 1), "it waits for company");
    open.persist("key", b"2", 2).unwrap();
    open.bucket.kick(false);
    steps.run();
    assert!(open.sink.wait(2).is_ok());
    assert_eq!(commits(&open).0, 2);
    steps.pass(SEC * 2);
    assert_eq!(commits(&open).0, 3, "nothing came");
    open.bucket.shutdown();
}

#[test]
fn a_full_disk_is_tried_again_after_a_while() {
    let disk = SimDisk::new(7);
    let (open, steps) = direct(&disk).open_by_hand();
    steps.pass(SEC * 5);
    disk.set_capacity(Some(disk.used_bytes()));
    open.persist("big", &vec![b'x'; 1 << 20], 1).unwrap();
    open.bucket.kick(false);
    steps.run();
    assert_eq!(open.figure("ep_disk_full"), 1);
    assert_eq!(open.set("refused", b"1"), Err(Status::TemporaryFailure));
    steps.pass(SEC);
    assert!(open.sink.get(1).is_none());
    disk.set_capacity(None);
    steps.pass(MS * 100);
    assert!(open.sink.wait(1).is_ok());
    assert_eq!(open.figure("ep_disk_full"), 0);
    assert_eq!(open.set("taken", b"1").map(|_| ()), Ok(()));
    open.bucket.shutdown();
}

#[test]
fn a_file_that_cannot_be_written_holds_up_no_other() {
    let disk = SimDisk::new(8);
    let (open, steps) = direct(&disk).open_by_hand();
    steps.pass(SEC * 5);
    disk.fail_next(Operation::Write, Fault::Io);
    open.persist("key", b"1", 1).unwrap();
    open.persist(&elsewhere("key"), b"1", 2).unwrap();
    open.bucket.kick(false);
    steps.run();
    assert_eq!(open.figure("ep_flush_failures"), 1);
    let done = [1, 2].map(|cookie| open.sink.get(cookie).is_some());
    assert_ne!(done[0], done[1], "one of two vBuckets");
    steps.pass(SEC + MS * 10);
    assert!(open.sink.wait(1).is_ok() && open.sink.wait(2).is_ok());
    assert!(open.sink.fatal().is_empty());
    disk.fail_next(Operation::Sync, Fault::Io);
    open.persist("key", b"2", 3).unwrap();
    open.bucket.kick(false);
    steps.run();
    assert_eq!(open.sink.fatal().len(), 1, "a failed sync ends the process");
    open.bucket.shutdown();
}

#[test]
fn a_flush_empties_the_files() {
    let disk = SimDisk::new(9);
    let place = direct(&disk);
    let open = place.open();
    for n in 0..100 {
        open.set(&format!("key-{n}"), b"1").unwrap();
    }
    open.bucket.sync().unwrap();
    open.set("key-1", b"2").unwrap();
    open.bucket.flush_all(open.ctx()).unwrap();
    open.set("after", b"1").unwrap();
    open.bucket.sync().unwrap();
    disk.crash(1);
    let again = place.open();
    assert_eq!(again.bucket.wait_loaded().unwrap().documents, 1);
    assert_eq!(again.get("after").unwrap(), b"1");
    again.bucket.shutdown();
    open.bucket.shutdown();
}

#[test]
fn many_threads_wait_for_many_vbuckets() {
    let mut place = direct(&SimDisk::new(10));
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
                    open.bucket.kick(n % 2 == 0);
                    assert!(open.sink.wait(cookie).unwrap().seqno.get() > 0);
                }
            });
        }
    });
    assert_eq!(open.figure("curr_items"), 800);
    assert_eq!(open.figure("ep_parked_commands"), 0);
    let snapshot = open.bucket.timings().snapshot("settle_commit").unwrap();
    assert_eq!(snapshot.count, open.figure("ep_flush_commits"));
    open.bucket.shutdown();
}

/// Each start has the other mode than the one before; what was written in any is there.
#[test]
fn the_mode_can_be_another_at_each_start() {
    let disk = SimDisk::new(11);
    let mut place = sim(&disk);
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    let mut last = Vec::new();
    for round in 0..12 {
        place.config.commit_log = round % 2 == 0;
        let killed = round % 3 == 2;
        place.executor = executor();
        let open = place.open();
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
            place.disk.exists(&place.dir.join("log")).unwrap(),
            place.config.commit_log
        );
        for n in 0..20 {
            let (name, value) = (format!("key-{}", (n * 7 + round) % 50), format!("{round}"));
            open.set(&name, value.as_bytes()).unwrap();
            expected.insert(name, value);
        }
        open.persist("durable", b"1", round).unwrap();
        expected.insert("durable".to_owned(), "1".to_owned());
        open.bucket.kick(false);
        open.sink.wait(round).unwrap();
        open.bucket.sync().unwrap();
        last = branches(&open);
        if killed {
            disk.kill_process();
        } else {
            open.bucket.shutdown();
        }
        place.executor.shutdown();
    }
}

#[test]
fn an_answer_is_held_back_when_the_files_are_behind() {
    let mut place = direct(&SimDisk::new(12));
    place.config.quota_bytes = 100 << 20;
    place.config.log_interval_ms = 600_000;
    let open = place.open();
    let value = vec![b'x'; 1 << 20];
    for n in 1..=14 {
        let k = key(&format!("key-{n}"));
        let held = kedge_bucket::Write {
            cookie: Cookie(n),
            ..write(&k)
        };
        if open.store(&held, &value).unwrap() == Outcome::Parked {
            open.bucket.kick(false);
            assert!(open.sink.wait(n).is_ok());
        }
    }
    assert!(commits(&open).0 > 0);
    open.bucket.shutdown();
}
