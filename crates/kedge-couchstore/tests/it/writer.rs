//! Writes: rejected batches, reported changes, and positions in the file.

use kedge_couchstore::{
    BodyForm, CreateOptions, Error, InvalidBatch, Mutation, MutationBody, Options, Snapshot,
    Version, Writer,
};
use kedge_disk::{Disk, DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, Rng, SimDisk};
use kedge_types::Seqno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Doc, by_id, by_seqno, create, disk, open, path, save};

/// Counts the reads of files and their bytes.
#[derive(Debug, Default)]
struct CountedReads {
    calls: AtomicUsize,
    bytes: AtomicUsize,
}

impl DiskObserver for CountedReads {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        if asked.operation == Operation::Read {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(asked.bytes, Ordering::Relaxed);
        }
        run()
    }
}

fn refusal(result: Result<(), Error>) -> InvalidBatch {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_file_begins_like_couchbases() {
    let disk = disk(1);
    let mut writer = create(&disk);
    assert_eq!(disk.len(path()).expect("a length"), 48);
    let first = kedge_disk::read_file(&disk, path()).expect("read");
    // Section 9 of the format.
    let expected = "010000002b978bad3a0e000000000000000000000000000000000000000000000000\
                    0000000000000000fffffffffffe";
    let hex: String = first.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace(' ', ""));
    assert_eq!(writer.commit(7).expect("commit").0, 4096);
    let snapshot = open(&disk).expect("open");
    assert_eq!(snapshot.header().timestamp_ns(), 7);
    assert_eq!(snapshot.history().count(), 2);
    assert_eq!(by_id(&snapshot).expect("scan"), []);
    let again = Writer::create(
        &disk,
        path(),
        &CreateOptions::default(),
        &Options::default(),
    );
    assert!(matches!(again, Err(Error::Exists { .. })));
}

#[test]
fn version_of_a_file_never_changes() {
    for version in [Version::V13, Version::V14] {
        let disk = disk(1);
        let new = CreateOptions {
            version,
            encryption: None,
        };
        let mut writer = Writer::create(&disk, path(), &new, &Options::default()).expect("create");
        save(&mut writer, &[Doc::new("a", 1)]).expect("save");
        writer.commit(1).expect("commit");
        let mut writer = Writer::open(&disk, path(), &Options::default()).expect("open");
        save(&mut writer, &[Doc::new("b", 2)]).expect("save");
        writer.commit(2).expect("commit");
        let snapshot = open(&disk).expect("open");
        let versions: Vec<_> = snapshot
            .history()
            .map(|found| found.expect("a header").header().version())
            .collect();
        assert_eq!(versions, [version; 3]);
        snapshot.check(&mut |_| {}).expect("sound");
    }
    for version in [Version::V11, Version::V12] {
        let new = CreateOptions {
            version,
            encryption: None,
        };
        let refused = Writer::create(&disk(1), path(), &new, &Options::default());
        assert_eq!(refusal(refused.map(|_| ())), InvalidBatch::Version);
    }
}

