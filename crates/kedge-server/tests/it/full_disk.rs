//! Tests of starts on a full disk: the server starts, serves reads, and takes writes as soon as there is room.
//!
//! A full disk prevented a start, as the revision of the cluster map could not be saved; so did other writes of a
//! start: the marker of a bucket without a log, and the end of a log.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kedge_bucket::BucketConfig;
use kedge_disk::{DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, SimDisk};
use kedge_types::Status;

use crate::evicted::figure;
use crate::server::{Kedge, Setup};

/// A generous deadline.
const DEADLINE: Duration = Duration::from_secs(60);

/// A disk that is full from one operation on.
#[derive(Debug, Default)]
struct Filling {
    /// Number of operations that take space.
    asked: AtomicU64,
    /// Number of operations with room; 0 is no limit.
    room: AtomicU64,
    /// True if only one operation finds no room.
    once: AtomicBool,
}

impl DiskObserver for Filling {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let takes_space = matches!(
            asked.operation,
            Operation::Create
                | Operation::Write
                | Operation::SetLen
                | Operation::Allocate
                | Operation::Rename
        );
        if !takes_space {
            return run();
        }
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let room = self.room.load(Ordering::SeqCst);
        let is_last = self.once.load(Ordering::SeqCst) && number > room.saturating_add(1);
        if number <= room || is_last {
            return run();
        }
        let path = asked.path.map_or_else(PathBuf::new, PathBuf::from);
        Err(DiskError::new(
            asked.operation,
            &path,
            io::ErrorKind::StorageFull.into(),
        ))
    }
}

fn filling(disk: &SimDisk, room: u64, once: bool) -> Arc<ObservedDisk<Filling>> {
    let filling = Filling::default();
    filling.room.store(room, Ordering::SeqCst);
    filling.once.store(once, Ordering::SeqCst);
    Arc::new(ObservedDisk::new(Arc::new(disk.clone()), Arc::new(filling)))
}

fn setup(disk: Arc<dyn kedge_disk::Disk>, has_log: bool) -> Setup {
    let mut bucket = BucketConfig::new("default", 16, 64 << 20);
    bucket.commit_log = has_log;
    Setup {
        disk,
        bucket,
        ..Setup::default()
    }
}

/// A disk with a document of a server that was stopped or killed.
fn left(has_log: bool, clean: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let kedge = Kedge::with(setup(Arc::new(disk.clone()), has_log));
    kedge.client().set("key", b"value").ok();
    kedge
        .server()
        .registry()
        .get("default")
        .unwrap()
        .persistence()
        .sync()
        .unwrap();
    if clean {
        drop(kedge);
        return disk;
    }
    let left = disk.fork();
    left.kill_process();
    left
}

#[test]
fn server_starts_with_a_full_disk_at_any_operation() {
    for (has_log, clean) in [(true, true), (true, false), (false, true), (false, false)] {
        let left = left(has_log, clean);
        let disk = filling(&left.fork(), u64::MAX, false);
        let kedge = Kedge::with(setup(disk.clone(), has_log));
        let operations = disk.observer().asked.load(Ordering::SeqCst);
        drop(kedge);
        assert!(operations > 2, "a start writes: {operations}");
        for room in 0..=operations {
            for once in [false, true] {
                let what = format!("log: {has_log}, clean: {clean}, room: {room}, once: {once}");
                let copy = left.fork();
                let disk = filling(&copy, room, once);
                // Fails if the server does not start, or the bucket does not load.
                let kedge = Kedge::with(setup(disk.clone(), has_log));
                let mut client = kedge.client();
                assert_eq!(client.get("key").value, b"value", "{what}");
                // The write may be in memory only, or refused.
                let written = client.set("early", b"1").status;
                assert!(
                    matches!(written, Status::Success | Status::TemporaryFailure),
                    "{what}: {written:?}"
                );
                disk.observer().room.store(u64::MAX, Ordering::SeqCst);
                let bucket = kedge.server().registry().get("default").unwrap();
                let began = Instant::now();
                while client.set("late", b"2").status == Status::TemporaryFailure {
                    let figures = |name| figure(&bucket, name);
                    let now = ["ep_disk_full", "ep_disk_refuses", "ep_queue_size"].map(figures);
                    assert!(began.elapsed() < DEADLINE, "{what}: {now:?}");
                    std::thread::yield_now();
                }
                bucket
                    .persistence()
                    .sync()
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                drop(kedge);
                copy.crash(room);
                let again = Kedge::with(setup(Arc::new(copy), has_log));
                let mut client = again.client();
                assert_eq!(client.get("key").value, b"value", "{what}");
                assert_eq!(client.get("late").value, b"2", "{what}");
            }
        }
    }
}

/// A bucket whose log was disabled applies it to its files at the start, which takes space.
#[test]
fn disabled_log_is_kept_until_it_fits_into_the_files() {
    let disk = left(true, false);
    disk.set_capacity(Some(disk.used_bytes() + 4_096));
    let config = |has_log| setup(Arc::new(disk.clone()), has_log);
    let change = kedge_bucket::BucketChange {
        commit_log: Some(false),
        ..kedge_bucket::BucketChange::default()
    };
    let data_dir = PathBuf::from("/data");
    let stored = || kedge_node::registry::stored_config(&disk, &data_dir, "default");
    let is = stored().unwrap().unwrap();
    kedge_node::registry::change_stored(&disk, &data_dir, &is, &change).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let kedge = Kedge::with(config(false));
    assert_eq!(kedge.client().get("key").value, b"value");
    let has_log = || disk.used_bytes() > 1 << 20;
    assert!(has_log());
    let is_stored = stored().unwrap().unwrap().commit_log;
    assert!(!is_stored, "it is still wanted");
    disk.set_capacity(None);
    drop(kedge);
    let kedge = Kedge::with(config(false));
    assert_eq!(kedge.client().get("key").value, b"value");
    assert!(!has_log(), "{}", disk.used_bytes());
}
