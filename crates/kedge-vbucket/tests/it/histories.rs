//! Tests of resets, rollbacks and branches, with the file older or newer than their log records.

use crate::disk::{Applying, Disk, File, WHOLE};
use crate::tools::*;
use kedge_types::DurabilityLevel::PersistToMajority;
use kedge_types::{Seqno, Status, VbUuid};
use kedge_vbucket::{Change, FailoverTable, ReplayError, StateChange, StoreMode, VBucket, VbState};

fn names(vb: &VBucket) -> String {
    let live = vb.table().iter().filter(|item| !item.is_deleted());
    let mut names: Vec<String> = live
        .map(|item| String::from_utf8_lossy(&item.key()[1..]).into_owned())
        .collect();
    names.sort();
    names.join(" ")
}

fn log_and_apply(vb: &mut VBucket, disk: &mut Disk) {
    disk.log(vb, usize::MAX);
    disk.apply(vb, WHOLE);
}

/// Returns a vBucket with two documents in the file and a third one in the log.
fn begun() -> (VBucket, Disk) {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    set(&mut vb, at(0), "a", b"1");
    set(&mut vb, at(0), "b", b"1");
    log_and_apply(&mut vb, &mut disk);
    set(&mut vb, at(0), "c", b"1");
    disk.log(&mut vb, usize::MAX);
    (vb, disk)
}

#[test]
fn reset_is_finished_after_a_crash() {
    let (mut vb, mut disk) = begun();
    vb.reset(VbUuid(9));
    let not_logged = disk.clone().recover(vbucket(), None);
    assert_eq!(names(&not_logged), "a b c");
    set(&mut vb, at(1), "d", b"1");
    disk.log(&mut vb, usize::MAX);

    // The file is older than the reset.
    let mut void = disk.clone().recover(vbucket(), None);
    assert_eq!(names(&void), "d");
    assert_eq!(
        (void.high_seqno(), void.applied_seqno()),
        (Seqno(1), Seqno(0))
    );
    assert_eq!(void.failover().uuid(), VbUuid(9));
    assert!(void.store_mut().begin_apply().unwrap().replaces_file());

    // The file was re-created and is empty.
    let mut empty = disk.clone();
    let state = vb.store_mut().begin_apply().unwrap().empty_state();
    empty.headers = vec![File::new(state)];
    let mut empty = empty.recover(vbucket(), None);
    assert_eq!(names(&empty), "d");
    assert!(!empty.store_mut().begin_apply().unwrap().replaces_file());

    // The file is newer than the reset, and the log still has everything.
    let mut vb = disk.recover(vbucket(), None);
    log_and_apply(&mut vb, &mut disk);
    set(&mut vb, at(1), "e", b"1");
    log_and_apply(&mut vb, &mut disk);
    let again = disk.clone().recover(vbucket(), None);
    assert_eq!(names(&again), "d e");
    assert_eq!(
        (again.high_seqno(), again.applied_seqno()),
        (Seqno(2), Seqno(2))
    );
    assert_eq!(again.unapplied().items, 0);
}

#[test]
fn file_may_be_older_than_either_of_two_resets() {
    for followed in 0..3 {
        let (mut vb, mut disk) = begun();
        for (turn, name) in ["d", "e"].iter().enumerate() {
            vb.reset(VbUuid(20 + turn as u64));
            set(&mut vb, at(1), name, b"1");
            disk.log(&mut vb, usize::MAX);
            if turn < followed {
                disk.apply(&mut vb, WHOLE);
            }
        }
        let mut again = disk.recover(vbucket(), None);
        assert_eq!(names(&again), "e", "{followed}");
        let replaces = again
            .store_mut()
            .begin_apply()
            .map(|batch| batch.replaces_file());
        assert_eq!(replaces, [Some(true), Some(true), None][followed]);
    }
}

#[test]
fn replay_accepts_old_history_records_that_contradict_the_file() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    let k = key("k");
    for n in 0..6 {
        set(&mut vb, at(0), &format!("x{n}"), b"1");
    }
    let w = durable(&k, PersistToMajority, 1);
    store(&mut vb, at(0), &w, StoreMode::Set, b"old").unwrap();
    disk.log(&mut vb, usize::MAX);
    vb.reset(VbUuid(9));
    // In the new history the same key has an open prepare in the file.
    store(&mut vb, at(0), &w, StoreMode::Set, b"new").unwrap();
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    assert_eq!(disk.file().unwrap().base().prepares.len(), 1);
    // The log was truncated after the old prepare and has its commit.
    let again = disk.recover(vbucket(), None);
    assert_eq!(names(&again), "k");
    assert_eq!(again.high_seqno(), Seqno(2), "it was committed");
}

