//! Directories of other nodes: imported and rejected files, and the state of imported vBuckets.

use std::path::{Path, PathBuf};

use kedge_couchstore::kv::{FailoverEntry, VBSTATE_NAME, VbStateDocument, VbStateKind};
use kedge_couchstore::{
    BodyForm, ContentMeta, Document, Error as FileError, Mutation, MutationBody, Options, Snapshot,
    Version, Writer,
};
use kedge_disk::{Disk, PosixDisk, SimDisk};
use kedge_storage::{
    ImportProblem, ImportReport, Storage, StorageConfig, StorageError, VbucketOfKey, vbuckets_of,
};
use kedge_types::{RevSeqno, Seqno, VbId, VbUuid};
use kedge_vbucket::VbState;

use super::names;
use crate::support::{audit, document, open, path_of, state};

/// The directory of the files to import.
pub(crate) fn from() -> &'static Path {
    Path::new("/from")
}

/// A file of Couchbase's own library.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kedge-couchstore/tests/golden");
    std::fs::read(dir.join(name)).expect("a golden file")
}

/// Adds a file to those to import.
pub(crate) fn put(disk: &SimDisk, name: &str, bytes: &[u8]) -> PathBuf {
    disk.create_dir_all(from()).expect("a directory");
    let path = from().join(name);
    let file = disk.create(&path).expect("create");
    file.write_at(bytes, 0).expect("write");
    file.sync_all().expect("sync");
    disk.sync_dir(from()).expect("sync");
    path
}

/// Changes the state in a file.
fn restate(disk: &SimDisk, path: &Path, state: &VbStateDocument) {
    let mut writer = Writer::open(disk, path, &Options::default()).expect("open");
    let state = state.encode();
    writer
        .save_locals(&[(VBSTATE_NAME, Some(&state))])
        .expect("save");
    writer.commit(1).expect("commit");
}

fn state_of(snapshot: &Snapshot) -> VbStateDocument {
    let state = snapshot
        .local(VBSTATE_NAME)
        .expect("a look-up")
        .expect("a state");
    VbStateDocument::decode(&state, snapshot.header().update_seqno()).expect("sound")
}

/// All properties of a document in a file, except its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    key: Vec<u8>,
    seqno: Seqno,
    rev: RevSeqno,
    deleted: bool,
    rev_meta: Vec<u8>,
    content_meta: ContentMeta,
    body: Option<Vec<u8>>,
}

/// Returns all documents of a file.
pub(crate) fn all(disk: &dyn Disk, path: &Path) -> Vec<Held> {
    let snapshot = Snapshot::open(disk, path, &Options::default()).expect("open");
    let scan = snapshot.scan_seqnos(..).expect("a scan");
    scan.with_bodies(BodyForm::Plain)
        .map(|document| {
            let Document { entry, body } = document.expect("a document");
            Held {
                key: entry.key().to_vec(),
                seqno: entry.seqno(),
                rev: entry.rev(),
                deleted: entry.is_deleted(),
                rev_meta: entry.rev_meta().to_vec(),
                content_meta: entry.content_meta(),
                body,
            }
        })
        .collect()
}

/// Imports files without a check of the vBuckets of keys.
pub(crate) fn import(storage: &Storage, disk: &SimDisk) -> Result<ImportReport, StorageError> {
    import_placed(storage, disk, &|_| None)
}

fn import_placed(
    storage: &Storage,
    disk: &SimDisk,
    place_of: VbucketOfKey<'_>,
) -> Result<ImportReport, StorageError> {
    let mut new_uuid = |vb: VbId| VbUuid(7000 + u64::from(vb.get()));
    storage.import(disk, from(), place_of, &mut new_uuid)
}

