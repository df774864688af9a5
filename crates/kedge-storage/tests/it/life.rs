//! The life of one file: the contents and the costs of its commits, and open handles.

use std::ops::Bound;
use std::sync::Arc;

use kedge_couchstore::kv::{CheckpointKind, VBSTATE_NAME, VbStateDocument, VbStateKind};
use kedge_couchstore::{Options, Snapshot};
use kedge_disk::{Disk, SimDisk};
use kedge_storage::{FileRecordKind, FileRevision, Storage, StorageConfig};
use kedge_types::{Cas, CollectionId, RevSeqno, Seqno, VbId, VbUuid};
use kedge_vbucket::{FailoverTable, PersistedState, SnapshotKind, VbState};

use crate::support::{
    VB, abort, audit, config, contents, dir, document, documents, fill, key, names, open,
    open_with, path_of, prepare, state, tombstone,
};

fn vbstate(disk: &SimDisk) -> VbStateDocument {
    let path = path_of(disk, VB).expect("a file");
    let snapshot = Snapshot::open(disk, &path, &Options::default()).expect("open");
    let json = snapshot
        .local(VBSTATE_NAME)
        .expect("a look-up")
        .expect("a state");
    VbStateDocument::decode(&json, snapshot.header().update_seqno()).expect("a state")
}

#[test]
fn commit_takes_two_syncs_and_a_new_file_one_directory_sync() {
    for keep_files_open in [true, false] {
        let disk = SimDisk::new(1);
        let config = StorageConfig {
            keep_files_open,
            ..config(4)
        };
        let storage = open_with(&disk, &config).expect("open");
        let syncs = |storage: &Storage| {
            let stats = storage.stats();
            (stats.syncs, stats.directory_syncs)
        };
        fill(&storage, VB, 1..=10, 1);
        // One of these is from the opening of the directory.
        assert_eq!(syncs(&storage), (2, 2));
        for n in 2..=20 {
            fill(&storage, VB, n * 10 + 1..=n * 10 + 10, n);
            assert_eq!(syncs(&storage), (2 * n, 2));
        }
        storage.make_durable(VB).expect("it is");
        assert_eq!(syncs(&storage), (40, 2));
        let kept = u64::from(keep_files_open);
        assert_eq!(
            (storage.stats().kept_files, storage.stats().handles),
            (kept, kept)
        );
        drop(storage);
        // The header that is found is synced once, before the first commit after it.
        let storage = open_with(&disk, &config).expect("open");
        fill(&storage, VB, 500..=500, 1);
        fill(&storage, VB, 501..=501, 1);
        assert_eq!(syncs(&storage), (5, 1));
    }
}

#[test]
fn open_file_is_opened_once_with_little_memory() {
    let storage = open(&SimDisk::new(1)).expect("open");
    for n in 0..200 {
        let vb = VbId((n % 4) as u16);
        fill(&storage, vb, n * 50 + 1..=n * 50 + 50, n);
        let key = key(n * 50 + 7);
        let found = storage.get_many(vb, &[&key]).expect("a look-up");
        assert!(found[0].is_some());
    }
    let stats = storage.stats();
    // Two for each: one for its creation, and one under its name.
    assert_eq!((stats.opened, stats.handles, stats.kept_files), (8, 4, 4));
    assert_eq!((stats.commits, stats.committed_items), (200, 10_000));
    assert!(
        stats.kept_bytes < 4 * 64 * 1024,
        "{} bytes",
        stats.kept_bytes
    );
    storage.set_open_files(&StorageConfig {
        max_open_files: 1,
        ..config(4)
    });
    let stats = storage.stats();
    assert_eq!(
        (stats.handles, stats.kept_files, stats.evictions),
        (1, 1, 3)
    );
}

/// An operation on a vBucket's file.
type Use = fn(&Storage);

