//! Sources with correct checksums and contradictory contents: no target is made of them.

use std::path::Path;

use kedge_disk::SimDisk;
use kedge_types::Seqno;

use super::*;
use crate::DamageKind;
use crate::format::bytes::be48;
use crate::format::entry::EntryFields;
use crate::tree::build::{NodeSizes, TreeBuilder};
use crate::tree::{ById, BySeqno};

const SOURCE: &str = "/data/0.couch.1";

/// An entry of either tree: key, seqno, length of private metadata.
type Made<'a> = (&'a [u8], u64, usize);

fn fields(seqno: u64) -> EntryFields {
    EntryFields {
        seqno,
        rev: 1,
        body: 0,
        body_bytes: 0,
        deleted: false,
        content_meta: 3,
    }
}

/// Creates a file with exactly these entries in its trees.
fn source(by_seqno: &[Made<'_>], by_id: &[Made<'_>]) -> (Arc<dyn Disk>, Snapshot) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    disk.create_dir_all(Path::new("/data")).expect("create");
    let (path, options) = (Path::new(SOURCE), Options::default());
    let mut writer =
        Writer::create_target(&*disk, path, &CreateOptions::default(), &options).expect("create");
    let mut seqnos = TreeBuilder::<BySeqno>::new(&mut writer.out, NodeSizes::UPDATE);
    for (key, seqno, meta_bytes) in by_seqno {
        let push = seqnos.push(&be48(*seqno), |value| {
            fields(*seqno).put_seqno(key.len(), value);
            value.extend_from_slice(key);
            value.resize(value.len() + meta_bytes, 7);
        });
        push.expect("push");
    }
    writer.draft.by_seqno = seqnos.finish().expect("finish");
    let mut ids = TreeBuilder::<ById>::new(&mut writer.out, NodeSizes::UPDATE);
    for (key, seqno, meta_bytes) in by_id {
        let push = ids.push(key, |value| {
            fields(*seqno).put_id(value);
            value.resize(value.len() + meta_bytes, 7);
        });
        push.expect("push");
    }
    writer.draft.by_id = ids.finish().expect("finish");
    writer.draft.update_seqno = Seqno(9);
    writer.commit(1).expect("commit");
    let source = Snapshot::open(&*disk, path, &options).expect("open");
    (disk, source)
}

fn compacted(by_seqno: &[Made<'_>], by_id: &[Made<'_>]) -> Result<CopyProgress, Error> {
    let (disk, source) = source(by_seqno, by_id);
    let target = target_path(Path::new(SOURCE));
    let settings = CompactionSettings {
        memory_bytes: 1,
        ..CompactionSettings::default()
    };
    let result = Compaction::run(&disk, &source, &target, &settings, &mut KeepAll);
    if result.is_err() {
        assert!(!disk.exists(&target).expect("exists"));
    }
    result?.finish()
}

#[track_caller]
fn differ(result: Result<CopyProgress, Error>, seqno: u64) {
    let error = result.expect_err("the trees differ");
    assert!(
        matches!(&error, Error::Corrupt { file, problem: DamageKind::TreesDiffer(at), .. }
            if file == Path::new(SOURCE) && *at == seqno),
        "{error}"
    );
}

#[test]
fn consistent_trees_are_copied() {
    let entries: [Made<'_>; 2] = [(b"a", 3, 18), (b"b", 9, 18)];
    assert_eq!(compacted(&entries, &entries).expect("compact").kept, 2);
}

#[test]
fn document_missing_in_the_tree_by_seqno_is_reported() {
    let by_id: [Made<'_>; 2] = [(b"a", 3, 18), (b"b", 4, 18)];
    differ(compacted(&by_id[..1], &by_id), 0);
    differ(compacted(&[], &by_id), 0);
    differ(compacted(&by_id, &by_id[..1]), 0);
}

#[test]
fn two_seqnos_with_one_key_are_reported() {
    let by_id: [Made<'_>; 3] = [(b"a", 3, 18), (b"b", 4, 18), (b"c", 5, 18)];
    differ(
        compacted(&[(b"a", 3, 18), (b"b", 4, 18), (b"a", 5, 18)], &by_id),
        5,
    );
}

#[test]
fn seqno_above_the_headers_is_reported() {
    let entries: [Made<'_>; 1] = [(b"a", 10, 18)];
    differ(compacted(&entries, &entries), 10);
}

#[test]
fn entries_that_no_target_can_hold_are_rejected() {
    let entries: [Made<'_>; 2] = [(b"a", 3, 18), (b"b", 4, 4097)];
    let error = compacted(&entries, &entries).expect_err("too long");
    assert!(matches!(
        error,
        Error::Refused(InvalidBatch::ValueLength(1))
    ));
    let entries: [Made<'_>; 1] = [(b"", 3, 18)];
    let error = compacted(&entries, &entries).expect_err("no key");
    assert!(matches!(error, Error::Refused(InvalidBatch::KeyLength(0))));
}
