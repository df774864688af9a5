//! One script, run on the real disk, on the simulated one, and on an observed one.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, ObservedDisk, PosixDisk, SimDisk, read_file, replace_file};

use crate::observed::Seen;

fn on_all(script: impl Fn(&dyn Disk, &Path)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    script(&PosixDisk, dir.path());
    let sim = SimDisk::new(1);
    sim.create_dir_all(Path::new("/data")).expect("create");
    script(&sim, Path::new("/data"));
    let below = Arc::new(SimDisk::new(1));
    below.create_dir_all(Path::new("/data")).expect("create");
    let observed = ObservedDisk::<Seen>::new(below, Arc::default());
    script(&observed, Path::new("/data"));
}

#[test]
fn written_bytes_are_read_back_and_gaps_are_zero() {
    on_all(|disk, dir| {
        let path = dir.join("file");
        let file = disk.create(&path).expect("create");
        assert!(file.is_empty().expect("length"));
        file.write_at(b"tail", 1000).expect("write");
        file.write_at(b"head", 0).expect("write");
        file.sync_data().expect("sync");
        file.sync_all().expect("sync");
        assert_eq!(file.len().expect("length"), 1004);
        assert_eq!(disk.len(&path).expect("length"), 1004);
        let bytes = read_file(disk, &path).expect("read");
        assert_eq!(&bytes[..4], b"head");
        assert_eq!(bytes[4..1000], [0; 996]);
        assert_eq!(&bytes[1000..], b"tail");

        let mut buf = [0; 5];
        let error = file.read_at(&mut buf, 1000).expect_err("past the end");
        assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(error.offset, Some(1000));
        assert!(error.to_string().contains("file at byte 1000"), "{error}");
    });
}

#[test]
fn set_len_and_allocate_change_the_length() {
    on_all(|disk, dir| {
        let file = disk.create(&dir.join("file")).expect("create");
        file.write_at(&[7; 600], 0).expect("write");
        file.allocate(8192).expect("allocate");
        assert_eq!(file.len().expect("length"), 8192);
        file.allocate(4096)
            .expect("a shorter reservation changes nothing");
        assert_eq!(file.len().expect("length"), 8192);
        file.set_len(10).expect("cut");
        file.set_len(20).expect("extend");
        let bytes = read_file(disk, &dir.join("file")).expect("read");
        assert_eq!(bytes[..10], [7; 10]);
        assert_eq!(bytes[10..], [0; 10]);
    });
}

#[test]
fn files_are_created_renamed_and_removed() {
    on_all(|disk, dir| {
        disk.create_dir_all(&dir.join("a/b"))
            .expect("create directories");
        disk.create_dir_all(&dir.join("a/b")).expect("once more");
        let dir = dir.join("a/b");
        disk.create(&dir.join("two"))
            .expect("create")
            .write_at(b"2", 0)
            .expect("write");
        disk.create(&dir.join("one"))
            .expect("create")
            .write_at(b"1", 0)
            .expect("write");
        assert_eq!(disk.list(&dir).expect("list"), ["one", "two"]);
        disk.rename(&dir.join("one"), &dir.join("two"))
            .expect("rename");
        disk.sync_dir(&dir).expect("sync");
        assert_eq!(disk.list(&dir).expect("list"), ["two"]);
        assert_eq!(read_file(disk, &dir.join("two")).expect("read"), b"1");
        assert!(disk.exists(&dir.join("two")).expect("exists"));
        disk.remove(&dir.join("two")).expect("remove");
        assert!(!disk.exists(&dir.join("two")).expect("exists"));
        for error in [
            disk.open(&dir.join("two")).map(drop).expect_err("gone"),
            disk.remove(&dir.join("two")).expect_err("gone"),
            disk.rename(&dir.join("two"), &dir.join("x"))
                .expect_err("gone"),
            disk.len(&dir.join("two")).expect_err("gone"),
            disk.list(&dir.join("none")).expect_err("no directory"),
        ] {
            assert!(error.is_not_found(), "{error}");
        }
        disk.create(&dir.join("three")).expect("create");
        disk.remove_dir_all(&dir).expect("remove directory");
        disk.remove_dir_all(&dir)
            .expect("a missing one is no error");
        assert!(!disk.exists(&dir).expect("exists"));
    });
}

#[test]
fn create_truncates_and_replace_file_is_atomic() {
    on_all(|disk, dir| {
        let path = dir.join("file");
        replace_file(disk, &path, b"first, the longer").expect("replace");
        replace_file(disk, &path, b"second").expect("replace");
        assert_eq!(read_file(disk, &path).expect("read"), b"second");
        assert_eq!(disk.list(dir).expect("list"), ["file"]);
        disk.create(&path).expect("create");
        assert_eq!(read_file(disk, &path).expect("read"), b"");
    });
}

#[test]
fn directory_lock_is_exclusive() {
    on_all(|disk, dir| {
        let lock = disk.lock_dir(dir).expect("lock");
        let error = disk.lock_dir(dir).expect_err("taken");
        assert!(error.is_locked(), "{error}");
        assert!(error.to_string().contains("another process"), "{error}");
        drop(lock);
        drop(disk.lock_dir(dir).expect("free again"));
        assert!(disk.free_bytes(dir).expect("free bytes") > 0);
    });
}
