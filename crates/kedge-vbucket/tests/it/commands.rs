//! Tests of the result and the errors of each command.

use crate::tools::*;
use kedge_types::{Cas, CollectionId, Datatype, DocKey, Expiry, Seqno, Status, VbUuid};
use kedge_vbucket::{
    ConcatMode, CounterOp, Meta, MinRatio, NewValue, ObserveState, RandomDocument, StepOutcome,
    StepWrite, StoreMode, VBucket,
};

#[test]
fn store_modes_check_existence_and_cas() {
    let vb = &mut vbucket();
    let k = key("k");
    let w = write(&k);
    assert_eq!(
        store(vb, at(0), &w, StoreMode::Replace, b"0"),
        Err(Status::KeyNotFound)
    );
    let first = done(store(vb, at(0), &w, StoreMode::Add, b"1").unwrap());
    assert_eq!((first.seqno, first.uuid), (Seqno(1), VbUuid(0xabc)));
    assert_eq!(
        store(vb, at(0), &w, StoreMode::Add, b"2"),
        Err(Status::KeyExists)
    );
    let second = done(store(vb, at(1), &w, StoreMode::Replace, b"3").unwrap());
    assert!(second.cas > first.cas && second.seqno == Seqno(2));
    let stale = StepWrite {
        cas: first.cas,
        ..w
    };
    assert_eq!(
        store(vb, at(1), &stale, StoreMode::Set, b"4"),
        Err(Status::KeyExists)
    );
    let fresh = StepWrite {
        cas: second.cas,
        ..w
    };
    done(store(vb, at(1), &fresh, StoreMode::Set, b"5").unwrap());
    assert_eq!(get(vb, at(1), "k").unwrap(), b"5");
    let other = key("missing");
    let missing = StepWrite {
        cas: Cas(9),
        ..write(&other)
    };
    assert_eq!(
        store(vb, at(1), &missing, StoreMode::Set, b"6"),
        Err(Status::KeyNotFound)
    );
    assert_eq!(vb.documents().count(), 1);
}

#[test]
fn tombstone_continues_the_revision() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"1");
    let k = key("k");
    let deleted = done(vb.at(at(5)).delete(&write(&k)).unwrap());
    assert_eq!(vb.at(at(5)).delete(&write(&k)), Err(Status::KeyNotFound));
    assert_eq!(get(vb, at(5), "k"), Err(Status::KeyNotFound));
    let found = meta(vb, at(5), &k);
    let expected = Meta {
        cas: deleted.cas,
        flags: 0,
        expiry: Expiry(at(5).unix_secs() as u32),
        rev_seqno: 2.into(),
        seqno: Seqno(2),
        datatype: Datatype::RAW,
        deleted: true,
    };
    assert_eq!(found, expected);
    set(vb, at(6), "k", b"{}");
    let found = meta(vb, at(6), &k);
    assert_eq!(
        (found.rev_seqno.get(), found.deleted, found.datatype),
        (3, false, Datatype::JSON)
    );
    assert_eq!((vb.documents().count(), vb.table().tombstones()), (1, 0));
}

#[test]
fn concat_keeps_flags_and_expiry_and_detects_json() {
    let vb = &mut vbucket();
    let k = key("k");
    let w = write(&k);
    assert_eq!(
        vb.at(at(0)).concat(&w, ConcatMode::Append, b"x"),
        Err(Status::NotStored)
    );
    let expiry = Expiry(at(100).unix_secs() as u32);
    done(
        vb.at(at(0))
            .store(&w, StoreMode::Set, &value(b"{\"a\":"), 77, expiry)
            .unwrap(),
    );
    assert_eq!(meta(vb, at(0), &k).datatype, Datatype::RAW);
    done(vb.at(at(0)).concat(&w, ConcatMode::Append, b"1}").unwrap());
    done(vb.at(at(0)).concat(&w, ConcatMode::Prepend, b"  ").unwrap());
    assert_eq!(get(vb, at(0), "k").unwrap(), b"  {\"a\":1}");
    let found = meta(vb, at(0), &k);
    assert_eq!(
        (found.flags, found.expiry, found.datatype),
        (77, expiry, Datatype::JSON)
    );
}

#[test]
fn concat_inflates_compressed_values() {
    let vb = &mut vbucket();
    let k = key("k");
    let text = vec![b'9'; 200];
    let packed = snap::raw::Encoder::new().compress_vec(&text).unwrap();
    let compressed = NewValue::check(&packed, Datatype::SNAPPY, MinRatio::DEFAULT).unwrap();
    done(
        vb.at(at(0))
            .store(&write(&k), StoreMode::Set, &compressed, 0, Expiry::NEVER)
            .unwrap(),
    );
    assert!(meta(vb, at(0), &k).datatype.contains(Datatype::SNAPPY));
    done(
        vb.at(at(0))
            .concat(&write(&k), ConcatMode::Append, b"!")
            .unwrap(),
    );
    assert_eq!(get(vb, at(0), "k").unwrap(), [&text[..], b"!"].concat());
}

