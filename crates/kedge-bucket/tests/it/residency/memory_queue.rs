//! The memory admission queue: writes wait for memory. The clock advances only where the tests say so.

use super::{noise, small};
use crate::tools::*;
use kedge_bucket::{
    BucketChange, Completion, ConcatMode, Cookie, Counter, CounterUpdate, EvictionPolicy, Mutated,
    Outcome, Write,
};
use kedge_disk::SimDisk;
use kedge_types::limits::MEMORY_WAIT_MS_MAX;
use kedge_types::{Datatype, Durability, DurabilityLevel, Seqno, Status};
use std::time::Duration;

const QUOTA: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_millis(MEMORY_WAIT_MS_MAX);

/// Opens a bucket whose appliers and log writer run only when they are needed.
fn patient(seed: u64, policy: EvictionPolicy) -> (Open, Steps) {
    let mut site = small(&SimDisk::new(seed), policy, QUOTA);
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.log_interval_ms = 3_600_000;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    (open, steps)
}

impl Open {
    /// Stores a document. Returns the cookie of the write if it waits for memory.
    fn put(&self, name: &str, value: &[u8]) -> Result<Option<u64>, Status> {
        self.bucket.persistence().sync().unwrap();
        let cookie = self.next_cookie();
        let k = key(name);
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&k)
        };
        let outcome = self.store(&write, value)?;
        Ok((outcome == Outcome::Parked).then_some(cookie))
    }

    /// Fills memory with documents of 8 kB until a write waits. Returns their number and the cookie of the write.
    fn fill(&self) -> (usize, u64) {
        let value = noise(8_000);
        let mut writes = (0..).map(|n| (n, self.put(&format!("fill-{n}"), &value)));
        let held = writes.find_map(|(n, result)| Some((n, result.unwrap()?)));
        held.unwrap()
    }

    fn outcome(&self, cookie: u64) -> Option<Result<Mutated, Status>> {
        self.sink.get(cookie).map(|completion| match completion {
            Completion::SyncWrite { result, .. } => result,
            other => panic!("{other:?}"),
        })
    }

    fn refused(&self) -> u64 {
        self.bucket.counter(Counter::TmpOomErrors)
    }
}

#[test]
fn writes_wait_until_documents_are_evicted() {
    for (policy, commit_log) in [
        (EvictionPolicy::ValueOnly, true),
        (EvictionPolicy::FullEviction, true),
        (EvictionPolicy::ValueOnly, false),
        (EvictionPolicy::FullEviction, false),
    ] {
        let mut site = small(&SimDisk::new(1), policy, QUOTA);
        site.config.commit_log = commit_log;
        site.config.apply_max_lag_ms = 3_600_000;
        site.config.log_interval_ms = 3_600_000;
        let (open, steps) = site.open_with_manual_tasks();
        steps.pass(SEC * 5);
        let value = noise(8_000);
        let mut waited = 0;
        for n in 0..1_000 {
            if let Some(cookie) = open.put(&format!("key-{n}"), &value).unwrap() {
                assert!(open.outcome(cookie).is_none());
                waited += 1;
                steps.run();
                open.outcome(cookie).expect("it has ended").unwrap();
            }
            assert!(open.figure("mem_used") <= QUOTA);
        }
        assert_eq!(open.refused(), 0);
        let held = open.bucket.counter(Counter::MemoryAdmissionWaits);
        assert_eq!(held, waited);
        assert!((20..200).contains(&held), "{held}");
        let waits = open.bucket.timings().snapshot("memory_wait").unwrap();
        assert_eq!((waits.count, waits.percentile(100.0)), (held, 0));
        assert_eq!(open.figure("curr_items"), 1_000);
        assert_eq!(open.figure("ep_waiting_for_memory"), 0);
        open.bucket.shutdown();
    }
}

#[test]
fn writes_leave_the_memory_queue_in_order() {
    let (open, steps) = patient(2, EvictionPolicy::ValueOnly);
    let (_, first) = open.fill();
    // These writes would fit.
    let vb = key("a").vbucket(4);
    let name = |n: u32| format!("name-{n}");
    let names = (0..).map(name).filter(|it| key(it).vbucket(4) == vb);
    let cookies: Vec<u64> = names
        .take(20)
        .map(|name| open.put(&name, b"1").unwrap().expect("it waits, too"))
        .collect();
    assert_eq!(open.figure("ep_waiting_for_memory"), 21);
    steps.run();
    open.outcome(first).unwrap().unwrap();
    let seqnos: Vec<Seqno> = cookies
        .iter()
        .map(|cookie| open.outcome(*cookie).unwrap().unwrap().seqno)
        .collect();
    assert!(seqnos.is_sorted(), "{seqnos:?}");
    assert_eq!(open.put("a", b"1"), Ok(None), "nobody waits any more");
    open.bucket.shutdown();
}

#[test]
fn write_larger_than_the_free_memory_is_admitted() {
    for policy in super::POLICIES {
        let (open, steps) = patient(3, policy);
        open.fill();
        steps.run();
        let value = noise(900_000);
        let cookie = open.put("large", &value).unwrap().expect("it waits");
        steps.run();
        open.outcome(cookie).unwrap().unwrap();
        assert_eq!(open.put("never", &noise(1 << 20)), Err(Status::NoMemory));
        assert_eq!(open.refused(), 1);
        open.bucket.shutdown();
    }
}

