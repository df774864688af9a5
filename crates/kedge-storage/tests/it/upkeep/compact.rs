//! The entries that a compaction removes, and operations on a vBucket during a compaction.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use kedge_storage::{CompactPhase, FileRevision, Storage, StorageError};
use kedge_types::{Datatype, Expiry, Seqno};
use kedge_vbucket::{FileChange, Item, PersistedState};

use super::{Hooks, file, keep_all, names, purge, purged};
use crate::support::{
    Contents, VB, abort, audit, contents, dir, document, documents, keep, key, meta, open, prepare,
    state, tombstone,
};
use kedge_disk::{Disk, Fault, Rng, SimDisk};

const NOTHING: u64 = 0;
/// Longer than any test takes.
const HOUR: Duration = Duration::from_secs(3_600);

fn commit(storage: &Storage, model: &mut Contents, items: &[FileChange], state: &PersistedState) {
    storage.commit(VB, items, state, 1).expect("commit");
    for item in items {
        keep(model, item);
    }
}

fn found(storage: &Storage) -> Contents {
    contents(storage, VB).expect("a scan").expect("a file")
}

/// A vBucket with documents, tombstones, and complete and pending prepares.
fn mixed(storage: &Storage) -> (Contents, PersistedState) {
    let mut model = Contents::new();
    commit(storage, &mut model, &documents(1..=300), &state(1, 300));
    let items = [
        prepare(301, &key(1), b"over"),
        prepare(302, &key(2), b"to be aborted"),
        tombstone(303, &key(3)),
        tombstone(304, &key(4)),
        prepare(305, &key(5), b"not over"),
    ];
    let mut now = state(1, 305);
    (now.prepared, now.completed) = (Seqno(305), NOTHING.into());
    commit(storage, &mut model, &items, &now);
    let items = [
        document(306, &key(1), b"over"),
        abort(307, &key(2), 302),
        document(308, &key(4), b"again"),
        tombstone(309, &key(9)),
        tombstone(310, b"\0not there before"),
    ];
    let mut now = state(1, 310);
    (now.prepared, now.completed) = (Seqno(305), Seqno(302));
    commit(storage, &mut model, &items, &now);
    (model, now)
}

#[test]
fn compaction_syncs_at_the_requested_interval() {
    let storage = open(&SimDisk::new(1)).expect("open");
    let mut model = Contents::new();
    let items = documents(1..=5_000);
    commit(&storage, &mut model, &items, &state(1, 5_000));
    let bytes = storage.stats().written_bytes;
    let [usual, often] = [None, Some(64 << 10)].map(|sync_each_bytes| {
        let request = kedge_storage::CompactRequest {
            sync_each_bytes,
            ..keep_all()
        };
        let before = storage.stats().syncs;
        let done = storage.compact(VB, &request, &mut Hooks::default());
        done.expect("compact").expect("there is a file");
        storage.stats().syncs - before
    });
    assert!(
        often - usual >= bytes / (256 << 10),
        "{usual} and {often} of {bytes} bytes"
    );
    assert_eq!(found(&storage), model);
}