#[test]
fn files_of_every_version_are_imported() {
    let disk = SimDisk::new(1);
    let files = [
        ("0.couch.5", "s10_json.couch.1"),
        ("1.couch.2", "s1k_10commits.couch.1"),
        ("2.couch.10", "rich.couch.1"),
        ("3.couch.1", "s200_v11_legacycrc.couch.1"),
    ];
    for (name, sample) in files {
        put(&disk, name, &golden(sample));
    }
    // Ignored: older files, those of views, and remains.
    let ignored = [
        "0.couch.3",
        "2.couch.9",
        "3.couch.1.compact",
        "access.log.0",
        "master.couch.1",
    ];
    for name in ignored {
        put(&disk, name, b"whatever");
    }
    let storage = open(&disk).expect("open");
    let done = import(&storage, &disk).expect("import");
    assert_eq!(done.ignored, ignored);
    assert_eq!(done.files.len(), 4);
    assert_eq!(
        names(&disk),
        ["0.couch.1", "1.couch.1", "2.couch.1", "3.couch.1"]
    );
    for (imported, (name, documents)) in done.files.iter().zip(files.iter().zip([10, 1000, 0, 200]))
    {
        let (vb, path) = (imported.vb, from().join(name.0));
        assert_eq!(imported.file, path);
        assert_eq!(imported.was, VbState::Active);
        assert!(!imported.was_there);
        let own = path_of(&disk, vb).expect("a file");
        assert_eq!(all(&disk, &own), all(&disk, &path));
        let (old, new) = (
            Snapshot::open(&disk, &path, &Options::default()).expect("open"),
            Snapshot::open(&disk, &own, &Options::default()).expect("open"),
        );
        assert_eq!(new.header().version(), Version::V14);
        assert_eq!(new.header().purge_seqno(), old.header().purge_seqno());
        let high_seqno = old.header().update_seqno();
        assert_eq!(
            (imported.high_seqno, new.header().update_seqno()),
            (high_seqno, high_seqno)
        );
        let loaded = storage.load(vb).expect("load").expect("a file");
        assert_eq!(
            loaded.state.failover.entries(),
            [
                (VbUuid(7000 + u64::from(vb.get())), high_seqno),
                (VbUuid(123_456_789_012_345), Seqno(0)),
            ]
        );
        if vb == VbId(2) {
            // It has collections, one of them dropped, and statistics that were never right.
            assert_eq!(loaded.prepares.len(), 0);
            let mut sums = kedge_couchstore::kv::FileAudit::new(high_seqno);
            for local in new.locals().expect("a scan") {
                let (name, value) = local.expect("a local document");
                sums.local(&name, &value).expect("sound");
            }
            for document in new
                .scan_seqnos(..)
                .expect("a scan")
                .with_bodies(BodyForm::Plain)
            {
                let document = document.expect("a document");
                sums.document(&document.entry, document.body.as_deref())
                    .expect("sound");
            }
            assert_eq!(sums.disagreements(), []);
            assert!(imported.documents > 0);
        } else {
            audit(&disk, vb);
            assert_eq!(imported.documents, documents);
        }
        // It is a file like any other.
        let next = high_seqno.get() + 1;
        storage
            .commit(vb, &[document(next, b"\0new", b"new")], &state(1, next), 1)
            .expect("commit");
    }
    // The source was only read.
    assert_eq!(all(&disk, &from().join("0.couch.5")).len(), 10);
}

#[test]
fn repeated_import_changes_nothing() {
    let disk = SimDisk::new(1);
    put(&disk, "0.couch.5", &golden("s10_json.couch.1"));
    let storage = open(&disk).expect("open");
    import(&storage, &disk).expect("import");
    let again = import(&storage, &disk).expect("import");
    assert!(again.files[0].was_there);
    assert_eq!(again.files[0].documents, 10);
    assert_eq!(names(&disk), ["0.couch.1"]);
    // Also when the vBucket has changed since.
    let mut now = storage.load(VbId(0)).expect("load").expect("a file").state;
    (now.snap_start, now.snap_end) = (Seqno(11), Seqno(11));
    storage
        .commit(VbId(0), &[document(11, b"\0new", b"new")], &now, 1)
        .expect("commit");
    assert!(import(&storage, &disk).expect("import").files[0].was_there);
}

