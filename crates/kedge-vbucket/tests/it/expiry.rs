//! Tests of expiry and of the purge of tombstones.

use crate::tools::*;
use kedge_types::limits::TOMBSTONE_PURGE_AGE_SECS;
use kedge_types::{Expiry, Seqno, Status};
use kedge_vbucket::{Change, StoreMode, VBucket};

fn set_expiring(vb: &mut VBucket, name: &str, secs: u64) {
    let k = key(name);
    let expiry = Expiry(at(secs).unix_secs() as u32);
    done(
        vb.at(at(0))
            .store(&write(&k), StoreMode::Set, &value(b"1"), 0, expiry)
            .unwrap(),
    );
}

#[test]
fn read_of_an_expired_document_queues_a_tombstone() {
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
    assert_eq!(vb.documents().expired(), 1);
    assert_eq!(get(vb, at(11), "k"), Err(Status::KeyNotFound));
    assert_eq!(vb.documents().expired(), 1, "once");
}

#[test]
fn expired_document_does_not_exist_for_any_command() {
    let vb = &mut vbucket();
    let k = key("k");
    for turn in 0..5 {
        set_expiring(vb, "k", 10);
        let now = at(20);
        let refused = match turn {
            0 => store(vb, now, &write(&k), StoreMode::Replace, b"2").err(),
            1 => vb.at(now).delete(&write(&k)).err(),
            2 => vb.at(now).touch(&write(&k), Expiry::NEVER).err(),
            3 => vb.at(now).get_and_lock(&k, 5, None, |_| ()).err(),
            _ => vb.at(now).unlock(&k, 1.into()).err(),
        };
        assert_eq!(refused, Some(Status::KeyNotFound), "{turn}");
    }
    set_expiring(vb, "k", 10);
    done(store(vb, at(20), &write(&k), StoreMode::Add, b"2").unwrap());
}

#[test]
fn touch_changes_the_expiry_but_not_to_the_same_value() {
    let vb = &mut vbucket();
    set_expiring(vb, "k", 10);
    let k = key("k");
    let later = Expiry(at(50).unix_secs() as u32);
    let touched = done(vb.at(at(5)).touch(&write(&k), later).unwrap());
    let again = done(vb.at(at(6)).touch(&write(&k), later).unwrap());
    assert_eq!(touched, again);
    let (mutated, bytes) = done(
        vb.at(at(20))
            .get_and_touch(&write(&k), Expiry::NEVER, |document| {
                document.item.value().to_vec()
            })
            .unwrap(),
    );
    assert_eq!(bytes, b"1");
    assert!(mutated.cas > touched.cas && mutated.seqno > touched.seqno);
    assert!(get(vb, at(1_000), "k").is_ok());
}

#[test]
fn sweep_is_due_while_locks_or_expiries_exist() {
    let vb = &mut vbucket();
    let k = key("k");
    set(vb, at(0), "k", b"1");
    assert!(!vb.documents().wants_sweep());
    vb.at(at(0)).get_and_lock(&k, 5, None, |_| ()).unwrap();
    assert!(vb.documents().wants_sweep(), "a lock");
    (0..vb.table().shard_count()).for_each(|shard| vb.at(at(6)).sweep(shard));
    assert!(!vb.documents().wants_sweep());
    set_expiring(vb, "k", 10);
    assert!(vb.documents().wants_sweep(), "an expiry");
    done(vb.at(at(6)).touch(&write(&k), Expiry::NEVER).unwrap());
    assert!(!vb.documents().wants_sweep());
    set_expiring(vb, "k", 10);
    (0..vb.table().shard_count()).for_each(|shard| vb.at(at(10)).sweep(shard));
    assert_eq!(
        (vb.table().tombstones(), vb.documents().wants_sweep()),
        (1, false)
    );
}

#[test]
fn sweep_expires_documents_and_purges_applied_tombstones() {
    let vb = &mut vbucket();
    for n in 0..100 {
        set_expiring(vb, &format!("k{n}"), 10);
    }
    set(vb, at(0), "stays", b"1");
    let sweep = |vb: &mut VBucket, secs| {
        (0..vb.table().shard_count()).for_each(|shard| vb.at(at(secs)).sweep(shard));
    };
    sweep(vb, 9);
    assert_eq!((vb.documents().count(), vb.table().tombstones()), (101, 0));
    sweep(vb, 10);
    assert_eq!(
        (
            vb.documents().count(),
            vb.table().tombstones(),
            vb.documents().expired()
        ),
        (1, 100, 100)
    );
    sweep(vb, 20 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.table().tombstones(), 100, "not on disk yet");
    log_all(vb);
    sweep(vb, 20 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.table().tombstones(), 100, "in the log only");
    let batch = vb.store_mut().begin_apply().unwrap();
    vb.store_mut().on_applied(batch.history(), batch.upto());
    drop(vb.store_mut().end_apply(batch));
    sweep(vb, 10 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!(vb.table().tombstones(), 100, "not old enough");
    sweep(vb, 11 + TOMBSTONE_PURGE_AGE_SECS);
    assert_eq!((vb.documents().count(), vb.table().tombstones()), (1, 0));
    assert_eq!(vb.history().purge_seqno().get(), 0, "the file has them");
    let history = vb.history_id();
    vb.store_mut().on_purged(history, Seqno(150));
    vb.store_mut().on_purged(history + 1, Seqno(160));
    assert_eq!(vb.history().purge_seqno().get(), 150);
    set(vb, at(20 + TOMBSTONE_PURGE_AGE_SECS), "k1", b"1");
    assert_eq!(
        meta(vb, at(0), &key("k1")).rev_seqno.get(),
        3,
        "above the forgotten one"
    );
}
