//! Compaction: the contents of the target, with every version and encryption.

use std::path::Path;
use std::sync::Arc;

use kedge_couchstore::compact::{
    Compaction, CompactionHooks, CompactionSettings, CopyPhase, KeepAll, remove_leftovers,
    target_path,
};
use kedge_couchstore::{
    CreateOptions, EncryptionKey, Error, InvalidBatch, MutationBody, Options, Previous, Snapshot,
    Version, Writer,
};
use kedge_disk::{Disk, SimDisk};
use kedge_types::Seqno;

use crate::support::{Doc, by_id, by_seqno, create, disk, disk_with, golden, open, path, save};

pub(crate) const TARGET: &str = "/data/0.couch.1.compact";

pub(crate) fn target() -> &'static Path {
    Path::new(TARGET)
}

pub(crate) fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// A compaction may begin on one thread and end on another.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Compaction>();
};

/// So little memory that hundreds of entries make many runs, and several rounds of merging.
pub(crate) fn tiny() -> CompactionSettings {
    CompactionSettings {
        memory_bytes: 1,
        ..CompactionSettings::default()
    }
}

/// Compacts a snapshot to [`TARGET`].
pub(crate) fn compact(
    disk: &SimDisk,
    source: &Snapshot,
    settings: &CompactionSettings,
    hooks: &mut dyn CompactionHooks,
) -> Result<Compaction, Error> {
    Compaction::run(&shared(disk), source, target(), settings, hooks)
}

pub(crate) fn open_target(disk: &SimDisk) -> Snapshot {
    let keys = vec![key()];
    let options = Options {
        keys,
        ..Options::default()
    };
    Snapshot::open(disk, target(), &options).expect("a target")
}

/// The contents of a file, without offsets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Content {
    pub(crate) docs: Vec<Doc>,
    pub(crate) locals: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) update_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    pub(crate) timestamp_ns: u64,
}

/// Returns the content of a sound file.
pub(crate) fn content(snapshot: &Snapshot) -> Content {
    let checked = snapshot.check(&mut |_| {}).expect("sound");
    let docs = by_seqno(snapshot).expect("documents");
    let mut other = by_id(snapshot).expect("documents");
    other.sort_by_key(|doc| doc.seqno);
    assert_eq!(docs, other, "both trees");
    assert_eq!(checked.live + checked.deleted, docs.len() as u64);
    let locals: Result<Vec<_>, _> = snapshot.locals().expect("locals").collect();
    let header = snapshot.header();
    assert_eq!(header.live_count(), checked.live);
    Content {
        docs,
        locals: locals.expect("locals"),
        update_seqno: header.update_seqno(),
        purge_seqno: header.purge_seqno(),
        timestamp_ns: header.timestamp_ns(),
    }
}

fn key() -> EncryptionKey {
    EncryptionKey::new("some key", [0x42; 32])
}

/// Commits many documents, some of them several times, with all kinds of bodies and local documents.
pub(crate) fn history(writer: &mut Writer, commits: u64) {
    for round in 0..commits {
        let start = writer.update_seqno().0;
        let docs: Vec<Doc> = (1..=150)
            .map(|n| {
                let seqno = start + n;
                let kind = (n + round) % 10;
                Doc {
                    deleted: kind == 0,
                    compress: kind > 3,
                    body: match kind {
                        0 => Some(Vec::new()),
                        1 => None,
                        2 => Some(vec![7; 6000]),
                        _ => Some(vec![n as u8; 40]),
                    },
                    ..Doc::new(format!("key-{:05}", (n * 37 + round * 101) % 800), seqno)
                }
            })
            .collect();
        save(writer, &docs).expect("save");
        let state = format!("{{\"round\":{round}}}");
        let name = format!("_local/{round}");
        writer
            .save_locals(&[
                (b"_local/vbstate", Some(state.as_bytes())),
                (name.as_bytes(), Some(b"local")),
            ])
            .expect("save");
        writer.commit(1000 + round).expect("commit");
    }
}

pub(crate) fn source(commits: u64) -> (SimDisk, Snapshot) {
    let disk = disk(1);
    let mut writer = create(&disk);
    history(&mut writer, commits);
    writer.set_purge_seqno(Seqno(5));
    writer.commit(77).expect("commit");
    let snapshot = open(&disk).expect("open");
    (disk, snapshot)
}