#[test]
fn writes_are_rejected_at_once_when_nothing_can_be_evicted() {
    let (open, steps) = patient(4, EvictionPolicy::ValueOnly);
    let store = |n: u64| open.put(&format!("key without a value {n}"), b"");
    let is_refused = |n: &u64| {
        let waits = store(*n).unwrap();
        steps.run();
        // At first there are unapplied changes.
        let ended = waits.map(|cookie| open.outcome(cookie).expect("it has ended"));
        ended.is_some_and(|result| result == Err(Status::TemporaryFailure))
    };
    let stored = (0..).find(is_refused).unwrap();
    assert_eq!(store(stored + 1), Err(Status::TemporaryFailure));
    assert_eq!(open.refused(), 2);
    assert_eq!(open.figure("curr_items"), stored);
    // With memory available they are admitted at once.
    open.bucket.flush_all(open.ctx()).unwrap();
    assert_eq!(store(0), Ok(None));
    // The pager checks again within a second.
    steps.pass(SEC);
    let (_, held) = open.fill();
    steps.pass(SEC * 2);
    open.outcome(held).unwrap().unwrap();
    open.bucket.shutdown();
}

#[test]
fn write_is_rejected_after_waiting_too_long_for_memory() {
    let disk = SimDisk::new(5);
    let mut site = small(&disk, EvictionPolicy::FullEviction, QUOTA);
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    // The log has its segments, but no file can grow.
    disk.set_capacity(Some(disk.used_bytes()));
    let (_, held) = open.fill();
    steps.pass(LIMIT - MS);
    assert_eq!(open.outcome(held), None);
    steps.pass(MS);
    assert_eq!(open.outcome(held), Some(Err(Status::TemporaryFailure)));
    assert_eq!(open.refused(), 1);
    let held = open.put("again", &noise(8_000)).unwrap().unwrap();
    disk.set_capacity(None);
    steps.pass(LIMIT - MS);
    open.outcome(held)
        .expect("the disk has room again")
        .unwrap();
    open.bucket.shutdown();
}

#[test]
fn waiting_writes_end_on_a_higher_quota_a_reset_or_shutdown() {
    let (open, steps) = patient(6, EvictionPolicy::ValueOnly);
    let (_, held) = open.fill();
    let quota = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        ..BucketChange::default()
    };
    steps.run_one(kedge_executor::Pool::NonIo);
    open.bucket.update(&quota(QUOTA * 2)).unwrap();
    steps.run();
    open.outcome(held).unwrap().unwrap();
    let (_, held) = open.fill();
    open.bucket.flush_all(open.ctx()).unwrap();
    steps.run();
    open.outcome(held).unwrap().unwrap();
    assert_eq!(open.figure("curr_items"), 1, "it came after the reset");
    let (_, held) = open.fill();
    open.bucket.shutdown();
    assert_eq!(open.outcome(held), Some(Err(Status::TemporaryFailure)));
    assert_eq!(open.figure("ep_waiting_for_memory"), 0);
}

#[test]
fn every_kind_of_write_waits_for_memory_and_resumes() {
    for policy in super::POLICIES {
        let (open, steps) = patient(7, policy);
        open.put("counter", b"10").unwrap();
        open.put("text", b"b").unwrap();
        open.bucket.persistence().apply().unwrap();
        let (_, first) = open.fill();
        let ctx = open.ctx();
        let with = |name: &'static str, cookie| (key(name), Cookie(cookie));
        let (k, cookie) = with("counter", 1);
        let op = CounterUpdate {
            negative: false,
            delta: 5,
            initial: None,
            expiry: 0,
        };
        let add = Write {
            cookie,
            ..write(&k)
        };
        let outcome = open.bucket.documents().arithmetic(ctx, &add, op);
        assert_eq!(outcome, Ok(Outcome::Parked));
        let (k, cookie) = with("text", 2);
        let append = Write {
            cookie,
            ..write(&k)
        };
        let (mode, raw) = (ConcatMode::Append, Datatype::RAW);
        let outcome = open
            .bucket
            .documents()
            .concat(ctx, &append, mode, b"c", raw);
        assert_eq!(outcome, Ok(Outcome::Parked));
        let (k, cookie) = with("durable", 3);
        let durable = Write {
            cookie,
            durability: Some(Durability {
                level: DurabilityLevel::PersistToMajority,
                timeout_ms: None,
            }),
            ..write(&k)
        };
        assert_eq!(open.store(&durable, b"d"), Ok(Outcome::Parked));
        let (k, cookie) = with("elsewhere", 4);
        let elsewhere = Write {
            vb: kedge_types::VbId(99),
            cookie,
            ..write(&k)
        };
        assert_eq!(open.store(&elsewhere, b"e"), Err(Status::NotMyVbucket));
        steps.run();
        open.outcome(first).unwrap().unwrap();
        match open.sink.get(1) {
            Some(Completion::Counter { result }) => assert_eq!(result.unwrap().1, 15),
            other => panic!("{other:?}"),
        }
        for (cookie, expected) in [(2, &b"bc"[..]), (3, b"d")] {
            match open.sink.get(cookie) {
                Some(Completion::SyncWrite { result, item }) => {
                    assert!(result.is_ok());
                    assert_eq!(item.unwrap().value(), expected);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(open.bucket.counter(Counter::IncrHits), 1);
        open.bucket.shutdown();
    }
}