#[test]
fn older_versions_keep_their_format() {
    for name in [
        "s200_v11_legacycrc.couch.1",
        "s200_v12.couch.1",
        "s200_v13.couch.1",
        "rich.couch.1",
    ] {
        let disk = crate::support::disk_with(&crate::support::golden(name));
        let before = open(&disk).expect("open");
        let version = before.header().version();
        let mut expected = by_id(&before).expect("scan");
        let mut writer = Writer::open(&disk, path(), &Options::default()).expect("open");
        let new: Vec<Doc> = (0..300)
            .map(|n| Doc::new(format!("new-{n:03}"), 1000 + n))
            .collect();
        save(&mut writer, &new).expect("save");
        writer.commit(1).expect("commit");
        let after = open(&disk).expect("open");
        assert_eq!(after.header().version(), version, "{name}");
        after
            .check(&mut |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        expected.extend(new);
        expected.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(by_id(&after).expect("scan"), expected, "{name}");
        assert_eq!(by_id(&before).expect("scan").len(), expected.len() - 300);
    }
}

#[test]
fn save_reports_replaced_versions() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs = [Doc::new("b", 1), Doc::new("a", 2), Doc::new("c", 3)];
    let mut seen = Vec::new();
    let batch: Vec<Mutation<'_>> = docs.iter().map(Doc::mutation).collect();
    writer
        .save(&batch, &mut |change| {
            seen.push((change.index, change.old.is_some()));
        })
        .expect("save");
    assert_eq!(seen, [(1, false), (0, false), (2, false)]);
    writer.commit(1).expect("commit");
    let stored = open(&disk)
        .expect("open")
        .get(b"b")
        .expect("get")
        .expect("there");
    let tombstone = Doc {
        deleted: true,
        body: Some(Vec::new()),
        compress: false,
        rev: 2,
        ..Doc::new("b", 9)
    };
    let mut seen = Vec::new();
    writer
        .save(&[tombstone.mutation()], &mut |change| {
            let old = change.old.expect("it was there");
            assert_eq!(old.seqno(), stored.seqno());
            assert_eq!(old.rev(), stored.rev());
            assert_eq!(old.rev_meta(), stored.rev_meta());
            assert_eq!(old.content_meta(), stored.content_meta());
            assert_eq!(old.disk_bytes(), stored.disk_bytes());
            assert!(!old.is_deleted());
            seen.push(change.disk_bytes);
        })
        .expect("save");
    // An empty body is a chunk of 8 bytes.
    assert_eq!(seen, [8]);
    writer.commit(2).expect("commit");
    let snapshot = open(&disk).expect("open");
    assert_eq!(
        (
            snapshot.header().live_count(),
            snapshot.header().deleted_count()
        ),
        (2, 1)
    );
    assert_eq!(by_seqno(&snapshot).expect("scan").last(), Some(&tombstone));
}

#[test]
fn invalid_batch_is_rejected_without_an_effect() {
    let disk = disk(1);
    let mut writer = create(&disk);
    save(&mut writer, &[Doc::new("a", 5)]).expect("save");
    writer.commit(1).expect("commit");
    let bytes = disk.len(path()).expect("a length");
    let twice = [Doc::new("x", 6), Doc::new("y", 7), Doc::new("x", 8)];
    assert_eq!(
        refusal(save(&mut writer, &twice)),
        InvalidBatch::DuplicateKey(0, 2)
    );
    let twice = [Doc::new("x", 6), Doc::new("y", 6)];
    assert_eq!(
        refusal(save(&mut writer, &twice)),
        InvalidBatch::DuplicateSeqno(Seqno(6))
    );
    let old = InvalidBatch::OldSeqno {
        seqno: Seqno(5),
        newest: Seqno(5),
    };
    assert_eq!(refusal(save(&mut writer, &[Doc::new("x", 5)])), old);
    let twice: [(&[u8], Option<&[u8]>); 2] = [(b"n", Some(b"1")), (b"n", None)];
    assert_eq!(
        refusal(writer.save_locals(&twice)),
        InvalidBatch::DuplicateKey(0, 1)
    );
    assert_eq!(
        refusal(writer.save_locals(&[(b"", None)])),
        InvalidBatch::KeyLength(0)
    );
    assert!(!writer.has_changes());
    assert_eq!(disk.len(path()).expect("a length"), bytes);
    save(&mut writer, &[Doc::new("x", 6)]).expect("it goes on");
}

#[test]
fn several_saves_make_one_commit_and_give_up_discards() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (1..=400)
        .map(|n| Doc::new(format!("{:03}", n * 7 % 401), n))
        .collect();
    for part in docs.chunks(50) {
        save(&mut writer, part).expect("save");
        writer
            .save_locals(&[(b"_local/n", Some(b"1"))])
            .expect("save");
    }
    writer
        .save_locals(&[(b"_local/m", Some(b"2")), (b"_local/n", None)])
        .expect("save");
    writer.set_purge_seqno(Seqno(3));
    writer.raise_update_seqno(Seqno(500));
    assert!(matches!(
        by_id(&open(&disk).expect("open")).as_deref(),
        Ok([])
    ));
    writer.commit(1).expect("commit");
    save(&mut writer, &[Doc::new("lost", 501)]).expect("save");
    writer.give_up();
    save(&mut writer, &[Doc::new("kept", 501)]).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = open(&disk).expect("open");
    snapshot.check(&mut |_| {}).expect("sound");
    assert_eq!(snapshot.header().live_count(), 401);
    assert_eq!(snapshot.header().purge_seqno(), Seqno(3));
    assert_eq!(snapshot.get(b"lost").expect("get"), None);
    let locals: Result<Vec<_>, _> = snapshot.locals().expect("scan").collect();
    assert_eq!(
        locals.expect("locals"),
        [(b"_local/m".to_vec(), b"2".to_vec())]
    );
    let older = snapshot.older().expect("older").expect("there");
    assert_eq!(older.header().update_seqno(), Seqno(500));
}

