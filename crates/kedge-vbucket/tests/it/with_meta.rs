//! Tests of writes with metadata.

use crate::tools::*;
use kedge_types::limits::{TOMBSTONE_PURGE_AGE_SECS, WITH_META_REV_MAX};
use kedge_types::{Cas, Datatype, Expiry, Now, RevSeqno, Seqno, Status};
use kedge_vbucket::{
    ConflictRule, Deletion, Drift, Meta, Mutated, NewValue, Patches, StepOutcome, StepWrite,
    VBucket, WithMetaArgs,
};

/// Returns the arguments of a live document with this revision and the clock of the tests at 0.
fn given(rev: u64) -> WithMetaArgs {
    WithMetaArgs {
        cas: Cas(at(0).unix_ns),
        rev: RevSeqno(rev),
        flags: 7,
        expiry: Expiry::NEVER,
        deleted: None,
        only_new: false,
        new_cas: false,
        rule: Some(ConflictRule::MostChanges),
    }
}

fn deletion(rev: u64) -> WithMetaArgs {
    WithMetaArgs {
        deleted: Some(Deletion::Explicit),
        expiry: Expiry(at(0).unix_secs() as u32),
        ..given(rev)
    }
}

fn put(
    vb: &mut VBucket,
    now: Now,
    write: &StepWrite<'_>,
    given: &WithMetaArgs,
) -> Result<StepOutcome<Mutated>, Status> {
    let value = match given.deleted {
        None => value(b"{}"),
        Some(_) => NewValue::of_deletion(),
    };
    vb.at(now)
        .write_with_meta(write, given, &value, &Patches::default())
}

#[test]
fn write_with_meta_stores_the_given_metadata() {
    let vb = &mut vbucket();
    let k = key("k");
    let expiry = Expiry(at(90).unix_secs() as u32);
    let document = WithMetaArgs {
        expiry,
        ..given(41)
    };
    let mutated = done(put(vb, at(5), &write(&k), &document).unwrap());
    assert_eq!((mutated.cas, mutated.seqno), (document.cas, Seqno(1)));
    let expected = Meta {
        cas: document.cas,
        flags: 7,
        expiry,
        rev_seqno: RevSeqno(41),
        seqno: Seqno(1),
        datatype: Datatype::JSON,
        deleted: false,
    };
    assert_eq!(meta(vb, at(5), &k), expected);
    assert_eq!(get(vb, at(5), "k").unwrap(), b"{}");
    // Later changes continue from there.
    let next = set(vb, at(6), "k", b"1");
    assert!(next.cas > document.cas);
    assert_eq!(meta(vb, at(6), &k).rev_seqno, RevSeqno(42));

    let gone = WithMetaArgs {
        expiry: Expiry(at(1).unix_secs() as u32),
        ..deletion(43)
    };
    done(put(vb, at(7), &write(&k), &gone).unwrap());
    let expected = Meta {
        cas: gone.cas,
        expiry: gone.expiry,
        rev_seqno: RevSeqno(43),
        seqno: Seqno(3),
        datatype: Datatype::RAW,
        deleted: true,
        ..expected
    };
    assert_eq!(meta(vb, at(7), &k), expected);
    assert_eq!((vb.documents().count(), vb.table().tombstones()), (0, 1));
}

