//! Rollbacks: their targets, the reported changes, and the state after a crash.

use kedge_disk::{Fault, SimDisk};
use kedge_storage::{RollbackOutcome, RollbackResult, Storage};
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{FileChange, Item, PersistedState};

use super::{Hooks, keep_all};
use crate::support::{
    Contents, VB, audit, contents, document, documents, fill, keep, key, open, prepare, state,
    tombstone,
};

/// Returns the state after a new branch.
fn branch(old: &PersistedState, seqno: Seqno) -> PersistedState {
    let mut new = old.clone();
    new.failover.begin(VbUuid(99), seqno);
    (new.snap_start, new.snap_end) = (seqno, seqno);
    new
}

/// Writes three commits. Returns the contents of the file after each.
fn history(storage: &Storage) -> Vec<(u64, Contents)> {
    let commits: [(u64, Vec<FileChange>); 3] = [
        (100, documents(1..=100)),
        (
            104,
            vec![
                document(101, &key(1), b"changed"),
                tombstone(102, &key(2)),
                prepare(103, &key(3), b"prepared"),
                document(104, b"\0new", b"new"),
            ],
        ),
        (
            107,
            vec![
                document(105, &key(1), b"changed again"),
                document(106, &key(2), b"back"),
                document(107, b"\0newer", b"newer"),
            ],
        ),
    ];
    let mut model = Contents::new();
    let mut history = Vec::new();
    for (high, items) in commits {
        let mut now = state(1, high);
        now.prepared = Seqno(if high >= 103 { 103 } else { 0 });
        storage.commit(VB, &items, &now, high).expect("commit");
        items.iter().for_each(|item| keep(&mut model, item));
        history.push((high, model.clone()));
    }
    history
}

fn roll_back(storage: &Storage, to: u64) -> Option<RollbackResult> {
    match storage
        .rollback(VB, Seqno(to), 1, branch)
        .expect("roll back")
    {
        RollbackOutcome::RolledBack(done) => Some(done),
        RollbackOutcome::ResetNeeded => None,
    }
}

fn found(storage: &Storage) -> Contents {
    contents(storage, VB).expect("a scan").expect("a file")
}

#[test]
fn rollback_restores_the_file_and_reports_changed_documents() {
    for (to, point) in [(107, 2), (106, 1), (105, 1), (104, 1), (103, 0), (100, 0)] {
        let disk = SimDisk::new(1);
        let storage = open(&disk).expect("open");
        let history = history(&storage);
        let done = roll_back(&storage, to).expect("enough stays");
        let (seqno, model) = &history[point];
        assert_eq!(done.seqno, Seqno(*seqno));
        assert_eq!(found(&storage), *model);
        audit(&disk, VB);
        // Each document that differs was reported with its restored version, and none twice.
        let newest = &history[2].1;
        let told: Vec<&[u8]> = done.changed.iter().map(|changed| &*changed.key).collect();
        for ((key, committed), kept) in newest {
            let changed = *committed && kept.meta.seqno > Seqno(*seqno);
            assert_eq!(
                told.iter().filter(|told| *told == key).count(),
                usize::from(changed)
            );
        }
        for changed in &done.changed {
            let old = model.get(&(changed.key.to_vec(), true));
            assert_eq!(
                changed.old.as_ref().map(Item::meta),
                old.map(|kept| kept.meta)
            );
            assert_eq!(
                changed.old.as_ref().map(Item::value),
                old.map(|kept| &*kept.value)
            );
        }
        // The prepare is pending again at its place.
        let loaded = storage.load(VB).expect("load").expect("a file");
        assert_eq!(loaded.high_seqno, done.seqno);
        assert_eq!(loaded.prepares.len(), usize::from(*seqno >= 103));
        assert_eq!(loaded.state.failover.entries()[0], (VbUuid(99), done.seqno));
        assert_eq!(loaded.state.failover.entries()[1], (VbUuid(1), Seqno(0)));
        // The history continues with seqnos that were used before.
        let item = document(seqno + 1, b"\0another", b"branch");
        let mut now = loaded.state.clone();
        (now.snap_start, now.snap_end) = (Seqno(seqno + 1), Seqno(seqno + 1));
        storage
            .commit(VB, std::slice::from_ref(&item), &now, 1)
            .expect("commit");
        let mut model = model.clone();
        keep(&mut model, &item);
        assert_eq!(found(&storage), model);
        audit(&disk, VB);
        drop(storage);
        assert_eq!(found(&open(&disk).expect("open")), model);
    }
}