#[test]
fn rollback_is_finished_after_a_crash() {
    let (mut vb, mut disk) = begun();
    set(&mut vb, at(1), "a", b"newer");
    log_and_apply(&mut vb, &mut disk);
    set(&mut vb, at(1), "d", b"1");
    let keys = vb.rollback(Seqno(2), VbUuid(9));
    assert_eq!(keys.len(), 3);
    assert!(vb.store().is_rewinding() && vb.store_mut().begin_apply().is_none());
    assert_eq!((names(&vb), vb.high_seqno()), ("b".to_owned(), Seqno(2)));
    let not_logged = disk.clone().recover(vbucket(), None);
    assert_eq!(names(&not_logged), "a b c");
    disk.log(&mut vb, usize::MAX);

    let mut log_only = disk.clone();
    let again = log_only.recover(vbucket(), None);
    assert_eq!(names(&again), "a b");
    assert_eq!(
        (again.high_seqno(), again.applied_seqno()),
        (Seqno(2), Seqno(2))
    );
    assert_eq!(
        again.failover().entries(),
        [(VbUuid(9), Seqno(2)), (VbUuid(0xabc), Seqno(0))]
    );
    assert_eq!(
        log_only.file().unwrap().high,
        Seqno(2),
        "the file was rewound"
    );

    disk.rewind(Seqno(2), &vb);
    vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
    let history = vb.history_id();
    for item in disk.file().unwrap().documents.values() {
        vb.store_mut().warm(history, item.clone());
    }
    assert_eq!(get(&mut vb, at(2), "a").unwrap(), b"1", "its older version");
    set(&mut vb, at(2), "e", b"1");
    log_and_apply(&mut vb, &mut disk);
    let again = disk.recover(vbucket(), None);
    assert_eq!(names(&again), "a b e");
    assert_eq!(again.unapplied().items, 0, "all of it is in the file");
}

#[test]
fn rollback_returns_ambiguous_and_restores_open_prepares() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    let (k, l) = (key("k"), key("l"));
    let w = durable(&k, PersistToMajority, 1);
    store(&mut vb, at(0), &w, StoreMode::Set, b"x").unwrap();
    log_and_apply(&mut vb, &mut disk);
    log_and_apply(&mut vb, &mut disk);
    assert_eq!(results(&mut vb).len(), 1);
    let w = durable(&l, PersistToMajority, 2);
    store(&mut vb, at(0), &w, StoreMode::Set, b"y").unwrap();
    // Prepared at 1, committed at 2, prepared at 3. The rollback goes to 1.
    vb.rollback(Seqno(1), VbUuid(9));
    assert_eq!(results(&mut vb), [(2, Err(Status::SyncWriteAmbiguous))]);
    assert_eq!(names(&vb), "");
    disk.log(&mut vb, usize::MAX);
    disk.rewind(Seqno(1), &vb);
    let wrong = file_base(Seqno(7), vb.failover());
    assert_eq!(
        vb.recovery().rewound(&wrong),
        Err(ReplayError::NotRewound { to: Seqno(1) })
    );
    vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
    assert_eq!((names(&vb), vb.high_seqno()), ("k".to_owned(), Seqno(2)));
    assert_eq!(vb.failover().uuid(), VbUuid(9));
}

fn file_base(high_seqno: Seqno, failover: &FailoverTable) -> kedge_vbucket::FileState {
    let mut state = vbucket().store().persisted_state();
    state.failover = failover.clone();
    kedge_vbucket::FileState {
        state,
        high_seqno,
        documents: 0,
        prepares: Vec::new(),
        collections: kedge_vbucket::FileCollections::default(),
        installed: None,
    }
}

/// The log of an earlier life, and of the reset that made place for a copied file, is not replayed over the file.
#[test]
fn reset_that_made_place_for_a_copied_file_keeps_the_file() {
    let source = FailoverTable::new(VbUuid(77));
    let reset = |uuid| {
        Change::Reset(
            Box::new(FailoverTable::new(VbUuid(uuid)).into()),
            VbState::Replica,
        )
    };
    for (installed, kept) in [
        (Some(VbUuid(9)), true),
        (Some(VbUuid(8)), false),
        (None, false),
    ] {
        let mut vb = vbucket();
        let mut base = file_base(Seqno(7), &source);
        base.installed = installed;
        vb.recovery().begin_from(base).unwrap();
        for change in [reset(5), Change::Advance(Seqno(90)), reset(9)] {
            vb.recovery().replay(change).unwrap();
        }
        if kept {
            vb.recovery().replay(Change::Advance(Seqno(7))).unwrap();
        }
        vb.recovery().replay(Change::Advance(Seqno(8))).unwrap();
        vb.recovery().finish(None).unwrap();
        let uuid = if kept { VbUuid(77) } else { VbUuid(9) };
        assert_eq!((vb.failover().uuid(), vb.high_seqno()), (uuid, Seqno(8)));
        assert_eq!(vb.applied_seqno(), Seqno(if kept { 7 } else { 0 }));
    }
}