/// All operations that read a file, and the number of file uses of each, from the second time on.
const READERS: [(&str, Use, u64); 10] = [
    (
        "get_many",
        |it| drop(it.get_many(VB, &[&key(7)]).unwrap()),
        1,
    ),
    ("locate", |it| drop(it.locate(VB, &key(7))), 1),
    ("keys", |it| drop(it.keys(VB, b"", 9).unwrap()), 1),
    ("remember_keys", |it| it.remember_keys(VB).unwrap(), 2),
    ("load", |it| drop(it.load(VB).unwrap()), 1),
    // The header is in memory.
    (
        "file_figures",
        |it| assert!(it.file_figures(VB).unwrap().is_some()),
        0,
    ),
    (
        "scan",
        |it| assert_eq!(it.scan(VB, .., true).unwrap().unwrap().count(), 50),
        1,
    ),
    (
        "scan_view",
        |it| {
            let view = it.view(VB).unwrap().unwrap();
            assert_eq!(it.scan_view(&view, .., false).unwrap().count(), 50);
        },
        1,
    ),
    (
        "scan_collections",
        |it| {
            let view = it.view(VB).unwrap().unwrap();
            let scan = it.scan_collections(&view, &[CollectionId::DEFAULT], true);
            assert_eq!(scan.unwrap().count(), 50);
        },
        1,
    ),
    (
        "scan_keys",
        |it| {
            let view = it.view(VB).unwrap().unwrap();
            let all = (Bound::Unbounded, Bound::Unbounded);
            assert_eq!(it.scan_keys(&view, all).unwrap().count(), 50);
        },
        1,
    ),
];

#[test]
fn all_reads_share_one_handle() {
    let disk = SimDisk::new(1);
    fill(&open(&disk).expect("open"), VB, 1..=50, 1);
    for (first, read_first, _) in READERS {
        let storage = open(&disk).expect("open");
        if first == "locate" {
            // It opens no file.
            read_first(&storage);
            assert_eq!(storage.stats().opened, 0);
            continue;
        }
        read_first(&storage);
        let stats = storage.stats();
        assert_eq!((stats.opened, stats.misses), (1, 1), "{first}");
        // The metadata of the file are known after this.
        storage.load(VB).expect("load");
        // It stays open while others use it.
        let scan = storage.scan(VB, .., true).expect("a scan").expect("a file");
        for (then, read, needs) in READERS {
            let before = storage.stats();
            read(&storage);
            let after = storage.stats();
            assert_eq!(after.hits, before.hits + needs, "{then} after {first}");
            assert_eq!(
                (after.opened, after.handles, after.misses),
                (1, 1, 1),
                "{then} after {first}"
            );
        }
        assert_eq!(scan.count(), 50);
    }
}

#[test]
fn newer_documents_complete_prepares_within_a_disk_snapshot() {
    let disk = SimDisk::new(2);
    let storage = open(&disk).expect("open");
    let middle = PersistedState {
        snap_start: Seqno(2),
        snap_end: Seqno(9),
        snap_kind: SnapshotKind::Disk,
        prepared: Seqno(3),
        ..state(5, 4)
    };
    let items = [
        document(1, &key(2), b"old"),
        prepare(2, &key(1), b"one"),
        prepare(3, &key(2), b"two"),
        document(4, &key(1), b"newer"),
    ];
    storage.commit(VB, &items, &middle, 1).expect("commit");
    let said = vbstate(&disk);
    assert_eq!(said.checkpoint, CheckpointKind::Disk);
    assert_eq!(said.high_prepared_seqno, Seqno(0), "not before its end");
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.state, middle);
    assert_eq!(loaded.superseded, [Seqno(2)]);
    let base = loaded.into_file_state();
    assert_eq!(base.prepares.len(), 1);
    assert_eq!(base.prepares[0].value(), b"two");
}

#[test]
fn persisted_state_describes_vbucket_and_file() {
    let disk = SimDisk::new(2);
    let storage = open(&disk).expect("open");
    let mut failover = FailoverTable::new(VbUuid(5));
    failover.begin(VbUuid(6), Seqno(2));
    let first = PersistedState {
        state: VbState::Replica,
        failover: failover.clone(),
        max_cas: Cas(u64::MAX - 1),
        snap_start: Seqno(1),
        snap_end: Seqno(9),
        snap_kind: SnapshotKind::Memory,
        visible: Seqno(3),
        prepared: Seqno(5),
        completed: Seqno(4),
        max_deleted_rev: RevSeqno(77),
        purge: Seqno(2),
        may_have_xattrs: false,
        catch_up: None,
    };
    let items = [
        document(1, &key(1), b"one"),
        prepare(4, &key(2), b"two"),
        prepare(5, &key(3), b"three"),
    ];
    storage.commit(VB, &items, &first, 1).expect("commit");
    let said = vbstate(&disk);
    assert_eq!(said.state, VbStateKind::Replica);
    assert_eq!(said.max_deleted_seqno, Seqno(77));
    assert_eq!(
        (said.prepared_seqno, said.completed_seqno),
        (Seqno(5), Seqno(4))
    );
    assert_eq!(
        (said.high_prepared_seqno, said.on_disk_prepares),
        (Seqno(5), 2)
    );
    assert_eq!((said.version, said.namespaces_supported), (4, true));
    assert!(said.build.starts_with("kedge "), "{}", said.build);
    assert!(!said.might_contain_xattrs);
    drop(storage);
    let storage = open(&disk).expect("open");
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.state, first);
    assert_eq!(
        (loaded.documents, loaded.tombstones, loaded.high_seqno),
        (1, 0, Seqno(5))
    );
    assert_eq!(loaded.prepares.len(), 1, "the one that is not over");
    assert_eq!(loaded.prepares[0].value(), b"three");
    assert_eq!(loaded.prepares[0].meta(), items[2].item().meta());
    let base = storage
        .load(VB)
        .expect("load")
        .expect("a file")
        .into_file_state();
    assert_eq!(
        (&base.state, base.high_seqno, base.prepares.len()),
        (&first, Seqno(5), 1)
    );
    // A commit of a vBucket that does not know of a purge does not lower the file's purge seqno.
    let items = [
        document(6, &key(3), b"three"),
        abort(7, &key(2), 4),
        tombstone(8, &key(1)),
    ];
    let second = PersistedState {
        purge: Seqno(1),
        completed: Seqno(5),
        ..first
    };
    let committed = storage.commit(VB, &items, &second, 2).expect("commit");
    let was_live: Vec<bool> = (0..3).map(|index| committed.was_live(index)).collect();
    assert_eq!(was_live, [false, true, true]);
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.state.purge, Seqno(2));
    assert_eq!(
        (loaded.documents, loaded.tombstones, loaded.prepares.len()),
        (1, 2, 0)
    );
    assert_eq!(vbstate(&disk).on_disk_prepares, 1);
    audit(&disk, VB);
}