#[test]
fn compaction_removes_garbage_and_updates_counts() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (model, now) = mixed(&storage);
    let before = storage.file_figures(VB).expect("figures").expect("a file");
    let mut hooks = Hooks::default();
    let done = storage.compact(VB, &purge(), &mut hooks);
    let done = done.expect("compact").expect("a file");

    let left = purged(&model, &purge(), 302);
    assert_eq!(found(&storage), left);
    audit(&disk, VB);
    assert_eq!((done.tombstones, done.prepares, done.expired), (3, 1, 0));
    assert_eq!(done.entries, left.len() as u64);
    // That of the tombstone of key 9; the one above it is the highest of all.
    assert_eq!(done.purge_seqno, Seqno(309));
    assert_eq!(done.revision, FileRevision(2));
    assert_eq!((done.rounds, done.locked_ns), (1, 7));
    let after = storage.file_figures(VB).expect("figures").expect("a file");
    assert_eq!(done.bytes_before, before.file_bytes);
    assert_eq!(done.bytes_after, after.file_bytes);
    assert!(after.file_bytes < before.file_bytes);
    assert_eq!(after.purge_seqno, Seqno(309));
    assert_eq!(after.high_seqno, Seqno(310));
    assert_eq!(names(&disk), ["0.couch.2"]);
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.state.purge, Seqno(309));
    assert_eq!(loaded.prepares.len(), 1);

    // The history continues, and a vBucket that does not know of the purge yet does not undo it.
    let items = [document(311, &key(5), b"over"), tombstone(312, &key(7))];
    let mut model = left;
    let mut next = state(1, 312);
    (next.prepared, next.completed) = (now.prepared, now.prepared);
    commit(&storage, &mut model, &items, &next);
    audit(&disk, VB);
    let figures = storage.file_figures(VB).expect("figures").expect("a file");
    assert_eq!(figures.purge_seqno, Seqno(309));
    drop(storage);
    let storage = open(&disk).expect("open");
    assert_eq!(found(&storage), model);
}

#[test]
fn tombstones_are_purged_by_age_and_seqno() {
    let requests = [
        keep_all(),
        kedge_storage::CompactRequest {
            purge_before_seqno: Some(Seqno(304)),
            ..purge()
        },
        kedge_storage::CompactRequest {
            drop_deletes: true,
            ..keep_all()
        },
    ];
    for (request, purge_seqno) in requests.iter().zip([0, 303, 309]) {
        let disk = SimDisk::new(1);
        let storage = open(&disk).expect("open");
        let (model, _) = mixed(&storage);
        let done = storage.compact(VB, request, &mut Hooks::default());
        let done = done.expect("compact").expect("a file");
        assert_eq!(found(&storage), purged(&model, request, 302), "{request:?}");
        assert_eq!(done.purge_seqno, Seqno(purge_seqno), "{request:?}");
        audit(&disk, VB);
    }
}

#[test]
fn tombstone_without_a_date_is_purged_with_all_only() {
    let all = kedge_storage::CompactRequest {
        drop_deletes: true,
        ..purge()
    };
    for (request, entries) in [(purge(), 2), (all, 1)] {
        let storage = open(&SimDisk::new(1)).expect("open");
        let undated = kedge_vbucket::ItemMeta {
            deleted: Some(kedge_vbucket::Deletion::Explicit),
            ..meta(1)
        };
        let items = [
            FileChange::Document(Item::new(&undated, &key(1), &[])),
            document(2, &key(2), b"live"),
        ];
        storage.commit(VB, &items, &state(1, 2), 1).expect("commit");
        let done = storage.compact(VB, &request, &mut Hooks::default());
        assert_eq!(done.expect("compact").expect("a file").entries, entries);
    }
}

#[test]
fn expired_documents_are_reported_and_kept() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let expiring = |seqno, key: &[u8], datatype, value: &[u8]| {
        let meta = kedge_vbucket::ItemMeta {
            expiry: Expiry(super::DELETED - 1),
            datatype,
            ..meta(seqno)
        };
        FileChange::Document(Item::new(&meta, key, &[value]))
    };
    let attributes = b"\0\0\0\x0e\0\0\0\x0a_sync\0{}1\0body";
    let attributes = &attributes[..];
    let items = [
        document(1, &key(1), b"for ever"),
        expiring(2, &key(2), Datatype::RAW, b"value"),
        expiring(3, &key(3), Datatype::XATTR, attributes),
    ];
    let mut model = Contents::new();
    commit(&storage, &mut model, &items, &state(1, 3));
    let mut hooks = Hooks::default();
    let done = storage.compact(VB, &purge(), &mut hooks);
    assert_eq!(done.expect("compact").expect("a file").expired, 2);
    assert_eq!(
        hooks.expired,
        [
            (key(2), Seqno(2), None),
            (key(3), Seqno(3), Some(attributes.to_vec())),
        ]
    );
    assert_eq!(found(&storage), model);
}