#[test]
fn write_with_meta_checks_conflicts_and_cas() {
    use Status::{KeyExists, KeyNotFound};
    type Row = (
        &'static str,
        u64,
        fn(WithMetaArgs) -> WithMetaArgs,
        u64,
        Result<(), Status>,
    );
    // (existing state with revision 5, given revision, changed arguments, required CAS or 9 for the existing one,
    // expected result)
    let table: &[Row] = &[
        ("document", 6, |it| it, 0, Ok(())),
        ("document", 4, |it| it, 0, Err(KeyExists)),
        ("document", 5, |it| it, 0, Err(KeyExists)),
        (
            "document",
            4,
            |it| WithMetaArgs { rule: None, ..it },
            0,
            Ok(()),
        ),
        ("document", 6, |it| it, 9, Ok(())),
        ("document", 6, |it| it, 1, Err(KeyExists)),
        ("document", 4, |it| it, 9, Err(KeyExists)),
        (
            "document",
            6,
            |it| WithMetaArgs {
                only_new: true,
                ..it
            },
            0,
            Err(KeyExists),
        ),
        ("tombstone", 6, |it| it, 0, Ok(())),
        ("tombstone", 5, |it| it, 0, Err(KeyExists)),
        (
            "tombstone",
            6,
            |it| WithMetaArgs {
                only_new: true,
                ..it
            },
            0,
            Ok(()),
        ),
        (
            "tombstone",
            4,
            |it| WithMetaArgs {
                only_new: true,
                ..it
            },
            0,
            Err(KeyExists),
        ),
        ("tombstone", 6, |it| it, 9, Err(KeyNotFound)),
        ("nothing", 1, |it| it, 0, Ok(())),
        (
            "nothing",
            1,
            |it| WithMetaArgs {
                only_new: true,
                ..it
            },
            0,
            Ok(()),
        ),
        ("nothing", 1, |it| it, 1, Err(KeyNotFound)),
    ];
    for (there, rev, change, cas, expected) in table {
        for make in [given, deletion] {
            let vb = &mut vbucket();
            let k = key("k");
            let first = match *there {
                "document" => Some(given(5)),
                "tombstone" => Some(deletion(5)),
                _ => None,
            };
            let first = first.map(|first| WithMetaArgs { flags: 9, ..first });
            let has = first.map_or(Cas(1), |first| first.cas);
            if let Some(first) = first {
                done(put(vb, at(0), &write(&k), &first).unwrap());
            }
            let high = vb.high_seqno();
            let cas = match cas {
                9 => has,
                other => Cas(*other),
            };
            let outcome = put(
                vb,
                at(1),
                &StepWrite { cas, ..write(&k) },
                &change(make(*rev)),
            );
            assert_eq!(outcome.map(|_| ()), *expected, "{there} {rev} {cas:?}");
            let steps = u64::from(expected.is_ok());
            assert_eq!(vb.high_seqno(), Seqno(high.get() + steps), "{there} {rev}");
        }
    }
}

#[test]
fn last_write_wins_by_rule() {
    let vb = &mut vbucket();
    let k = key("k");
    done(put(vb, at(0), &write(&k), &given(9)).unwrap());
    let later = WithMetaArgs {
        cas: Cas(at(1).unix_ns),
        rule: Some(ConflictRule::LastWrite),
        ..given(2)
    };
    done(put(vb, at(2), &write(&k), &later).unwrap());
    let earlier = WithMetaArgs {
        cas: Cas(at(0).unix_ns),
        rev: RevSeqno(100),
        ..later
    };
    assert_eq!(put(vb, at(2), &write(&k), &earlier), Err(Status::KeyExists));
    assert_eq!(meta(vb, at(2), &k).rev_seqno, RevSeqno(2));
}

#[test]
fn write_with_meta_respects_locks_and_sync_writes() {
    let vb = &mut vbucket();
    let k = key("k");
    set(vb, at(0), "k", b"1");
    let lock = done(
        vb.at(at(0))
            .get_and_lock(&k, 15, None, |it| it.cas)
            .unwrap(),
    );
    for with in [given(9), deletion(9)] {
        assert_eq!(put(vb, at(1), &write(&k), &with), Err(Status::Locked));
    }
    let with_lock = StepWrite {
        cas: lock,
        ..write(&k)
    };
    done(put(vb, at(1), &with_lock, &given(9)).unwrap());
    assert_eq!(meta(vb, at(1), &k).cas, given(9).cas, "the lock is open");

    persist(vb, at(2), "k", b"2", 1);
    for with in [given(20), deletion(20)] {
        let outcome = put(vb, at(2), &write(&k), &with);
        assert_eq!(outcome, Err(Status::SyncWriteInProgress));
    }
}