#[test]
fn commit_may_have_a_state_and_no_items() {
    let disk = SimDisk::new(3);
    let storage = open(&disk).expect("open");
    storage.commit(VB, &[], &state(1, 0), 1).expect("commit");
    assert_eq!(
        contents(&storage, VB)
            .expect("a scan")
            .map(|found| found.len()),
        Some(0)
    );
    fill(&storage, VB, 1..=2, 2);
    let committed = storage.commit(VB, &[], &state(9, 2), 3).expect("commit");
    assert_eq!(committed.high_seqno, Seqno(2));
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.state.failover.uuid(), VbUuid(9));
    audit(&disk, VB);
}

#[test]
fn commit_rejects_old_seqnos_without_an_effect() {
    let storage = open(&SimDisk::new(4)).expect("open");
    fill(&storage, VB, 1..=20, 1);
    storage.load(VB).expect("load").expect("a file");
    let before = storage.stats();
    for refused in [
        documents(20..=30),
        [documents(21..=21), documents(21..=21)].concat(),
    ] {
        let error = storage
            .commit(VB, &refused, &state(1, 30), 2)
            .expect_err("refused");
        assert!(
            !error.is_damage() && !error.is_fatal() && !error.is_no_space(),
            "{error}"
        );
    }
    let after = storage.stats();
    assert_eq!(
        (before.opened, before.written_bytes),
        (after.opened, after.written_bytes)
    );
    fill(&storage, VB, 21..=30, 2);
    assert_eq!(
        contents(&storage, VB)
            .expect("a scan")
            .expect("a file")
            .len(),
        30
    );
}

#[test]
fn revisions_ascend_and_old_ones_are_removed() {
    let disk = SimDisk::new(5);
    let storage = open(&disk).expect("open");
    let revision = || {
        storage
            .file_figures(VB)
            .expect("figures")
            .map(|file| file.revision)
    };
    assert_eq!(revision(), None);
    fill(&storage, VB, 1..=2, 1);
    assert_eq!(revision(), Some(FileRevision(1)));
    storage.replace(VB, &state(2, 0), 1).expect("replace");
    assert_eq!(revision(), Some(FileRevision(2)));
    storage.remove(VB).expect("remove");
    storage.remove(VB).expect("there is none");
    assert_eq!(revision(), None);
    storage
        .commit(VB, &documents(1..=2), &state(3, 2), 1)
        .expect("commit");
    assert_eq!(revision(), Some(FileRevision(3)));
    assert_eq!(names(&disk), ["0.couch.3"]);
    drop(storage);
    let storage = open(&disk).expect("open");
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.revision, FileRevision(3));
}