#[test]
fn rollback_without_a_target_changes_nothing() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    assert!(roll_back(&storage, 5).is_none(), "there is no file");
    let history = history(&storage);
    for to in [0, 1, 99] {
        let before = disk.operations();
        assert!(roll_back(&storage, to).is_none(), "{to}");
        assert_eq!(disk.operations(), before, "the file was not touched");
    }
    assert_eq!(found(&storage), history[2].1);
    // Compaction leaves no older commits.
    let compacted = storage.compact(VB, &keep_all(), &mut Hooks::default());
    compacted.expect("compact");
    assert!(roll_back(&storage, 106).is_none());
    assert!(roll_back(&storage, 107).is_some());
}

#[test]
fn rollback_of_more_than_half_needs_a_reset() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let commit = |first, last| {
        let items = documents(first..=last);
        storage
            .commit(VB, &items, &state(1, last), 1)
            .expect("commit");
    };
    commit(1, 100);
    commit(101, 200);
    commit(201, 201);
    assert!(roll_back(&storage, 100).is_none(), "101 of 201");
    let disk2 = disk.fork();
    commit(202, 202);
    assert!(roll_back(&storage, 200).is_some(), "2 of 202");
    assert!(roll_back(&storage, 100).is_some(), "100 of 200");
    drop(storage);
    let storage = open(&disk2).expect("open");
    assert!(roll_back(&storage, 100).is_none(), "101 of 201");
}

#[test]
fn rollback_targets_consistent_commits_only() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    // A batch in three parts: key 1 was changed twice, and only its newest version is written.
    fill(&storage, VB, 1..=50, 1);
    let mut now = state(1, 50);
    now.snap_end = Seqno(56);
    let parts = [
        vec![
            document(52, &key(2), b"two"),
            document(53, &key(3), b"three"),
        ],
        vec![document(55, &key(4), b"four")],
        vec![document(56, &key(1), b"one")],
    ];
    for part in &parts {
        storage.commit(VB, part, &now, 1).expect("commit");
    }
    let done = roll_back(&storage, 55).expect("enough stays");
    assert_eq!(done.seqno, Seqno(50));
    assert_eq!(done.changed.len(), 4);
}

#[test]
fn rollback_is_atomic_in_a_crash() {
    for seed in 0..20 {
        let base = SimDisk::new(seed);
        let storage = open(&base).expect("open");
        let history = history(&storage);
        drop(storage);
        for number in 1.. {
            let disk = base.fork();
            let storage = open(&disk).expect("open");
            disk.fail_operation(disk.operations() + number, Fault::PowerLoss);
            let done = storage.rollback(VB, Seqno(105), 1, branch);
            drop(storage);
            disk.crash(seed * 1000 + number);
            let storage = open(&disk).expect("open");
            let now = found(&storage);
            audit(&disk, VB);
            if done.is_ok() {
                assert_eq!(now, history[1].1);
                assert!(number > 3, "it took {number} operations");
                break;
            }
            let loaded = storage.load(VB).expect("load").expect("a file");
            let is_new = loaded.state.failover.uuid() == VbUuid(99);
            assert_eq!(
                now,
                history[if is_new { 1 } else { 2 }].1,
                "operation {number}"
            );
            roll_back(&storage, 105).expect("enough stays");
            assert_eq!(found(&storage), history[1].1);
        }
    }
}