/// The log applier replaces most documents of small files again and again. It read their leaves one by one, and also
/// those of the tree by seqno of which no entry stayed.
#[test]
fn commit_that_replaces_most_documents_reads_leaves_together_or_not_at_all() {
    const DOCUMENTS: u64 = 400;
    let below = disk(1);
    let disk = ObservedDisk::new(Arc::new(below.clone()), Arc::<CountedReads>::default());
    let options = (CreateOptions::default(), Options::default());
    let mut writer = Writer::create(&disk, path(), &options.0, &options.1).expect("create");
    let mut newest = vec![Doc::new("", 0); DOCUMENTS as usize];
    // Replaces all documents but one in so many. Returns the number of reads and their bytes.
    let mut replace = |all_but: u64| {
        let seqno = writer.update_seqno().0 + 1;
        let mut batch = Vec::new();
        for n in (0..DOCUMENTS).filter(|n| (n + 1) % all_but != 0) {
            let doc = Doc::new(format!("key-{:04}", n * 7 % DOCUMENTS), seqno + n);
            newest[n as usize] = doc.clone();
            batch.push(doc);
        }
        let counts = || {
            let reads = disk.observer();
            let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
            [count(&reads.calls), count(&reads.bytes)]
        };
        let before = counts();
        save(&mut writer, &batch).expect("save");
        writer.commit(1).expect("commit");
        let after = counts();
        [after[0] - before[0], after[1] - before[1]]
    };
    replace(u64::MAX);
    let [calls, bytes] = replace(u64::MAX);
    assert!(calls <= 8, "{calls} reads when no entry stays");
    let [calls, more_bytes] = replace(4);
    assert!(
        calls <= 12,
        "{calls} reads when an entry of each leaf stays"
    );
    assert!(
        bytes * 3 < more_bytes * 2,
        "{bytes} and {more_bytes} bytes: the leaves by seqno are not read"
    );
    replace(u64::MAX);
    let snapshot = open(&below).expect("open");
    snapshot.check(&mut |_| {}).expect("sound");
    assert_eq!(by_seqno(&snapshot).expect("scan"), newest);
}

#[test]
fn bodies_keep_their_form() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let mut rng = Rng::new(3);
    let large = rng.bytes(3 << 20);
    let forms = [
        ("large", MutationBody::Compress(&large)),
        ("empty", MutationBody::Stored(b"")),
        ("nothing", MutationBody::Compress(b"")),
        ("plain", MutationBody::Stored(b"as it is")),
        ("none", MutationBody::None),
        ("repeated", MutationBody::Compress(&[7; 100_000])),
    ];
    let docs: Vec<Doc> = forms
        .iter()
        .zip(1..)
        .map(|((key, _), n)| Doc::new(*key, n))
        .collect();
    let batch: Vec<Mutation<'_>> = docs
        .iter()
        .zip(&forms)
        .map(|(doc, (_, body))| Mutation {
            body: *body,
            ..doc.mutation()
        })
        .collect();
    writer.save(&batch, &mut |_| {}).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = open(&disk).expect("open");
    snapshot.check(&mut |_| {}).expect("sound");
    for (key, body) in forms {
        let entry = snapshot.get(key.as_bytes()).expect("get").expect("there");
        let plain = snapshot.body(&entry, BodyForm::Plain).expect("a body");
        let (expected, compressed) = match body {
            MutationBody::None => (None, false),
            MutationBody::Stored(bytes) => (Some(bytes), false),
            MutationBody::Compress(bytes) => (Some(bytes), true),
        };
        assert_eq!(plain.as_deref(), expected, "{key}");
        assert_eq!(entry.content_meta().is_compressed(), compressed, "{key}");
    }
    let repeated = snapshot.get(b"repeated").expect("get").expect("there");
    let stored = snapshot
        .body(&repeated, BodyForm::Stored)
        .expect("a body")
        .expect("there");
    assert!(stored.len() < 10_000);
    assert_eq!(repeated.disk_bytes() as usize, 8 + stored.len());
}