#[test]
#[should_panic(expected = "only what is in the file")]
fn rollback_to_an_unapplied_seqno_panics() {
    let (mut vb, _) = begun();
    vb.rollback(Seqno(3), VbUuid(9));
}

#[test]
fn replay_does_not_finish_before_the_file_is_rewound() {
    let (mut vb, mut disk) = begun();
    vb.rollback(Seqno(2), VbUuid(9));
    disk.log(&mut vb, usize::MAX);
    let mut again = vbucket();
    again
        .recovery()
        .begin_from(disk.file().unwrap().base())
        .unwrap();
    for change in disk.log.iter().cloned() {
        again.recovery().replay(change).unwrap();
    }
    let rewind = again.needs_rewind().unwrap();
    assert_eq!(
        (rewind.to, rewind.branch.failover.uuid()),
        (Seqno(2), VbUuid(9))
    );
    let refused = ReplayError::NotRewound { to: Seqno(2) };
    assert_eq!(again.recovery().finish(None).unwrap_err(), refused);
    let mut alone = vbucket();
    alone
        .recovery()
        .replay(disk.log.last().unwrap().clone())
        .unwrap();
    let after = disk.log[0].clone();
    assert_eq!(
        alone.recovery().replay(after).unwrap_err(),
        refused,
        "there is no file at all"
    );
}

#[test]
fn file_may_have_lost_the_branch_of_a_rollback() {
    for again_by_reset in [false, true] {
        let (mut vb, mut disk) = begun();
        let roll = |vb: &mut VBucket, disk: &mut Disk, to, uuid| {
            disk.apply(vb, WHOLE);
            vb.rollback(to, uuid);
            disk.log(vb, usize::MAX);
            disk.rewind(to, vb);
            vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
        };
        set(&mut vb, at(0), "d", b"1");
        disk.log(&mut vb, usize::MAX);
        disk.apply(&mut vb, WHOLE);
        set(&mut vb, at(0), "e", b"1");
        disk.log(&mut vb, usize::MAX);
        roll(&mut vb, &mut disk, Seqno(4), VbUuid(20));
        set(&mut vb, at(0), "f", b"1");
        disk.log(&mut vb, usize::MAX);
        if again_by_reset {
            vb.reset(VbUuid(21));
            set(&mut vb, at(0), "g", b"1");
            log_and_apply(&mut vb, &mut disk);
        } else {
            roll(&mut vb, &mut disk, Seqno(2), VbUuid(21));
        }
        let failover = disk.file().unwrap().state.failover.clone();
        assert!(
            failover
                .entries()
                .iter()
                .all(|(uuid, _)| *uuid != VbUuid(20))
        );
        let headers = disk.headers.len();
        let again = disk.recover(vbucket(), None);
        assert_eq!(names(&again), if again_by_reset { "g" } else { "a b" });
        assert_eq!(disk.headers.len(), headers, "nothing was rewound");
    }
}

#[test]
fn branches_in_the_file_are_not_started_again() {
    let (_, mut disk) = begun();
    for uuid in [5, 6] {
        let mut vb = disk.recover(vbucket(), Some(VbUuid(uuid)));
        disk.log(&mut vb, usize::MAX);
        disk.apply(&mut vb, WHOLE);
    }
    let expected = [
        (VbUuid(6), Seqno(3)),
        (VbUuid(5), Seqno(3)),
        (VbUuid(0xabc), Seqno(0)),
    ];
    let again = disk.recover(vbucket(), None);
    assert_eq!(again.failover().entries(), expected);
    assert!(!again.unapplied().state_changed, "the file has the newest");
    disk.headers.truncate(1);
    let again = disk.recover(vbucket(), None);
    assert_eq!(again.failover().entries(), expected, "the log has it too");
    assert!(again.unapplied().state_changed);
}

#[test]
fn file_inside_a_batch_starts_its_branch_at_the_last_consistent_point() {
    let (mut vb, mut disk) = begun();
    set(&mut vb, at(0), "d", b"1");
    disk.log(&mut vb, usize::MAX);
    let half = Applying {
        max_items: 1,
        parts: 1,
        ends: false,
    };
    disk.apply(&mut vb, half);
    let with_log = disk.recover(vbucket(), Some(VbUuid(5)));
    assert_eq!(with_log.failover().entries()[0], (VbUuid(5), Seqno(4)));
    disk.log.clear();
    let without = disk.recover(vbucket(), Some(VbUuid(5)));
    assert_eq!(without.failover().entries()[0], (VbUuid(5), Seqno(2)));
}

