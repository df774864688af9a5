//! Tests of GET_LOCKED.

use crate::tools::*;
use kedge_types::{Cas, Expiry, Status};
use kedge_vbucket::{ConcatMode, CounterOp, StepOutcome, StepWrite, StoreMode};

#[test]
fn only_the_lock_holder_changes_a_locked_document() {
    let vb = &mut vbucket();
    let before = set(vb, at(0), "k", b"1");
    let k = key("k");
    let w = write(&k);
    let lock = done(
        vb.at(at(0))
            .get_and_lock(&k, 10, None, |document| document.cas)
            .unwrap(),
    );
    assert!(lock > before.cas);
    assert_eq!(
        vb.at(at(1)).get_and_lock(&k, 10, None, |_| ()),
        Err(Status::Locked)
    );
    assert_eq!(
        vb.at(at(1)).get(&k, |document| document.cas),
        Ok(StepOutcome::Done(Cas::LOCKED)),
        "reads go on"
    );
    assert_eq!(meta(vb, at(1), &k).cas, Cas::LOCKED);
    for cas in [Cas(0), before.cas, Cas::LOCKED] {
        let w = StepWrite { cas, ..w };
        assert_eq!(
            store(vb, at(1), &w, StoreMode::Set, b"2"),
            Err(Status::Locked)
        );
        assert_eq!(vb.at(at(1)).delete(&w), Err(Status::Locked));
        assert_eq!(vb.at(at(1)).touch(&w, Expiry::NEVER), Err(Status::Locked));
        assert_eq!(
            vb.at(at(1)).concat(&w, ConcatMode::Append, b"2"),
            Err(Status::Locked)
        );
        let op = CounterOp {
            negative: false,
            delta: 1,
            initial: None,
            expiry: Expiry::NEVER,
        };
        assert_eq!(vb.at(at(1)).arithmetic(&w, &op), Err(Status::Locked));
        assert_eq!(vb.at(at(1)).unlock(&k, cas), Err(Status::Locked));
    }
    done(
        store(
            vb,
            at(1),
            &StepWrite { cas: lock, ..w },
            StoreMode::Set,
            b"mine",
        )
        .unwrap(),
    );
    assert_eq!(
        vb.at(at(1)).unlock(&k, lock),
        Err(Status::NotLocked),
        "the write opened it"
    );
    done(store(vb, at(1), &w, StoreMode::Set, b"anyone").unwrap());
}

#[test]
fn lock_ends_by_timeout_or_unlock() {
    let vb = &mut vbucket();
    set(vb, at(0), "k", b"1");
    let k = key("k");
    for (secs, ends) in [(5, 5), (0, 15), (31, 15), (30, 30)] {
        let lock = done(
            vb.at(at(0))
                .get_and_lock(&k, secs, None, |document| document.cas)
                .unwrap(),
        );
        assert_eq!(
            vb.at(at(ends - 1)).get_and_lock(&k, 1, None, |_| ()),
            Err(Status::Locked),
            "{secs}"
        );
        vb.at(at(ends))
            .unlock(&k, lock)
            .expect_err("its time is up");
    }
    let lock = done(
        vb.at(at(100))
            .get_and_lock(&k, 30, None, |document| document.cas)
            .unwrap(),
    );
    vb.at(at(101)).unlock(&k, lock).unwrap();
    assert_eq!(
        vb.at(at(101)).get(&k, |document| document.cas),
        Ok(StepOutcome::Done(lock))
    );
    assert_eq!(
        vb.at(at(101)).unlock(&key("missing"), lock),
        Err(Status::KeyNotFound)
    );
    assert_eq!(
        vb.at(at(101))
            .get_and_lock(&key("missing"), 1, None, |_| ()),
        Err(Status::KeyNotFound)
    );
    let deleted = StepWrite {
        cas: lock,
        ..write(&k)
    };
    done(vb.at(at(102)).delete(&deleted).unwrap());
}
