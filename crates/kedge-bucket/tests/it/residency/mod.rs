//! Documents that are only on disk: eviction, background fetches, and warmup.

mod defragmenter;
mod dropped;
mod front_end_reads;
mod lease;
mod memory_queue;
mod model;
mod warmup;

use crate::tools::*;
use kedge_bucket::{
    BucketChange, Completion, ConcatMode, Cookie, CounterUpdate, EvictionPolicy, Outcome, Read,
    Write,
};
use kedge_disk::SimDisk;
use kedge_executor::Pool;
use kedge_types::{Cas, CollectionId, Datatype, Durability, DurabilityLevel, Status};
use std::collections::BTreeSet;
use std::path::Path;

/// Returns a bucket whose documents do not fit in memory.
fn small(disk: &SimDisk, policy: EvictionPolicy, quota_bytes: u64) -> TestSite {
    let mut site = sim(disk);
    site.config.quota_bytes = quota_bytes;
    site.config.eviction_policy = policy;
    site.config.apply_max_lag_ms = 50;
    site
}

const POLICIES: [EvictionPolicy; 2] = [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction];

fn value(n: u32) -> Vec<u8> {
    format!("{n:08}").into_bytes().repeat(64)
}

/// Returns incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut random = 1u64;
    let mut byte = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    };
    (0..len).map(|_| byte()).collect()
}

impl Open {
    /// Stores a document, and retries while memory is short.
    fn set_with_retry(&self, name: &str, value: &[u8]) {
        until("there is room", || match self.set(name, value) {
            Ok(_) => true,
            Err(Status::TemporaryFailure) => false,
            Err(other) => panic!("{other:?}"),
        });
    }

    /// Evicts all values or all documents.
    fn evict_all(&self) {
        self.bucket.persistence().apply().unwrap();
        self.without_memory(|| {
            until("all values have left", || {
                self.bucket.persistence().apply().unwrap();
                self.figure("ep_num_non_resident") == self.figure("curr_items")
            });
        });
    }

    /// Runs `meanwhile` with a quota of nothing.
    fn without_memory(&self, meanwhile: impl FnOnce()) {
        let set = |quota_bytes| {
            let change = BucketChange {
                quota_bytes: Some(quota_bytes),
                ..BucketChange::default()
            };
            self.bucket.update(&change).unwrap();
        };
        let quota_bytes = self.bucket.config().quota_bytes;
        set(1);
        meanwhile();
        set(quota_bytes);
    }

    fn fetched(&self) -> u64 {
        self.figure("ep_bg_fetched") + self.figure("ep_bg_meta_fetched")
    }
}

#[test]
fn documents_of_many_vbuckets_are_fetched_concurrently() {
    const VBUCKETS: u16 = 64;
    let mut site = small(&SimDisk::new(2), EvictionPolicy::ValueOnly, 1 << 30);
    site.config.vbuckets = VBUCKETS;
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 5);
    let names = (0..).map(|n| key(&format!("key-{n}")));
    let mut keys: Vec<Option<_>> = vec![None; usize::from(VBUCKETS)];
    for key in names {
        keys[key.vbucket(VBUCKETS).index()].get_or_insert(key);
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    for key in keys.iter().flatten() {
        let write = Write {
            vb: key.vbucket(VBUCKETS),
            ..write(key)
        };
        done(open.store(&write, b"value")).unwrap();
    }
    open.without_memory(|| assert!(steps.pass(SEC * 60) > 0));
    assert_eq!(open.figure("ep_num_non_resident"), u64::from(VBUCKETS));
    for (cookie, key) in (1_000..).zip(keys.iter().flatten()) {
        let wanted = Read {
            vb: key.vbucket(VBUCKETS),
            cookie: Cookie(cookie),
            ..read(key)
        };
        let outcome = open
            .bucket
            .documents()
            .get(open.ctx(), &wanted, |_| ())
            .unwrap();
        assert_eq!(outcome, Outcome::Parked);
    }
    // Each of the threads may have one.
    let mut runs = 0;
    while steps.run_one(Pool::Reader) {
        runs += 1;
    }
    assert_eq!(runs, VBUCKETS);
    assert!((1_000..1_000 + u64::from(VBUCKETS)).all(|cookie| open.sink.get(cookie).is_some()));
    open.bucket.shutdown();
}