#[test]
fn write_with_meta_accepts_creates_or_refuses_a_cas() {
    let vb = &mut vbucket();
    let k = key("k");
    let ahead = |secs| Cas(at(secs).unix_ns);
    for cas in [Cas(0), Cas::LOCKED, ahead(4_000)] {
        let refused = put(vb, at(0), &write(&k), &WithMetaArgs { cas, ..given(1) });
        assert_eq!(refused, Err(Status::CasValueInvalid), "{cas:?}");
    }
    assert_eq!(
        (vb.high_seqno(), vb.history().drift()),
        (Seqno(0), Drift::default())
    );

    let made = WithMetaArgs {
        cas: Cas(0),
        new_cas: true,
        rule: None,
        ..given(3)
    };
    let mutated = done(put(vb, at(0), &write(&k), &made).unwrap());
    assert_eq!(mutated.cas.get(), at(0).unix_ns & !0xffff);
    assert_eq!(vb.history().drift().samples, 0);

    let future = WithMetaArgs {
        cas: ahead(600),
        ..given(4)
    };
    done(put(vb, at(0), &write(&k), &future).unwrap());
    let next = set(vb, at(1), "k", b"2");
    assert_eq!(next.cas.get(), ahead(600).get() + 1);
    let old = WithMetaArgs {
        cas: ahead(0),
        ..given(6)
    };
    done(put(vb, at(60), &write(&k), &old).unwrap());
    let drift = vb.history().drift();
    let expected = Drift {
        total_us: 660_000_000,
        samples: 2,
        ahead: 1,
        behind: 1,
    };
    assert_eq!(drift, expected);
}

#[test]
fn write_with_meta_refuses_a_too_high_revision() {
    let vb = &mut vbucket();
    let k = key("k");
    let high = given(WITH_META_REV_MAX + 1);
    assert_eq!(put(vb, at(0), &write(&k), &high), Err(Status::Invalid));
    done(put(vb, at(0), &write(&k), &given(WITH_META_REV_MAX)).unwrap());
    set(vb, at(0), "k", b"1");
    let found = meta(vb, at(0), &k);
    assert_eq!(found.rev_seqno, RevSeqno(WITH_META_REV_MAX + 1));
}

#[test]
fn write_with_meta_expires_an_expired_document_at_once() {
    let vb = &mut vbucket();
    let k = key("k");
    let expired = WithMetaArgs {
        expiry: Expiry(at(3).unix_secs() as u32),
        ..given(5)
    };
    done(put(vb, at(3), &write(&k), &expired).unwrap());
    assert_eq!(get(vb, at(3), "k"), Err(Status::KeyNotFound));
    let found = meta(vb, at(3), &k);
    assert_eq!((found.deleted, found.rev_seqno), (true, RevSeqno(6)));
    assert_eq!(vb.documents().expired(), 1);
}

#[test]
fn deletion_with_meta_keeps_its_time_unless_it_would_be_purged() {
    let now = at(TOMBSTONE_PURGE_AGE_SECS * 2);
    let now_secs = now.unix_secs() as u32;
    let oldest = now_secs - TOMBSTONE_PURGE_AGE_SECS as u32 + 1;
    for (told, kept) in [
        (now_secs, now_secs),
        (now_secs - 1_000, now_secs - 1_000),
        (oldest, oldest),
        (oldest - 1, now_secs),
        (0, now_secs),
        (10, now_secs),
        (now_secs + 1, now_secs),
        (u32::MAX, now_secs),
    ] {
        let vb = &mut vbucket();
        let k = key("k");
        let gone = WithMetaArgs {
            expiry: Expiry(told),
            deleted: Some(Deletion::Expired),
            ..deletion(1)
        };
        done(put(vb, now, &write(&k), &gone).unwrap());
        assert_eq!(meta(vb, now, &k).expiry, Expiry(kept), "{told}");
        let table = vb.table();
        let item = table.find(table.hash(k.as_bytes()), k.as_bytes()).unwrap();
        assert_eq!(item.meta().deleted, Some(Deletion::Expired));
    }
}
