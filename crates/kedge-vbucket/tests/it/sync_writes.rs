//! Tests of SyncWrites with a majority of one.

use crate::tools::*;
use kedge_types::DurabilityLevel::{Majority, MajorityAndPersistOnActive, PersistToMajority};
use kedge_types::{Expiry, Now, Seqno, Status, VbUuid};
use kedge_vbucket::{Change, CounterOp, StepOutcome, StoreMode};

#[test]
fn majority_completes_in_memory() {
    let vb = &mut vbucket();
    let k = key("k");
    let mutated = done(store(vb, at(0), &durable(&k, Majority, 1), StoreMode::Set, b"1").unwrap());
    assert_eq!(mutated.seqno, Seqno(2), "the commit's seqno");
    assert_eq!(get(vb, at(0), "k").unwrap(), b"1");
    let changes = log_all(vb);
    assert!(
        matches!(
            &changes[..],
            [
                Change::Prepare(_),
                Change::Commit {
                    prepared: Seqno(1),
                    ..
                }
            ]
        ),
        "{changes:?}"
    );
    assert!(results(vb).is_empty(), "answered already");
}

#[test]
fn persist_levels_wait_for_the_log_and_stay_invisible() {
    for level in [MajorityAndPersistOnActive, PersistToMajority] {
        let vb = &mut vbucket();
        set(vb, at(0), "k", b"old");
        log_all(vb);
        let k = key("k");
        assert_eq!(
            store(vb, at(0), &durable(&k, level, 9), StoreMode::Set, b"new"),
            Ok(StepOutcome::Parked)
        );
        assert_eq!(
            get(vb, at(0), "k").unwrap(),
            b"old",
            "a prepare is visible to no reader"
        );
        assert_eq!(vb.history().visible_seqno(), Seqno(1));
        assert!(results(vb).is_empty());
        let logged = log_all(vb);
        assert!(matches!(&logged[..], [Change::Prepare(_)]));
        let ended = results(vb);
        assert_eq!(ended[0].0, 9);
        assert_eq!(ended[0].1.unwrap().seqno, Seqno(3));
        assert_eq!(get(vb, at(0), "k").unwrap(), b"new");
        assert_eq!(
            (
                vb.high_seqno(),
                vb.history().visible_seqno(),
                vb.persisted_seqno()
            ),
            (Seqno(3), Seqno(3), Seqno(2))
        );
    }
}

#[test]
fn key_with_a_prepare_accepts_no_other_write() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"1");
    let k = key("k");
    persist(vb, at(0), "k", b"2", 1);
    let w = write(&k);
    let busy = Status::SyncWriteInProgress;
    assert_eq!(store(vb, at(0), &w, StoreMode::Set, b"3"), Err(busy));
    assert_eq!(
        store(vb, at(0), &durable(&k, Majority, 2), StoreMode::Set, b"3"),
        Err(busy)
    );
    assert_eq!(vb.at(at(0)).delete(&w), Err(busy));
    assert_eq!(vb.at(at(0)).touch(&w, Expiry::NEVER), Err(busy));
    assert_eq!(vb.at(at(0)).get_and_lock(&k, 1, None, |_| ()), Err(busy));
    let op = CounterOp {
        negative: false,
        delta: 1,
        initial: None,
        expiry: Expiry::NEVER,
    };
    assert_eq!(vb.at(at(0)).arithmetic(&w, &op), Err(busy));
    log_all(vb);
    done(store(vb, at(0), &w, StoreMode::Set, b"3").unwrap());
}

#[test]
fn sync_writes_complete_in_prepare_order() {
    let vb = &mut vbucket();
    let b = key("b");
    persist(vb, at(0), "a", b"1", 1);
    // It is ready at once but must wait for the earlier prepare.
    let second = store(vb, at(0), &durable(&b, Majority, 2), StoreMode::Set, b"2");
    assert_eq!(second, Ok(StepOutcome::Parked));
    persist(vb, at(0), "c", b"3", 3);
    let mut changes = Vec::new();
    let to = vb.changes().for_log(1, usize::MAX, &mut changes);
    vb.on_logged(to);
    let order = |vb: &mut _| {
        results(vb)
            .iter()
            .map(|(cookie, _)| *cookie)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(vb), [1, 2], "the third is not on disk");
    log_all(vb);
    assert_eq!(order(vb), [3]);
}