#[test]
fn more_documents_than_memory_are_written_and_read() {
    for policy in POLICIES {
        let site = small(&SimDisk::new(1), policy, 1 << 20);
        let open = site.open();
        for n in 0..4_000 {
            open.set_with_retry(&format!("key-{n}"), &value(n));
        }
        let used = open.figure("mem_used");
        assert!(used <= 1 << 20, "{used} bytes");
        assert_eq!(open.figure("curr_items"), 4_000);
        for n in (0..4_000).chain([7, 7]) {
            assert_eq!(open.get(&format!("key-{n}")).unwrap(), value(n));
        }
        assert_eq!(open.get("no such key"), Err(Status::KeyNotFound));
        let left = open.figure("ep_num_value_ejects") + open.figure("ep_num_item_ejects");
        assert!(left > 2_000, "{left} left");
        assert!(open.fetched() > 2_000, "{} fetched", open.fetched());
        let resident = open.figure("vb_active_perc_mem_resident");
        assert!((1..60).contains(&resident), "{resident} %");
        assert!(
            open.figure("mem_used") <= 11 << 17,
            "memory keeps its bound"
        );
        let waits = open.bucket.timings().snapshot("bg_wait").unwrap();
        assert_eq!(waits.count, open.figure("ep_bg_num_samples"));
        open.bucket.shutdown();
    }
}

/// Returns the completion of a command that was parked for a document.
fn ended<T>(open: &Open, cookie: u64, outcome: Result<Outcome<T>, Status>) -> Completion {
    match outcome.unwrap() {
        Outcome::Parked => open.sink.wait_any(cookie),
        Outcome::Done(_) => panic!("it was in memory"),
    }
}

#[test]
fn every_command_waits_for_its_fetch_and_resumes() {
    for policy in POLICIES {
        let open = small(&SimDisk::new(2), policy, 1 << 30).open();
        let bucket = &open.bucket;
        let all = [
            "get", "meta", "lock", "unlock", "add", "replace", "append", "delete", "counter",
            "touch", "gat", "durable", "observe",
        ];
        for name in all {
            open.set(name, b"10").unwrap();
        }
        open.evict_all();
        let full = policy == EvictionPolicy::FullEviction;
        let mut cookie = 0;
        let mut next = || {
            cookie += 1;
            cookie
        };
        let ctx = open.ctx();
        let check_read = |completion: Completion| match completion {
            Completion::Read { result } => {
                let (item, cas) = result.unwrap();
                assert_eq!((item.value(), cas), (&b"10"[..], item.cas()));
            }
            other => panic!("{other:?}"),
        };
        let k = key("get");
        let n = next();
        let wanted = Read {
            cookie: Cookie(n),
            ..read(&k)
        };
        check_read(ended(
            &open,
            n,
            bucket.documents().get(ctx, &wanted, |_| ()),
        ));
        let again = bucket
            .documents()
            .get(ctx, &read(&k), |document| document.item.value().to_vec());
        assert_eq!(done(again).unwrap(), b"10", "it is in memory now");
        let (k, n) = (key("lock"), next());
        let wanted = Read {
            cookie: Cookie(n),
            ..read(&k)
        };
        check_read(ended(
            &open,
            n,
            bucket.documents().get_and_lock(ctx, &wanted, 0, |_| ()),
        ));
        assert_eq!(open.set("lock", b"2"), Err(Status::Locked));
        let write_of = |k, n| Write {
            cookie: Cookie(n),
            ..write(k)
        };
        let changed = |completion: Completion| match completion {
            Completion::SyncWrite { result, item } => {
                let (mutated, item) = (result.unwrap(), item.unwrap());
                assert_eq!((mutated.cas, mutated.seqno), (item.cas(), item.seqno()));
                item.value().to_vec()
            }
            other => panic!("{other:?}"),
        };
        let (k, n) = (key("append"), next());
        let (mode, raw) = (ConcatMode::Append, Datatype::RAW);
        let outcome = bucket
            .documents()
            .concat(ctx, &write_of(&k, n), mode, b"1", raw);
        assert_eq!(changed(ended(&open, n, outcome)), b"101");
        let (k, n) = (key("gat"), next());
        let outcome = bucket
            .documents()
            .get_and_touch(ctx, &write_of(&k, n), 1_000, |_| ());
        assert_eq!(changed(ended(&open, n, outcome)), b"10");
        let (k, n) = (key("touch"), next());
        let outcome = bucket.documents().touch(ctx, &write_of(&k, n), 1_000);
        assert_eq!(changed(ended(&open, n, outcome)), b"10");
        let (k, n) = (key("counter"), next());
        let op = CounterUpdate {
            negative: false,
            delta: 5,
            initial: None,
            expiry: 0,
        };
        match ended(
            &open,
            n,
            bucket.documents().arithmetic(ctx, &write_of(&k, n), op),
        ) {
            Completion::Counter { result } => assert_eq!(result.unwrap().1, 15),
            other => panic!("{other:?}"),
        }
        let (k, n) = (key("durable"), next());
        let durability = Some(Durability {
            level: DurabilityLevel::PersistToMajority,
            timeout_ms: None,
        });
        let durable = Write {
            durability,
            ..write_of(&k, n)
        };
        let outcome = bucket
            .documents()
            .concat(ctx, &durable, ConcatMode::Prepend, b"x", raw);
        assert_eq!(changed(ended(&open, n, outcome)), b"x10");
        if full {
            metadata_is_fetched(&open, &mut next);
        }
        for (name, expected) in [
            ("append", &b"101"[..]),
            ("counter", b"15"),
            ("durable", b"x10"),
        ] {
            assert_eq!(open.get(name).unwrap(), expected);
        }
        bucket.shutdown();
    }
}