#[test]
fn counters_wrap_stop_at_zero_and_refuse_non_numbers() {
    let vb = &mut vbucket();
    let k = key("n");
    let w = write(&k);
    let up = CounterOp {
        negative: false,
        delta: 5,
        initial: None,
        expiry: Expiry::NEVER,
    };
    assert_eq!(vb.at(at(0)).arithmetic(&w, &up), Err(Status::KeyNotFound));
    let made = vb
        .at(at(0))
        .arithmetic(
            &w,
            &CounterOp {
                initial: Some(10),
                ..up
            },
        )
        .unwrap();
    assert_eq!(done(made).1, 10, "the initial value, not yet counted up");
    assert_eq!(done(vb.at(at(0)).arithmetic(&w, &up).unwrap()).1, 15);
    let down = CounterOp {
        negative: true,
        delta: 100,
        ..up
    };
    assert_eq!(
        done(vb.at(at(0)).arithmetic(&w, &down).unwrap()).1,
        0,
        "stops at 0"
    );
    set(vb, at(0), "n", b"18446744073709551615");
    assert_eq!(
        done(vb.at(at(0)).arithmetic(&w, &up).unwrap()).1,
        4,
        "wraps"
    );
    assert_eq!(get(vb, at(0), "n").unwrap(), b"4");
    for bad in [
        &b"abc"[..],
        b"",
        b"-1",
        b"1.5",
        b"18446744073709551616",
        b"+3",
        b"1 2",
    ] {
        set(vb, at(0), "n", bad);
        assert_eq!(
            vb.at(at(0)).arithmetic(&w, &up),
            Err(Status::DeltaBadValue),
            "{bad:?}"
        );
        assert_eq!(get(vb, at(0), "n").unwrap(), bad, "nothing was changed");
    }
    set(vb, at(0), "n", b"9  ");
    assert_eq!(done(vb.at(at(0)).arithmetic(&w, &up).unwrap()).1, 14);
}

#[test]
fn write_may_specify_its_new_cas() {
    let vb = &mut vbucket();
    let k = key("k");
    let with = |new_cas| StepWrite {
        new_cas,
        ..write(&k)
    };
    let store = |vb: &mut VBucket, write: &StepWrite<'_>| {
        vb.at(at(0))
            .store(write, StoreMode::Set, &value(b"1"), 0, Expiry::NEVER)
    };
    let first = done(store(vb, &with(Cas(7))).unwrap());
    assert_eq!(first.cas, Cas(7));
    let appended = vb.at(at(0)).concat(&with(Cas(8)), ConcatMode::Append, b"2");
    assert_eq!(done(appended.unwrap()).cas, Cas(8));
    // A CAS from the far future would stop the clock.
    assert_eq!(
        store(vb, &with(Cas(u64::MAX))),
        Err(Status::CasValueInvalid)
    );
    let next = done(store(vb, &write(&k)).unwrap());
    assert!(next.cas > Cas(8), "of the clock again");
    // The clock continues after a given CAS.
    let ahead = Cas(next.cas.get() + 1_000_000_000);
    assert_eq!(done(store(vb, &with(ahead)).unwrap()).cas, ahead);
    assert!(done(store(vb, &write(&k)).unwrap()).cas > ahead);
}

#[test]
fn preserve_ttl_keeps_the_existing_expiry() {
    let vb = &mut vbucket();
    let k = key("k");
    let (first, second) = (
        Expiry(at(100).unix_secs() as u32),
        Expiry(at(200).unix_secs() as u32),
    );
    let keep = StepWrite {
        preserve_ttl: true,
        ..write(&k)
    };
    done(
        vb.at(at(0))
            .store(&keep, StoreMode::Set, &value(b"1"), 0, first)
            .unwrap(),
    );
    done(
        vb.at(at(0))
            .store(&keep, StoreMode::Set, &value(b"2"), 0, second)
            .unwrap(),
    );
    assert_eq!(meta(vb, at(0), &k).expiry, first);
    done(
        vb.at(at(0))
            .store(&write(&k), StoreMode::Set, &value(b"3"), 0, second)
            .unwrap(),
    );
    assert_eq!(meta(vb, at(0), &k).expiry, second);
}

#[test]
fn observe_returns_the_persistence_state() {
    let vb = &mut vbucket();
    let k = key("k");
    assert_eq!(
        done(vb.at(at(0)).observe_key(&k).unwrap()).0,
        ObserveState::NotFound
    );
    let wrote = set(vb, at(0), "k", b"1");
    assert_eq!(
        done(vb.at(at(0)).observe_key(&k).unwrap()),
        (ObserveState::NotPersisted, wrote.cas)
    );
    log_all(vb);
    assert_eq!(
        done(vb.at(at(0)).observe_key(&k).unwrap()),
        (ObserveState::Persisted, wrote.cas)
    );
    done(vb.at(at(0)).delete(&write(&k)).unwrap());
    assert_eq!(
        done(vb.at(at(0)).observe_key(&k).unwrap()).0,
        ObserveState::DeletedNotPersisted
    );
    log_all(vb);
    assert_eq!(
        done(vb.at(at(0)).observe_key(&k).unwrap()).0,
        ObserveState::NotFound
    );
    let seen = vb.history().observe_seqno(VbUuid(0xabc)).unwrap();
    assert_eq!(
        (seen.persisted, seen.current, seen.failover),
        (Seqno(2), Seqno(2), None)
    );
    assert_eq!(
        vb.history().observe_seqno(VbUuid(1)),
        Err(Status::KeyNotFound)
    );
}