#[test]
fn long_keys_metadata_and_many_local_documents() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (1..200_u64)
        .map(|n| Doc {
            rev_meta: vec![n as u8; (n * 20) as usize],
            ..Doc::new(
                [vec![b'k'; (n * 20) as usize], n.to_be_bytes().to_vec()].concat(),
                n,
            )
        })
        .collect();
    save(&mut writer, &docs).expect("save");
    let large = vec![5; 200_000];
    let names: Vec<String> = (0..300).map(|n| format!("_local/{n}")).collect();
    let locals: Vec<(&[u8], Option<&[u8]>)> = names
        .iter()
        .map(|name| (name.as_bytes(), Some(&large[..name.len() * 700 % 9000 + 1])))
        .collect();
    writer.save_locals(&locals).expect("save");
    writer
        .save_locals(&[(b"_local/large", Some(&large))])
        .expect("save");
    writer.commit(1).expect("commit");
    let snapshot = open(&disk).expect("open");
    assert_eq!(snapshot.check(&mut |_| {}).expect("sound").locals, 301);
    assert_eq!(by_seqno(&snapshot).expect("scan"), docs);
    assert_eq!(
        snapshot.local(b"_local/large").expect("get").as_ref(),
        Some(&large)
    );
    let removed: Vec<(&[u8], Option<&[u8]>)> =
        locals.iter().map(|(name, _)| (*name, None)).collect();
    writer.save_locals(&removed).expect("save");
    writer
        .save_locals(&[(b"_local/large", None), (b"absent", None)])
        .expect("save");
    writer.commit(2).expect("commit");
    let snapshot = open(&disk).expect("open");
    assert_eq!(snapshot.header().tree_bytes().local, 0);
    assert_eq!(snapshot.locals().expect("scan").count(), 0);
}

#[test]
fn bounds_of_scans() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (0..100)
        .map(|n| Doc::new(format!("k{n:02}"), 10 + 2 * n))
        .collect();
    save(&mut writer, &docs).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = open(&disk).expect("open");
    let ids = |range: (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>)| -> Vec<u64> {
        let scan = snapshot.scan_ids(range).expect("scan");
        scan.map(|entry| (entry.expect("an entry").seqno().0 - 10) / 2)
            .collect()
    };
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let all: Vec<u64> = (0..100).collect();
    assert_eq!(ids((Unbounded, Unbounded)), all);
    assert_eq!(ids((Included(b"k50"), Unbounded)), all[50..]);
    assert_eq!(ids((Excluded(b"k50"), Unbounded)), all[51..]);
    assert_eq!(ids((Excluded(b"k5"), Included(b"k60"))), all[50..=60]);
    assert_eq!(ids((Unbounded, Excluded(b"k60"))), all[..60]);
    assert!(ids((Included(b"l"), Unbounded)).is_empty());
    assert!(ids((Unbounded, Included(b"a"))).is_empty());
    let seqnos = |range: (std::ops::Bound<Seqno>, std::ops::Bound<Seqno>)| -> usize {
        snapshot.scan_seqnos(range).expect("scan").count()
    };
    assert_eq!(seqnos((Included(Seqno(0)), Unbounded)), 100);
    assert_eq!(seqnos((Excluded(Seqno(10)), Included(Seqno(20)))), 5);
    assert_eq!(seqnos((Included(Seqno(11)), Excluded(Seqno(u64::MAX)))), 99);
    assert_eq!(seqnos((Included(Seqno(u64::MAX)), Unbounded)), 0);
}

