//! vBuckets whose files cannot be read at the start.

use crate::tools::*;
use kedge_bucket::Bucket;
use kedge_disk::{Disk, SimDisk, read_file, replace_file};
use kedge_types::{Status, VbId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of a document of this vBucket.
fn name(vb: VbId, what: &str) -> String {
    let mut names = (0..).map(|n| format!("{what}-{n}"));
    names.find(|name| key(name).vbucket(4) == vb).unwrap()
}

/// A bucket with one document in each file and one more in the log, killed; and the first file.
fn with_files_and_log(place: &Place, disk: &SimDisk) -> PathBuf {
    let open = place.open();
    for vb in all_vbuckets() {
        open.set(&name(vb, "settled"), b"1").unwrap();
    }
    open.bucket.settle().unwrap();
    for vb in all_vbuckets() {
        open.set(&name(vb, "logged"), b"2").unwrap();
    }
    open.bucket.sync().unwrap();
    open.bucket.shutdown_within(Duration::ZERO);
    let first = place.dir.join("0.couch.1");
    assert!(disk.exists(&first).unwrap());
    first
}

#[test]
fn a_vbucket_whose_file_cannot_be_read_is_set_aside_and_nothing_of_it_is_lost() {
    let wrecks: [fn(&SimDisk, &Path); 2] = [
        |disk, file| disk.make_unreadable(file, 4_100),
        |disk, file| {
            // But the bytes that say which blocks are headers.
            for offset in (0..disk.len(file).unwrap()).filter(|offset| offset % 4_096 > 0) {
                disk.flip(file, offset, 0xff);
            }
        },
    ];
    for wreck in wrecks {
        let disk = SimDisk::new(13);
        let place = sim(&disk);
        let first = with_files_and_log(&place, &disk);
        let whole = read_file(&disk, &first).unwrap();
        wreck(&disk, &first);
        for _ in 0..2 {
            let open = place.open();
            assert_eq!(open.figure("ep_vb_set_aside"), 1);
            let refused = open.get(&name(VbId(0), "settled"));
            assert_eq!(refused, Err(Status::TemporaryFailure));
            let refused = open.set(&name(VbId(0), "new"), b"3").map(drop);
            assert_eq!(refused, Err(Status::TemporaryFailure));
            assert_eq!(
                open.bucket.flush_all(open.ctx()),
                Err(Status::TemporaryFailure)
            );
            for vb in all_vbuckets().skip(1) {
                for key in ["settled", "logged"] {
                    assert!(open.get(&name(vb, key)).is_ok(), "{vb} {key}");
                }
                open.set(&name(vb, "new"), b"3").unwrap();
            }
            open.bucket.settle().unwrap();
            open.bucket.shutdown();
        }
        // The file is brought back.
        disk.remove(&first).unwrap();
        replace_file(&disk, &first, &whole).unwrap();
        let open = place.open();
        assert_eq!(open.figure("ep_vb_set_aside"), 0);
        for key in ["settled", "logged"] {
            assert!(open.get(&name(VbId(0), key)).is_ok(), "{key}");
        }
        open.bucket.shutdown();
    }
}

#[test]
fn a_log_is_not_given_up_for_a_file_that_cannot_be_read() {
    let disk = SimDisk::new(14);
    let mut place = sim(&disk);
    let first = with_files_and_log(&place, &disk);
    disk.make_unreadable(&first, 4_100);
    place.config.commit_log = false;
    let bucket = Bucket::open(place.setup(&Arc::new(Sink::default()))).unwrap();
    let why = bucket.wait_loaded().unwrap_err().to_string();
    bucket.shutdown();
    assert!(why.contains("could not be written into the files"), "{why}");
    place.config.commit_log = true;
    let open = place.open();
    assert!(open.get(&name(VbId(1), "logged")).is_ok());
    open.bucket.shutdown();
}