#[test]
fn target_has_everything_of_the_source() {
    for settings in [CompactionSettings::default(), tiny()] {
        let (disk, source) = source(12);
        let compaction = compact(&disk, &source, &settings, &mut KeepAll).expect("compact");
        assert_eq!(compaction.source(), source.header());
        let progress = compaction.finish().expect("finish");
        let target = open_target(&disk);
        let expected = content(&source);
        assert_eq!(content(&target), expected);
        assert_eq!(expected.timestamp_ns, 77);
        assert_eq!(expected.purge_seqno, Seqno(5));
        assert_eq!(progress.phase, CopyPhase::Index);
        assert_eq!(progress.kept, expected.docs.len() as u64);
        assert_eq!(progress.entries, progress.entries_total);
        assert_eq!((progress.dropped, progress.purged), (0, 0));
        assert!(progress.bytes_read >= target.header().body_bytes());
        assert!(progress.bytes_written >= target.header().body_bytes());
        let bytes = |snapshot: &Snapshot| snapshot.file_bytes().expect("a length");
        assert!(bytes(&target) < bytes(&source), "it became smaller");
        assert!(
            bytes(&target) < target.header().used_bytes() * 102 / 100 + 2 * 4096,
            "nothing but what is needed is in it"
        );
        // One header, which states a previous one at 0.
        assert_eq!(
            target.header().previous(),
            Previous::At(kedge_couchstore::Offset(0))
        );
        assert!(target.older().expect("older").is_none());
        let names = disk.list(Path::new("/data")).expect("list");
        assert_eq!(names, ["0.couch.1", "0.couch.1.compact"]);
    }
}

#[test]
fn target_can_be_written_to_under_its_new_name() {
    let (disk, source) = source(5);
    let compaction = compact(&disk, &source, &CompactionSettings::default(), &mut KeepAll);
    compaction.expect("compact").finish().expect("finish");
    let to = Path::new("/data/0.couch.2");
    disk.rename(target(), to).expect("rename");
    let mut writer = Writer::open(&disk, to, &Options::default()).expect("open");
    let mut expected = content(&source);
    history(&mut writer, 3);
    let docs = by_seqno(&writer.snapshot()).expect("documents");
    let new: Vec<Doc> = docs
        .into_iter()
        .filter(|doc| doc.seqno > expected.update_seqno.0)
        .collect();
    expected
        .docs
        .retain(|old| new.iter().all(|doc| doc.key != old.key));
    expected.docs.extend(new);
    assert_eq!(content(&writer.snapshot()).docs, expected.docs);
    assert_eq!(writer.snapshot().history().count(), 4);
}

#[test]
fn empty_file_has_an_empty_copy() {
    let disk = disk(1);
    let source = create(&disk).snapshot();
    let mut compaction =
        compact(&disk, &source, &CompactionSettings::default(), &mut KeepAll).expect("compact");
    assert_eq!(compaction.progress().kept, 0);
    let caught_up = compaction
        .catch_up(&source, &mut KeepAll)
        .expect("catch up");
    assert_eq!(caught_up.entries, 0);
    compaction.finish().expect("finish");
    assert_eq!(content(&open_target(&disk)), content(&source));
}

#[test]
fn target_has_its_own_version_and_encryption() {
    let plain = |version| CreateOptions {
        version,
        encryption: None,
    };
    let sealed = CreateOptions {
        version: Version::V14,
        encryption: Some(key()),
    };
    for name in [
        "s200_v11_legacycrc.couch.1",
        "s200_v12.couch.1",
        "s200_v13.couch.1",
        "rich.couch.1",
    ] {
        for settings in [CompactionSettings::default(), tiny()] {
            let creates = [
                plain(Version::V11),
                plain(Version::V12),
                plain(Version::V13),
                plain(Version::V14),
                sealed.clone(),
            ];
            for create in creates {
                let disk = disk_with(&golden(name));
                let source = open(&disk).expect("open");
                let settings = CompactionSettings {
                    create: create.clone(),
                    ..settings.clone()
                };
                let result = compact(&disk, &source, &settings, &mut KeepAll);
                let is_possible = create.version >= Version::V13
                    || (create.version == Version::V11
                        && source.header().version() == Version::V11);
                if !is_possible {
                    let error = result.expect_err("no new files of that version");
                    assert!(
                        matches!(error, Error::Refused(InvalidBatch::Version)),
                        "{error}"
                    );
                    assert!(!disk.exists(target()).expect("exists"));
                    continue;
                }
                result.expect("compact").finish().expect("finish");
                let copy = open_target(&disk);
                assert_eq!(copy.header().version(), create.version);
                assert_eq!(copy.header().is_encrypted(), create.encryption.is_some());
                let mut expected = content(&source);
                if create.version < Version::V13 {
                    expected.timestamp_ns = 0;
                }
                assert_eq!(content(&copy), expected, "{name} to {create:?}");
                if create.encryption.is_some() {
                    let bytes = kedge_disk::read_file(&disk, target()).expect("read");
                    assert!(!bytes.windows(5).any(|window| window == b"_loca"));
                }
            }
        }
    }
}