#[test]
fn save_with_breaks_calls_between_throughout() {
    let disk = disk(1);
    let mut writer = create(&disk);
    for round in 0..2_u64 {
        let docs: Vec<Doc> = (0..1_000)
            .map(|n| Doc {
                body: Some(vec![b'v'; 1_000]),
                compress: false,
                ..Doc::new(format!("k{n:04}"), 1 + round * 1_000 + n)
            })
            .collect();
        let batch: Vec<Mutation<'_>> = docs.iter().map(Doc::mutation).collect();
        let (breaks, mut documents_between) = (std::cell::Cell::new(0), Vec::new());
        let mut observe =
            |_: kedge_couchstore::SavedChange<'_>| documents_between.push(breaks.get());
        let mut between = || breaks.set(breaks.get() + 1);
        writer
            .save_with_breaks(&batch, &mut observe, &mut between)
            .expect("save");
        writer.commit(1 + round).expect("commit");
        // 1 MB of bodies, the tree by id, and the tree by seqno with as many removals in the second round.
        let (first, last) = (documents_between[0], documents_between[999]);
        assert!(first >= 30, "{first}");
        assert!(last - first >= 30, "{first} {last}");
        let after = breaks.get() - last;
        assert!(after >= 30 * (1 + round), "{last} and {after} more");
        let expected = docs.len();
        assert_eq!(
            by_seqno(&open(&disk).expect("open")).expect("scan").len(),
            expected
        );
    }
}

#[test]
fn snapshot_outlives_the_name_of_its_file() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (0..500)
        .map(|n| Doc::new(format!("k{n:03}"), 1 + n))
        .collect();
    save(&mut writer, &docs).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = writer.snapshot();
    disk.remove(path()).expect("remove");
    assert_eq!(by_id(&snapshot).expect("scan"), docs);
    assert!(open(&disk).expect_err("it is gone").is_not_found());
}

#[test]
fn readers_and_a_writer_share_a_file() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(std::path::Path::new("/data"))
        .expect("a directory");
    let mut writer = create(&disk);
    let mut snapshots: Vec<(u64, Snapshot)> = Vec::new();
    for round in 0..20_u64 {
        let docs: Vec<Doc> = (0..100)
            .map(|n| {
                Doc::new(
                    format!("k{:03}", (n * 13 + round * 7) % 500),
                    round * 100 + n + 1,
                )
            })
            .collect();
        save(&mut writer, &docs).expect("save");
        for (count, snapshot) in &snapshots {
            assert_eq!(by_id(snapshot).expect("scan").len() as u64, *count);
        }
        writer.commit(round).expect("commit");
        let snapshot = writer.snapshot();
        snapshots.push((snapshot.header().live_count(), snapshot));
    }
}