#[test]
fn compaction_without_a_file_does_nothing() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let done = storage.compact(VB, &purge(), &mut Hooks::default());
    assert_eq!(done.expect("compact"), None);
    assert_eq!(names(&disk), [""; 0]);
}

#[test]
fn commits_during_compaction_are_in_the_new_file() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (model, _) = mixed(&storage);
    let model = RefCell::new(purged(&model, &purge(), 302));
    let next = Cell::new(311);
    let mut hooks = Hooks::on_bytes(|_| {
        // New documents, changed ones, and some whose old version was removed.
        let seqno = next.get();
        let items = [
            document(seqno, &key(9), b"again"),
            document(seqno + 1, &key(seqno), b"new"),
            tombstone(seqno + 2, &key(10)),
        ];
        let mut now = state(1, seqno + 2);
        (now.prepared, now.completed) = (Seqno(305), Seqno(302));
        commit(&storage, &mut model.borrow_mut(), &items, &now);
        next.set(seqno + 3);
    });
    let done = storage.compact(VB, &purge(), &mut hooks);
    let done = done.expect("compact").expect("a file");
    drop(hooks);
    assert!(next.get() > 313, "there were commits in several rounds");
    assert!(done.rounds >= 1);
    audit(&disk, VB);
    assert_eq!(found(&storage), *model.borrow());
    drop(storage);
    assert_eq!(found(&open(&disk).expect("open")), *model.borrow());
}

#[test]
fn failed_commits_during_compaction_are_not_in_the_new_file() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let storage = open(&disk).expect("open");
        let (model, _) = mixed(&storage);
        let model = RefCell::new(purged(&model, &purge(), 302));
        let next = Cell::new(311);
        let mut hooks = Hooks::on_bytes(|_| {
            // The write of the whole block, or that of the byte that makes it a header, which may have been written.
            let number = if seed % 2 == 0 { 1 } else { 3 };
            disk.fail_operation(disk.operations() + number, Fault::Io);
            let seqno = next.get();
            let mut now = state(1, seqno + 1);
            (now.prepared, now.completed) = (Seqno(305), Seqno(302));
            let items = [
                document(seqno, &key(20), b"never there"),
                document(seqno + 1, &key(seqno), b"never there"),
            ];
            let error = storage.commit(VB, &items, &now, 1).expect_err("a fault");
            assert!(!error.is_fatal(), "{error}");
            if seed % 4 < 2 {
                // The same seqnos for other items, because the first were never acknowledged.
                let items = [document(seqno, &key(21), b"there")];
                let mut now = state(1, seqno);
                (now.prepared, now.completed) = (Seqno(305), Seqno(302));
                commit(&storage, &mut model.borrow_mut(), &items, &now);
                next.set(seqno + 1);
            }
        });
        let done = storage.compact(VB, &purge(), &mut hooks);
        done.expect("compact").expect("a file");
        drop(hooks);
        assert_eq!(found(&storage), *model.borrow(), "seed {seed}");
        audit(&disk, VB);
        drop(storage);
        assert_eq!(found(&open(&disk).expect("open")), *model.borrow());
    }
}

#[test]
fn compaction_ends_despite_constant_commits() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (model, _) = mixed(&storage);
    let model = RefCell::new(model);
    let next = Cell::new(311);
    let paced = Cell::new(0);
    let mut hooks = Hooks::on_stop(|| {
        let figures = storage.compaction(VB).expect("it runs");
        // Commits are impossible here: they would wait forever.
        if figures.phase != CompactPhase::Finish {
            let (first, last) = (next.get(), next.get() + 399);
            let mut now = state(1, last);
            (now.prepared, now.completed) = (Seqno(305), Seqno(302));
            let items = documents(first..=last);
            commit(&storage, &mut model.borrow_mut(), &items, &now);
            next.set(last + 1);
        }
        false
    });
    hooks.on_bytes = Box::new(|_| paced.set(paced.get() + 1));
    let done = storage.compact(VB, &keep_all(), &mut hooks);
    let done = done.expect("compact").expect("a file");
    drop(hooks);
    assert_eq!(done.rounds, 10);
    // The main pass and two rounds: after these it was clear that they do not become shorter.
    assert!((1..10).contains(&paced.get()), "{}", paced.get());
    audit(&disk, VB);
    let model = purged(&model.borrow(), &keep_all(), 302);
    assert_eq!(found(&storage), model);
}

