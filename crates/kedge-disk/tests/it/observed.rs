//! The calls that an observer of a disk sees, and its power to reject them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kedge_disk::{
    Disk, DiskCall, DiskError, DiskObserver, Fault, File, ObservedDisk, Operation, SimDisk,
    read_file,
};

/// Records the calls.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    lines: Mutex<Vec<String>>,
    refused: Mutex<Option<Operation>>,
}

impl Seen {
    fn add(&self, line: String) {
        self.lines.lock().expect("nobody panicked").push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().expect("nobody panicked"))
    }

    fn refuse(&self, operation: Option<Operation>) {
        *self.refused.lock().expect("nobody panicked") = operation;
    }
}

impl DiskObserver for Seen {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let DiskCall {
            operation, bytes, ..
        } = asked;
        let path = asked.path.unwrap_or(Path::new("a file")).display();
        let line = format!("{operation} {path}, {bytes}");
        if *self.refused.lock().expect("nobody panicked") == Some(*operation) {
            self.add(format!("{line}: refused"));
            let refused = ErrorKind::PermissionDenied.into();
            return Err(DiskError::new(*operation, Path::new("refused"), refused));
        }
        let result = run();
        let end = if result.is_ok() { "" } else { ": failed" };
        self.add(format!("{line}{end}"));
        result
    }

    fn on_close(&self) {
        self.add("close".to_owned());
    }
}

struct Rig {
    below: SimDisk,
    disk: ObservedDisk<Seen>,
}

impl Rig {
    /// Takes the calls since the last time.
    fn take(&self) -> Vec<String> {
        self.disk.observer().take()
    }
}

fn rig() -> Rig {
    let below = SimDisk::new(1);
    let disk = ObservedDisk::new(Arc::new(below.clone()), Arc::default());
    disk.create_dir_all(Path::new("/d")).expect("create");
    let rig = Rig { below, disk };
    assert_eq!(rig.take(), ["create directory /d, 0"]);
    rig
}

/// A file `/d/a` of eight bytes.
fn file(rig: &Rig) -> Box<dyn File> {
    let file = rig.disk.create(Path::new("/d/a")).expect("create");
    file.write_at(b"12345678", 0).expect("write");
    assert_eq!(rig.take(), ["create /d/a, 0", "write a file, 8"]);
    file
}

#[test]
fn observer_sees_each_operation_on_a_file() {
    let rig = rig();
    let file = file(&rig);
    file.read_at(&mut [0; 3], 0).expect("read");
    file.read_at(&mut [0; 3], 6).expect_err("past the end");
    file.sync_data().expect("sync");
    file.sync_all().expect("sync");
    file.allocate(100).expect("allocate");
    file.set_len(5).expect("cut");
    assert!(!file.is_empty().expect("length"));
    file.forget(0, 5);
    let seen = rig.take();
    assert_eq!(
        seen,
        [
            "read a file, 3",
            "read a file, 3: failed",
            "sync a file, 0",
            "sync a file, 0",
            "allocate space for a file, 0",
            "set length of a file, 0",
            "stat a file, 0",
        ]
    );
    drop(file);
    assert_eq!(rig.take(), ["close"]);
    assert_eq!(
        read_file(&rig.below, Path::new("/d/a")).expect("read"),
        b"12345"
    );
}

#[test]
fn observer_sees_each_operation_on_a_name() {
    let rig = rig();
    drop(file(&rig));
    let (disk, a, b) = (&rig.disk, Path::new("/d/a"), PathBuf::from("/d/b"));
    drop(disk.open(a).expect("open"));
    disk.open(&b).expect_err("none");
    assert_eq!(disk.len(a).expect("length"), 8);
    disk.rename(a, &b).expect("rename");
    assert!(disk.exists(&b).expect("exists"));
    assert_eq!(disk.list(Path::new("/d")).expect("list"), ["b"]);
    disk.sync_dir(Path::new("/d")).expect("sync");
    let lock = disk.lock_dir(Path::new("/d")).expect("lock");
    disk.free_bytes(Path::new("/d")).expect("free bytes");
    disk.remove(&b).expect("remove");
    drop(lock);
    disk.remove_dir_all(Path::new("/d")).expect("remove");
    assert_eq!(
        rig.take(),
        [
            "close",
            "open /d/a, 0",
            "close",
            "open /d/b, 0: failed",
            "stat /d/a, 0",
            "rename /d/a, 0",
            "stat /d/b, 0",
            "list /d, 0",
            "sync directory /d, 0",
            "lock /d, 0",
            "stat /d, 0",
            "remove /d/b, 0",
            "remove /d, 0",
        ]
    );
    assert!(!rig.below.exists(Path::new("/d")).expect("exists"));
}

#[test]
fn operation_that_the_observer_rejects_is_not_done() {
    let rig = rig();
    let file = file(&rig);
    let operations = rig.below.operations();
    rig.disk.observer().refuse(Some(Operation::Write));
    let error = file.write_at(b"no", 0).expect_err("refused");
    assert_eq!(error.source.kind(), ErrorKind::PermissionDenied);
    assert_eq!(rig.below.operations(), operations);
    rig.disk.observer().refuse(Some(Operation::Open));
    rig.disk.open(Path::new("/d/a")).expect_err("refused");
    rig.disk.observer().refuse(None);
    rig.below.fail_next(Operation::Sync, Fault::Io);
    let error = file.sync_data().expect_err("the disk below fails");
    assert!(error.is_sync_failure(), "{error}");
    drop(file);
    // A file that was not opened is not closed.
    assert_eq!(
        rig.take(),
        [
            "write a file, 2: refused",
            "open /d/a, 0: refused",
            "sync a file, 0: failed",
            "close",
        ]
    );
}