/// Checks that commands without values need the disk only if the key was evicted too.
fn metadata_is_fetched(open: &Open, next: &mut impl FnMut() -> u64) {
    let (bucket, ctx) = (&open.bucket, open.ctx());
    let (k, n) = (key("meta"), next());
    let wanted = Read {
        cookie: Cookie(n),
        ..read(&k)
    };
    match ended(open, n, bucket.documents().get_meta(ctx, &wanted)) {
        Completion::Meta { result } => assert!(!result.unwrap().deleted),
        other => panic!("{other:?}"),
    }
    let (k, n) = (key("observe"), next());
    let wanted = Read {
        cookie: Cookie(n),
        ..read(&k)
    };
    match ended(open, n, bucket.documents().observe_key(ctx, &wanted)) {
        Completion::Observed { result } => assert!(!result.unwrap().1.is_none()),
        other => panic!("{other:?}"),
    }
    unlocking_asks_the_disk(open, next);
    let store = |name: &str, n, mode| {
        let k = key(name);
        let write = Write {
            cookie: Cookie(n),
            ..write(&k)
        };
        let outcome = bucket.documents().store(
            ctx,
            &write,
            &kedge_bucket::StoreArgs {
                mode,
                value: b"new",
                datatype: Datatype::RAW,
                flags: 0,
                expiry: 0,
            },
        );
        match ended(open, n, outcome) {
            Completion::SyncWrite { result, .. } => result.map(drop),
            other => panic!("{other:?}"),
        }
    };
    let add = store("add", next(), kedge_bucket::StoreMode::Add);
    assert_eq!(add, Err(Status::KeyExists));
    store("replace", next(), kedge_bucket::StoreMode::Replace).unwrap();
    assert_eq!(open.get("replace").unwrap(), b"new");
    let (k, n) = (key("delete"), next());
    let write = Write {
        cookie: Cookie(n),
        ..write(&k)
    };
    match ended(open, n, bucket.documents().delete(ctx, &write)) {
        Completion::SyncWrite { result, .. } => drop(result.unwrap()),
        other => panic!("{other:?}"),
    }
    assert_eq!(open.get("delete"), Err(Status::KeyNotFound));
}