#[test]
fn encrypted_source_is_copied_to_any_target() {
    let disk = disk(1);
    let new = CreateOptions {
        version: Version::V14,
        encryption: Some(EncryptionKey::new("old", [3; 32])),
    };
    let mut writer = Writer::create(&disk, path(), &new, &Options::default()).expect("create");
    history(&mut writer, 6);
    let source = writer.snapshot();
    let expected = content(&source);
    for encryption in [None, Some(key())] {
        let settings = CompactionSettings {
            create: CreateOptions {
                version: Version::V14,
                encryption,
            },
            ..tiny()
        };
        let mut compaction = compact(&disk, &source, &settings, &mut KeepAll).expect("compact");
        assert_eq!(content(&open_target(&disk)), expected);
        history(&mut writer, 1);
        let newest = writer.snapshot();
        compaction
            .catch_up(&newest, &mut KeepAll)
            .expect("catch up");
        compaction.finish().expect("finish");
        assert_eq!(content(&open_target(&disk)), content(&newest));
        disk.remove(target()).expect("remove");
    }
}

#[test]
fn existing_target_is_not_touched() {
    let (disk, source) = source(1);
    let other = disk.create(target()).expect("create");
    other.write_at(b"something", 0).expect("write");
    let error = compact(&disk, &source, &CompactionSettings::default(), &mut KeepAll)
        .expect_err("it exists");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert_eq!(
        kedge_disk::read_file(&disk, target()).expect("read"),
        b"something"
    );
    for name in [
        "0.couch.1.compact.btree-tmp_3",
        "7.couch.2",
        "7.couch.2.compact",
    ] {
        disk.create(&Path::new("/data").join(name)).expect("create");
    }
    let removed = remove_leftovers(&disk, Path::new("/data")).expect("remove");
    assert_eq!(
        removed,
        [
            "0.couch.1.compact",
            "0.couch.1.compact.btree-tmp_3",
            "7.couch.2.compact"
        ]
    );
    assert_eq!(
        disk.list(Path::new("/data")).expect("list"),
        ["0.couch.1", "7.couch.2"]
    );
    assert_eq!(target_path(path()), target());
    assert!(
        remove_leftovers(&disk, Path::new("/data"))
            .expect("remove")
            .is_empty()
    );
    compact(&disk, &source, &CompactionSettings::default(), &mut KeepAll).expect("compact");
}

#[test]
fn compaction_syncs_during_its_writes() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let body = vec![1; 50_000];
    let docs: Vec<Doc> = (1..=200)
        .map(|n| Doc {
            body: Some(body.clone()),
            compress: false,
            ..Doc::new(format!("k{n}"), n)
        })
        .collect();
    save(&mut writer, &docs).expect("save");
    writer.commit(1).expect("commit");
    let operations = |sync_each_bytes| {
        let settings = CompactionSettings {
            sync_each_bytes,
            ..CompactionSettings::default()
        };
        let before = disk.operations();
        drop(compact(&disk, &writer.snapshot(), &settings, &mut KeepAll).expect("compact"));
        disk.operations() - before
    };
    let (rare, often) = (operations(1 << 40), operations(1 << 20));
    // 10 MB in writes of 1 MiB, each of them followed by a sync.
    assert!((8..=11).contains(&(often - rare)), "{often} {rare}");
    assert_eq!(operations(2 << 20) - rare, (often - rare) / 2);
}

#[test]
fn bodies_of_all_forms_are_copied_unchanged() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (1..=6).map(|n| Doc::new(format!("k{n}"), n)).collect();
    let large = vec![3; 3 << 20];
    let bodies = [
        MutationBody::None,
        MutationBody::Stored(b""),
        MutationBody::Stored(b"as it is"),
        MutationBody::Compress(b""),
        MutationBody::Compress(b"compressed"),
        MutationBody::Stored(&large),
    ];
    let batch: Vec<_> = docs
        .iter()
        .zip(bodies)
        .map(|(doc, body)| kedge_couchstore::Mutation {
            body,
            ..doc.mutation()
        })
        .collect();
    writer.save(&batch, &mut |_| {}).expect("save");
    writer.commit(1).expect("commit");
    let source = writer.snapshot();
    compact(&disk, &source, &tiny(), &mut KeepAll)
        .expect("compact")
        .finish()
        .expect("finish");
    let copy = open_target(&disk);
    for doc in &docs {
        let stored = |snapshot: &Snapshot| {
            let entry = snapshot.get(&doc.key).expect("get").expect("there");
            let body = snapshot.body(&entry, kedge_couchstore::BodyForm::Stored);
            (
                entry.disk_bytes(),
                entry.content_meta(),
                body.expect("a body"),
            )
        };
        assert_eq!(stored(&copy), stored(&source));
    }
}
