//! SyncWrites through the log.

use crate::tools::*;
use kedge_bucket::{BucketChange, Cookie, Outcome, Write};
use kedge_disk::SimDisk;
use kedge_types::{Durability, DurabilityLevel, Status};
use std::collections::BTreeSet;

#[test]
fn the_writer_commits_for_many_threads_with_fewer_syncs() {
    let open = sim(&SimDisk::new(1)).open();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let open = &open;
            scope.spawn(move || {
                for n in 0..100 {
                    let cookie = thread * 1_000 + n + 1;
                    open.persist(&format!("key-{cookie}"), b"value", cookie)
                        .unwrap();
                    open.bucket.kick(false);
                    let mutated = open.sink.wait(cookie).unwrap();
                    assert!(mutated.seqno.get() > 0);
                }
            });
        }
    });
    assert_eq!(open.figure("curr_items"), 800);
    let snapshot = open
        .bucket
        .timings()
        .snapshot("sync_write_commit_persist_to_majority")
        .unwrap();
    assert_eq!(snapshot.count, 800);
    assert_eq!(open.figure("ep_parked_commands"), 0);
    open.bucket.shutdown();
}

#[test]
fn who_leads_has_its_answer_when_kick_returns() {
    let open = sim(&SimDisk::new(2)).open();
    let mut led = 0;
    for n in 1..=50 {
        open.persist("key", format!("{n}").as_bytes(), n).unwrap();
        open.bucket.kick(true);
        // The writer may be at work on commits of before; then it takes this one too.
        led += u32::from(open.sink.get(n).is_some());
        open.sink.wait(n).unwrap();
        assert_eq!(open.get("key").unwrap(), format!("{n}").as_bytes());
    }
    assert!(led > 0, "it never led");
    open.bucket.shutdown();
}

#[test]
fn one_sync_serves_all_that_waits() {
    let open = sim(&SimDisk::new(3)).open();
    let before = open.figure("ep_log_syncs");
    for n in 1..=1_000 {
        open.persist(&format!("key-{n}"), b"value", n).unwrap();
    }
    open.bucket.kick(true);
    for n in 1..=1_000 {
        open.sink.wait(n).unwrap();
    }
    let syncs = open.figure("ep_log_syncs") - before;
    assert!(syncs < 100, "{syncs} syncs for 1000 writes");
    open.bucket.shutdown();
}

#[test]
fn the_record_of_a_commit_rides_with_the_next_change_or_follows_by_itself() {
    let mut place = sim(&SimDisk::new(13));
    place.config.log_interval_ms = 600_000;
    let open = place.open();
    open.persist("key", b"1", 1).unwrap();
    open.bucket.kick(false);
    open.sink.wait(1).unwrap();
    let written = |open: &Open| (open.figure("ep_log_records"), open.figure("ep_queue_size"));
    until("the batch is done with", || written(&open) == (1, 1));
    open.persist("key", b"2", 2).unwrap();
    open.bucket.kick(false);
    open.sink.wait(2).unwrap();
    until("the first commit went along", || written(&open) == (3, 1));
    open.bucket.shutdown();
    let mut place = sim(&SimDisk::new(14));
    place.config.log_interval_ms = 1;
    let open = place.open();
    open.persist("key", b"1", 1).unwrap();
    open.bucket.kick(true);
    open.sink.wait(1).unwrap();
    until("the commit is logged though nothing comes", || {
        written(&open) == (2, 0)
    });
    open.bucket.shutdown();
}

#[test]
fn the_buckets_minimum_raises_every_write() {
    let open = sim(&SimDisk::new(4)).open();
    let change = BucketChange {
        durability_min_level: Some(3),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let k = key("k");
    assert_eq!(
        open.store(
            &Write {
                cookie: Cookie(5),
                ..write(&k)
            },
            b"1"
        ),
        Ok(Outcome::Parked)
    );
    let majority = Some(Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: None,
    });
    let other = key("other");
    let raised = Write {
        cookie: Cookie(6),
        durability: majority,
        ..write(&other)
    };
    assert_eq!(open.store(&raised, b"1"), Ok(Outcome::Parked));
    open.bucket.kick(false);
    open.sink.wait(5).unwrap();
    open.sink.wait(6).unwrap();
    let bad = BucketChange {
        durability_min_level: Some(9),
        ..BucketChange::default()
    };
    assert!(
        open.bucket
            .update(&bad)
            .unwrap_err()
            .contains("durability_min_level")
    );
    open.bucket.shutdown();
}

#[test]
fn a_write_that_cannot_reach_the_disk_in_time_is_ambiguous() {
    let disk = SimDisk::new(5);
    let open = sim(&disk).open();
    disk.set_capacity(Some(0));
    fill_until_refused(&open);
    disk.set_capacity(None);
    until("there is room again", || open.set("a", b"1").is_ok());
    disk.set_capacity(Some(disk.used_bytes()));
    let big = vec![b'x'; 5 << 20];
    let k = key("slow");
    let durability = Some(Durability {
        level: DurabilityLevel::PersistToMajority,
        timeout_ms: Some(50),
    });
    let write = Write {
        durability,
        cookie: Cookie(77),
        ..write(&k)
    };
    assert_eq!(open.store(&write, &big), Ok(Outcome::Parked));
    open.bucket.kick(false);
    assert_eq!(open.sink.wait(77), Err(Status::SyncWriteAmbiguous));
    disk.set_capacity(None);
    open.bucket.shutdown();
}

fn fill_until_refused(open: &Open) {
    let value = vec![b'x'; 1 << 20];
    let mut n = 0;
    until("writes are refused", || {
        n += 1;
        let refused = open.set(&format!("fill-{}", n % 8), &value) == Err(Status::TemporaryFailure);
        let _ = open.bucket.sync();
        refused
    });
}

#[test]
fn stopping_answers_every_waiter_once() {
    let place = sim(&SimDisk::new(6));
    let open = place.open();
    for n in 1..=20 {
        open.persist(&format!("key-{n}"), b"value", n).unwrap();
    }
    open.bucket.shutdown();
    let done: BTreeSet<_> = (1..=20).filter(|n| open.sink.wait(*n).is_ok()).collect();
    let again = place.open();
    for n in done {
        assert!(
            again.get(&format!("key-{n}")).is_ok(),
            "{n} was acknowledged"
        );
    }
    again.bucket.shutdown();
}
