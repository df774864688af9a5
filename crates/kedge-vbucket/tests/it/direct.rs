//! Tests without a log: batches go directly into the file.

use crate::disk::{Disk, WHOLE, apply, documents};
use crate::tools::*;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{Change, PersistenceMode, StoreMode, VBucket};
use proptest::prelude::*;

fn direct() -> VBucket {
    vbucket_with(PersistenceMode::Direct)
}

/// Writes the next batch.
fn flush(vb: &mut VBucket, disk: &mut Disk, max: usize) {
    let to = disk.write_through(vb, max);
    vb.on_logged(to);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8),
    Delete(u8),
    Durable(u8, bool),
    Late,
    /// Flushes at most (changes, commits): this number of changes in each of this number of commits.
    Flush(usize, usize),
    Reset,
    Crash(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..4).prop_map(Step::Set),
        3 => (0u8..4).prop_map(Step::Delete),
        6 => (0u8..4, any::<bool>()).prop_map(|(key, persist)| Step::Durable(key, persist)),
        1 => Just(Step::Late),
        6 => (0usize..8, 1usize..4).prop_map(|(max, commits)| Step::Flush(max, commits)),
        1 => Just(Step::Reset),
        1 => (0usize..4, 1usize..4).prop_map(|(max, commits)| Step::Crash(max, commits)),
    ];
    proptest::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn crash_keeps_written_changes_without_a_log(steps in steps()) {
        let mut vb = direct();
        let mut disk = Disk::default();
        let mut secs = 0;
        for (turn, step) in steps.iter().enumerate() {
            let value = turn.to_string();
            let uuid = VbUuid(turn as u64 + 1);
            match step {
                Step::Set(id) => {
                    let key = key(&id.to_string());
                    let _ = store(&mut vb, at(secs), &write(&key), StoreMode::Set, value.as_bytes());
                }
                Step::Delete(id) => drop(vb.at(at(secs)).delete(&write(&key(&id.to_string())))),
                Step::Durable(id, persist) => {
                    let key = key(&id.to_string());
                    let write = durable(&key, level(*persist), 1);
                    let _ = store(&mut vb, at(secs), &write, StoreMode::Set, value.as_bytes());
                }
                Step::Late => {
                    secs += 100;
                    vb.on_time(at(secs));
                }
                Step::Flush(max, commits) => {
                    let to = disk.write_through_in(&mut vb, *max, *commits);
                    vb.on_logged(to);
                }
                Step::Reset => vb.reset(uuid),
                Step::Crash(max, commits) => {
                    disk.write_through_in(&mut vb, *max, *commits);
                    vb = disk.recover(direct(), Some(uuid));
                    let live = vb.table().iter().filter(|item| !item.is_deleted());
                    prop_assert_eq!(live.count(), disk.expected(at(secs)).len());
                    prop_assert_eq!(vb.applied_seqno(), disk.file().map_or(Seqno(0), |file| file.high));
                }
            }
            drop(vb.take_effects());
            let mut changes = disk.logged.clone();
            let mut queued: Vec<Change> = Vec::new();
            vb.changes().for_log(usize::MAX, usize::MAX, &mut queued);
            queued.into_iter().for_each(|change| apply(&mut changes, change));
            let expected = documents(&changes, at(secs));
            prop_assert_eq!(vb.documents().count(), expected.len());
            for (key, bytes) in expected {
                let found = vb.table().find(vb.table().hash(&key), &key);
                prop_assert_eq!(found.map(|item| item.value().to_vec()), Some(bytes));
            }
            prop_assert_eq!(vb.applied_seqno(), vb.persisted_seqno());
            prop_assert_eq!(vb.unapplied().items, 0);
        }
    }
}

#[test]
fn direct_batch_follows_another_only_in_the_same_file() {
    let mut vb = direct();
    let mut disk = Disk::default();
    vb.reset(VbUuid(8));
    for key in ["a", "b", "c"] {
        set(&mut vb, at(0), key, b"1");
    }
    let (first, to) = vb.store().direct_batch(1, usize::MAX);
    let first = first.unwrap();
    assert!(first.replaces_file(), "it is the first of a history");
    assert!(
        vb.store()
            .direct_batch_behind(&first, to, 1, usize::MAX)
            .is_none()
    );
    flush(&mut vb, &mut disk, 1);
    let (second, to) = vb.store().direct_batch(1, usize::MAX);
    let second = second.unwrap();
    let (third, end) = vb
        .store()
        .direct_batch_behind(&second, to, 9, usize::MAX)
        .unwrap();
    assert_eq!((second.upto(), third.upto()), (Seqno(1), Seqno(3)));
    assert!(
        vb.store()
            .direct_batch_behind(&third, end, 9, usize::MAX)
            .is_none()
    );
    vb.reset(VbUuid(9));
    set(&mut vb, at(0), "d", b"1");
    assert!(
        vb.store()
            .direct_batch_behind(&second, to, 9, usize::MAX)
            .is_none()
    );
}

#[test]
fn direct_batch_has_the_newest_versions_and_completes_persist_levels() {
    let mut vb = direct();
    let mut disk = Disk::default();
    set(&mut vb, at(0), "a", b"1");
    set(&mut vb, at(0), "a", b"2");
    persist(&mut vb, at(0), "k", b"x", 7);
    flush(&mut vb, &mut disk, usize::MAX);
    let file = disk.file().unwrap();
    assert_eq!((file.documents.len(), file.high), (1, Seqno(3)));
    assert_eq!(
        (file.state.visible, file.state.prepared),
        (Seqno(2), Seqno(3))
    );
    assert_eq!(results(&mut vb)[0].0, 7);
    assert_eq!(
        vb.store().direct_batch(1, 1).0.map(|batch| batch.upto()),
        Some(Seqno(4))
    );
    flush(&mut vb, &mut disk, usize::MAX);
    assert_eq!(disk.file().unwrap().state.completed, Seqno(3));
    assert!(vb.store().direct_batch(usize::MAX, usize::MAX).0.is_none());
}

#[test]
fn remaining_log_changes_are_applied_before_direct_writes() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    set(&mut vb, at(0), "a", b"1");
    disk.log(&mut vb, usize::MAX);
    let mut vb = disk.recover(direct(), None);
    assert_eq!((vb.unapplied().items, vb.applied_seqno()), (1, Seqno(0)));
    disk.apply(&mut vb, WHOLE);
    assert_eq!((vb.unapplied().items, vb.applied_seqno()), (0, Seqno(1)));
    set(&mut vb, at(0), "b", b"1");
    flush(&mut vb, &mut disk, usize::MAX);
    assert_eq!(disk.file().unwrap().documents.len(), 2);
}
