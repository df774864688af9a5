//! Commands that wait while the lease of their node ends.

use super::{noise, small};
use crate::scans;
use crate::tools::*;
use kedge_bucket::{Completion, Cookie, EvictionPolicy, Outcome, Read, ScanLimits, VbState, Write};
use kedge_disk::SimDisk;
use kedge_types::{CollectionId, Durability, DurabilityLevel, Status};

/// Opens a bucket with a document `k` that is on disk only.
fn evicted(seed: u64, policy: EvictionPolicy) -> (TestSite, Open, Steps) {
    let mut site = small(&SimDisk::new(seed), policy, 1 << 30);
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    open.set("k", &noise(1_000)).unwrap();
    open.without_memory(|| assert!(steps.pass(SEC * 60) > 0));
    assert_eq!(open.figure("ep_num_non_resident"), 1);
    (site, open, steps)
}

/// A command on the document `k`, or its vBucket, which has to wait for the disk.
type Command = fn(&Open, &Read<'_>) -> Result<Outcome<()>, Status>;

fn without_result<T>(outcome: Result<Outcome<T>, Status>) -> Result<Outcome<()>, Status> {
    Ok(match outcome? {
        Outcome::Done(_) => Outcome::Done(()),
        Outcome::Parked => Outcome::Parked,
    })
}

const COMMANDS: [(&str, Command); 5] = [
    ("get", |open, wanted| {
        let documents = open.bucket.documents();
        documents.get(open.ctx(), wanted, |_| ())
    }),
    ("touch", |open, wanted| {
        let write = Write {
            cookie: wanted.cookie,
            ..write(wanted.key)
        };
        let documents = open.bucket.documents();
        without_result(documents.touch(open.ctx(), &write, 0))
    }),
    ("keys", |open, wanted| {
        let documents = open.bucket.documents();
        documents.keys_from(open.ctx(), wanted, 10, |_| ())
    }),
    ("random document", |open, wanted| {
        let documents = open.bucket.documents();
        documents.random_document(open.ctx(), CollectionId::DEFAULT, wanted.cookie, |_| ())
    }),
    ("statistics of a key", |open, wanted| {
        let documents = open.bucket.documents();
        without_result(documents.key_figures(open.ctx(), wanted, true))
    }),
];

fn result(completion: Completion) -> Result<(), Status> {
    match completion {
        Completion::SyncWrite { result, .. } => result.map(drop),
        Completion::Read { result } => result.map(drop),
        Completion::Keys { result } => result.map(drop),
        Completion::Key { result } => result.map(drop),
        Completion::Persisted(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn command_that_waits_for_the_disk_is_refused_after_the_lease() {
    let (site, open, steps) = evicted(1, EvictionPolicy::FullEviction);
    let k = key("k");
    let mut cookie = 1_000;
    let mut run = |command: Command, is_over: bool| {
        cookie += 1;
        site.serving.serve_until(u64::MAX);
        let wanted = Read {
            cookie: Cookie(cookie),
            ..read(&k)
        };
        let outcome = command(&open, &wanted);
        assert_eq!(outcome, Ok(Outcome::Parked));
        if is_over {
            site.serving.serve_until(open.ctx().now.mono_ns);
        }
        steps.run();
        result(open.sink.get(cookie).expect("it has ended"))
    };
    for (name, command) in COMMANDS {
        assert_eq!(run(command, true), Err(Status::NotMyVbucket), "{name}");
    }
    for (name, command) in COMMANDS {
        assert_eq!(run(command, false), Ok(()), "{name}");
        open.without_memory(|| assert!(steps.pass(SEC * 60) > 0));
    }
    open.bucket.shutdown();
}

#[test]
fn write_that_waits_for_memory_is_refused_after_the_lease() {
    let mut site = small(&SimDisk::new(2), EvictionPolicy::ValueOnly, 1 << 20);
    site.config.apply_max_lag_ms = 3_600_000;
    site.config.log_interval_ms = 3_600_000;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    let value = noise(8_000);
    let waiting = (0..).find_map(|n| {
        open.bucket.persistence().sync().unwrap();
        let (k, cookie) = (key(&format!("fill-{n}")), open.next_cookie());
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&k)
        };
        (open.store(&write, &value).unwrap() == Outcome::Parked).then_some(cookie)
    });
    site.serving.serve_until(open.ctx().now.mono_ns);
    steps.run();
    let completion = open.sink.get(waiting.unwrap()).expect("it has ended");
    assert_eq!(result(completion), Err(Status::NotMyVbucket));
    open.bucket.shutdown();
}

#[test]
fn command_that_waits_for_a_pending_vbucket_is_refused_after_the_lease() {
    let (site, open, steps) = evicted(3, EvictionPolicy::ValueOnly);
    let k = key("k");
    let vb = k.vbucket(4);
    open.bucket
        .states()
        .set_vbucket(vb, VbState::Pending)
        .unwrap();
    let wanted = Read {
        cookie: Cookie(1),
        ..read(&k)
    };
    let documents = open.bucket.documents();
    let outcome = documents.get(open.ctx(), &wanted, |_| ());
    assert_eq!(outcome, Ok(Outcome::Parked));
    site.serving.serve_until(open.ctx().now.mono_ns);
    open.bucket
        .states()
        .set_vbucket(vb, VbState::Active)
        .unwrap();
    steps.run();
    let completion = open.sink.get(1).expect("it has ended");
    assert_eq!(result(completion), Err(Status::NotMyVbucket));
    open.bucket.shutdown();
}

#[test]
fn range_scan_is_closed_after_the_lease() {
    let site = sim(&SimDisk::new(4));
    let open = site.open();
    open.set("k", b"1").unwrap();
    let vb = key("k").vbucket(4);
    let id = scans::create(&open, vb, &scans::all()).unwrap();
    site.serving.serve_until(open.ctx().now.mono_ns);
    let limits = ScanLimits::default();
    let bucket = &open.bucket;
    let go_on = || {
        bucket
            .scans()
            .continue_scan(open.ctx(), vb, &id, limits, Cookie(open.next_cookie()))
            .map(drop)
    };
    assert_eq!(go_on(), Err(Status::NotMyVbucket));
    site.serving.serve_until(u64::MAX);
    assert_eq!(go_on(), Err(Status::KeyNotFound));
    open.bucket.shutdown();
}

/// A failover was under way when its node lifted the fences, because another failover was refused. A replica acknowledged a
/// SyncWrite to the old active, which replied to its client, and a replica without it was promoted: the SyncWrite was lost.
#[test]
fn sync_write_that_is_committed_after_the_lease_is_ambiguous() {
    let outcome = |closes: bool| {
        let mut site = small(&SimDisk::new(5), EvictionPolicy::ValueOnly, 1 << 30);
        let (open, steps) = site.open_with_manual_tasks();
        steps.pass(SEC * 5);
        let k = key("k");
        let write = Write {
            durability: Some(Durability {
                level: DurabilityLevel::PersistToMajority,
                timeout_ms: None,
            }),
            cookie: Cookie(1),
            ..write(&k)
        };
        assert_eq!(open.store(&write, b"1"), Ok(Outcome::Parked));
        if closes {
            site.serving.close();
            open.bucket.await_steps();
        }
        steps.pass(SEC);
        let completion = open.sink.get(1).expect("it has ended");
        // A node that follows may need it, so it is committed.
        site.serving.serve_until(u64::MAX);
        assert_eq!(open.get_by_hand(&steps, "k"), Ok(b"1".to_vec()));
        open.bucket.shutdown();
        result(completion)
    };
    assert_eq!(outcome(false), Ok(()));
    assert_eq!(outcome(true), Err(Status::SyncWriteAmbiguous));
}
