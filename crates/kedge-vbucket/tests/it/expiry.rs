//! Documents that expire, and tombstones that are forgotten.

use crate::tools::*;
use kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
use kedge_types::{Expiry, Seqno, Status};
use kedge_vbucket::{Change, StoreMode, VBucket};

fn set_expiring(vb: &mut VBucket, name: &str, secs: u64) {
    let k = key(name);
    let expiry = Expiry(at(secs).unix_secs() as u32);
    done(
        vb.store(at(0), &write(&k), StoreMode::Set, &value(b"1"), 0, expiry)
            .unwrap(),
    );
}

#[test]
fn a_read_lets_go_of_what_expired_and_the_log_hears_of_it() {
    let vb = &mut vbucket();
    set_expiring(vb, "k", 10);
    assert!(get(vb, at(9), "k").is_ok());
    log_all(vb);
    assert_eq!(get(vb, at(10), "k"), Err(Status::KeyNotFound));
    let changes = log_all(vb);
    let [Change::Document(tombstone)] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert!(tombstone.is_deleted() && tombstone.seqno().get() == 2);
    assert!(meta(vb, at(10), &key("k")).deleted);
    assert_eq!(vb.expired(), 1);
    assert_eq!(get(vb, at(11), "k"), Err(Status::KeyNotFound));
    assert_eq!(vb.expired(), 1, "once");
}

#[test]
fn an_expired_document_is_none_to_every_command() {
    let vb = &mut vbucket();
    let k = key("k");
    for turn in 0..5 {
        set_expiring(vb, "k", 10);
        let now = at(20);
        let refused = match turn {
            0 => store(vb, now, &write(&k), StoreMode::Replace, b"2").err(),
            1 => vb.delete(now, &write(&k)).err(),
            2 => vb.touch(now, &write(&k), Expiry::NEVER).err(),
            3 => vb.get_and_lock(now, &k, 5, |_| ()).err(),
            _ => vb.unlock(now, &k, 1.into()).err(),
        };
        assert_eq!(refused, Some(Status::KeyNotFound), "{turn}");
    }
    set_expiring(vb, "k", 10);
    done(store(vb, at(20), &write(&k), StoreMode::Add, b"2").unwrap());
}

#[test]
fn touching_moves_the_expiry_and_the_same_expiry_changes_nothing() {
    let vb = &mut vbucket();
    set_expiring(vb, "k", 10);
    let k = key("k");
    let later = Expiry(at(50).unix_secs() as u32);
    let touched = done(vb.touch(at(5), &write(&k), later).unwrap());
    let again = done(vb.touch(at(6), &write(&k), later).unwrap());
    assert_eq!(touched, again);
    let (bytes, mutated) = done(
        vb.get_and_touch(at(20), &write(&k), Expiry::NEVER, |document, mutated| {
            (document.item.value().to_vec(), mutated)
        })
        .unwrap(),
    );
    assert_eq!(bytes, b"1");
    assert!(mutated.cas > touched.cas && mutated.seqno > touched.seqno);
    assert!(get(vb, at(1_000), "k").is_ok());
}

#[test]
fn a_sweep_is_wanted_while_something_may_run_out() {
    let vb = &mut vbucket();
    let k = key("k");
    set(vb, at(0), "k", b"1");
    assert!(!vb.wants_sweep());
    vb.get_and_lock(at(0), &k, 5, |_| ()).unwrap();
    assert!(vb.wants_sweep(), "a lock");
    (0..vb.table().shard_count()).for_each(|shard| vb.sweep(at(6), shard));
    assert!(!vb.wants_sweep());
    set_expiring(vb, "k", 10);
    assert!(vb.wants_sweep(), "an expiry");
    done(vb.touch(at(6), &write(&k), Expiry::NEVER).unwrap());
    assert!(!vb.wants_sweep());
    set_expiring(vb, "k", 10);
    (0..vb.table().shard_count()).for_each(|shard| vb.sweep(at(10), shard));
    assert_eq!((vb.tombstones(), vb.wants_sweep()), (1, false));
}

#[test]
fn a_sweep_finds_what_nobody_reads() {
    let vb = &mut vbucket();
    for n in 0..100 {
        set_expiring(vb, &format!("k{n}"), 10);
    }
    set(vb, at(0), "stays", b"1");
    let sweep = |vb: &mut VBucket, secs| {
        (0..vb.table().shard_count()).for_each(|shard| vb.sweep(at(secs), shard));
    };
    sweep(vb, 9);
    assert_eq!((vb.documents(), vb.tombstones()), (101, 0));
    sweep(vb, 10);
    assert_eq!(
        (vb.documents(), vb.tombstones(), vb.expired()),
        (1, 100, 100)
    );
    sweep(vb, 20 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.tombstones(), 100, "not on disk yet");
    log_all(vb);
    sweep(vb, 20 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.tombstones(), 100, "in the log only");
    let batch = vb.begin_apply().unwrap();
    vb.applied(batch.history(), batch.upto());
    drop(vb.end_apply(batch));
    sweep(vb, 10 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.tombstones(), 100, "not old enough");
    sweep(vb, 11 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!((vb.documents(), vb.tombstones()), (1, 0));
    assert_eq!(vb.purge_seqno().get(), 0, "the file has them");
    vb.on_purged(vb.history(), Seqno(150));
    vb.on_purged(vb.history() + 1, Seqno(160));
    assert_eq!(vb.purge_seqno().get(), 150);
    set(vb, at(20 + TOMBSTONE_PURGE_AGE_SECS), "k1", b"1");
    assert_eq!(
        meta(vb, at(0), &key("k1")).rev_seqno.get(),
        3,
        "above the forgotten one"
    );
}