#[test]
fn scan_continues_when_its_file_is_replaced_or_removed() {
    let disk = SimDisk::new(6);
    let storage = open(&disk).expect("open");
    fill(&storage, VB, 1..=500, 1);
    let mut scan = storage
        .scan(VB, Seqno(101).., true)
        .expect("a scan")
        .expect("a file");
    assert_eq!(
        (scan.high_seqno(), scan.purge_seqno()),
        (Seqno(500), Seqno(0))
    );
    let without = storage
        .scan(VB, Seqno(400)..=Seqno(450), false)
        .expect("a scan");
    assert_eq!(storage.stats().scans, 2);
    assert_eq!(
        scan.next().expect("a record").expect("sound").meta().seqno,
        Seqno(101)
    );
    storage.replace(VB, &state(2, 0), 2).expect("replace");
    storage
        .commit(VB, &documents(1..=2), &state(2, 2), 3)
        .expect("commit");
    storage.remove(VB).expect("remove");
    let seqnos = scan.map(|record| record.expect("sound").meta().seqno.get());
    assert!(seqnos.eq(102..=500));
    for record in without.expect("a file") {
        let record = record.expect("sound");
        assert_eq!(
            (record.kind(), record.value()),
            (FileRecordKind::Document, None)
        );
        assert!(record.item().is_none() && record.disk_bytes() > 8);
    }
    let stats = storage.stats();
    assert_eq!((stats.scans, stats.handles), (0, 0));
}

#[test]
fn files_of_other_releases_can_be_extended() {
    // A file of Couchbase's library, with correct statistics.
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../kedge-couchstore/tests/golden/s1k_10commits.couch.1"
    );
    let bytes = std::fs::read(golden).expect("a golden file");
    let disk = SimDisk::new(7);
    disk.create_dir_all(dir()).expect("a directory");
    let file = disk.create(&dir().join("0.couch.1")).expect("create");
    file.write_at(&bytes, 0).expect("write");
    let storage = Storage::open(Arc::new(disk.clone()), dir(), &config(4)).expect("open");
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.documents, 1000);
    let before = vbstate(&disk);
    let (high, mut state) = (loaded.high_seqno.get(), loaded.state);
    (state.snap_start, state.snap_end) = (Seqno(high + 1), Seqno(high + 1));
    let items = [document(high + 1, &key(1), b"more")];
    storage.commit(VB, &items, &state, 1).expect("commit");
    assert_eq!(vbstate(&disk).hlc_epoch, before.hlc_epoch);
    let loaded = storage.load(VB).expect("load").expect("a file");
    assert_eq!(loaded.documents, 1001);
}

#[test]
fn lookup_caches_leaves_within_the_memory_limit() {
    let disk = SimDisk::new(1);
    for (file_cache_bytes_max, is_kept) in [(1 << 20, true), (0, false)] {
        let config = StorageConfig {
            file_cache_bytes_max,
            ..config(4)
        };
        let storage = open_with(&disk, &config).expect("open");
        let items: Vec<_> = (1..=2_000)
            .map(|n| document(n, &key(n), &[b'v'; 100]))
            .collect();
        let vb = VbId(u16::from(is_kept));
        storage
            .commit(vb, &items, &state(1, 2_000), 1)
            .expect("a commit");
        let read = || {
            let before = storage.stats().read_bytes;
            for n in (1..=2_000).step_by(97) {
                let found = storage.get_many(vb, &[&key(n)]).expect("a look-up");
                assert!(found[0].is_some());
            }
            (storage.stats().read_bytes - before) / 21
        };
        let (first, second) = (read(), read());
        // The body has about 110 bytes, a leaf about 300.
        assert!(first > 300, "{first} bytes a look-up");
        assert_eq!(second < 150, is_kept, "{second} bytes a look-up");
    }
}

#[test]
fn remembered_keys_need_no_leaf_read() {
    let disk = SimDisk::new(1);
    let items: Vec<_> = (1..=2_000)
        .map(|n| document(n, &key(n), &[b'v'; 100]))
        .collect();
    let storage = open_with(&disk, &config(4)).expect("open");
    storage
        .commit(VB, &items, &state(1, 2_000), 1)
        .expect("a commit");
    drop(storage);
    for (max_open_files, is_known) in [(4, true), (3, false)] {
        let config = StorageConfig {
            max_open_files,
            ..config(4)
        };
        let storage = open_with(&disk, &config).expect("open");
        storage.remember_keys(VB).expect("the nodes are whole");
        storage.remember_keys(VbId(1)).expect("without a file");
        let before = storage.stats();
        assert_eq!(before.kept_bytes > 100_000, is_known);
        for n in (1..=2_000).step_by(97) {
            let found = storage.get_many(VB, &[&key(n)]).expect("a look-up");
            assert!(found[0].is_some());
        }
        let bytes = (storage.stats().read_bytes - before.read_bytes) / 21;
        // The body has about 110 bytes, a leaf about 300.
        assert_eq!(bytes < 150, is_known, "{bytes} bytes a look-up");
    }
}
