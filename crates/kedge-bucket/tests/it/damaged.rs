//! vBuckets whose files are damaged in parts that only changes read. Such a file can be opened and served.

use crate::tools::*;
use kedge_bucket::CompactionRequest;
use kedge_disk::{Disk, SimDisk, read_file};
use kedge_types::VbId;
use std::path::{Path, PathBuf};

const FIRST: VbId = VbId(0);

/// Returns the name of a document of the first vBucket.
fn name(what: &str) -> String {
    let mut names = (0..).map(|n| format!("{what}-{n}"));
    names.find(|name| key(name).vbucket(4) == FIRST).unwrap()
}

/// Damages the root of the by-id tree in a couchstore file, see `docs/reference/formats/couchstore.md`.
fn damage_root_by_id(disk: &SimDisk, path: &Path) {
    let bytes = read_file(disk, path).unwrap();
    let blocks = (0..bytes.len()).step_by(4_096);
    let header = blocks.rev().find(|at| bytes[*at] == 1).unwrap();
    let body = &bytes[header + 9..];
    let fixed = match body[0] {
        ..13 => 25,
        13 => 33,
        14.. => 39,
    };
    let by_seqno_bytes = usize::from(u16::from_be_bytes([body[19], body[20]]));
    let root = &body[fixed + by_seqno_bytes..][..6];
    let root = root.iter().fold(0, |at, byte| at << 8 | u64::from(*byte));
    // After its length and its checksum; the first byte of a block is not part of it.
    let at = (root + 9..).find(|at| at % 4_096 > 0).unwrap();
    disk.flip(path, at, 0xff);
}

/// Creates a bucket with documents in all files, damages the first file, and shuts the bucket down.
fn damaged(disk: &SimDisk, has_log: bool) -> (TestSite, PathBuf) {
    let mut site = sim(disk);
    site.config.commit_log = has_log;
    let (open, steps) = site.open_with_manual_tasks();
    for vb in all_vbuckets() {
        for name in names_in(vb).take(5) {
            open.set(&name, b"old").unwrap();
        }
    }
    steps.pass(SEC * 30);
    open.bucket.shutdown();
    let file = site.dir.join("0.couch.1");
    damage_root_by_id(disk, &file);
    (site, file)
}

/// Bug: with a damaged root of the by-id tree, writes succeeded and stayed in the log forever. Nothing reported that, or that a
/// compaction rebuilds the tree.
#[test]
fn damaged_by_id_tree_is_reported_and_rebuilt_by_compaction() {
    for has_log in [true, false] {
        let disk = SimDisk::new(31);
        let (mut site, file) = damaged(&disk, has_log);
        let (open, steps) = site.open_with_manual_tasks();
        assert_eq!(
            open.figure("ep_vb_quarantined"),
            0,
            "the file can be opened"
        );
        assert_eq!(open.figure("ep_vb_damaged"), 0);
        let new = name("new");
        open.set(&new, b"new").unwrap();
        steps.pass(SEC * 30);
        assert_eq!(open.figure("ep_vb_damaged"), 1);
        assert!(open.sink.fatal().is_empty(), "{:?}", open.sink.fatal());
        assert_eq!(open.get(&new).unwrap(), b"new");
        let before = disk.len(&file).unwrap();
        steps.pass(SEC * 600);
        assert_eq!(open.figure("ep_vb_damaged"), 1, "nothing else helps");
        assert_eq!(disk.len(&file).unwrap(), before);
        let request = CompactionRequest {
            vbuckets: Some(vec![FIRST]),
            ..CompactionRequest::default()
        };
        open.bucket
            .persistence()
            .compactions()
            .compact(&request)
            .unwrap();
        steps.pass(SEC * 30);
        assert_eq!(open.figure("ep_vb_damaged"), 0, "log: {has_log}");
        assert!(!disk.exists(&file).unwrap(), "there is a new one");
        open.bucket.shutdown();
        assert_eq!(open.bucket.unclean(), None);
        disk.crash(1);
        let (open, _steps) = site.open_with_manual_tasks();
        assert_eq!(open.get(&new).unwrap(), b"new");
        for name in names_in(FIRST).take(5) {
            assert_eq!(open.get(&name).unwrap(), b"old");
        }
        open.bucket.shutdown();
    }
}

/// Bug: the bucket "could not be closed cleanly", and the server reported success.
#[test]
fn shutdown_that_leaves_changes_of_a_damaged_file_in_the_log_is_unclean() {
    let disk = SimDisk::new(32);
    let (mut site, _) = damaged(&disk, true);
    let new = name("new");
    for round in 0..2 {
        let (open, _steps) = site.open_with_manual_tasks();
        if round == 0 {
            open.set(&new, b"new").unwrap();
        }
        assert_eq!(open.get(&new).unwrap(), b"new", "it is in the log");
        assert_eq!(open.bucket.unclean(), None);
        open.bucket.shutdown();
        let why = open.bucket.unclean().expect("it is not in the file");
        assert!(why.contains("could not be applied to the files"), "{why}");
    }
}