#[test]
fn resume_continues_after_a_snapshot_without_a_sync() {
    let disk = disk(1);
    let mut writer = create(&disk);
    let mut all: Vec<Doc> = (1..=200).map(|n| Doc::new(format!("k{n:04}"), n)).collect();
    save(&mut writer, &all).expect("save");
    writer.commit(1).expect("commit");
    let mut snapshot = writer.snapshot();
    drop(writer);
    for n in 1..=20 {
        let before = disk.operations();
        let mut writer = Writer::resume(&snapshot).expect("it goes on");
        assert_eq!(disk.operations(), before);
        let more: Vec<Doc> = (1..=10)
            .map(|m| Doc::new(format!("k{:04}", n * 7 + m * 3), 200 + n * 10 + m))
            .collect();
        save(&mut writer, &more).expect("save");
        all.retain(|doc| more.iter().all(|new| new.key != doc.key));
        all.extend(more);
        writer.commit(n).expect("commit");
        assert!(disk.operations() <= before + 5);
        snapshot = writer.snapshot();
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    let opened = open(&disk).expect("open");
    opened.check(&mut |_| {}).expect("sound");
    assert_eq!(by_id(&opened).expect("scan"), all);
    assert_eq!(by_id(&snapshot).expect("scan"), all);
    assert_eq!(snapshot.header(), opened.header());
    assert!(
        snapshot.memory_bytes() > opened.memory_bytes(),
        "it has nodes in memory"
    );
}

#[test]
fn cached_nodes_of_unwritten_data_are_discarded() {
    for room in [0, 3000, 20_000, 40_000] {
        let disk = disk(2);
        let mut writer = create(&disk);
        let first: Vec<Doc> = (1..=500).map(|n| Doc::new(format!("k{n:04}"), n)).collect();
        save(&mut writer, &first).expect("save");
        writer.commit(1).expect("commit");
        let snapshot = writer.snapshot();
        drop(writer);
        // Some fail in the middle, some are discarded with all data in the buffer, some with all data in the file.
        disk.set_capacity(Some(disk.used_bytes() + room));
        for step in 0..3 {
            let mut lost = Writer::resume(&snapshot).expect("it goes on");
            let batch: Vec<Doc> = (1..=300)
                .map(|n| Doc::new(format!("x{:04}", n * (step + 1)), 600 + n))
                .collect();
            let saved = save(&mut lost, &batch);
            if step == 1 {
                let _ = saved.and_then(|()| lost.sync());
            }
        }
        disk.set_capacity(None);
        let mut writer = Writer::resume(&snapshot).expect("it goes on");
        let second: Vec<Doc> = (1..=300)
            .map(|n| Doc::new(format!("y{n:04}"), 600 + n))
            .collect();
        save(&mut writer, &second).expect("save");
        writer.commit(2).expect("commit");
        let all = [first, second].concat();
        for snapshot in [writer.snapshot(), open(&disk).expect("open")] {
            snapshot.check(&mut |_| {}).expect("sound");
            for doc in &all {
                let entry = snapshot.get(&doc.key).expect("sound").expect("it is there");
                assert_eq!(entry.seqno().0, doc.seqno);
            }
            assert_eq!(by_id(&snapshot).expect("scan"), all);
        }
    }
}

#[test]
fn open_at_a_known_header() {
    let disk = disk(3);
    let mut writer = create(&disk);
    let docs: Vec<Doc> = (1..=50).map(|n| Doc::new(format!("k{n:04}"), n)).collect();
    save(&mut writer, &docs[..20]).expect("save");
    writer.commit(1).expect("commit");
    let first = writer.header().clone();
    save(&mut writer, &docs[20..]).expect("save");
    writer.commit(2).expect("commit");
    let options = Options::default();
    for (header, count) in [(&first, 20), (writer.header(), 50)] {
        let snapshot = Snapshot::open_at(&disk, path(), &options, header).expect("open");
        assert_eq!(by_id(&snapshot).expect("scan"), docs[..count]);
    }
    // Another file of that name.
    disk.remove(path()).expect("remove");
    let mut other = create(&disk);
    other.commit(7).expect("commit");
    for header in [&first, writer.header()] {
        let error = Snapshot::open_at(&disk, path(), &options, header).expect_err("another file");
        assert!(error.is_damage(), "{error}");
    }
}

#[test]
fn commits_with_shared_syncs_become_visible_together() {
    let disk = disk(1);
    let mut writer = create(&disk);
    save(&mut writer, &[Doc::new("a", 1)]).expect("save");
    writer.commit(1).expect("commit");
    for (key, seqno) in [("b", 2), ("c", 3)] {
        save(&mut writer, &[Doc::new(key, seqno)]).expect("save");
        writer.commit_later(seqno).expect("commit");
        writer.begin_sync();
        // A concurrent reader may see it, but an open of the file does not.
        assert_eq!(
            by_seqno(&writer.snapshot()).expect("scan").len(),
            seqno as usize
        );
        assert_eq!(
            by_seqno(&open(&disk).expect("open")).expect("scan").len(),
            1
        );
    }
    writer.make_durable().expect("sync");
    let before = disk.operations();
    writer.make_durable().expect("there is nothing to do");
    assert_eq!(disk.operations(), before);
    let snapshot = open(&disk).expect("open");
    let seqnos: Vec<_> = snapshot
        .history()
        .map(|found| found.expect("a header").header().update_seqno())
        .collect();
    assert_eq!(seqnos, [3, 2, 1, 0].map(Seqno));
    snapshot.check(&mut |_| {}).expect("sound");
    // Commits that were not made durable never existed.
    save(&mut writer, &[Doc::new("d", 4)]).expect("save");
    writer.commit_later(4).expect("commit");
    drop(writer);
    let mut writer = Writer::open(&disk, path(), &Options::default()).expect("open");
    assert_eq!(writer.update_seqno(), Seqno(3));
    save(&mut writer, &[Doc::new("e", 4)]).expect("save");
    writer.commit(5).expect("commit");
    let found = by_seqno(&open(&disk).expect("open")).expect("scan");
    assert_eq!(found.len(), 4);
}
