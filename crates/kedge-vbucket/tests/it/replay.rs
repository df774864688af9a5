//! Tests of replay.

use crate::tools::*;
use kedge_types::{Expiry, Seqno, VbUuid};
use kedge_vbucket::{Change, FailoverTable, ReplayError, VBucket, VbState};

fn replayed(changes: &[Change], branch: Option<VbUuid>) -> Result<VBucket, ReplayError> {
    let mut vb = vbucket();
    for change in changes {
        vb.recovery().replay(change.clone())?;
    }
    vb.recovery().finish(branch)?;
    Ok(vb)
}

/// Returns the state that is visible to clients.
fn visible(vb: &VBucket) -> Vec<String> {
    let mut all: Vec<String> = vb
        .table()
        .iter()
        .map(|item| format!("{item:?} {:?}", item.value()))
        .collect();
    all.sort();
    all
}

#[test]
fn replay_restores_logged_changes() {
    let mut vb = vbucket();
    let k = key("durable");
    set(&mut vb, at(0), "a", b"1");
    set(&mut vb, at(1), "b", b"{}");
    persist(&mut vb, at(1), "durable", b"x", 1);
    let mut changes = log_all(&mut vb);
    let a = key("a");
    vb.at(at(2)).delete(&write(&a)).unwrap();
    vb.at(at(3)).touch(&write(&k), Expiry(u32::MAX)).unwrap();
    changes.extend(log_all(&mut vb));
    let again = replayed(&changes, None).unwrap();
    assert_eq!(visible(&again), visible(&vb));
    assert_eq!(again.high_seqno(), vb.high_seqno());
    assert_eq!(again.persisted_seqno(), vb.high_seqno());
    assert!(again.history().last_cas() >= vb.history().last_cas());
    assert_eq!(again.failover(), vb.failover());
}

#[test]
fn replay_commits_an_open_prepare() {
    let mut vb = vbucket();
    persist(&mut vb, at(0), "k", b"x", 1);
    let changes = log_all(&mut vb);
    let mut again = replayed(&changes, Some(VbUuid(5))).unwrap();
    assert_eq!(get(&mut again, at(0), "k").unwrap(), b"x");
    assert_eq!(again.high_seqno(), Seqno(2));
    let queued = log_all(&mut again);
    assert!(
        matches!(
            &queued[..],
            [
                Change::State(..),
                Change::Commit {
                    prepared: Seqno(1),
                    ..
                }
            ]
        ),
        "{queued:?}"
    );
}

#[test]
fn replay_after_unclean_shutdown_starts_a_branch() {
    let mut vb = vbucket();
    set(&mut vb, at(0), "a", b"1");
    let changes = log_all(&mut vb);
    let again = replayed(&changes, Some(VbUuid(5))).unwrap();
    assert_eq!(
        again.failover().entries(),
        [(VbUuid(5), Seqno(1)), (VbUuid(0xabc), Seqno(0))]
    );
    // Clients may have seen changes of a branch although none is on disk, so the branch is not continued.
    let empty = replayed(&[], Some(VbUuid(5))).unwrap();
    assert_eq!(
        empty.failover().entries(),
        [(VbUuid(5), Seqno(0)), (VbUuid(0xabc), Seqno(0))]
    );
    let named = [Change::State(
        Box::new(FailoverTable::new(VbUuid(7))),
        VbState::Active,
    )];
    let named = replayed(&named, Some(VbUuid(5))).unwrap();
    assert_eq!(
        named.failover().entries(),
        [(VbUuid(5), Seqno(0)), (VbUuid(7), Seqno(0))]
    );
}

#[test]
fn replay_of_a_reset_discards_earlier_changes() {
    let mut vb = vbucket();
    set(&mut vb, at(0), "a", b"1");
    vb.reset(VbUuid(9));
    set(&mut vb, at(1), "b", b"2");
    let changes = log_all(&mut vb);
    let mut again = replayed(&changes, None).unwrap();
    assert_eq!(visible(&again), visible(&vb));
    assert_eq!(again.failover().uuid(), VbUuid(9));
    assert!(get(&mut again, at(1), "a").is_err());
}

#[test]
fn replay_refuses_inconsistent_records() {
    let mut vb = vbucket();
    set(&mut vb, at(0), "a", b"1");
    persist(&mut vb, at(0), "k", b"x", 1);
    let mut changes = log_all(&mut vb);
    changes.extend(log_all(&mut vb));
    let [document, prepare, commit] = &changes[..] else {
        panic!("{changes:?}")
    };
    let twice = [document.clone(), document.clone()];
    let order = ReplayError::Order {
        high: Seqno(1),
        seqno: Seqno(1),
    };
    assert_eq!(replayed(&twice, None).unwrap_err(), order);
    let orphan = [document.clone(), commit.clone()];
    let missing = ReplayError::NoPrepare { prepared: Seqno(2) };
    assert_eq!(replayed(&orphan, None).unwrap_err(), missing);
    let no_level = [Change::Prepare(document.item().unwrap().clone())];
    assert_eq!(
        replayed(&no_level, None).unwrap_err(),
        ReplayError::BadPrepare { prepared: Seqno(1) }
    );
    // The log may have been truncated before a reset.
    vb.reset(VbUuid(9));
    let reset = log_all(&mut vb).remove(0);
    assert!(replayed(&[commit.clone(), reset], None).is_ok());
    assert!(replayed(&[prepare.clone(), commit.clone()], None).is_ok());
}
