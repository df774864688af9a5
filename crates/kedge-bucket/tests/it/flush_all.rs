//! Emptying a bucket, by a task.

use crate::tools::*;
use kedge_bucket::BucketChange;
use kedge_disk::SimDisk;
use kedge_executor::Pool;
use kedge_types::Status;
use std::sync::{Arc, Mutex};

type Told = Arc<Mutex<Option<Result<(), Status>>>>;

/// Has the bucket emptied; what comes of it is told there.
fn begin(open: &Open) -> (Result<(), Status>, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    let begun = open.bucket.begin_flush_all(open.ctx(), move |result| {
        *tell.lock().unwrap() = Some(result);
    });
    (begun, told)
}

#[test]
fn a_flush_is_the_work_of_auxio_and_on_disk_when_it_is_told() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(1);
        let mut place = sim(&disk);
        place.config.commit_log = commit_log;
        let (open, steps) = place.open_by_hand();
        for n in 0..50 {
            open.set(&format!("key-{n}"), b"1").unwrap();
        }
        open.bucket.settle().unwrap();
        steps.run();
        let before = disk.operations();
        let (begun, told) = begin(&open);
        assert_eq!(begun, Ok(()));
        // Whoever asked for it goes on with something else.
        assert_eq!(disk.operations(), before);
        assert_eq!(open.get("key-1").unwrap(), b"1");
        assert_eq!(*told.lock().unwrap(), None);
        let tasks = open.executor.tasks();
        let task = tasks.iter().find(|task| task.kind == "bucket_flush");
        assert_eq!(task.unwrap().pool, Pool::AuxIo);
        while told.lock().unwrap().is_none() {
            assert!(steps.run_one(Pool::AuxIo));
        }
        assert_eq!(*told.lock().unwrap(), Some(Ok(())));
        assert_eq!(open.get("key-1"), Err(Status::KeyNotFound));
        disk.crash(2);
        let (again, _steps) = place.open_by_hand();
        assert_eq!(again.bucket.wait_loaded().unwrap().documents, 0);
        again.bucket.shutdown();
        open.bucket.shutdown();
    }
}

#[test]
fn a_flush_that_is_not_allowed_is_refused_at_once() {
    let (open, steps) = sim(&SimDisk::new(3)).open_by_hand();
    open.set("key", b"1").unwrap();
    let change = BucketChange {
        flush_enabled: Some(false),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let (begun, told) = begin(&open);
    assert_eq!(begun, Err(Status::NotSupported));
    steps.run();
    assert_eq!(*told.lock().unwrap(), None);
    assert_eq!(open.get("key").unwrap(), b"1");
    open.bucket.shutdown();
}

#[test]
fn who_waits_for_a_flush_hears_that_the_bucket_has_ended() {
    let (open, _steps) = sim(&SimDisk::new(4)).open_by_hand();
    let (begun, told) = begin(&open);
    assert_eq!(begun, Ok(()));
    open.bucket.shutdown();
    assert_eq!(*told.lock().unwrap(), Some(Err(Status::TemporaryFailure)));
}
