//! Statistics, memory and limits.

use crate::tools::*;
use kedge_bucket::{
    BucketChange, Cookie, Counter, CounterUpdate, ObserveState, Read, Timing, Write,
};
use kedge_disk::SimDisk;
use kedge_types::{Cas, CollectionId, Status};

#[test]
fn counters_count_commands_and_outcomes() {
    let open = sim(&SimDisk::new(1)).open();
    let bucket = &open.bucket;
    open.set("a", b"1").unwrap();
    open.get("a").unwrap();
    open.get("missing").unwrap_err();
    let (a, missing) = (key("a"), key("missing"));
    let op = CounterUpdate {
        negative: false,
        delta: 1,
        initial: None,
        expiry: 0,
    };
    bucket
        .documents()
        .arithmetic(open.ctx(), &write(&a), op)
        .unwrap();
    bucket
        .documents()
        .arithmetic(open.ctx(), &write(&missing), op)
        .unwrap_err();
    bucket
        .documents()
        .touch(open.ctx(), &write(&missing), 10)
        .unwrap_err();
    open.store(
        &Write {
            cas: Cas(1),
            ..write(&a)
        },
        b"2",
    )
    .unwrap_err();
    bucket.documents().delete(open.ctx(), &write(&a)).unwrap();
    bucket
        .documents()
        .delete(open.ctx(), &write(&a))
        .unwrap_err();
    for (counter, expected) in [
        (Counter::CmdGet, 2),
        (Counter::GetHits, 1),
        (Counter::GetMisses, 1),
        (Counter::CmdSet, 2),
        (Counter::IncrHits, 1),
        (Counter::IncrMisses, 1),
        (Counter::TouchMisses, 1),
        (Counter::CasBadval, 1),
        (Counter::DeleteHits, 1),
        (Counter::DeleteMisses, 1),
    ] {
        assert_eq!(bucket.counter(counter), expected, "{}", counter.name());
    }
    let mut names = Vec::new();
    bucket.stats(&mut |name, _| names.push(name.to_owned()));
    for name in [
        "curr_items",
        "mem_used",
        "ep_max_size",
        "ep_log_bytes",
        "get_hits",
        "uuid",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    bucket.timings().record_us(0, Timing::Get, 5);
    bucket.reset_stats();
    assert_eq!(bucket.counter(Counter::CmdGet), 0);
    assert_eq!(bucket.timings().snapshot("get").unwrap().count, 0);
    bucket.shutdown();
}

#[test]
fn memory_usage_returns_to_its_initial_value_after_a_flush() {
    let open = sim(&SimDisk::new(2)).open();
    open.bucket.persistence().sync().unwrap();
    let empty = open.figure("mem_used");
    for n in 0..20_000 {
        open.set(&format!("key-{n:05}"), &[b'x'; 100]).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    let full = open.figure("mem_used");
    let per_item = (full - empty) as f64 / 20_000.0 - 100.0 - 10.0;
    assert!(
        per_item > 40.0 && per_item <= 64.0,
        "{per_item} bytes beside key and value"
    );
    assert_eq!(
        open.figure("ep_checkpoint_memory"),
        0,
        "the log has everything"
    );
    open.bucket.flush_all(open.ctx()).unwrap();
    assert_eq!(open.figure("mem_used"), empty);
    open.bucket.shutdown();
}

#[test]
fn maximum_ttl_limits_every_expiry() {
    let open = sim(&SimDisk::new(3)).open();
    let change = BucketChange {
        max_ttl_secs: Some(100),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let k = key("k");
    let secs = open.ctx().now.unix_secs();
    open.set("k", b"1").unwrap();
    let meta = done(open.bucket.documents().get_meta(open.ctx(), &read(&k))).unwrap();
    let expiry = u64::from(meta.expiry.0);
    assert!((secs + 100..secs + 110).contains(&expiry));
    open.bucket
        .documents()
        .touch(open.ctx(), &write(&k), 1_000)
        .unwrap();
    let meta = done(open.bucket.documents().get_meta(open.ctx(), &read(&k))).unwrap();
    let expiry = u64::from(meta.expiry.0);
    assert!((secs + 100..secs + 110).contains(&expiry));
    let gone = open
        .bucket
        .documents()
        .get(later(open.ctx(), 200), &read(&k), |_| ());
    assert_eq!(gone, Err(Status::KeyNotFound));
    open.bucket.shutdown();
}

#[test]
fn key_and_vbucket_queries_return_their_state() {
    let open = sim(&SimDisk::new(4)).open();
    let bucket = &open.bucket;
    let nothing =
        bucket
            .documents()
            .random_document(open.ctx(), CollectionId::DEFAULT, Cookie(0), |_| ());
    assert_eq!(nothing, Err(Status::KeyNotFound));
    open.set("a", b"1").unwrap();
    let vb = key("a").vbucket(4);
    let found = bucket.documents().random_document(
        open.ctx(),
        CollectionId::DEFAULT,
        Cookie(0),
        |document| document.item.value().to_vec(),
    );
    assert_eq!(done(found).unwrap(), b"1");
    let mut keys = Vec::new();
    let first = key("\u{1}");
    let start = Read { vb, ..read(&first) };
    bucket
        .documents()
        .keys_from(open.ctx(), &start, 10, |key| {
            keys.push(key.to_vec());
        })
        .unwrap();
    assert_eq!(keys, [b"a"]);
    bucket.persistence().sync().unwrap();
    assert_eq!(
        done(bucket.documents().observe_key(open.ctx(), &read(&key("a"))))
            .unwrap()
            .0,
        ObserveState::Persisted
    );
    let uuid = bucket.failover_log(open.ctx(), vb).unwrap()[0].0;
    let seen = bucket.observe_seqno(open.ctx(), vb, uuid).unwrap();
    assert_eq!((seen.persisted.get(), seen.current.get()), (1, 1));
    let seqnos = bucket.vbucket_seqnos(None, true, None);
    assert_eq!(seqnos.iter().map(|(_, seqno)| seqno.get()).sum::<u64>(), 1);
    assert_eq!(bucket.vbucket_figures(vb).unwrap().documents, 1);
    bucket.shutdown();
}
