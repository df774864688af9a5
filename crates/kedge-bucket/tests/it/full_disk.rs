//! Lack of memory and of disk space, and failing syncs.

use crate::tools::*;
use kedge_bucket::{
    BucketChange, Completion, Cookie, Counter, Outcome, ReturnMetaOp, StoreArgs, StoreMode, Write,
};
use kedge_disk::{Fault, Operation, SimDisk};
use kedge_executor::Pool;
use kedge_types::{Datatype, Seqno, Status};

#[test]
fn writes_over_the_quota_wait_and_deletions_free_memory() {
    let mut site = sim(&SimDisk::new(1));
    site.config.quota_bytes = 1 << 20;
    // No task runs, so nothing is applied, and nothing can be evicted.
    let (open, steps) = site.open_with_manual_tasks();
    let waiting = || open.figure("ep_waiting_for_memory");
    let put = |name: &str, value: &[u8]| {
        let key = key(name);
        let cookie = open.next_cookie();
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let before = waiting();
        let outcome = open.store(&write, value)?;
        // The write succeeded although it was parked because the log is behind.
        Ok((outcome == Outcome::Parked && waiting() > before).then_some(cookie))
    };
    let value = vec![b'x'; 10_000];
    let mut stored = 0;
    let waits = loop {
        open.bucket.persistence().sync().unwrap();
        match put(&format!("key-{stored}"), &value) {
            Ok(None) => stored += 1,
            Ok(Some(cookie)) => break cookie,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(
        (80..=98).contains(&stored),
        "{stored} documents of 10 kB in 93 % of 1 MiB"
    );
    assert_eq!(put("never", &vec![b'x'; 2 << 20]), Err(Status::NoMemory));
    assert!(open.get("key-0").is_ok());
    for n in 0..10 {
        let k = key(&format!("key-{n}"));
        open.bucket
            .documents()
            .delete(open.ctx(), &write(&k))
            .unwrap();
    }
    // Until then the old versions are kept for the files.
    open.bucket.persistence().apply().unwrap();
    assert!(open.sink.get(waits).is_none());
    steps.run_one(Pool::NonIo);
    open.sink.wait(waits).unwrap();
    assert_eq!(put("fits", &value), Ok(None));
    open.bucket
        .update(&BucketChange {
            quota_bytes: Some(8 << 20),
            ..BucketChange::default()
        })
        .unwrap();
    open.bucket.persistence().sync().unwrap();
    assert_eq!(put("fits too", &vec![b'x'; 1_200_000]), Ok(None));
    open.bucket.shutdown();
}

#[test]
fn backpressure_limits_writers_to_the_speed_of_the_disk() {
    for returning in [false, true] {
        let mut site = sim(&SimDisk::new(7));
        site.config.quota_bytes = 100 << 20;
        site.config.log_interval_ms = 600_000;
        let open = site.open();
        let value = vec![b'x'; 1 << 20];
        let write_it = |write: &Write<'_>, value: &[u8]| {
            if !returning {
                return open.store(write, value).map(|outcome| outcome.map(drop));
            }
            let what = ReturnMetaOp::Store(StoreArgs {
                mode: StoreMode::Set,
                value,
                datatype: Datatype::RAW,
                flags: 0,
                expiry: 0,
            });
            let outcome = open
                .bucket
                .documents()
                .write_returning_meta(open.ctx(), write, &what);
            outcome.map(|outcome| outcome.map(drop))
        };
        let mut held_back = Vec::new();
        for n in 1..=14 {
            let k = key(&format!("key-{n}"));
            let write = Write {
                cookie: Cookie(n),
                ..write(&k)
            };
            match write_it(&write, &value) {
                Ok(Outcome::Done(())) => assert!(n <= 10, "{n} MiB wait for the disk"),
                Ok(Outcome::Parked) => held_back.push(n),
                Err(error) => panic!("{error:?}"),
            }
            assert!(
                open.get(&format!("key-{n}")).is_ok(),
                "it was written all the same"
            );
        }
        assert_eq!(held_back, [10, 11, 12, 13, 14], "returning: {returning}");
        assert_eq!(open.bucket.counter(Counter::Backpressured), 5);
        assert!(held_back.iter().all(|n| open.sink.get(*n).is_none()));
        open.bucket.persistence().writers().request_flush(false);
        for n in held_back {
            match open.sink.wait_any(n) {
                Completion::SyncWrite {
                    result: Ok(mutated),
                    item: Some(item),
                } => assert_eq!(item.meta().cas, mutated.cas),
                other => panic!("{other:?}"),
            }
        }
        let after = write_it(&write(&key("after")), b"1");
        assert_eq!(after, Ok(Outcome::Done(())));
        open.bucket.shutdown();
    }
}

#[test]
fn full_disk_causes_temporary_failures_and_recovers_automatically() {
    let disk = SimDisk::new(2);
    let site = sim(&disk);
    let open = site.open();
    open.persist("before", b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    open.sink.wait(1).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let value = vec![b'x'; 1 << 20];
    let mut acknowledged = vec![];
    let mut cookie = 1;
    until("writes are refused", || {
        cookie += 1;
        match open.persist(&format!("key-{cookie}"), &value, cookie) {
            Ok(()) => {
                open.bucket.persistence().writers().request_flush(false);
                acknowledged.push(cookie);
                open.figure("ep_disk_full") == 1
            }
            Err(Status::TemporaryFailure) => true,
            Err(other) => panic!("{other:?}"),
        }
    });
    until("the full disk shows", || open.figure("ep_disk_full") == 1);
    assert_eq!(open.set("refused", b"1"), Err(Status::TemporaryFailure));
    assert_eq!(open.get("before").unwrap(), b"1", "reads go on");
    assert!(open.sink.fatal().is_empty());
    disk.set_capacity(None);
    for cookie in &acknowledged {
        open.sink.wait(*cookie).unwrap();
    }
    until("writes are taken again", || open.set("after", b"1").is_ok());
    open.bucket.persistence().sync().unwrap();
    disk.crash(3);
    open.bucket.shutdown();
    let again = site.open();
    for cookie in acknowledged {
        assert_eq!(again.get(&format!("key-{cookie}")).unwrap(), value);
    }
    assert_eq!(again.get("after").unwrap(), b"1");
    again.bucket.shutdown();
}

#[test]
fn failed_sync_is_fatal_and_acknowledges_nothing() {
    let disk = SimDisk::new(3);
    let site = sim(&disk);
    let open = site.open();
    open.persist("before", b"1", 1).unwrap();
    open.bucket.persistence().writers().request_flush(true);
    open.sink.wait(1).unwrap();
    open.bucket.persistence().sync().unwrap();
    disk.fail_next(Operation::Sync, Fault::Io);
    open.persist("lost", b"1", 2).unwrap();
    open.bucket.persistence().writers().request_flush(false);
    until("the failure is told", || !open.sink.fatal().is_empty());
    assert!(
        open.sink.fatal()[0].contains("sync"),
        "{:?}",
        open.sink.fatal()
    );
    assert_eq!(open.set("refused", b"1"), Err(Status::TemporaryFailure));
    open.bucket.shutdown();
    assert_eq!(open.sink.wait(2), Err(Status::SyncWriteAmbiguous));
    disk.crash(4);
    let again = site.open();
    assert_eq!(again.get("before").unwrap(), b"1");
    again.bucket.shutdown();
}

/// Bug: if everything unwritten was later written without counting as changes, like vBucket states, the bucket considered the disk
/// full forever: there was nothing to retry, and writes were rejected.
#[test]
fn writes_resume_after_a_full_disk_when_only_states_were_unwritten() {
    let disk = SimDisk::new(3);
    let mut site = sim(&disk);
    site.config.commit_log = false;
    let open = site.open();
    open.set("before", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    let left = disk.fork();
    open.bucket.shutdown();
    left.kill_process();
    // New branches are written, which are not changes.
    left.set_capacity(Some(left.used_bytes()));
    let mut site = sim(&left);
    site.config.commit_log = false;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC);
    assert_eq!(open.figure("ep_disk_full"), 1);
    assert_eq!(open.set("early", b"1"), Err(Status::TemporaryFailure));
    left.set_capacity(None);
    steps.pass(SEC);
    assert_eq!(open.figure("ep_disk_full"), 0);
    open.set("late", b"1").unwrap();
    assert_eq!(open.get("before").unwrap(), b"1");
    open.bucket.shutdown();
}

/// A kill left commits in the page cache only, and the disk had no space to rewrite their headers. The bucket opened, and
/// reported their seqnos as persisted. None of the files was synced after the first that was refused, so a power failure
/// took the commits away.
#[test]
fn persisted_seqnos_of_a_start_on_a_full_disk_survive_a_power_failure() {
    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let disk = SimDisk::new(5);
    let direct = |disk: &SimDisk| {
        let mut site = sim(disk);
        site.config.commit_log = false;
        site
    };
    let persisted = |open: &Open| -> Vec<Seqno> {
        let positions = open.bucket.states().positions().unwrap();
        positions.iter().map(|it| it.persisted_seqno).collect()
    };
    let set_all = |open: &Open, value: &[u8]| {
        for key in KEYS {
            open.set(key, value).unwrap();
        }
    };
    let open = direct(&disk).open();
    set_all(&open, b"1");
    open.bucket.persistence().apply().unwrap();
    open.bucket.shutdown();
    let mut was_in_cache_only = false;
    for step in 0.. {
        let disk = disk.fork();
        let open = direct(&disk).open();
        set_all(&open, b"2");
        // From here on no sync returns: the process is killed while it waits.
        disk.fail_after(step, Fault::PowerLoss);
        let is_over = open.bucket.persistence().apply().is_ok();
        open.bucket.shutdown();
        disk.kill_process();
        disk.fail_every(Operation::Write, Fault::NoSpace);
        let mut site = direct(&disk);
        let (open, _steps) = site.open_with_manual_tasks();
        let seen = persisted(&open);
        let found = KEYS.map(|key| open.get(key).unwrap());
        let is_found = |disk: &SimDisk, seed: u64, step: u64| {
            disk.crash(seed);
            let again = direct(disk).open();
            for (now, seen) in persisted(&again).iter().zip(&seen) {
                assert!(now >= seen, "{now} < {seen} after step {step}, seed {seed}");
            }
            assert_eq!(KEYS.map(|key| again.get(key).unwrap()), found);
            again.bucket.shutdown();
        };
        for seed in 0..4 {
            is_found(&disk.fork(), seed, step);
        }
        was_in_cache_only |= !is_over && found.iter().any(|value| value == b"2");
        open.bucket.shutdown();
        if is_over {
            break;
        }
    }
    assert!(was_in_cache_only);
}