#[test]
fn later_state_of_the_same_vbucket_is_another_file() {
    let disk = SimDisk::new(1);
    let path = put(&disk, "0.couch.5", &golden("s1k_10commits.couch.1"));
    let mut earlier = Writer::open(&disk, &path, &Options::default()).expect("open");
    let snapshot = earlier.rollback_point(Seqno(900)).expect("a search");
    let snapshot = snapshot.expect("it has ten commits");
    earlier.rewind(snapshot.header()).expect("rewind");
    earlier.commit(1).expect("commit");
    drop(earlier);
    let storage = open(&disk).expect("open");
    assert_eq!(
        import(&storage, &disk).expect("import").files[0].high_seqno,
        Seqno(900)
    );
    put(&disk, "0.couch.6", &golden("s1k_10commits.couch.1"));
    let error = import(&storage, &disk).expect_err("not empty");
    assert!(
        matches!(
            error,
            StorageError::Import {
                problem: ImportProblem::NotEmpty {
                    high_seqno: Seqno(900)
                },
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn empty_vbucket_is_imported_once() {
    let disk = SimDisk::new(1);
    put(&disk, "0.couch.5", b"");
    let path = from().join("0.couch.5");
    let mut empty = Writer::open(&disk, &path, &Options::default()).expect("create");
    empty.commit(1).expect("commit");
    drop(empty);
    let mut state = VbStateDocument::new(VbStateKind::Active);
    state.failover_table = Some(vec![FailoverEntry {
        uuid: VbUuid(3),
        start: Seqno(0),
    }]);
    restate(&disk, &path, &state);
    let storage = open(&disk).expect("open");
    assert!(!import(&storage, &disk).expect("import").files[0].was_there);
    assert!(import(&storage, &disk).expect("import").files[0].was_there);
    assert_eq!(names(&disk), ["0.couch.1"]);
}

#[test]
fn vbucket_with_other_documents_is_not_imported() {
    let disk = SimDisk::new(1);
    put(&disk, "0.couch.5", &golden("s10_json.couch.1"));
    put(&disk, "1.couch.5", &golden("s10_json.couch.1"));
    let storage = open(&disk).expect("open");
    storage
        .commit(VbId(1), &[document(3, b"\0mine", b"mine")], &state(1, 3), 1)
        .expect("commit");
    let error = import(&storage, &disk).expect_err("not empty");
    let StorageError::Import { file, problem } = error else {
        panic!("{error}");
    };
    assert_eq!(file, from().join("1.couch.5"));
    assert_eq!(
        problem,
        ImportProblem::NotEmpty {
            high_seqno: Seqno(3)
        }
    );
    assert_eq!(
        names(&disk),
        ["1.couch.1"],
        "not even the other one came in"
    );
}

#[test]
fn imported_vbucket_keeps_its_own_branches_below() {
    let disk = SimDisk::new(1);
    put(&disk, "0.couch.5", &golden("s10_json.couch.1"));
    let storage = open(&disk).expect("open");
    storage
        .commit(VbId(0), &[], &state(55, 0), 1)
        .expect("commit");
    import(&storage, &disk).expect("import");
    assert_eq!(names(&disk), ["0.couch.2"]);
    let loaded = storage.load(VbId(0)).expect("load").expect("a file");
    assert_eq!(
        loaded.state.failover.entries(),
        [
            (VbUuid(7000), Seqno(10)),
            (VbUuid(123_456_789_012_345), Seqno(0)),
            (VbUuid(55), Seqno(0)),
        ]
    );
}

#[test]
fn imported_vbuckets_become_active() {
    let kinds = [
        (VbStateKind::Replica, VbState::Replica),
        (VbStateKind::Pending, VbState::Pending),
        (VbStateKind::Dead, VbState::Dead),
    ];
    for (kind, was) in kinds {
        let disk = SimDisk::new(1);
        let path = put(&disk, "0.couch.5", &golden("s10_json.couch.1"));
        let snapshot = Snapshot::open(&disk, &path, &Options::default()).expect("open");
        let entry = |uuid, start| FailoverEntry {
            uuid: VbUuid(uuid),
            start: Seqno(start),
        };
        let replica = VbStateDocument {
            state: kind,
            // In the middle of a snapshot.
            snap_start: Seqno(6),
            snap_end: Seqno(14),
            failover_table: Some(vec![entry(3, 8), entry(2, 4), entry(1, 0)]),
            replication_topology: Some(vec![vec![Some("n1".to_owned()), None]]),
            ..state_of(&snapshot)
        };
        restate(&disk, &path, &replica);
        let storage = open(&disk).expect("open");
        assert_eq!(import(&storage, &disk).expect("import").files[0].was, was);
        let own = path_of(&disk, VbId(0)).expect("a file");
        let new = Snapshot::open(&disk, &own, &Options::default()).expect("open");
        let now = state_of(&new);
        assert_eq!(now.state, VbStateKind::Active);
        assert_eq!((now.snap_start, now.snap_end), (Seqno(10), Seqno(10)));
        assert_eq!(now.replication_topology, None);
        // The shared history ends at the start of the snapshot; a later branch is dead.
        let table = vec![entry(7000, 6), entry(2, 4), entry(1, 0)];
        assert_eq!(now.failover_table, Some(table));
        audit(&disk, VbId(0));
    }
}

/// Returns the error of the only file to import.
#[track_caller]
fn refused(name: &str, bytes: &[u8], change: impl FnOnce(&mut VbStateDocument)) -> StorageError {
    let disk = SimDisk::new(1);
    let path = put(&disk, name, bytes);
    if let Ok(snapshot) = Snapshot::open(&disk, &path, &Options::default())
        && let Ok(Some(state)) = snapshot.local(VBSTATE_NAME)
        && let Ok(mut state) = VbStateDocument::decode(&state, snapshot.header().update_seqno())
    {
        change(&mut state);
        restate(&disk, &path, &state);
    }
    let storage = open(&disk).expect("open");
    let error = import(&storage, &disk).expect_err("refused");
    assert!(
        error.to_string().contains(&path.display().to_string()),
        "{error}"
    );
    assert_eq!(names(&disk), [""; 0]);
    assert_eq!(storage.stats().handles, 0);
    error
}

#[test]
fn import_errors_have_file_and_reason() {
    let good = golden("s10_json.couch.1");
    let error = refused("4.couch.1", &good, |_| {});
    let StorageError::Import { problem, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(problem, ImportProblem::NoSuchVbucket { vbuckets: 4 });

    let error = refused(
        "0.couch.1",
        &golden("s200_encrypted_testkey.couch.1"),
        |_| {},
    );
    assert!(
        matches!(error, StorageError::File(FileError::KeyNeeded { .. })),
        "{error}"
    );

    // A state with missing fields.
    let error = refused("0.couch.1", &golden("s200_v12.couch.1"), |_| {});
    assert!(
        matches!(error, StorageError::File(FileError::Local { .. })),
        "{error}"
    );

    let error = refused("0.couch.1", b"no couchstore file at all", |_| {});
    assert!(error.is_damage(), "{error}");

    let error = refused("0.couch.1", &good, |state| {
        state.namespaces_supported = false;
    });
    let StorageError::Import { problem, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(problem, ImportProblem::WithoutCollections);

    let error = refused("0.couch.1", &good, |state| {
        state.state = VbStateKind::Replica;
        (state.snap_start, state.snap_end) = (Seqno(11), Seqno(20));
    });
    let StorageError::Import { problem, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(
        problem,
        ImportProblem::Snapshot {
            start: Seqno(11),
            ..
        }
    ));

    // A damaged body is found during the copy.
    let mut damaged = good;
    damaged[0x40] ^= 1;
    let error = refused("0.couch.1", &damaged, |_| {});
    assert!(error.is_damage(), "{error}");
}

#[test]
fn malformed_document_is_found_during_import() {
    let disk = SimDisk::new(1);
    let path = put(&disk, "0.couch.1", &golden("s10_json.couch.1"));
    let mut writer = Writer::open(&disk, &path, &Options::default()).expect("open");
    let mutation = Mutation {
        key: b"\0odd",
        seqno: Seqno(11),
        rev: RevSeqno(1),
        deleted: false,
        content_meta: ContentMeta(3),
        // Of a release that is no longer in use.
        rev_meta: &[0; 16],
        body: MutationBody::Stored(b"odd"),
    };
    writer.save(&[mutation], &mut |_| {}).expect("save");
    writer.commit(1).expect("commit");
    drop(writer);
    let storage = open(&disk).expect("open");
    let error = import(&storage, &disk).expect_err("refused");
    assert!(
        matches!(&error, StorageError::Entry { file, seqno: Seqno(11), .. } if *file == path),
        "{error}"
    );
    assert_eq!(names(&disk), [""; 0]);
}

#[test]
fn import_of_a_directory_without_files_fails() {
    let disk = SimDisk::new(1);
    put(&disk, "stats.json", b"{}");
    let storage = open(&disk).expect("open");
    let error = import(&storage, &disk).expect_err("nothing");
    let StorageError::Import { file, problem } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (file.as_path(), problem),
        (from(), ImportProblem::NothingThere)
    );
    disk.remove_dir_all(from()).expect("remove");
    assert!(matches!(
        import(&storage, &disk),
        Err(StorageError::Directory(_))
    ));
}

#[test]
fn intermediate_versions_and_files_without_history_are_imported() {
    for (version, sample) in [(Version::V12, "s200_v12"), (Version::V13, "s200_v13")] {
        let disk = SimDisk::new(1);
        let path = put(&disk, "0.couch.1", &golden(&format!("{sample}.couch.1")));
        // The author of these samples wrote only `{"state":"active"}`.
        let mut state = VbStateDocument::new(VbStateKind::Active);
        state.failover_table = None;
        restate(&disk, &path, &state);
        let snapshot = Snapshot::open(&disk, &path, &Options::default()).expect("open");
        assert_eq!(snapshot.header().version(), version);
        let storage = open(&disk).expect("open");
        let done = import(&storage, &disk).expect("import");
        assert_eq!(
            (done.files[0].documents, done.files[0].high_seqno),
            (200, Seqno(200))
        );
        let own = path_of(&disk, VbId(0)).expect("a file");
        assert_eq!(all(&disk, &own), all(&disk, &path));
        audit(&disk, VbId(0));
        let loaded = storage.load(VbId(0)).expect("load").expect("a file");
        assert_eq!(
            loaded.state.failover.entries(),
            [(VbUuid(7000), Seqno(200))]
        );
        assert!(import(&storage, &disk).expect("import").files[0].was_there);
    }
}

#[test]
fn directory_on_a_real_disk_is_imported() {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, target) = (dir.path().join("from"), dir.path().join("bucket"));
    std::fs::create_dir(&source).expect("a directory");
    std::fs::write(source.join("3.couch.7"), golden("s10_json.couch.1")).expect("write");
    let before = std::fs::read(source.join("3.couch.7")).expect("read");
    let config = crate::support::config(4);
    let storage = Storage::open(std::sync::Arc::new(PosixDisk), &target, &config).expect("open");
    let done = storage
        .import(&PosixDisk, &source, &|_| None, &mut |_| VbUuid(5))
        .expect("import");
    assert_eq!((done.files.len(), done.files[0].vb), (1, VbId(3)));
    assert_eq!(
        std::fs::read(source.join("3.couch.7")).expect("read"),
        before
    );
    let all_of = |path: &Path| all(&PosixDisk, path);
    assert_eq!(
        all_of(&target.join("3.couch.1")),
        all_of(&source.join("3.couch.7"))
    );
}

/// Adds the files of a bucket of `vbuckets` vBuckets, each with `documents` documents whose keys belong there.
fn put_bucket(disk: &SimDisk, vbuckets: u16, documents: u64) {
    disk.create_dir_all(from()).expect("a directory");
    let config = StorageConfig::new(vbuckets);
    let disk = std::sync::Arc::new(disk.clone());
    let storage = Storage::open(disk, from(), &config).expect("open");
    for vb in (0..vbuckets).map(VbId) {
        let keys = (0..).map(|n| format!("key-{n}"));
        let keys = keys.filter(|key| VbId::of_key(key.as_bytes(), vbuckets) == vb);
        let items: Vec<_> = (1..=documents)
            .zip(keys)
            .map(|(seqno, key)| document(seqno, format!("\0{key}").as_bytes(), b"1"))
            .collect();
        let committed = storage.commit(vb, &items, &state(1, documents), 1);
        committed.expect("commit");
    }
}

/// Returns a hash whose remainder by the number of vBuckets is the key's vBucket.
fn hash(key: &[u8]) -> u16 {
    VbId::of_key(key, 1 << 15).get()
}

/// Sixteen files used to be imported into a bucket of 1,024 vBuckets, where clients looked for their documents
/// elsewhere.
#[test]
fn import_rejects_foreign_keys_before_copying() {
    let disk = SimDisk::new(41);
    put_bucket(&disk, 4, 10);
    assert_eq!(vbuckets_of(&disk, from(), &hash).expect("four"), 4);
    let placed = |vbuckets| move |key: &[u8]| Some(VbId::of_key(key, vbuckets));
    let storage = open(&disk).expect("open");
    let error = import_placed(&storage, &disk, &placed(1_024)).expect_err("of 1,024");
    let StorageError::Import { file, problem } = &error else {
        panic!("{error}")
    };
    assert!(matches!(problem, ImportProblem::ForeignKey { .. }));
    assert_eq!(file, &from().join("0.couch.1"));
    assert!(error.to_string().contains("key-"), "{error}");
    assert_eq!(names(&disk), [""; 0]);
    // Two files with exchanged names.
    let path = |name: &str| from().join(name);
    disk.rename(&path("1.couch.1"), &path("x")).expect("a name");
    disk.rename(&path("2.couch.1"), &path("1.couch.1"))
        .expect("a name");
    let refused = import_placed(&storage, &disk, &placed(4)).map(drop);
    let error = refused.expect_err("another's").to_string();
    assert!(error.contains("1.couch.1"), "{error}");
    let none = vbuckets_of(&disk, from(), &hash).expect_err("none fits");
    let StorageError::Import { problem, .. } = &none else {
        panic!("{none}")
    };
    assert_eq!(*problem, ImportProblem::NoNumberFits);
    disk.rename(&path("1.couch.1"), &path("2.couch.1"))
        .expect("a name");
    disk.rename(&path("x"), &path("1.couch.1")).expect("a name");
    let done = import_placed(&storage, &disk, &placed(4)).expect("import");
    assert_eq!(done.files.len(), 4);
}

#[test]
fn foreign_key_is_found_anywhere_in_its_file() {
    let disk = SimDisk::new(42);
    put_bucket(&disk, 4, 100);
    let elsewhere = |key: &[u8]| {
        let foreign = key == b"key-390" || key == b"key-391";
        Some(if foreign {
            VbId(9)
        } else {
            VbId::of_key(key, 4)
        })
    };
    let storage = open(&disk).expect("open");
    let error = import_placed(&storage, &disk, &elsewhere).expect_err("it is there");
    assert!(error.to_string().contains("vBucket 9"), "{error}");
    assert!(names(&disk).len() < 4, "that file was not taken over");
}

#[test]
fn number_of_vbuckets_needs_keys() {
    let disk = SimDisk::new(43);
    put_bucket(&disk, 4, 0);
    let error = vbuckets_of(&disk, from(), &hash).expect_err("nobody knows");
    assert!(error.to_string().contains("--vbuckets"), "{error}");
}

/// A state of an old release used to be reported as damage.
#[test]
fn state_without_max_cas_gets_that_of_the_documents() {
    let disk = SimDisk::new(44);
    put_bucket(&disk, 1, 10);
    let path = from().join("0.couch.1");
    let mut writer = Writer::open(&disk, &path, &Options::default()).expect("open");
    let state = writer.snapshot().local(VBSTATE_NAME).expect("a look-up");
    let state = String::from_utf8(state.expect("a state")).expect("JSON");
    let (before, after) = state.split_once("\"max_cas\":").expect("it is there");
    let after = after.split_once(',').expect("not the last").1;
    let old = format!("{before}{after}");
    writer
        .save_locals(&[(VBSTATE_NAME, Some(old.as_bytes()))])
        .expect("save");
    writer.commit(1).expect("commit");
    let storage = open(&disk).expect("open");
    let done = import(&storage, &disk).expect("import");
    assert!(done.files[0].lacked_max_cas);
    let loaded = storage.load(VbId(0)).expect("sound").expect("a file");
    assert_eq!(loaded.state.max_cas, kedge_types::Cas(10 << 16));
    let own = path_of(&disk, VbId(0)).expect("a file");
    let own = Snapshot::open(&disk, &own, &Options::default()).expect("open");
    assert!(state_of(&own).has_max_cas);
}