#[test]
fn warmup_ignores_items_of_an_old_history() {
    let (mut vb, mut disk) = begun();
    let item = disk
        .file()
        .unwrap()
        .documents
        .values()
        .next()
        .unwrap()
        .clone();
    let history = vb.history_id();
    assert!(!vb.store_mut().warm(history, item.clone()), "it is there");
    vb.reset(VbUuid(9));
    assert!(!vb.store_mut().warm(history, item.clone()));
    for n in 0..4 {
        set(&mut vb, at(1), &format!("n{n}"), b"1");
    }
    log_and_apply(&mut vb, &mut disk);
    assert!(!vb.store_mut().warm(history, item), "of another history");
    assert_eq!(names(&vb), "n0 n1 n2 n3");
    let fresh = disk.recover(vbucket(), None);
    let mut cold = vbucket();
    cold.recovery()
        .begin_from(disk.file().unwrap().base())
        .unwrap();
    cold.recovery().finish(None).unwrap();
    assert_eq!(
        (cold.table().documents(), cold.high_seqno()),
        (0, fresh.high_seqno())
    );
    let history = cold.history_id();
    let newest = set(&mut cold, at(2), "n1", b"new");
    for item in disk.file().unwrap().documents.values() {
        cold.store_mut().warm(history, item.clone());
    }
    assert_eq!(names(&cold), "n0 n1 n2 n3");
    assert_eq!(meta(&mut cold, at(2), &key("n1")).seqno, newest.seqno);
}

#[test]
fn replica_keeps_prepares_open_also_after_recovery() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    let k = key("k");
    let w = durable(&k, PersistToMajority, 1);
    store(&mut vb, at(0), &w, StoreMode::Set, b"x").unwrap();
    vb.set_state(StateChange::to(VbState::Replica, VbUuid(9)));
    assert_eq!(results(&mut vb), [(1, Err(Status::SyncWriteAmbiguous))]);
    assert_eq!(vb.failover().uuid(), VbUuid(0xabc), "its branch goes on");
    disk.log(&mut vb, usize::MAX);
    vb.on_time(at(1_000));
    assert_eq!((names(&vb), vb.high_seqno()), (String::new(), Seqno(1)));
    for applies in [false, true] {
        if applies {
            disk.apply(&mut vb, WHOLE);
        }
        let again = disk.recover(vbucket(), None);
        assert_eq!(again.state(), VbState::Replica);
        assert_eq!(
            (names(&again), again.high_seqno()),
            (String::new(), Seqno(1))
        );
    }
    vb.set_state(StateChange::to(VbState::Active, VbUuid(9)));
    assert_eq!((names(&vb), vb.high_seqno()), ("k".to_owned(), Seqno(2)));
    assert_eq!(vb.failover().entries()[0], (VbUuid(9), Seqno(1)));
    disk.log(&mut vb, usize::MAX);
    let again = disk.recover(vbucket(), None);
    assert_eq!(
        (again.state(), names(&again)),
        (VbState::Active, "k".to_owned())
    );
}

#[test]
fn sweep_expires_nothing_unless_active() {
    let mut vb = vbucket();
    let k = key("k");
    set(&mut vb, at(0), "k", b"x");
    vb.at(at(0))
        .touch(&write(&k), kedge_types::Expiry(10))
        .unwrap();
    vb.set_state(StateChange::to(VbState::Replica, VbUuid(9)));
    let shards = vb.table().shard_count();
    (0..shards).for_each(|shard| vb.at(at(20)).sweep(shard));
    assert_eq!((names(&vb).as_str(), vb.high_seqno()), ("k", Seqno(2)));
    vb.set_state(StateChange::to(VbState::Active, VbUuid(9)));
    (0..shards).for_each(|shard| vb.at(at(20)).sweep(shard));
    assert_eq!((names(&vb).as_str(), vb.high_seqno()), ("", Seqno(3)));
}

#[test]
fn rollback_before_a_deletion_needs_no_file() {
    let (mut vb, mut disk) = begun();
    vb.rollback(Seqno(2), VbUuid(9));
    disk.log(&mut vb, usize::MAX);
    disk.rewind(Seqno(2), &vb);
    vb.recovery().rewound(&disk.file().unwrap().base()).unwrap();
    set(&mut vb, at(1), "d", b"1");
    disk.log(&mut vb, usize::MAX);
    drop(vb.delete_vbucket());
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    assert!(disk.file().is_none() && disk.is_deleted);
    let again = disk.recover(vbucket(), None);
    assert!(again.is_deleted() && names(&again).is_empty());
    vb.set_state(StateChange::to(VbState::Pending, VbUuid(10)));
    disk.log(&mut vb, usize::MAX);
    for applies in [false, true] {
        if applies {
            disk.apply(&mut vb, WHOLE);
        }
        let again = disk.recover(vbucket(), None);
        assert_eq!(
            (again.state(), again.is_deleted()),
            (VbState::Pending, false)
        );
        assert_eq!(again.failover().entries(), [(VbUuid(10), Seqno(0))]);
    }
}
