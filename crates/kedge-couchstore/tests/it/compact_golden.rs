//! The compaction of Couchbase's own sample equals Couchbase's compaction of it.

use std::sync::Arc;

use kedge_couchstore::compact::{Compaction, CompactionSettings, KeepAll, target_path};
use kedge_couchstore::{Options, Snapshot};
use kedge_disk::{Disk, PosixDisk};

use crate::compact::content;
use crate::python;
use crate::support::golden_path;

#[test]
fn compaction_of_the_sample_equals_couchbases() {
    let expected = golden_path("s1k_10commits_compacted.couch.2");
    let expected = Snapshot::open(&PosixDisk, &expected, &Options::default()).expect("open");
    let source = golden_path("s1k_10commits.couch.1");
    let source = Snapshot::open(&PosixDisk, &source, &Options::default()).expect("open");
    let dir = tempfile::tempdir().expect("a directory");
    let target = target_path(&dir.path().join("0.couch.1"));
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk);
    for memory_bytes in [1, 16 << 20] {
        let settings = CompactionSettings {
            memory_bytes,
            ..CompactionSettings::default()
        };
        let compaction = Compaction::run(&disk, &source, &target, &settings, &mut KeepAll);
        compaction.expect("compact").finish().expect("finish");
        let found = Snapshot::open(&PosixDisk, &target, &Options::default()).expect("open");
        assert_eq!(content(&found), content(&expected));
        let (ours, theirs) = (found.header(), expected.header());
        assert_eq!(ours.version(), theirs.version());
        assert_eq!(ours.previous(), theirs.previous());
        assert_eq!(ours.body_bytes(), theirs.body_bytes());
        assert!(found.file_bytes().expect("a length") <= expected.file_bytes().expect("a length"));
        let bodies = |snapshot: &Snapshot| -> Vec<_> {
            let scan = snapshot.scan_seqnos(..).expect("scan");
            let scan = scan.with_bodies(kedge_couchstore::BodyForm::Stored);
            scan.map(|document| document.expect("a document").body)
                .collect()
        };
        assert_eq!(bodies(&found), bodies(&expected), "byte by byte");

        let path = target.to_str().expect("a path in UTF-8");
        if let Some(lines) = python::read(&["--check", path, "--every-header"]) {
            assert_eq!(lines[0]["live"], 1000);
            assert_eq!(lines[0]["headers"], 1);
            assert_eq!(lines[0]["damaged_headers"], serde_json::json!([]));
        }
        drop(found);
        std::fs::remove_file(&target).expect("remove");
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("list").collect();
        assert!(left.is_empty());
    }
}