#[test]
fn seqno_persistence_completes_or_times_out() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"1");
    let cookie = kedge_vbucket::Cookie(5);
    assert_eq!(
        vb.at(at(0)).seqno_persistence(Seqno(1), cookie),
        StepOutcome::Parked
    );
    assert_eq!(
        vb.at(at(0))
            .seqno_persistence(Seqno(2), kedge_vbucket::Cookie(6)),
        StepOutcome::Parked
    );
    log_all(vb);
    let mut ended = Vec::new();
    ended.extend(vb.take_effects().unwrap_or_default().completions);
    assert_eq!(
        ended.iter().map(|done| done.cookie.0).collect::<Vec<_>>(),
        [5]
    );
    assert_eq!(
        vb.at(at(0)).seqno_persistence(Seqno(1), cookie),
        StepOutcome::Done(())
    );
    vb.on_time(at(31));
    ended.extend(vb.take_effects().unwrap_or_default().completions);
    assert!(
        format!("{:?}", ended[1].completion).contains("TemporaryFailure"),
        "{ended:?}"
    );
    assert!(!vb.durability().has_waiters());
}

#[test]
fn delayed_write_response_succeeds_however_the_wait_ends() {
    let vb = &mut vbucket();
    let k = key("k");
    let ends: [fn(&mut VBucket); 4] = [
        |vb| drop(log_all(vb)),
        |vb| vb.on_time(at(31)),
        |vb| vb.on_shutdown(),
        |vb| vb.reset(VbUuid(1)),
    ];
    for end in ends {
        let wrote = set(vb, at(0), "k", b"1");
        let cookie = kedge_vbucket::Cookie(8);
        assert_eq!(
            vb.at(at(0)).delay_response(&k, wrote, cookie),
            StepOutcome::Parked
        );
        assert!(results(vb).is_empty());
        end(vb);
        assert_eq!(results(vb), [(8, Ok(wrote))]);
    }
    let wrote = set(vb, at(0), "k", b"1");
    log_all(vb);
    assert_eq!(
        vb.at(at(0))
            .delay_response(&k, wrote, kedge_vbucket::Cookie(9)),
        StepOutcome::Done(wrote)
    );
}

#[test]
fn keys_and_random_documents_stay_in_their_collection() {
    let vb = &mut vbucket();
    for name in ["b", "a", "c"] {
        set(vb, at(0), name, b"default");
    }
    vb.follow_manifest(at(0), &crate::collections::manifest(1, &[8]));
    let other = DocKey::new(CollectionId(8), b"z").unwrap();
    done(store(vb, at(0), &write(&other), StoreMode::Set, b"other").unwrap());
    let k = key("c");
    done(vb.at(at(0)).delete(&write(&k)).unwrap());
    let names = |keys: Vec<Box<[u8]>>| keys.iter().map(|key| key[0] as char).collect::<String>();
    let shards = vb.table().shard_count();
    let keys_from = |vb: &mut VBucket, start: &DocKey, count| {
        let of_shard = |shard| vb.at(at(0)).keys_from(shard, start, count);
        let mut keys: Vec<_> = (0..shards).flat_map(of_shard).collect();
        keys.sort_unstable();
        names(keys)
    };
    assert_eq!(keys_from(vb, &key("a"), 10), "ab");
    assert_eq!(keys_from(vb, &key("b"), 10), "b");
    let in_other = DocKey::new(CollectionId(8), b"a").unwrap();
    assert_eq!(keys_from(vb, &in_other, 10), "z");
    for shard in 0..shards {
        let all = vb.at(at(0)).keys_from(shard, &key("a"), 10);
        let first = vb.at(at(0)).keys_from(shard, &key("a"), 1);
        assert_eq!(first[..], all[..all.len().min(1)]);
    }
    let mut seen = std::collections::BTreeSet::new();
    for random in 0..1_000u64 {
        let random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shard = random as usize % shards;
        let show = |document: kedge_vbucket::DocumentRef<'_>| document.item.key()[1];
        match vb
            .at(at(0))
            .random_document(CollectionId::DEFAULT, shard, random, show)
        {
            Some(RandomDocument::Shown(byte)) => drop(seen.insert(byte)),
            Some(RandomDocument::OnDisk(key)) => panic!("{key:?}"),
            None => {}
        }
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [b'a', b'b'],
        "all live ones, no others"
    );
    let nothing = |shard| {
        vb.at(at(0))
            .random_document(CollectionId(9), shard, 1, |_| ())
            .is_none()
    };
    assert!((0..shards).all(nothing));
}