#[test]
fn sync_write_aborts_when_its_timeout_expires() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"old");
    persist(vb, at(0), "k", b"new", 4);
    vb.on_time(Now {
        mono_ns: 1_999_999_999,
        ..at(0)
    });
    assert!(results(vb).is_empty());
    vb.on_time(at(2));
    assert_eq!(results(vb), [(4, Err(Status::SyncWriteAmbiguous))]);
    assert_eq!(get(vb, at(2), "k").unwrap(), b"old");
    let changes = log_all(vb);
    assert!(
        matches!(
            &changes[1..],
            [
                Change::Prepare(_),
                Change::Abort {
                    prepared: Seqno(2),
                    ..
                }
            ]
        ),
        "{changes:?}"
    );
    set(vb, at(2), "k", b"free again");
    assert!(results(vb).is_empty(), "answered once");
}

#[test]
fn deletes_counters_and_touches_can_be_sync_writes() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"5");
    let k = key("k");
    let op = CounterOp {
        negative: false,
        delta: 1,
        initial: None,
        expiry: Expiry::NEVER,
    };
    assert_eq!(
        vb.at(at(0))
            .arithmetic(&durable(&k, PersistToMajority, 1), &op),
        Ok(StepOutcome::Parked)
    );
    log_all(vb);
    assert_eq!(get(vb, at(0), "k").unwrap(), b"6");
    let later = Expiry(at(50).unix_secs() as u32);
    vb.at(at(0))
        .touch(&durable(&k, PersistToMajority, 2), later)
        .unwrap();
    log_all(vb);
    assert_eq!(meta(vb, at(0), &k).expiry, later);
    vb.at(at(0))
        .delete(&durable(&k, PersistToMajority, 3))
        .unwrap();
    assert!(get(vb, at(0), "k").is_ok());
    log_all(vb);
    assert_eq!(get(vb, at(0), "k"), Err(Status::KeyNotFound));
    assert_eq!(results(vb).len(), 3);
}

#[test]
fn shutdown_returns_ambiguous_and_keeps_prepares() {
    let vb = &mut vbucket();
    persist(vb, at(0), "k", b"1", 1);
    vb.on_shutdown();
    assert_eq!(results(vb), [(1, Err(Status::SyncWriteAmbiguous))]);
    log_all(vb);
    assert!(results(vb).is_empty());
    assert_eq!(
        get(vb, at(0), "k").unwrap(),
        b"1",
        "it was committed all the same"
    );
}

#[test]
fn reset_returns_ambiguous_and_starts_a_new_history() {
    let vb = &mut vbucket();
    set(vb, at(0), "a", b"1");
    persist(vb, at(0), "k", b"1", 1);
    let mut changes = Vec::new();
    let in_flight = vb.changes().for_log(usize::MAX, usize::MAX, &mut changes);
    vb.reset(VbUuid(0xdef));
    assert_eq!(results(vb), [(1, Err(Status::SyncWriteAmbiguous))]);
    assert_eq!(
        (
            vb.documents().count(),
            vb.high_seqno(),
            vb.failover().uuid()
        ),
        (0, Seqno(0), VbUuid(0xdef))
    );
    let after = set(vb, at(1), "a", b"2");
    assert_eq!((after.seqno, after.uuid), (Seqno(1), VbUuid(0xdef)));
    vb.on_logged(in_flight);
    assert_eq!(
        vb.persisted_seqno(),
        Seqno(0),
        "seqnos of the old history say nothing of the new"
    );
    log_all(vb);
    assert_eq!(vb.persisted_seqno(), Seqno(1));
}