#[test]
fn compaction_can_be_cancelled_at_any_point() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (mut model, _) = mixed(&storage);
    // Enough for many callbacks.
    let mut rng = Rng::new(1);
    let items: Vec<_> = (311..=600)
        .map(|seqno| {
            let value: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
            document(seqno, &key(seqno), &value)
        })
        .collect();
    let mut now = state(1, 600);
    (now.prepared, now.completed) = (Seqno(305), Seqno(302));
    commit(&storage, &mut model, &items, &now);
    let before = disk.used_bytes();
    storage.set_open_files(&kedge_storage::StorageConfig {
        keep_files_open: false,
        ..crate::support::config(4)
    });
    let mut stopped = 0;
    loop {
        let mut left = stopped;
        let mut hooks = Hooks::on_stop(|| {
            left -= 1;
            left < 0
        });
        let Err(error) = storage.compact(VB, &purge(), &mut hooks) else {
            break;
        };
        assert!(error.is_stopped(), "{error}");
        assert!(!error.is_fatal() && !error.is_damage());
        stopped += 1;
        assert_eq!(names(&disk), ["0.couch.1"]);
        assert_eq!(disk.used_bytes(), before);
        assert_eq!(storage.stats().handles, 0);
        assert_eq!(storage.compaction(VB), None);
        assert_eq!(found(&storage), model);
    }
    assert!(stopped > 15, "{stopped}");
    assert_eq!(found(&storage), purged(&model, &purge(), 302));
    assert_eq!(storage.stats().handles, 0);
}

#[test]
fn failed_compaction_leaves_the_old_file_only() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (model, _) = mixed(&storage);
    const FAULTS: [Fault; 2] = [Fault::NoSpace, Fault::Io];
    let mut number = 1;
    loop {
        let attempt = disk.fork();
        let storage = open(&attempt).expect("open");
        number += 1;
        let fault = FAULTS[(number % 2) as usize];
        let failing = attempt.operations() + number / 2;
        attempt.fail_operation(failing, fault);
        let done = storage.compact(VB, &purge(), &mut Hooks::default());
        let has_failed = attempt.operations() >= failing;
        attempt.clear_faults();
        match done {
            Ok(_) => {
                // The catalog entry or the removal of the old file may have failed, which does no harm.
                let removed = names(&attempt).len() == 1;
                assert_eq!(storage.stats().files_left, u64::from(!removed));
                if !has_failed {
                    assert!(removed);
                    break;
                }
            }
            Err(error) if error.is_fatal() => {
                // Both files may exist, or the new one in place of the old one, and a crash may remove either.
                let is_decided = names(&attempt) == ["0.couch.1"];
                let committed = storage.commit(VB, &[], &state(1, 310), 1);
                assert_eq!(committed.is_ok(), is_decided, "operation {number}: {error}");
                drop(storage);
                attempt.crash(number);
                let storage = open(&attempt).expect("open");
                let left = found(&storage);
                assert!(left == model || left == purged(&model, &purge(), 302));
            }
            Err(error) => {
                let is_full = FAULTS[(number % 2) as usize] == Fault::NoSpace;
                assert_eq!(error.is_no_space(), is_full, "{error}");
                assert_eq!(
                    names(&attempt),
                    ["0.couch.1"],
                    "operation {number}: {error}"
                );
                assert_eq!(found(&storage), model);
                assert_eq!(storage.stats().handles, 1, "the one that is kept open");
                // It is not even closed for writing.
                storage
                    .commit(VB, &[], &state(1, 310), 1)
                    .expect("there is room again");
            }
        }
    }
    assert!(number > 18, "{number}");
}