fn unlocking_asks_the_disk(open: &Open, next: &mut impl FnMut() -> u64) {
    for (name, expected) in [
        ("unlock", Status::NotLocked),
        ("no such key, or is there?", Status::KeyNotFound),
    ] {
        let (k, n) = (key(name), next());
        let wanted = Read {
            cookie: Cookie(n),
            ..read(&k)
        };
        let result = match open.bucket.documents().unlock(open.ctx(), &wanted, Cas(1)) {
            Ok(Outcome::Parked) => match open.sink.wait_any(n) {
                Completion::Persisted(result) => result,
                other => panic!("{other:?}"),
            },
            // The filter excludes the key.
            other => done(other),
        };
        assert_eq!(result, Err(expected), "{name}");
    }
    let k = key("unlock");
    let lock = open
        .bucket
        .documents()
        .get_and_lock(open.ctx(), &read(&k), 0, |document| document.cas);
    let cas = done(lock).unwrap();
    open.bucket.persistence().apply().unwrap();
    assert_eq!(
        done(open.bucket.documents().unlock(open.ctx(), &read(&k), cas)),
        Ok(())
    );
}

#[test]
fn key_listing_and_random_document_read_the_disk() {
    let open = small(&SimDisk::new(3), EvictionPolicy::FullEviction, 1 << 30).open();
    let bucket = &open.bucket;
    let vb = key("key-0").vbucket(4);
    let names = (0..400).map(|n| format!("key-{n:03}"));
    let all: BTreeSet<String> = names.filter(|name| key(name).vbucket(4) == vb).collect();
    for name in &all {
        open.set(name, b"1").unwrap();
    }
    open.evict_all();
    let random =
        bucket
            .documents()
            .random_document(open.ctx(), CollectionId::DEFAULT, Cookie(1), |_| ());
    match ended(&open, 1, random) {
        Completion::Read { result } => assert_eq!(result.unwrap().0.value(), b"1"),
        other => panic!("{other:?}"),
    }
    // Some documents are loaded, one is deleted, one is new.
    let mut expected = all.clone();
    for name in all.iter().step_by(7) {
        assert_eq!(open.get(name).unwrap(), b"1");
    }
    let gone = all.iter().nth(3).unwrap();
    let k = key(gone);
    let write = Write {
        cookie: Cookie(2),
        ..write(&k)
    };
    drop(ended(
        &open,
        2,
        bucket.documents().delete(open.ctx(), &write),
    ));
    expected.remove(gone);
    let new = (0..)
        .map(|n| format!("key-5{n}x"))
        .find(|name| key(name).vbucket(4) == vb);
    let new = new.unwrap();
    open.set(&new, b"1").unwrap();
    expected.insert(new);
    let list = |from: &str, count: u32, cookie| {
        let first = key(from);
        let start = Read {
            vb,
            key: &first,
            cookie: Cookie(cookie),
        };
        let outcome = bucket
            .documents()
            .keys_from(open.ctx(), &start, count, |_| panic!("not yet"));
        match ended(&open, cookie, outcome) {
            Completion::Keys { result } => result.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let wanted: Vec<&[u8]> = expected.iter().map(|name| name.as_bytes()).collect();
    let found = list("\u{1}", 10_000, 3);
    assert!(found.iter().map(|key| &**key).eq(wanted.iter().copied()));
    let found = list("key-1", 5, 4);
    let from_1 = expected.range("key-1".to_owned()..).take(5);
    assert!(
        found
            .iter()
            .map(|key| &**key)
            .eq(from_1.map(|name| name.as_bytes()))
    );
    bucket.shutdown();
}

#[test]
fn unreadable_document_fails_only_its_command() {
    let disk = SimDisk::new(4);
    let open = small(&disk, EvictionPolicy::ValueOnly, 1 << 30).open();
    let names: Vec<String> = (0..200).map(|n| format!("key-{n}")).collect();
    let noise = noise(1_024);
    for name in &names {
        open.set(name, &noise).unwrap();
    }
    open.evict_all();
    // The first blocks of document bodies.
    for vb in 0..4 {
        let path = format!("/data/bucket/{vb}.couch.1");
        for block in 2..6 {
            disk.make_unreadable(Path::new(&path), block * 4_096);
        }
    }
    let mut failed = 0;
    for name in &names {
        match open.get(name) {
            Ok(found) => assert_eq!(found, noise),
            Err(Status::Internal) => failed += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!((1..100).contains(&failed), "{failed} failed");
    assert_eq!(open.figure("ep_bg_fetch_failures"), failed);
    assert_eq!(open.sink.fatal(), [""; 0]);
    open.set(&names[0], b"2").unwrap();
    assert_eq!(open.get(&names[0]).unwrap(), b"2");
    open.bucket.shutdown();
}

#[test]
fn waiting_fetches_end_on_a_reset_or_shutdown() {
    let mut site = small(&SimDisk::new(5), EvictionPolicy::FullEviction, 1 << 30);
    let (open, steps) = site.open_with_manual_tasks();
    let bucket = &open.bucket;
    for name in ["a", "b", "c"] {
        open.set(name, b"1").unwrap();
    }
    bucket.persistence().apply().unwrap();
    let change = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        ..BucketChange::default()
    };
    bucket.update(&change(1)).unwrap();
    steps.pass(SEC * 5);
    bucket.update(&change(1 << 30)).unwrap();
    assert_eq!(open.figure("ep_num_non_resident"), 3);
    let ask = |name: &str, cookie| {
        let k = key(name);
        let wanted = Read {
            cookie: Cookie(cookie),
            ..read(&k)
        };
        assert_eq!(
            bucket.documents().get(open.ctx(), &wanted, |_| ()),
            Ok(Outcome::Parked)
        );
    };
    let status = |cookie| match open.sink.wait_any(cookie) {
        Completion::Read { result } => result.map(drop),
        other => panic!("{other:?}"),
    };
    ask("a", 1);
    ask("a", 2);
    bucket.flush_all(open.ctx()).unwrap();
    steps.run();
    assert_eq!(status(1), Err(Status::KeyNotFound));
    assert_eq!(status(2), Err(Status::KeyNotFound));
    open.set("b", b"1").unwrap();
    bucket.persistence().apply().unwrap();
    bucket.update(&change(1)).unwrap();
    steps.pass(SEC * 5);
    ask("b", 3);
    assert_eq!(open.figure("ep_bg_remaining_items"), 1);
    bucket.shutdown();
    assert_eq!(status(3), Err(Status::TemporaryFailure));
    assert_eq!(open.figure("ep_bg_remaining_items"), 0);
    let k = key("b");
    let refused = bucket.documents().get(open.ctx(), &read(&k), |_| ());
    assert_eq!(refused, Err(Status::TemporaryFailure));
    assert!(Cas(0).is_none());
}

#[test]
fn commands_for_the_same_document_share_a_fetch() {
    let mut site = small(&SimDisk::new(6), EvictionPolicy::ValueOnly, 1 << 30);
    let (open, steps) = site.open_with_manual_tasks();
    open.set("a", b"1").unwrap();
    open.bucket.persistence().apply().unwrap();
    let change = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        ..BucketChange::default()
    };
    open.bucket.update(&change(1)).unwrap();
    steps.pass(SEC * 5);
    open.bucket.update(&change(1 << 30)).unwrap();
    let k = key("a");
    for n in 1..=10 {
        let write = Write {
            cookie: Cookie(n),
            ..write(&k)
        };
        let op = CounterUpdate {
            negative: false,
            delta: 1,
            initial: None,
            expiry: 0,
        };
        let outcome = open.bucket.documents().arithmetic(open.ctx(), &write, op);
        assert_eq!(outcome, Ok(Outcome::Parked));
    }
    steps.run();
    for n in 1..=10 {
        match open.sink.get(n) {
            Some(Completion::Counter { result }) => assert_eq!(result.unwrap().1, n + 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(open.figure("ep_bg_fetched"), 1);
    assert_eq!(open.figure("ep_bg_num_samples"), 10);
    assert_eq!(open.bucket.counter(kedge_bucket::Counter::IncrHits), 10);
    open.bucket.shutdown();
}