#[test]
fn remains_of_an_earlier_compaction_do_no_harm() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let (model, _) = mixed(&storage);
    let left = dir().join("0.couch.1.compact");
    disk.create(&left).expect("create");
    let done = storage.compact(VB, &purge(), &mut Hooks::default());
    done.expect("compact").expect("a file");
    assert_eq!(names(&disk), ["0.couch.2"]);
    assert_eq!(found(&storage), purged(&model, &purge(), 302));
}

#[test]
fn exclusive_operations_on_a_file_exclude_each_other() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    mixed(&storage);
    let tried = Cell::new(false);
    let mut hooks = Hooks::on_bytes(|_| {
        if !tried.replace(true) {
            let error = storage.compact(VB, &purge(), &mut Hooks::default());
            let error = error.expect_err("there is one");
            assert!(matches!(error, StorageError::Busy { vb: VB }), "{error}");
        }
    });
    storage.compact(VB, &purge(), &mut hooks).expect("compact");
    drop(hooks);
    assert!(tried.get());
}

#[test]
fn exclusive_operation_cancels_a_compaction() {
    type Operation = fn(&Storage);
    let operations: [Operation; 3] = [
        |storage| storage.remove(VB).expect("remove"),
        |storage| storage.replace(VB, &state(2, 0), 1).expect("replace"),
        |storage| {
            let rolled_back = storage.rollback(VB, Seqno(309), 1, |old, _| old.clone());
            rolled_back.expect("roll back");
        },
    ];
    for operation in operations {
        let disk = SimDisk::new(1);
        let storage = open(&disk).expect("open");
        mixed(&storage);
        std::thread::scope(|scope| {
            let mut begun = None;
            let mut hooks = Hooks::on_bytes(|_| {
                let storage = &storage;
                begun.get_or_insert_with(|| scope.spawn(move || operation(storage)));
                // An operation that waits for the file ends it.
                while storage.pause(VB, HOUR, || true) {}
            });
            let error = storage.compact(VB, &purge(), &mut hooks);
            drop(hooks);
            assert!(error.expect_err("stopped").is_stopped());
            begun.expect("it was begun").join().expect("done");
        });
        let left = names(&disk)
            .into_iter()
            .filter(|name| name.ends_with("compact"));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn compaction_progress_is_visible_to_other_threads() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    let value = vec![7; 4000];
    let items: Vec<_> = (1..=500)
        .map(|seqno| document(seqno, &key(seqno), &value))
        .collect();
    storage
        .commit(VB, &items, &state(1, 500), 1)
        .expect("commit");
    let bytes = storage.file_figures(VB).expect("figures").expect("a file");
    assert_eq!(storage.compaction(VB), None);
    let last = Cell::new((0, 0, 0));
    let mut hooks = Hooks::on_bytes(|_| {
        let figures = storage.compaction(VB).expect("it runs");
        assert_eq!(figures.entries_total, 500);
        assert_eq!(figures.file_bytes, bytes.file_bytes);
        let now = (figures.entries, figures.bytes_read, figures.bytes_written);
        let before = last.replace(now);
        assert!(now.0 >= before.0 && now.1 >= before.1 && now.2 >= before.2);
    });
    storage.compact(VB, &purge(), &mut hooks).expect("compact");
    drop(hooks);
    assert!(last.get().0 > 400, "{:?}", last.get());
    assert_eq!(storage.compaction(VB), None);
    assert!(file(&storage).ends_with("0.couch.2"));
}

#[test]
fn stop_cancels_all_compactions() {
    let disk = SimDisk::new(1);
    let storage = open(&disk).expect("open");
    mixed(&storage);
    std::thread::scope(|scope| {
        let mut hooks = Hooks::on_bytes(|_| {
            scope.spawn(|| storage.stop());
            storage.pause(VB, HOUR, || true);
        });
        let error = storage.compact(VB, &purge(), &mut hooks);
        drop(hooks);
        assert!(error.expect_err("stopped").is_stopped());
    });
    assert_eq!(names(&disk), ["0.couch.1"]);
}
